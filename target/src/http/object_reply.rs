//! The responses to a GET over v1: status, headers, and the body of an object in memory.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::Error;
use forebay_core::object::ObjectMeta;
use forebay_core::request::Caller;
use forebay_core::size::ByteRange;
use forebay_node::reply::Failure;
use forebay_v1::headers::{self as v1, Headers};

/// Headers of a GET response, so that their map need not grow.
const GET_HEADERS: usize = 12;

/// An object in memory, and its requested range.
pub(super) struct FastRead {
    pub(super) meta: ObjectMeta,
    pub(super) bytes: Bytes,
    pub(super) part: ByteRange,
    pub(super) is_part: bool,
}

impl FastRead {
    pub(super) fn response(&self, caller: Caller) -> Response {
        let mut response = without_body(caller, &self.meta, self.part, self.is_part);
        *response.body_mut() = Body::from(self.body());
        response
    }

    /// Writes the head of the response, without its end.
    pub(super) fn write_head(&self, out: &mut Vec<u8>, caller: Caller) {
        write_head(out, caller, &self.meta, self.part, self.is_part);
    }

    pub(super) fn body(&self) -> Bytes {
        self.bytes.slice(self.part.start as usize..self.part.end as usize)
    }
}

/// A response for bytes of an object, without a body.
pub(super) fn without_body(
    caller: Caller,
    meta: &ObjectMeta,
    bytes: ByteRange,
    is_part: bool,
) -> Response {
    let mut headers = HeaderMap::with_capacity(GET_HEADERS);
    write_headers(&mut headers, caller, meta, bytes, is_part);
    let mut response = Response::default();
    *response.headers_mut() = headers;
    *response.status_mut() = status_of(is_part);
    response
}

/// Writes the head of a response for bytes of an object, without its end.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    caller: Caller,
    meta: &ObjectMeta,
    bytes: ByteRange,
    is_part: bool,
) {
    let mut head = v1::HeadText::new(out, status_of(is_part));
    write_headers(&mut head, caller, meta, bytes, is_part);
}

fn status_of(is_part: bool) -> StatusCode {
    if is_part { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }
}

fn write_headers(
    headers: &mut impl Headers,
    caller: Caller,
    meta: &ObjectMeta,
    bytes: ByteRange,
    is_part: bool,
) {
    headers.text(&header::CONTENT_TYPE, b"application/octet-stream");
    headers.number(&header::CONTENT_LENGTH, bytes.len());
    headers.text(&header::ACCEPT_RANGES, b"bytes");
    v1::put_object_meta(headers, meta);
    match caller {
        Caller::Node => v1::put_node_meta(headers, meta),
        _ => v1::put_custom(headers, meta),
    }
    if is_part {
        let text = format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, meta.size);
        headers.text(&header::CONTENT_RANGE, text.as_bytes());
    }
}

/// The rejection of a range that begins behind the end of the object.
pub(super) fn not_satisfiable(error: Error, size: u64) -> Response {
    let mut response = Failure(error).into_response();
    v1::set(response.headers_mut(), "content-range", &format!("bytes */{size}"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_of_an_object(part: ByteRange, is_part: bool) -> FastRead {
        let bytes = Bytes::from_static(b"0123456789");
        let custom = [("color".to_owned(), "red".to_owned())].into();
        let meta = ObjectMeta {
            size: bytes.len() as u64,
            version: "7".into(),
            atime_ns: 5,
            custom,
            ..ObjectMeta::default()
        };
        FastRead { meta, bytes, part, is_part }
    }

    /// The lines of a head in the order of their text.
    fn lines(head: &str) -> Vec<&str> {
        let mut lines: Vec<_> = head.lines().collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn the_fast_connection_writes_the_head_that_a_response_has() {
        let reads = [
            part_of_an_object(ByteRange::whole(10), false),
            part_of_an_object(ByteRange { start: 2, end: 5 }, true),
        ];
        for (read, caller) in reads.iter().flat_map(|read| {
            [Caller::Client, Caller::Node, Caller::Anonymous].map(|caller| (read, caller))
        }) {
            let response = read.response(caller);
            let mut expected = format!("HTTP/1.1 {}\n", response.status());
            for (name, value) in response.headers() {
                expected
                    .push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
            }
            let mut written = Vec::new();
            read.write_head(&mut written, caller);
            assert_eq!(lines(&String::from_utf8_lossy(&written)), lines(&expected), "{caller:?}");
        }
    }

    #[test]
    fn a_response_to_a_range_has_its_bytes_and_its_position() {
        let read = part_of_an_object(ByteRange { start: 2, end: 5 }, true);
        let response = read.response(Caller::Client);
        assert_eq!(read.body(), "234");
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(response.headers()[header::CONTENT_LENGTH], "3");
        assert_eq!(response.headers()[header::CONTENT_RANGE], "bytes 2-4/10");
    }
}

//! Answers: JSON, text, and failures in the format of the API that was used.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::Error;
use serde::Serialize;

/// `Retry-After` of a 429 or 503 whose error names no time, in seconds.
const RETRY_AFTER_S: u32 = 1;

/// The time for `Retry-After` of an answer: the one that its error names, or a second for every other
/// 429 and 503.
pub(crate) fn retry_after(status: StatusCode, named_s: Option<u32>) -> Option<u32> {
    let is_temporary =
        matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    named_s.or(is_temporary.then_some(RETRY_AFTER_S))
}

/// Adds `Retry-After` unless the answer has it or needs none.
pub(crate) fn put_retry_after(response: &mut Response, named_s: Option<u32>) {
    if let Some(seconds) = retry_after(response.status(), named_s) {
        let headers = response.headers_mut();
        headers.entry(header::RETRY_AFTER).or_insert_with(|| HeaderValue::from(seconds));
    }
}

/// A failed request. Handlers return `Result<_, Failure>`; the listener writes the v1 body, because
/// it knows method, path and node.
#[derive(Clone, Debug)]
pub struct Failure(pub Error);

impl<E: Into<Error>> From<E> for Failure {
    fn from(e: E) -> Self {
        Self(e.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        put_retry_after(&mut response, self.0.retry_after_s);
        response.extensions_mut().insert(self.0);
        response
    }
}

/// 200 with compact JSON and a newline.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(mut text) => {
            text.push('\n');
            with_type("application/json; charset=utf-8", text)
        }
        Err(e) => {
            Failure(Error::internal(format!("answer does not serialize: {e}"))).into_response()
        }
    }
}

/// 200 with plain text, as it is.
pub fn text(text: impl Into<String>) -> Response {
    with_type("text/plain; charset=utf-8", text.into())
}

/// 200 with a body of the given media type.
pub fn with_type(content_type: &'static str, body: impl Into<Bytes>) -> Response {
    ([(header::CONTENT_TYPE, content_type)], body.into()).into_response()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::Method;
    use forebay_core::ErrorCode;
    use forebay_core::request::RequestId;

    use super::*;
    use crate::s3;

    fn named(response: &Response) -> Option<&str> {
        response.headers().get(header::RETRY_AFTER).map(|seconds| seconds.to_str().unwrap())
    }

    #[test]
    fn every_429_and_503_names_a_time_over_v1_and_s3() {
        use ErrorCode::{Timeout, TooManyRequests, Unavailable, WrongOwner};
        for code in [TooManyRequests, Unavailable, WrongOwner, Timeout] {
            for seconds in [None, Some(7)] {
                let error = Error { retry_after_s: seconds, ..Error::new(code, "x") };
                let of_s3 = s3::failure(RequestId(1), &error.clone().into(), &Method::GET, "/s3/b");
                for response in [Failure(error.clone()).into_response(), of_s3] {
                    let is_temporary = matches!(response.status().as_u16(), 429 | 503);
                    let wanted = seconds.or(is_temporary.then_some(1)).map(|s| s.to_string());
                    assert_eq!(named(&response), wanted.as_deref(), "{code:?} {response:?}");
                }
            }
        }
    }

    #[test]
    fn a_failure_that_does_not_pass_names_no_time() {
        let error = Error::new(ErrorCode::ObjectNotFound, "x");
        let of_s3 = s3::failure(RequestId(1), &error.clone().into(), &Method::GET, "/s3/b");
        for response in [Failure(error).into_response(), of_s3] {
            assert_eq!(named(&response), None, "{response:?}");
        }
    }

    #[test]
    fn an_answer_that_is_no_failure_of_ours_names_a_time_too() {
        let mut response = StatusCode::SERVICE_UNAVAILABLE.into_response();
        put_retry_after(&mut response, None);
        assert_eq!(named(&response), Some("1"));
        put_retry_after(&mut response, Some(5));
        assert_eq!(named(&response), Some("1"), "the first one stays");
        let mut response = StatusCode::OK.into_response();
        put_retry_after(&mut response, None);
        assert_eq!(named(&response), None);
    }
}

//! Tests the backend of HTTP origins on plain servers, with and without ranges, conditions and
//! versions.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::egress::Egress;
use forebay_core::error::ErrorCode;
use forebay_core::name::{Bucket, Provider};
use forebay_core::size::ByteRange;

use super::scripted::{self, Asked};
use super::{collect, failure, read};
use crate::origin::{OriginBackend, OriginSettings};
use crate::{Backend, BackendSettings, Backends, PutBody};

/// The features of a server beside sending a file.
#[derive(Clone, Copy)]
struct Knows {
    /// The status of its responses to HEAD, if HEAD is not supported.
    no_head: Option<u16>,
    ranges: bool,
    etag: bool,
}

fn settings() -> OriginSettings {
    OriginSettings { reach: Egress::Private, ..OriginSettings::default() }
}

pub(super) fn over(url: &str) -> OriginBackend {
    let bucket = Bucket::new(Provider::Ht, "far").unwrap();
    OriginBackend::new(bucket, Some(url), settings()).unwrap()
}

fn played(answer: impl Fn(&Asked) -> (String, String) + Send + 'static) -> OriginBackend {
    let (url, _) = scripted::serve(answer);
    over(&format!("{url}/data"))
}

/// A server with one file, `dir/größe 1.txt`, with this content.
fn server(knows: Knows) -> OriginBackend {
    const FILE: &str = "0123456789";
    played(move |asked| {
        let (method, rest) = asked.line.split_once(' ').unwrap();
        let path = rest.split(' ').next().unwrap();
        if path != "/data/dir/gr%C3%B6%C3%9Fe%201.txt" {
            return ("404 X".into(), String::new());
        }
        if let (Some(status), "HEAD") = (knows.no_head, method) {
            return (format!("{status} X"), String::new());
        }
        let version = match knows.etag {
            true => "etag: \"v1\"",
            false => "last-modified: Sat, 21 Nov 2026 03:51:51 GMT",
        };
        let said = format!("{version}\r\ncontent-type: text/plain");
        let range = asked.headers.split("\r\nrange: bytes=").nth(1).filter(|_| knows.ranges);
        let Some(range) = range else { return (format!("200 OK\r\n{said}"), FILE.into()) };
        let (first, last) = range.split("\r\n").next().unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        if first >= FILE.len() {
            return ("416 X\r\ncontent-range: bytes */10".into(), String::new());
        }
        let last = last.min(FILE.len() - 1);
        let head = format!("206 X\r\n{said}\r\ncontent-range: bytes {first}-{last}/10");
        (head, FILE[first..=last].into())
    })
}

const NAME: &str = "dir/größe 1.txt";

#[tokio::test]
async fn files_and_ranges_are_read_from_every_kind_of_server() {
    for n in 0..16 {
        let no_head = [None, Some(403), Some(405), Some(501)][n >> 2];
        let knows = Knows { no_head, ranges: n & 1 == 0, etag: n & 2 == 0 };
        let origin = server(knows);
        origin.head_bucket().await.unwrap();
        let meta = origin.stat(NAME).await.unwrap();
        assert_eq!((meta.size, meta.content_type.as_deref()), (10, Some("text/plain")), "{n}");
        assert!(!meta.version.is_empty() && (meta.etag == "v1") == knows.etag, "{n}");
        assert_eq!(meta.mtime_ns, if knows.etag { 0 } else { 1_795_233_111_000_000_000 }, "{n}");
        assert_eq!(read(&origin, NAME).await.unwrap(), "0123456789");
        for (start, end) in [(0, 1), (3, 7), (9, 10), (8, 20)] {
            let range = ByteRange { start, end };
            let got = origin.get(NAME, Some(range), Some(&meta.version)).await.unwrap();
            assert_eq!((got.meta.size, got.range), (10, ByteRange { start, end: end.min(10) }));
            let expected = Bytes::from("0123456789").slice(start as usize..end.min(10) as usize);
            assert_eq!(collect(got.stream).await.unwrap(), expected, "{n}");
        }
        let beyond = origin.get(NAME, Some(ByteRange { start: 10, end: 11 }), None).await;
        assert_eq!(failure(beyond).code, ErrorCode::RangeNotSatisfiable, "{n}");
    }
}

#[tokio::test]
async fn another_version_is_not_taken_for_the_one_asked_for() {
    let origin = server(Knows { no_head: None, ranges: true, etag: true });
    let error = failure(origin.get(NAME, None, Some("v0")).await);
    assert_eq!(error.code, ErrorCode::ObjectChanged);
}

#[tokio::test]
async fn what_is_not_there_is_named_and_no_name_leads_out() {
    let origin = server(Knows { no_head: None, ranges: true, etag: true });
    let bucket = Bucket::new(Provider::Ht, "far").unwrap();
    for name in ["no/such", "../secret", "a/../../x"] {
        assert_eq!(failure(origin.stat(name).await), bucket.object_not_found(name));
        assert_eq!(failure(origin.get(name, None, None).await), bucket.object_not_found(name));
    }
}

#[tokio::test]
async fn an_origin_is_neither_written_nor_listed_and_says_what_to_do() {
    let origin = server(Knows { no_head: None, ranges: true, etag: true });
    for error in [
        failure(origin.put("x", PutBody::from_bytes("x")).await),
        failure(origin.delete("x").await),
        failure(origin.list("", "".into(), 1).await),
    ] {
        assert_eq!(error.code, ErrorCode::Unsupported, "{error}");
        assert!(error.message.contains("ht://far") && error.hint.is_some(), "{error}");
    }
}

#[tokio::test]
async fn refusals_say_what_is_at_fault() {
    for (status, code) in [
        (401, ErrorCode::AccessDenied),
        (403, ErrorCode::AccessDenied),
        (429, ErrorCode::TooManyRequests),
        (503, ErrorCode::Unavailable),
    ] {
        let origin = played(move |_| (format!("{status} X\r\nretry-after: 7"), String::new()));
        for error in [failure(origin.stat("x").await), failure(origin.get("x", None, None).await)] {
            assert_eq!(error.code, code, "{error}");
            assert!(error.message.contains("ht://far"), "{error}");
            let wait = code.is_transient().then_some(7);
            assert_eq!(error.retry_after_s, wait);
            let denied = code == ErrorCode::AccessDenied;
            assert_eq!(error.hint.unwrap().contains("no credentials"), denied);
        }
    }
}

fn backends(reach: Egress) -> Backends {
    let origin = OriginSettings { reach, ..OriginSettings::default() };
    let settings = BackendSettings { origin, ..BackendSettings::default() };
    Backends::new(settings, Arc::new(|_, _, _, _| {}))
}

#[tokio::test]
async fn private_addresses_are_closed_unless_they_are_opened() {
    let info = |endpoint: &str| {
        let bucket = Bucket::new(Provider::Ht, "inside").unwrap();
        let (kind, endpoint) = (BackendKind::Http, Some(endpoint.to_owned()));
        let spec = BackendSpec { endpoint, ..BackendSpec::new(kind, "") };
        BucketInfo::requested(bucket, Some(spec))
    };
    let inside = info("http://127.0.0.1:1/x");
    let error = failure(backends(Egress::Public).for_bucket(&inside).await);
    assert_eq!(error.code, ErrorCode::AccessDenied);
    assert!(backends(Egress::Private).for_bucket(&inside).await.is_ok());
    let metadata = info("http://169.254.169.254/latest");
    let error = failure(backends(Egress::Private).for_bucket(&metadata).await);
    assert_eq!(error.code, ErrorCode::AccessDenied);
}

//! Tests the backend of Google Cloud Storage on a real fake-gcs-server: the common guarantees and
//! its own. A scripted server plays the cases that the emulator lacks (rejections, lost sessions).

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::error::ErrorCode;
use forebay_core::name::{Bucket, Provider};
use forebay_core::size::ByteRange;
use md5::{Digest, Md5};

use super::fake_gcs::endpoint;
use super::scripted::{self, Asked};
use super::{Fixture, conformance, content, failure, list_all, read};
use crate::gcs::{GcsBackend, GcsClient, GcsClients, GcsSettings};
use crate::{Backend, BackendSettings, Backends, PutBody, RetryPolicy, content_headers};

fn quick() -> RetryPolicy {
    RetryPolicy { first_pause: Duration::from_millis(1), ..RetryPolicy::default() }
}

pub(super) fn settings(endpoint: &str) -> GcsSettings {
    GcsSettings {
        endpoint: Some(endpoint.into()),
        resumable_above: 6 << 20,
        chunk_size: 5 << 20,
        chunk_retry: quick(),
        ..GcsSettings::default()
    }
}

pub(super) struct Opened {
    client: Arc<GcsClient>,
    bucket: Bucket,
    pub(super) backend: GcsBackend,
}

/// A new bucket at the emulator.
pub(super) async fn open() -> Option<Opened> {
    open_with(settings).await
}

async fn open_with(settings: impl Fn(&str) -> GcsSettings) -> Option<Opened> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let endpoint = endpoint().await?;
    let client = GcsClients::new(settings(&endpoint)).client(None).await.unwrap();
    let name = format!("bucket-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let create = reqwest::Client::new().post(format!("{endpoint}/storage/v1/b"));
    let created = create.json(&serde_json::json!({ "name": name })).send().await.unwrap();
    assert!(created.status().is_success());
    let bucket = Bucket::new(Provider::Gcp, &name).unwrap();
    let backend = GcsBackend::new(Arc::clone(&client), bucket.clone(), &name);
    Some(Opened { client, bucket, backend })
}

async fn fixture() -> Option<Fixture> {
    fixture_with(settings).await
}

pub(super) async fn fixture_with(settings: impl Fn(&str) -> GcsSettings) -> Option<Fixture> {
    let opened = open_with(settings).await?;
    let missing_bucket = Bucket::new(Provider::Gcp, "no-such-bucket").unwrap();
    let missing = GcsBackend::new(opened.client, missing_bucket.clone(), "no-such-bucket");
    Some(Fixture {
        bucket: opened.bucket,
        backend: Arc::new(opened.backend),
        missing: Arc::new(missing),
        missing_bucket,
        large: 12 << 20,
        tells_missing_deletes: true,
        keeps_custom: true,
        keeps_content_type: false,
        keeps_folders: false,
        tells_times: true,
        _folder: None,
    })
}

// Content types are not tested: the emulator does not take them from where Google does.
conformance!(fixture);

#[tokio::test]
async fn md5_is_reported_and_a_wrong_one_is_rejected_by_google() {
    let Some(gcs) = open().await else { return };
    let md5 = |bytes: &[u8]| hex::encode(Md5::digest(bytes));
    for (name, size) in [("small", 1000), ("large", 12 << 20)] {
        let bytes = content(size, 1);
        let put = gcs.backend.put(name, PutBody::from_bytes(bytes.clone())).await.unwrap();
        assert_eq!(put.md5, Some(md5(&bytes)));
        assert_eq!(gcs.backend.stat(name).await.unwrap().md5, put.md5);
    }
    let mut body = PutBody::from_bytes("right");
    body.md5 = Some(md5(b"wrong"));
    let error = failure(gcs.backend.put("x", body.clone()).await);
    assert_eq!(error.code, ErrorCode::ChecksumMismatch, "{error}");
    assert_eq!(failure(gcs.backend.stat("x").await).code, ErrorCode::ObjectNotFound);
    body.md5 = Some(md5(b"right"));
    gcs.backend.put("x", body).await.unwrap();
}

#[tokio::test]
async fn an_object_as_large_as_its_chunks_is_whole() {
    let Some(gcs) = open().await else { return };
    for size in [10 << 20, (10 << 20) + 1, (15 << 20) - 1] {
        let bytes = content(size, 2);
        let put = gcs.backend.put("x", PutBody::from_bytes(bytes.clone())).await.unwrap();
        assert_eq!(put.size, size as u64);
        assert!(read(&gcs.backend, "x").await.unwrap() == bytes, "{size}");
    }
}

#[tokio::test]
async fn names_that_no_folder_could_hold_are_kept() {
    let Some(gcs) = open().await else { return };
    let names = ["a/", "a//b", "folder/", "folder/../up", "folder/./x", "folder/a"];
    for name in names {
        gcs.backend.put(name, PutBody::from_bytes(name)).await.unwrap();
        assert_eq!(read(&gcs.backend, name).await.unwrap(), name);
    }
    let listed: Vec<_> = list_all(&gcs.backend, "", 2).await.into_iter().map(|e| e.name).collect();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    for name in [".", ".."] {
        assert_eq!(failure(gcs.backend.stat(name).await), gcs.bucket.object_not_found(name));
        let error = failure(gcs.backend.get(name, None, None).await);
        assert_eq!(error, gcs.bucket.object_not_found(name));
        assert_eq!(failure(gcs.backend.delete(name).await).code, ErrorCode::ObjectNotFound);
        let error = failure(gcs.backend.put(name, PutBody::from_bytes("x")).await);
        assert_eq!(error.code, ErrorCode::InvalidName);
    }
}

pub(super) async fn scripted(
    answer: impl Fn(&Asked) -> (String, String) + Send + 'static,
) -> (GcsBackend, scripted::Seen) {
    let (endpoint, seen) = scripted::serve(answer);
    let client = GcsClients::new(settings(&endpoint)).client(None).await.unwrap();
    let bucket = Bucket::new(Provider::Gcp, "far").unwrap();
    (GcsBackend::new(client, bucket, "far"), seen)
}

#[tokio::test]
async fn a_read_tells_every_header_that_was_put_as_a_look_does() {
    let Some(gcs) = open().await else { return };
    let headers = content_headers(|name| {
        let value = match name {
            "content-encoding" => "br",
            "content-language" => "pl",
            "content-disposition" => "attachment; filename=\"x\"",
            _ => "public, max-age=60",
        };
        Some(value.to_owned())
    });
    for (name, size) in [("small", 1000), ("large", 7 << 20)] {
        let mut body = PutBody::from_bytes(content(size, 4));
        body.headers = headers.clone();
        gcs.backend.put(name, body).await.unwrap();
        assert_eq!(gcs.backend.stat(name).await.unwrap().headers, headers, "{name}");
        for range in [None, Some(ByteRange { start: 3, end: 9 })] {
            let got = gcs.backend.get(name, range, None).await.unwrap();
            assert_eq!(got.meta.headers, headers, "{name} {range:?}");
        }
    }
}

/// A response as Google sends it: with the encoding `identity`, several checksums, and a default
/// Cache-Control.
fn google_says(cache_control: &str, crc32c: &str, length: usize) -> String {
    format!(
        "200 OK\r\nx-goog-generation: 1795260811270448\r\nx-goog-hash: crc32c={crc32c}\r\n\
         x-goog-hash: md5=XUFAKrxLKna5cZ2REBfFkg==\r\nx-goog-stored-content-length: {length}\r\n\
         x-goog-stored-content-encoding: identity\r\ncache-control: {cache_control}"
    )
}

#[tokio::test]
async fn a_default_cache_control_is_not_reported() {
    for (said, expected) in [
        ("private, max-age=0", None),
        ("public, max-age=3600", None),
        ("no-cache, no-store, max-age=0, must-revalidate", None),
        ("no-store", Some("no-store")),
    ] {
        let (backend, _) =
            scripted(move |_| (google_says(said, "mnG7TA==", 5), "hello".into())).await;
        let got = backend.get("x", None, None).await.unwrap();
        assert_eq!(got.meta.headers.get("cache-control").map(String::as_str), expected, "{said}");
        assert_eq!(
            got.meta.headers.len(),
            usize::from(expected.is_some()),
            "identity is no encoding"
        );
        assert_eq!(got.meta.md5.as_deref(), Some("5d41402abc4b2a76b9719d911017c592"));
        assert_eq!(super::collect(got.stream).await.unwrap(), "hello");
    }
}

#[tokio::test]
async fn a_whole_object_with_another_checksum_is_damaged() {
    let (backend, _) = scripted(|_| (google_says("no-store", "AAAAAA==", 5), "hello".into())).await;
    let got = backend.get("x", None, None).await.unwrap();
    let error = failure(super::collect(got.stream).await);
    assert_eq!(error.code, ErrorCode::Corrupt, "{error}");
}

#[tokio::test]
async fn an_answer_with_other_bytes_than_asked_is_refused() {
    let (backend, _) = scripted(|_| (google_says("no-store", "mnG7TA==", 5), "hello".into())).await;
    let range = Some(ByteRange { start: 1, end: 3 });
    assert_eq!(failure(backend.get("x", range, None).await).code, ErrorCode::Unavailable);
    let (backend, _) = scripted(|_| ("200 OK".into(), "hello".into())).await;
    assert_eq!(failure(backend.get("x", None, None).await).code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let say = |status: u16, text: &str| {
        let body = serde_json::json!({ "error": { "code": status, "message": text } });
        (format!("{status} X\r\nretry-after: 7"), body.to_string())
    };
    let cases = [
        (401, "Anonymous caller does not have access", ErrorCode::AccessDenied, None),
        (403, "x does not have storage.objects.get access", ErrorCode::AccessDenied, None),
        (429, "slow down", ErrorCode::TooManyRequests, Some(7)),
        (503, "Backend Error", ErrorCode::TooManyRequests, Some(7)),
        (502, "Bad Gateway", ErrorCode::Unavailable, Some(7)),
        (404, "The specified bucket does not exist.", ErrorCode::RemoteBucketNotFound, None),
        (404, "No such object: far/x", ErrorCode::ObjectNotFound, None),
        (412, "conditionNotMet", ErrorCode::ObjectChanged, None),
    ];
    for (status, text, code, retry_after) in cases {
        let (backend, seen) = scripted(move |_| say(status, text)).await;
        let errors = [
            failure(backend.stat("x").await),
            failure(backend.get("x", None, None).await),
            failure(backend.delete("x").await),
        ];
        for error in errors {
            assert_eq!((error.code, error.retry_after_s), (code, retry_after), "{error}");
            let named = error.message.contains("gs://far");
            assert!(named, "{error}");
            let hint = error.hint.unwrap_or_default();
            let about_keys = hint.contains("GOOGLE_APPLICATION_CREDENTIALS");
            assert_eq!(about_keys, code == ErrorCode::AccessDenied, "{hint}");
        }
        assert_eq!(seen.lock().unwrap().len(), 3, "a clear answer needs no second question");
    }
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_said_to_be() {
    let (backend, _) = scripted(|_| {
        let text = r#"{"error": {"code": 401, "message": "Invalid Credentials"}}"#;
        ("401 X\r\ndate: Sat, 21 Nov 2099 03:51:51 GMT".into(), text.into())
    })
    .await;
    for error in [failure(backend.stat("x").await), failure(backend.get("x", None, None).await)] {
        assert_eq!(error.code, ErrorCode::AccessDenied, "{error}");
        assert!(error.message.contains("gs://far"), "{error}");
        assert!(error.hint.as_ref().unwrap().contains("clock"), "{error}");
    }
}

#[tokio::test]
async fn a_chunk_whose_answer_was_lost_is_not_sent_twice() {
    let total = 12 << 20;
    let lost = Mutex::new(true);
    let there = Mutex::new(0);
    let bytes = content(total, 3);
    let crc32c = forebay_core::checksum::crc32c(&bytes).to_be_bytes();
    let crc32c = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, crc32c);
    let (backend, seen) = scripted(move |asked| {
        if asked.line.starts_with("POST") {
            let host = asked.headers.split("host: ").nth(1).unwrap().split("\r\n").next().unwrap();
            return (format!("200 OK\r\nlocation: http://{host}/session"), "{}".into());
        }
        assert!(!asked.headers.contains("authorization"));
        let mut there = there.lock().unwrap();
        *there += asked.body;
        if *there > (5 << 20) && std::mem::take(&mut *lost.lock().unwrap()) {
            return ("503 X".into(), String::new());
        }
        if *there < total {
            return (format!("308 X\r\nrange: bytes=0-{}", *there - 1), String::new());
        }
        let object = serde_json::json!({ "size": there.to_string(), "generation": "7",
            "crc32c": crc32c });
        ("200 OK".into(), object.to_string())
    })
    .await;
    let put = backend.put("x", PutBody::from_bytes(bytes)).await.unwrap();
    assert_eq!((put.size, put.version.as_str()), (total as u64, "7"));
    // The session, three chunks, and one status request between them.
    assert_eq!(seen.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn an_empty_page_is_not_the_end_of_a_listing() {
    let (backend, _) = scripted(|asked| {
        let text = match asked.line.contains("pageToken=more") {
            false => r#"{"nextPageToken":"more"}"#,
            true => r#"{"items":[{"name":"a","size":"1","generation":"2"}]}"#,
        };
        ("200 OK".into(), text.into())
    })
    .await;
    let page = backend.list("", "".into(), 10).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (1, false));
}

fn info(name: &str, endpoint: Option<String>) -> BucketInfo {
    let bucket = Bucket::new(Provider::Gcp, name).unwrap();
    let kind = BackendKind::Gcs;
    let spec = BackendSpec { endpoint, ..BackendSpec::new(kind, name) };
    BucketInfo::requested(bucket, Some(spec))
}

fn backends(gcs: GcsSettings) -> Backends {
    let settings = BackendSettings { gcs, retry: quick(), ..BackendSettings::default() };
    Backends::new(settings, Arc::new(|_, _, _, _| {}))
}

#[tokio::test]
async fn an_unreachable_endpoint_is_named_and_comes_with_a_time_to_return() {
    // Bound and dropped: the port refuses connections.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    // The bucket's own endpoint is used, not the configured one.
    let known = backends(settings("http://127.0.0.1:1"));
    let backend = known.for_bucket(&info("some-bucket", Some(endpoint.clone()))).await.unwrap();
    for error in [
        failure(backend.head_bucket().await),
        failure(backend.get("x", None, None).await),
        failure(backend.put("x", PutBody::from_bytes("x")).await),
    ] {
        assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
        assert!(error.retry_after_s.is_some());
        let text = error.to_string();
        assert!(text.contains(&endpoint) && text.contains("some-bucket"), "{text}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_refused() {
    for wrong in ["localhost:9000", "ftp://x", "http://"] {
        let known = backends(GcsSettings::default());
        let error = failure(known.for_bucket(&info("b-b", Some(wrong.into()))).await);
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{wrong}");
        assert!(error.message.contains(wrong.trim_end_matches('/')) && error.hint.is_some());
    }
}

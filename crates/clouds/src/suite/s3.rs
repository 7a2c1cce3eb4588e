//! Tests the S3 backend on a real MinIO: the common guarantees and its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::error::ErrorCode;
use forebay_core::name::{Bucket, Provider};
use md5::{Digest, Md5};

use super::minio::{ACCESS_KEY, SECRET_KEY, endpoint};
use super::scripted;
use super::{Fixture, conformance, content, failure, list_all, read};
use crate::s3::{S3Backend, S3Client, S3Clients, S3Credentials, S3Settings};
use crate::{Backend, BackendSettings, Backends, PutBody, RetryPolicy};

pub(super) fn settings(endpoint: &str, secret: &str) -> S3Settings {
    let credentials = S3Credentials { access_key: ACCESS_KEY.into(), secret_key: secret.into() };
    S3Settings {
        endpoint: Some(endpoint.into()),
        region: Some("us-east-1".into()),
        credentials: Some(credentials),
        multipart_above: 6 << 20,
        part_size: 5 << 20,
        ..S3Settings::default()
    }
}

struct Opened {
    client: Arc<S3Client>,
    bucket: Bucket,
    backend: S3Backend,
}

/// A new bucket on MinIO.
async fn open() -> Option<Opened> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let endpoint = endpoint().await?;
    let client = S3Clients::new(settings(&endpoint, SECRET_KEY)).client(None).await.unwrap();
    let name = format!("bucket-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    // For a moment after it reports ready, MinIO still rejects requests.
    for attempt in 0.. {
        match client.sdk.create_bucket().bucket(&name).send().await {
            Ok(_) => break,
            Err(e) if attempt == 100 => panic!("{e:?}"),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
    let bucket = Bucket::new(Provider::Aws, &name).unwrap();
    let backend = S3Backend::new(Arc::clone(&client), bucket.clone(), &name);
    Some(Opened { client, bucket, backend })
}

async fn fixture() -> Option<Fixture> {
    let opened = open().await?;
    let missing_bucket = Bucket::new(Provider::Aws, "no-such-bucket").unwrap();
    let missing = S3Backend::new(opened.client, missing_bucket.clone(), "no-such-bucket");
    Some(Fixture {
        bucket: opened.bucket,
        backend: Arc::new(opened.backend),
        missing: Arc::new(missing),
        missing_bucket,
        large: 12 << 20,
        tells_missing_deletes: false,
        keeps_custom: true,
        keeps_content_type: true,
        keeps_folders: false,
        tells_times: true,
        _folder: None,
    })
}

conformance!(fixture);
conformance!(fixture: a_content_type_comes_back);

#[tokio::test]
async fn md5_is_reported_only_if_the_etag_is_one() {
    let Some(s3) = open().await else { return };
    let md5 = |bytes: &[u8]| hex::encode(Md5::digest(bytes));
    let small = content(1000, 1);
    s3.backend.put("small", PutBody::from_bytes(small.clone())).await.unwrap();
    assert_eq!(s3.backend.stat("small").await.unwrap().md5, Some(md5(&small)));
    let large = content(12 << 20, 1);
    let put = s3.backend.put("large", PutBody::from_bytes(large)).await.unwrap();
    assert_eq!(put.md5, None);
    let stat = s3.backend.stat("large").await.unwrap();
    assert!(stat.md5.is_none() && stat.etag.ends_with("-3") && !stat.etag.contains('"'));
}

#[tokio::test]
async fn content_that_is_not_what_its_md5_says_is_refused() {
    let Some(s3) = open().await else { return };
    let mut body = PutBody::from_bytes("right");
    body.md5 = Some(hex::encode(Md5::digest("wrong")));
    let error = failure(s3.backend.put("x", body.clone()).await);
    assert_eq!(error.code, ErrorCode::ChecksumMismatch, "{error}");
    assert_eq!(failure(s3.backend.stat("x").await).code, ErrorCode::ObjectNotFound);
    body.md5 = Some(hex::encode(Md5::digest("right")));
    s3.backend.put("x", body).await.unwrap();
}

#[tokio::test]
async fn a_failed_upload_leaves_no_parts_behind() {
    let Some(s3) = open().await else { return };
    let broken = PutBody::new(12 << 20, Arc::new(|_| Box::pin(futures::stream::empty())));
    failure(s3.backend.put("x", broken).await);
    let request = s3.client.sdk.list_multipart_uploads().bucket(&*s3.bucket.name).prefix("x");
    assert!(request.send().await.unwrap().uploads().is_empty());
}

#[tokio::test]
async fn objects_of_versioned_buckets_are_distinguished_by_version_id() {
    let Some(s3) = open().await else { return };
    let on = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    let request = s3.client.sdk.put_bucket_versioning().bucket(&*s3.bucket.name);
    request.versioning_configuration(on).send().await.unwrap();
    let first = s3.backend.put("x", PutBody::from_bytes("same")).await.unwrap();
    let second = s3.backend.put("x", PutBody::from_bytes("same")).await.unwrap();
    assert_eq!(first.etag, second.etag);
    assert_ne!(first.version, second.version);
    assert_ne!(first.version, first.etag);
    let error = failure(s3.backend.get("x", None, Some(&first.version)).await);
    assert_eq!(error.code, ErrorCode::ObjectChanged);
    assert_eq!(s3.backend.stat("x").await.unwrap().version, second.version);
}

#[tokio::test]
async fn names_that_no_folder_could_hold_are_kept() {
    let Some(s3) = open().await else { return };
    for name in ["folder/", "folder/a", "a/"] {
        s3.backend.put(name, PutBody::from_bytes(name)).await.unwrap();
        assert_eq!(read(&s3.backend, name).await.unwrap(), name);
    }
    let names: Vec<_> = list_all(&s3.backend, "", 2).await.into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["a/", "folder/", "folder/a"]);
}

#[tokio::test]
async fn who_pays_is_said_with_every_request_where_it_is_wanted() {
    for requester_pays in [false, true] {
        let (endpoint, seen) = scripted::serve(move |asked| {
            let said = asked.headers.contains("x-amz-request-payer: requester");
            assert_eq!(said, requester_pays, "{}", asked.line);
            ("403 X".into(), String::new())
        });
        let settings = S3Settings { requester_pays, ..settings(&endpoint, SECRET_KEY) };
        let client = S3Clients::new(settings).client(None).await.unwrap();
        let bucket = Bucket::new(Provider::Aws, "paid").unwrap();
        let s3 = S3Backend::new(client, bucket, "paid");
        for (right, error) in [
            ("s3:GetObject", failure(s3.stat("x").await)),
            ("s3:GetObject", failure(s3.get("x", None, None).await)),
            ("s3:PutObject", failure(s3.put("x", PutBody::from_bytes("x")).await)),
            ("s3:DeleteObject", failure(s3.delete("x").await)),
            ("s3:ListBucket", failure(s3.list("", "".into(), 1).await)),
        ] {
            assert_eq!(error.code, ErrorCode::AccessDenied, "{error}");
            assert!(error.hint.unwrap().contains(right), "{right}");
            assert!(error.message.contains("s3://paid"), "{}", error.message);
        }
        assert_eq!(seen.lock().unwrap().len(), 5);
    }
}

fn info(name: &str, endpoint: Option<String>) -> BucketInfo {
    let bucket = Bucket::new(Provider::Aws, name).unwrap();
    let kind = BackendKind::S3;
    let spec = BackendSpec { endpoint, ..BackendSpec::new(kind, name) };
    BucketInfo::requested(bucket, Some(spec))
}

fn backends(s3: S3Settings) -> Backends {
    let quick = Duration::from_millis(1);
    let retry = RetryPolicy { first_pause: quick, ..RetryPolicy::default() };
    let settings = BackendSettings { s3, retry, ..BackendSettings::default() };
    Backends::new(settings, Arc::new(|_, _, _, _| {}))
}

#[tokio::test]
async fn wrong_credentials_say_which_variables_to_set() {
    let Some(endpoint) = endpoint().await else { return };
    let wrong = backends(settings(&endpoint, "not the secret"));
    let backend = wrong.for_bucket(&info("some-bucket", None)).await.unwrap();
    let errors = [
        failure(backend.head_bucket().await),
        failure(backend.stat("x").await),
        failure(backend.get("x", None, None).await),
        failure(backend.list("", "".into(), 1).await),
        failure(backend.put("x", PutBody::from_bytes("x")).await),
    ];
    for error in errors {
        assert_eq!(error.code, ErrorCode::AccessDenied);
        let text = error.to_string();
        for word in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "some-bucket", &endpoint] {
            assert!(text.contains(word), "{word} is not in: {text}");
        }
        assert!(!format!("{error:?}").contains("not the secret"), "{error:?}");
    }
}

#[tokio::test]
async fn an_endpoint_may_have_a_path() {
    for (path, expected) in
        [("", "/far/x"), ("/", "/far/x"), ("/s3", "/s3/far/x"), ("/s3/", "/s3/far/x")]
    {
        let (endpoint, seen) = scripted::serve(|_| ("404 X".into(), String::new()));
        let settings = settings(&format!("{endpoint}{path}"), SECRET_KEY);
        let client = S3Clients::new(settings).client(None).await.unwrap();
        let s3 = S3Backend::new(client, Bucket::new(Provider::Aws, "far").unwrap(), "far");
        failure(s3.get("x", None, None).await);
        let line = seen.lock().unwrap()[0].clone();
        assert_eq!(line.split([' ', '?']).nth(1), Some(expected), "{path}: {line}");
    }
}

#[tokio::test]
async fn a_page_of_minio_says_that_its_server_walked_to_it() {
    let Some(Opened { backend, .. }) = open().await else { return };
    for name in ["a", "b", "c"] {
        backend.put(name, PutBody::from_bytes("x")).await.unwrap();
    }
    let pages = [backend.list("", "".into(), 2).await, backend.list("", "".into(), 3).await];
    let walked = pages.map(|page| page.unwrap().walked);
    assert_eq!(walked, [true, false], "a last page leads nowhere");
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_said_to_be() {
    for date in ["Sat, 21 Nov 2020 03:51:51 GMT", "Sat, 21 Nov 2099 03:51:51 GMT", ""] {
        let (endpoint, _) = scripted::serve(move |_| {
            let code = if date.is_empty() { "RequestTimeTooSkewed" } else { "AccessDenied" };
            let text = format!("<Error><Code>{code}</Code><Message>No.</Message></Error>");
            (format!("403 X\r\ndate: {date}"), text)
        });
        let client = S3Clients::new(settings(&endpoint, SECRET_KEY)).client(None).await.unwrap();
        let s3 = S3Backend::new(client, Bucket::new(Provider::Aws, "far").unwrap(), "far");
        let mut errors = vec![failure(s3.get("x", None, None).await)];
        // A rejected HEAD has no text: only the response's time shows the clock difference.
        errors.extend((!date.is_empty()).then_some(failure(s3.stat("x").await)));
        for error in errors {
            assert_eq!(error.code, ErrorCode::AccessDenied, "{error}");
            assert!(error.message.contains("s3://far"), "{error}");
            assert!(error.hint.as_ref().unwrap().contains("clock"), "{error}");
            assert!(!format!("{error:?}").contains(SECRET_KEY), "{error:?}");
        }
    }
}

#[tokio::test]
async fn slow_down_responses_are_distinguished_from_failures() {
    for (status, code, after, expected) in [
        (503, "SlowDown", "", ErrorCode::TooManyRequests),
        (503, "ServiceUnavailable", "retry-after: 7", ErrorCode::TooManyRequests),
        (429, "TooManyRequests", "", ErrorCode::TooManyRequests),
        (500, "InternalError", "", ErrorCode::Unavailable),
        (502, "BadGateway", "", ErrorCode::Unavailable),
    ] {
        let (endpoint, _) = scripted::serve(move |_| {
            let after = if after.is_empty() { "x: y" } else { after };
            let text = format!("<Error><Code>{code}</Code><Message>No.</Message></Error>");
            (format!("{status} X\r\n{after}"), text)
        });
        let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
        let s3 = settings(&endpoint, SECRET_KEY);
        let known = BackendSettings { s3, retry, ..BackendSettings::default() };
        let known = Backends::new(known, Arc::new(|_, _, _, _| {}));
        let backend = known.for_bucket(&info("some-bucket", None)).await.unwrap();
        // The response to a HEAD has no text: only its status is usable.
        for error in [failure(backend.get("x", None, None).await), failure(backend.stat("x").await)]
        {
            assert_eq!(error.code, expected, "{status} {code}: {error}");
            assert!(error.message.contains("some-bucket"), "{error}");
            if !after.is_empty() {
                assert_eq!(error.retry_after_s, Some(7));
            }
        }
    }
}

#[tokio::test]
async fn an_unreachable_endpoint_is_named_and_comes_with_a_time_to_return() {
    // Bound and dropped: the port refuses connections.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    // The bucket's own endpoint is used, not the configured one.
    let known = backends(settings("http://127.0.0.1:1", SECRET_KEY));
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
        let known = backends(S3Settings::default());
        let error = failure(known.for_bucket(&info("b-b", Some(wrong.into()))).await);
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{wrong}");
        assert!(error.message.contains(wrong) && error.hint.is_some());
    }
}

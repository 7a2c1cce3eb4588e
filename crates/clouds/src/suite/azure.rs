//! Tests the backend of Azure Blob Storage on a real Azurite: the common guarantees and its own. A
//! scripted server plays the rejections that the emulator lacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::error::ErrorCode;
use forebay_core::name::{Bucket, Provider};
use forebay_node::bill::Bill;
use md5::{Digest, Md5};

use super::azurite::{ACCOUNT, KEY, endpoint};
use super::scripted::{self, Asked};
use super::{Fixture, conformance, content, failure, list_all, read};
use crate::azure::{AzureBackend, AzureClient, AzureClients, AzureCredentials, AzureSettings};
use crate::{Backend, BackendSettings, Backends, PutBody, RetryPolicy};

fn quick() -> RetryPolicy {
    RetryPolicy { first_pause: Duration::from_millis(1), ..RetryPolicy::default() }
}

pub(super) fn settings(endpoint: &str, key: &str) -> AzureSettings {
    AzureSettings {
        account: Some(ACCOUNT.into()),
        credentials: AzureCredentials::Key(key.into()),
        endpoint: Some(endpoint.into()),
        blocks_above: 6 << 20,
        block_size: 5 << 20,
        block_retry: quick(),
        ..AzureSettings::default()
    }
}

struct Opened {
    client: Arc<AzureClient>,
    bucket: Bucket,
    backend: AzureBackend,
}

/// A new container at the emulator.
async fn open() -> Option<Opened> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let endpoint = endpoint().await?;
    let client = AzureClients::new(settings(&endpoint, KEY)).client(None).await.unwrap();
    let name = format!("bucket-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let unseen = Arc::new(Bill::unseen(BackendKind::Azure));
    client.container(&name, unseen).unwrap().create(None).await.unwrap();
    let bucket = Bucket::new(Provider::Azure, &name).unwrap();
    let backend = AzureBackend::new(Arc::clone(&client), bucket.clone(), &name).unwrap();
    Some(Opened { client, bucket, backend })
}

async fn fixture() -> Option<Fixture> {
    let opened = open().await?;
    let missing_bucket = Bucket::new(Provider::Azure, "no-such-bucket").unwrap();
    let missing = AzureBackend::new(opened.client, missing_bucket.clone(), "no-such-bucket");
    Some(Fixture {
        bucket: opened.bucket,
        backend: Arc::new(opened.backend),
        missing: Arc::new(missing.unwrap()),
        missing_bucket,
        large: 12 << 20,
        tells_missing_deletes: true,
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
async fn md5_is_reported_and_a_wrong_one_is_rejected_by_azure() {
    let Some(azure) = open().await else { return };
    let md5 = |bytes: &[u8]| hex::encode(Md5::digest(bytes));
    for (name, size) in [("small", 1000), ("large", 12 << 20)] {
        let bytes = content(size, 1);
        let mut body = PutBody::from_bytes(bytes.clone());
        body.md5 = Some(md5(&bytes));
        let put = azure.backend.put(name, body).await.unwrap();
        assert_eq!(put.md5, Some(md5(&bytes)));
        assert_eq!(azure.backend.stat(name).await.unwrap().md5, put.md5);
    }
    let mut body = PutBody::from_bytes("right");
    body.md5 = Some(md5(b"wrong"));
    let error = failure(azure.backend.put("x", body.clone()).await);
    assert_eq!(error.code, ErrorCode::ChecksumMismatch, "{error}");
    assert_eq!(failure(azure.backend.stat("x").await).code, ErrorCode::ObjectNotFound);
    body.md5 = Some(md5(b"right"));
    azure.backend.put("x", body).await.unwrap();
}

#[tokio::test]
async fn names_that_no_folder_could_hold_are_kept() {
    let Some(azure) = open().await else { return };
    for name in ["a/", "a//b", "folder/", "folder/a"] {
        azure.backend.put(name, PutBody::from_bytes(name)).await.unwrap();
        assert_eq!(read(&azure.backend, name).await.unwrap(), name);
    }
    let names: Vec<_> = list_all(&azure.backend, "", 2).await.into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["a/", "a//b", "folder/", "folder/a"]);
    for name in [".", ".."] {
        assert_eq!(failure(azure.backend.stat(name).await), azure.bucket.object_not_found(name));
        assert_eq!(failure(azure.backend.delete(name).await).code, ErrorCode::ObjectNotFound);
        let error = failure(azure.backend.put(name, PutBody::from_bytes("x")).await);
        assert_eq!(error.code, ErrorCode::InvalidName);
    }
}

#[tokio::test]
async fn metadata_that_azure_cannot_name_is_refused() {
    let Some(azure) = open().await else { return };
    let mut body = PutBody::from_bytes("x");
    body.custom.insert("has-dash".into(), "1".into());
    let error = failure(azure.backend.put("x", body).await);
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    assert!(error.message.contains("has-dash"), "{error}");
}

fn info(name: &str, endpoint: Option<String>) -> BucketInfo {
    let bucket = Bucket::new(Provider::Azure, name).unwrap();
    let kind = BackendKind::Azure;
    let spec = BackendSpec { endpoint, ..BackendSpec::new(kind, name) };
    BucketInfo::requested(bucket, Some(spec))
}

fn backends(azure: AzureSettings) -> Backends {
    let settings = BackendSettings { azure, retry: quick(), ..BackendSettings::default() };
    Backends::new(settings, Arc::new(|_, _, _, _| {}))
}

#[tokio::test]
async fn wrong_credentials_name_the_bucket_and_the_setting_and_no_secret() {
    let Some(endpoint) = endpoint().await else { return };
    let wrong = "d3Jvbmcga2V5IG9mIHRoaXMgdGVzdA==";
    let sas = "sv=2024-01-01&sr=c&sp=r&se=2040-01-01T00%3A00%3A00Z&sig=d3Jvbmctc2ln";
    for credentials in [AzureCredentials::Key(wrong.into()), AzureCredentials::Sas(sas.into())] {
        let settings = AzureSettings { credentials, ..settings(&endpoint, KEY) };
        let backend = backends(settings).for_bucket(&info("some-bucket", None)).await.unwrap();
        for error in [
            failure(backend.head_bucket().await),
            failure(backend.stat("x").await),
            failure(backend.get("x", None, None).await),
            failure(backend.list("", "".into(), 1).await),
            failure(backend.put("x", PutBody::from_bytes("x")).await),
        ] {
            assert_eq!(error.code, ErrorCode::AccessDenied, "{error}");
            let text = format!("{error} {error:?}");
            for word in ["AZURE_STORAGE_KEY", "az://some-bucket", &endpoint] {
                assert!(text.contains(word), "{word} is not in: {text}");
            }
            assert!(!text.contains(wrong) && !text.contains("d3Jvbmctc2ln"), "{text}");
        }
    }
}

#[tokio::test]
async fn no_account_names_the_bucket_and_the_variable() {
    let backends = backends(AzureSettings::default());
    let error = failure(backends.for_bucket(&info("some-bucket", None)).await);
    assert!(error.message.contains("az://some-bucket"), "{error}");
    assert!(error.hint.unwrap().contains("AZURE_STORAGE_ACCOUNT"));
}

async fn played(
    answer: impl Fn(&Asked) -> (String, String) + Send + 'static,
) -> (AzureBackend, scripted::Seen) {
    let (endpoint, seen) = scripted::serve(answer);
    let client = AzureClients::new(settings(&endpoint, KEY)).client(None).await.unwrap();
    let bucket = Bucket::new(Provider::Azure, "far").unwrap();
    (AzureBackend::new(client, bucket, "far").unwrap(), seen)
}

#[tokio::test]
async fn refusals_say_which_right_or_setting_is_at_fault() {
    let old = "Request date header too old: 'x'";
    let cases = [
        (403, "AuthenticationFailed", old, ErrorCode::AccessDenied, "clock"),
        (403, "AuthenticationFailed", "", ErrorCode::AccessDenied, "AZURE_STORAGE_KEY"),
        (403, "AuthorizationPermissionMismatch", "", ErrorCode::AccessDenied, "read (r)"),
        (409, "PublicAccessNotPermitted", "", ErrorCode::AccessDenied, "AZURE_STORAGE_KEY"),
        (404, "ContainerNotFound", "", ErrorCode::RemoteBucketNotFound, "create it"),
        (404, "BlobNotFound", "", ErrorCode::ObjectNotFound, ""),
        (409, "BlobArchived", "", ErrorCode::Unsupported, "tier"),
        (412, "ConditionNotMet", "", ErrorCode::ObjectChanged, "again"),
        (429, "TooManyRequests", "", ErrorCode::TooManyRequests, ""),
        (503, "ServerBusy", "", ErrorCode::TooManyRequests, "cloud.concurrency"),
        (500, "InternalError", "", ErrorCode::Unavailable, ""),
    ];
    for (status, code, detail, expected, hinted) in cases {
        let (backend, seen) = played(move |_| {
            let head = format!("{status} X\r\nretry-after: 7\r\nx-ms-error-code: {code}");
            let text = format!(
                "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>It said no.\n\
                 RequestId:1</Message><AuthenticationErrorDetail>{detail}\
                 </AuthenticationErrorDetail></Error>"
            );
            (head, text)
        })
        .await;
        let error = failure(backend.get("x", None, None).await);
        assert_eq!(error.code, expected, "{code}: {error}");
        assert!(error.message.contains("az://far"), "{code}: {error}");
        assert!(!error.message.contains("RequestId"), "{error}");
        let hint = error.hint.clone().unwrap_or_default();
        assert!(hint.contains(hinted), "{code}: {hint}");
        let waits = error.code.is_transient();
        assert_eq!(error.retry_after_s, waits.then_some(7), "{code}");
        assert_eq!(seen.lock().unwrap().len(), 1, "retries are not the backend's: {code}");
    }
}

#[tokio::test]
async fn an_unreachable_endpoint_is_named_and_comes_with_a_time_to_return() {
    // Bound and dropped: the port refuses connections.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    // The bucket's own endpoint is used, not the configured one.
    let known = backends(settings("http://127.0.0.1:1", KEY));
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
async fn a_server_that_cannot_begin_in_the_middle_is_listed_from_the_front() {
    let (backend, seen) = played(|asked| {
        if asked.line.contains("startFrom") {
            return ("400 X\r\nx-ms-error-code: UnsupportedQueryParameter".into(), String::new());
        }
        let blob = |name| {
            format!(
                "<Blob><Name>{name}</Name><Properties><Etag>1</Etag><Content-Length>1\
                     </Content-Length></Properties></Blob>"
            )
        };
        let (blobs, next) = match asked.line.contains("marker=m") {
            false => (blob("a") + &blob("b"), "m"),
            true => (blob("c"), ""),
        };
        let text = format!(
            "<?xml version=\"1.0\"?><EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{next}\
             </NextMarker></EnumerationResults>"
        );
        ("200 OK\r\ncontent-type: application/xml".into(), text)
    })
    .await;
    let page = backend.list("", "b".into(), 10).await.unwrap();
    let names: Vec<_> = page.entries.iter().map(|e| e.name.as_str()).collect();
    assert_eq!((names.as_slice(), page.more), (["c"].as_slice(), false));
    assert_eq!(seen.lock().unwrap().len(), 3);
}

//! Servers whose error responses and listings do not end: each backend keeps a bounded part of
//! them, and reports that the server is at fault.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::error::ErrorCode;
use forebay_core::name::{Bucket, Provider};

use super::azurite::KEY;
use super::{azure, failure, gcs, origin, s3, scripted};
use crate::azure::{AzureBackend, AzureClients};
use crate::bounded::{MAX_ERROR_BYTES, MAX_HEAD_BYTES, MAX_LISTING_BYTES};
use crate::gcs::{GcsBackend, GcsClients};
use crate::remote::{RemoteBackend, RemoteSettings};
use crate::s3::{S3Backend, S3Clients};
use crate::{Backend, PutBody};

/// Bytes that may be in the buffers of a connection, which the kernel enlarges while it is fast.
const IN_FLIGHT: u64 = 48 << 20;
const KINDS: [&str; 4] = ["s3", "azure", "gcs", "ais"];

async fn backend(kind: &str, endpoint: &str) -> Arc<dyn Backend> {
    let bucket = |provider| Bucket::new(provider, "far").unwrap();
    match kind {
        "s3" => {
            let clients = S3Clients::new(s3::settings(endpoint, "secret"));
            let client = clients.client(None).await.unwrap();
            Arc::new(S3Backend::new(client, bucket(Provider::Aws), "far"))
        }
        "azure" => {
            let clients = AzureClients::new(azure::settings(endpoint, KEY));
            let client = clients.client(None).await.unwrap();
            Arc::new(AzureBackend::new(client, bucket(Provider::Azure), "far").unwrap())
        }
        "gcs" => {
            let clients = GcsClients::new(gcs::settings(endpoint));
            let client = clients.client(None).await.unwrap();
            Arc::new(GcsBackend::new(client, bucket(Provider::Gcp), "far"))
        }
        "ht" => Arc::new(origin::over(endpoint)),
        _ => {
            let (bucket, _) = Bucket::parse_uri("ais://@far/far").unwrap();
            let settings = RemoteSettings::default();
            Arc::new(RemoteBackend::new(bucket, "far", Some(endpoint), settings).unwrap())
        }
    }
}

#[tokio::test]
async fn a_listing_without_end_is_read_up_to_its_bound() {
    for kind in KINDS {
        let (endpoint, taken) = scripted::serve_endless(200);
        let backend = backend(kind, &endpoint).await;
        let error = failure(backend.list("", "".into(), 10).await);
        assert_eq!(error.code, ErrorCode::Unavailable, "{kind}: {error}");
        let taken = taken.load(Ordering::Relaxed);
        assert!(taken <= MAX_LISTING_BYTES as u64 + IN_FLIGHT, "{kind}: {taken}");
    }
}

#[tokio::test]
async fn a_refusal_without_end_is_read_up_to_its_bound() {
    for kind in KINDS {
        for status in [404, 500, 520] {
            let (endpoint, taken) = scripted::serve_endless(status);
            let backend = backend(kind, &endpoint).await;
            let errors = calls(kind, &*backend).await;
            // The message about the bucket may not have been read.
            let expected = match status {
                404 => &[ErrorCode::RemoteBucketNotFound, ErrorCode::ObjectNotFound][..],
                _ => &[],
            };
            for error in &errors {
                let is_expected =
                    expected.contains(&error.code) || error.code == ErrorCode::Unavailable;
                assert!(is_expected, "{kind} {status}: {error:?}");
            }
            let taken = taken.load(Ordering::Relaxed);
            // After an error response for an object the bucket is checked.
            let most = 2 * errors.len() as u64 * (MAX_ERROR_BYTES as u64 + IN_FLIGHT);
            assert!(taken <= most, "{kind} {status}: {taken}");
        }
    }
}

/// A call of each kind that reads objects, and a listing if the kind supports it.
async fn calls(kind: &str, backend: &dyn Backend) -> Vec<forebay_core::error::Error> {
    let mut errors = vec![
        failure(backend.stat("x").await),
        failure(backend.get("x", None, None).await),
        failure(backend.head_bucket().await),
    ];
    if kind != "ht" {
        errors.push(failure(backend.list("", "".into(), 10).await));
        errors.push(failure(backend.put("x", PutBody::from_bytes("x")).await));
    }
    errors
}

#[tokio::test]
async fn an_answer_with_a_long_head_is_refused_with_the_limit() {
    for kind in KINDS.into_iter().chain(["ht"]) {
        let (endpoint, _) = scripted::serve(|_| {
            let text = format!("200 OK\r\nx-long: {}", "x".repeat(MAX_HEAD_BYTES));
            (text, "{}".into())
        });
        let backend = backend(kind, &endpoint).await;
        for error in calls(kind, &*backend).await {
            assert_eq!(error.code, ErrorCode::Unavailable, "{kind}: {error}");
            assert!(error.message.contains("65536 bytes of headers"), "{kind}: {error}");
        }
    }
}

#[tokio::test]
async fn a_head_without_end_is_read_up_to_a_bound() {
    for kind in KINDS.into_iter().chain(["ht"]) {
        let (endpoint, taken) = scripted::serve_endless_heads();
        let backend = backend(kind, &endpoint).await;
        let errors = calls(kind, &*backend).await;
        assert!(errors.iter().all(|e| e.code == ErrorCode::Unavailable), "{kind}: {errors:?}");
        let taken = taken.load(Ordering::Relaxed);
        assert!(taken <= errors.len() as u64 * IN_FLIGHT, "{kind}: {taken}");
    }
}

//! Servers whose refusals and listings do not end: each backend keeps a bounded part of them, and says
//! that the server is at fault.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::error::ErrorCode;
use forebay_core::name::{Bucket, Provider};

use super::azurite::KEY;
use super::{azure, failure, gcs, s3, scripted};
use crate::backend::Backend;
use crate::backend::azure::{AzureBackend, AzureClients};
use crate::backend::bounded::{MAX_ERROR_BYTES, MAX_LISTING_BYTES};
use crate::backend::gcs::{GcsBackend, GcsClients};
use crate::backend::remote::{RemoteBackend, RemoteSettings};
use crate::backend::s3::{S3Backend, S3Clients};

/// What may be on its way in the buffers of a connection, which the kernel enlarges while it is fast.
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
            let error = failure(backend.list("", "".into(), 10).await);
            let expected = match status {
                // What it says of the bucket may not have been read.
                404 => [ErrorCode::RemoteBucketNotFound, ErrorCode::Unavailable],
                _ => [ErrorCode::Unavailable; 2],
            };
            assert!(expected.contains(&error.code), "{kind} {status}: {error:?}");
            let taken = taken.load(Ordering::Relaxed);
            assert!(taken <= MAX_ERROR_BYTES as u64 + IN_FLIGHT, "{kind} {status}: {taken}");
        }
    }
}

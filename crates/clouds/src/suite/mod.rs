//! The guarantees of [`Backend`](super::Backend), each a test that runs over every kind.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod aistore;
mod azure;
mod azurite;
mod decorators;
mod egress;
mod endless;
mod fake_gcs;
mod folder;
mod folder_markers;
mod gcs;
mod gcs_compose;
mod gcs_crate;
mod minio;
mod origin;
mod process;
mod promises;
mod remote;
mod s3;
mod scripted;

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::error::{Error, Result};
use forebay_core::name::Bucket;
use futures::TryStreamExt;

use super::{After, Backend, BodyStream, RemoteEntry};

/// One kind of backend with an empty bucket.
struct Fixture {
    bucket: Bucket,
    backend: Arc<dyn Backend>,
    /// The same kind, over a bucket that does not exist.
    missing: Arc<dyn Backend>,
    missing_bucket: Bucket,
    /// A size above which the kind uses another method.
    large: usize,
    /// Whether deletes report a missing object, and whether custom metadata is kept.
    tells_missing_deletes: bool,
    keeps_custom: bool,
    keeps_content_type: bool,
    /// Whether a name stays taken by the folder of other objects after these were deleted.
    keeps_folders: bool,
    /// Whether it returns the time of a write.
    tells_times: bool,
    /// Removed with the fixture.
    _folder: Option<tempfile::TempDir>,
}

/// Makes one test of each guarantee, over the fixture of `$fixture`; `None` skips.
macro_rules! conformance {
    ($fixture:path: $($promise:ident)*) => {$(
        #[tokio::test]
        async fn $promise() {
            if let Some(fixture) = $fixture().await {
                super::promises::$promise(&fixture).await;
            }
        }
    )*};
    ($fixture:path) => {
        conformance! { $fixture:
            put_then_get_gives_the_bytes_and_the_same_meta_as_stat
            an_empty_object_is_an_object
            ranges_give_exactly_those_bytes
            a_range_past_the_end_is_refused
            large_objects_come_back_whole
            every_overwrite_has_another_version
            reads_of_a_version_that_is_gone_are_refused
            deleted_objects_are_gone
            a_missing_object_is_named
            a_missing_bucket_is_named_by_every_call
            unusual_names_are_kept
            names_are_listed_in_byte_order
            pages_together_are_the_whole_listing
            prefix_and_after_select_by_bytes
            a_put_whose_source_fails_changes_nothing
            custom_metadata_comes_back
        }
    };
}
use conformance;

/// Bytes without repeated sequences.
fn content(size: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..size).map(next).collect()
}

async fn collect(stream: BodyStream) -> Result<Bytes> {
    let parts: Vec<Bytes> = stream.try_collect().await?;
    Ok(parts.concat().into())
}

async fn read(backend: &dyn Backend, name: &str) -> Result<Bytes> {
    collect(backend.get(name, None, None).await?.stream).await
}

/// The error of a call that must not succeed.
fn failure<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("must not succeed"),
        Err(e) => e,
    }
}

async fn list_all(backend: &dyn Backend, prefix: &str, limit: usize) -> Vec<RemoteEntry> {
    let by_name = pages(backend, prefix, limit, false).await;
    assert_eq!(pages(backend, prefix, limit, true).await, by_name, "by tokens and by names");
    by_name
}

/// All pages of a listing, each started by the last name of the one before, or also by its token.
async fn pages(
    backend: &dyn Backend,
    prefix: &str,
    limit: usize,
    by_tokens: bool,
) -> Vec<RemoteEntry> {
    let (mut all, mut token) = (Vec::<RemoteEntry>::new(), None::<String>);
    loop {
        let name = all.last().map(|e| e.name.clone()).unwrap_or_default();
        let after = After { name: &name, token: token.as_deref().filter(|_| by_tokens) };
        let page = backend.list(prefix, after, limit).await.unwrap();
        assert!(page.entries.len() <= limit);
        assert!(!page.more || !page.entries.is_empty(), "an empty page says that more follow");
        all.extend(page.entries);
        if !page.more {
            return all;
        }
        token = page.token;
    }
}

//! Sends files, one or many at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_client::{Body, ByteStream};
use forebay_core::size::ByteSize;
use forebay_core::{Bucket, ErrorCode};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use serde_json::json;
use tokio_util::io::ReaderStream;

use super::READ_SIZE;
use super::find::Upload;
use crate::failure::{Failure, exit};
use crate::session::Session;
use crate::{output, progress};

/// Files up to this size are read into memory before they are sent.
const INLINE_MAX_BYTES: u64 = 1 << 20;

/// Sends files concurrently; `failed` has messages about those that cannot be read.
pub(super) async fn put_all(
    session: &Session,
    bucket: &Bucket,
    files: Vec<Upload>,
    mut failed: Vec<String>,
    jobs: usize,
) -> Result<(), Failure> {
    for problem in &failed {
        session.warn(format!("error: {problem}"));
    }
    let total = files.iter().map(|f| f.size).sum();
    let count = files.len() + failed.len();
    let bar = progress::bytes(progress::wanted(session.quiet), Some(total));
    let (mut sent, mut bytes) = (0u64, 0u64);
    let mut stopped = None;
    let mut sending = stream::iter(files)
        .map(|file| {
            let bar = &bar;
            async move { (send(session, bucket, &file, bar).await, file.path) }
        })
        .buffer_unordered(jobs);
    while let Some((result, path)) = sending.next().await {
        match result {
            Ok(size) => (sent, bytes) = (sent + 1, bytes + size),
            // Every other file would get the same error.
            Err(e) if e.will_repeat() => {
                stopped = Some(e.into_failure());
                break;
            }
            Err(e) => {
                let e = e.into_failure();
                let shown = path.display();
                let text = e.error.map_or_else(String::new, |e| e.to_string());
                bar.suspend(|| session.warn(format!("error: {shown}: {text}")));
                failed.push(text);
            }
        }
    }
    // Cancels files in progress: they are not acknowledged and not counted.
    drop(sending);
    bar.finish_and_clear();
    if session.format.is_json() {
        let json = json!({ "bucket": bucket.to_string(), "objects": sent, "bytes": bytes,
            "failed": count as u64 - sent });
        output::one(session.format, "", &[], &json)?;
    } else {
        session.note(format!("put {sent} of {count} files, {}", ByteSize(bytes)));
    }
    match stopped {
        Some(e) => Err(e),
        None if failed.is_empty() => Ok(()),
        None => Err(Failure::silent(exit::PARTIAL)),
    }
}

/// Why a file was not sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The file cannot be read.
    File(Failure),
    /// The cluster refuses it or does not reply.
    Cluster(Failure),
}

impl Unsent {
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::File(failure) | Self::Cluster(failure) => failure,
        }
    }

    /// Whether every other file would get the same error: it is about the bucket or the cluster.
    pub(crate) fn will_repeat(&self) -> bool {
        use ErrorCode::*;
        let Self::Cluster(failure) = self else { return false };
        let code = failure.error.as_ref().map(|e| e.code);
        let of_bucket = matches!(
            code,
            Some(BucketNotFound | RemoteBucketNotFound | Unauthenticated | AccessDenied)
                | Some(MethodNotAllowed | Unsupported | OutOfSpace | QuotaExceeded)
        );
        of_bucket || failure.code == exit::UNAVAILABLE
    }
}

/// Sends one file; returns its size.
pub(crate) async fn send(
    session: &Session,
    bucket: &Bucket,
    file: &Upload,
    bar: &ProgressBar,
) -> Result<u64, Unsent> {
    let failed = |e: io::Error| Unsent::File(Failure::local(file.path.display(), &e));
    let body = if file.size <= INLINE_MAX_BYTES {
        let bytes = tokio::fs::read(&file.path).await.map_err(failed)?;
        Body::from(bytes)
    } else {
        tokio::fs::File::open(&file.path).await.map_err(failed)?;
        watched(file, bar)
    };
    let small = matches!(body, Body::Bytes(_));
    let put = session.client.put(bucket, &file.name, body, None).await;
    let meta = put.map_err(|e| Unsent::Cluster(e.into()))?;
    if small {
        bar.inc(meta.size);
    }
    Ok(meta.size)
}

/// A file whose reads move a bar; a retry takes back what the first attempt had moved.
fn watched(file: &Upload, bar: &ProgressBar) -> Body {
    let (path, bar, moved) = (file.path.clone(), bar.clone(), Arc::new(AtomicU64::new(0)));
    let open: forebay_client::OpenStream = Arc::new(move || {
        let (path, bar, moved) = (path.clone(), bar.clone(), moved.clone());
        Box::pin(async move {
            bar.dec(moved.swap(0, Ordering::Relaxed));
            let file = tokio::fs::File::open(path).await?;
            let bytes = ReaderStream::with_capacity(file, READ_SIZE).inspect_ok(move |bytes| {
                bar.inc(bytes.len() as u64);
                moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            });
            let bytes: ByteStream = Box::pin(bytes);
            Ok(bytes)
        })
    });
    Body::Stream { len: Some(file.size), open }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::Error;

    use super::*;

    #[test]
    fn errors_that_every_file_would_meet_end_the_work() {
        let of = |code| Unsent::Cluster(Error::new(code, "no").into());
        for code in [ErrorCode::BucketNotFound, ErrorCode::OutOfSpace, ErrorCode::Timeout] {
            assert!(of(code).will_repeat(), "{code:?}");
        }
        assert!(!of(ErrorCode::InvalidName).will_repeat());
        let unreadable = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert!(!Unsent::File(Failure::local("x", &unreadable)).will_repeat());
    }
}

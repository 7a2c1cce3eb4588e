//! Puts: in one request, or above a size in parallel blocks that are committed together. Bytes are
//! streamed, never collected.

use std::collections::HashMap;
use std::io;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use azure_core::http::{Body, RequestContent};
use azure_core::stream::SeekableStream;
use azure_storage_blob::models::{
    BlockBlobClientCommitBlockListOptions, BlockBlobClientCommitBlockListResultHeaders,
    BlockBlobClientStageBlockResultHeaders, BlockBlobClientUploadOptions, BlockLookupList,
};
use bytes::{Buf, Bytes};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use futures::AsyncRead;
use futures::stream::{self, StreamExt, TryStreamExt};
use md5::{Digest, Md5};
use tokio::time::timeout;

use super::error::Right;
use super::{AzureBackend, Facts};
use crate::source::{SourceError, check_custom, md5_bytes};
use crate::{BodyStream, PutBody, RemoteMeta};

/// Azure's bound on the number of blocks.
const MAX_BLOCKS: u64 = 50_000;
const MIB: u64 = 1 << 20;

pub(super) async fn put(backend: &AzureBackend, name: &str, body: PutBody) -> Result<RemoteMeta> {
    check_custom(&body, "Azure Blob Storage")?;
    if let Some(key) = body.custom.keys().find(|key| !is_identifier(key)) {
        return Err(Error::invalid(format!(
            "custom metadata \"{key}\" cannot be kept by Azure Blob Storage"
        ))
        .hint("names of letters, digits and '_' that do not start with a digit"));
    }
    let md5 = body.md5.as_deref().map(md5_bytes).transpose()?;
    if body.size > backend.client.settings.blocks_above {
        in_blocks(backend, name, &body, md5).await
    } else {
        single_put(backend, name, &body, md5).await
    }
}

/// Names of metadata at Azure must be C# identifiers.
fn is_identifier(key: &str) -> bool {
    let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain && !key.starts_with(|c: char| c.is_ascii_digit())
}

async fn single_put(
    backend: &AzureBackend,
    name: &str,
    body: &PutBody,
    md5: Option<Vec<u8>>,
) -> Result<RemoteMeta> {
    let source = Source::new(body.clone(), ByteRange::whole(body.size), md5);
    let seen = source.seen.clone();
    let options = BlockBlobClientUploadOptions {
        blob_content_type: body.content_type.clone(),
        blob_content_encoding: body.header("content-encoding"),
        blob_content_language: body.header("content-language"),
        blob_content_disposition: body.header("content-disposition"),
        blob_cache_control: body.header("cache-control"),
        metadata: metadata(body),
        partition_size: NonZero::new(body.size.max(1)),
        ..Default::default()
    };
    let blob = backend.blob(name).block_blob_client();
    let call = blob.upload(source.content(), Some(options));
    let done = send(backend, name, body.size, &seen, call).await?;
    seen.compare(backend, done.content_md5.as_deref())?;
    let facts = Facts {
        size: body.size,
        etag: done.etag,
        modified: done.last_modified,
        md5: done.content_md5,
        content_type: body.content_type.clone(),
        headers: body.headers.clone(),
        custom: HashMap::new(),
    };
    Ok(RemoteMeta { custom: body.custom.clone(), ..facts.meta() })
}

async fn in_blocks(
    backend: &AzureBackend,
    name: &str,
    body: &PutBody,
    md5: Option<Vec<u8>>,
) -> Result<RemoteMeta> {
    let settings = &backend.client.settings;
    let block = block_size(settings.block_size, body.size);
    // Concurrent uploads of one object must not use each other's blocks.
    let upload = rand::random::<u64>();
    let blocks: Vec<(Vec<u8>, ByteRange)> = (0..body.size.div_ceil(block))
        .map(|n| {
            let range = ByteRange { start: n * block, end: ((n + 1) * block).min(body.size) };
            (format!("{upload:016x}-{n:05}").into_bytes(), range)
        })
        .collect();
    stream::iter(blocks.clone())
        .map(|(id, range)| {
            settings.block_retry.run(move |_| stage(backend, name, body, id.clone(), range))
        })
        .buffer_unordered(settings.max_parallel_blocks.max(1))
        .try_collect::<()>()
        .await?;
    let list = BlockLookupList {
        latest: Some(blocks.into_iter().map(|(id, _)| id).collect()),
        ..Default::default()
    };
    let options = BlockBlobClientCommitBlockListOptions {
        blob_content_md5: md5.clone(),
        blob_content_type: body.content_type.clone(),
        blob_content_encoding: body.header("content-encoding"),
        blob_content_language: body.header("content-language"),
        blob_content_disposition: body.header("content-disposition"),
        blob_cache_control: body.header("cache-control"),
        metadata: metadata(body),
        ..Default::default()
    };
    let unreadable = |_| backend.nonsense("unreadably", name);
    let list = RequestContent::try_from(list).map_err(unreadable)?;
    let blob = backend.blob(name).block_blob_client();
    let call = blob.commit_block_list(list, Some(options));
    let done = send(backend, name, 0, &Seen::default(), call).await?;
    let facts = Facts {
        size: body.size,
        etag: done.etag().map_err(unreadable)?,
        modified: done.last_modified().map_err(unreadable)?,
        md5,
        content_type: body.content_type.clone(),
        headers: body.headers.clone(),
        custom: HashMap::new(),
    };
    Ok(RemoteMeta { custom: body.custom.clone(), ..facts.meta() })
}

/// Sends one block. Azure removes blocks that were never committed after a week.
async fn stage(
    backend: &AzureBackend,
    name: &str,
    body: &PutBody,
    id: Vec<u8>,
    range: ByteRange,
) -> Result<()> {
    let source = Source::new(body.clone(), range, None);
    let seen = source.seen.clone();
    let blob = backend.blob(name).block_blob_client();
    let call = blob.stage_block(&id, range.len(), source.content(), None);
    let done = send(backend, name, range.len(), &seen, call).await?;
    seen.compare(backend, done.content_md5().ok().flatten().as_deref())
}

/// Waits for the response to an upload, with a timeout by its size. A failure of the source has
/// precedence.
async fn send<T>(
    backend: &AzureBackend,
    name: &str,
    size: u64,
    seen: &Seen,
    call: impl Future<Output = azure_core::Result<T>>,
) -> Result<T> {
    let put_timeout = backend.client.settings.read_timeout + Duration::from_secs(size / MIB);
    let failed = match timeout(put_timeout, call).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(e)) => backend.errors.of(&e, Right::Write, Some(name)),
        Err(_) => backend.errors.unavailable("it did not answer in time"),
    };
    Err(seen.failed.take().unwrap_or(failed))
}

/// The size of blocks for an object: the configured one, or a larger one where 50,000 blocks would
/// not suffice.
fn block_size(wished: u64, size: u64) -> u64 {
    wished.max(size.div_ceil(MAX_BLOCKS).next_multiple_of(MIB)).max(1)
}

fn metadata(body: &PutBody) -> Option<HashMap<String, String>> {
    (!body.custom.is_empty()).then(|| body.custom.clone().into_iter().collect())
}

/// The result of reading a source: its failure, or the MD5 of the sent bytes.
#[derive(Clone, Default)]
struct Seen {
    failed: SourceError,
    md5: std::sync::Arc<Mutex<Option<Vec<u8>>>>,
}

impl Seen {
    /// Fails if the content at the service differs from the sent bytes.
    fn compare(&self, backend: &AzureBackend, there: Option<&[u8]>) -> Result<()> {
        let sent = self.md5.locked().take();
        match (sent, there) {
            (Some(sent), Some(there)) if sent != there => {
                Err(backend.errors.unavailable("what arrived there is not what was sent"))
            }
            _ => Ok(()),
        }
    }
}

/// Part of a source, in the form that the crate reads.
struct Source {
    body: PutBody,
    range: ByteRange,
    /// The expected MD5, if it is known before the upload.
    expected: Option<Vec<u8>>,
    seen: Seen,
    /// The crate requires sources that threads can share; the lock is never contended.
    open: Mutex<Option<Open>>,
}

struct Open {
    stream: BodyStream,
    rest: Bytes,
    sent: u64,
    md5: Md5,
}

impl Source {
    fn new(body: PutBody, range: ByteRange, expected: Option<Vec<u8>>) -> Self {
        Self { body, range, expected, seen: Seen::default(), open: Mutex::default() }
    }

    fn content<T, F>(self) -> RequestContent<T, F> {
        match self.range.is_empty() {
            true => Body::Bytes(Bytes::new()).into(),
            false => Body::SeekableStream(Box::new(self)).into(),
        }
    }
}

impl Clone for Source {
    /// A clone starts at the beginning.
    fn clone(&self) -> Self {
        let Self { body, range, expected, seen, .. } = self;
        Self {
            body: body.clone(),
            range: *range,
            expected: expected.clone(),
            seen: seen.clone(),
            open: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("range", &self.range).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl SeekableStream for Source {
    async fn reset(&mut self) -> azure_core::Result<()> {
        self.open = Mutex::default();
        Ok(())
    }

    fn len(&self) -> Option<u64> {
        Some(self.range.len())
    }
}

impl AsyncRead for Source {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let open = this.open.value_mut();
        let open = open.get_or_insert_with(|| Open {
            stream: this.body.read(this.range),
            rest: Bytes::new(),
            sent: 0,
            md5: Md5::new(),
        });
        while open.rest.is_empty() {
            match ready!(open.stream.poll_next_unpin(cx)) {
                None => return Poll::Ready(Ok(0)),
                Some(Ok(chunk)) => {
                    open.md5.update(&chunk);
                    open.sent += chunk.len() as u64;
                    open.rest = chunk;
                }
                Some(Err(e)) => {
                    this.seen.failed.keep(&e);
                    return Poll::Ready(Err(io::Error::other(e)));
                }
            }
            if open.sent == this.range.len() {
                // The last bytes are not sent if the whole is not as expected: then none of it
                // becomes an object.
                let md5 = open.md5.finalize_reset().to_vec();
                if this.expected.as_ref().is_some_and(|expected| *expected != md5) {
                    let text = "the content does not have the MD5 that it should have";
                    let e = Error::new(ErrorCode::ChecksumMismatch, text);
                    this.seen.failed.keep(&e);
                    return Poll::Ready(Err(io::Error::other(e)));
                }
                *this.seen.md5.locked() = Some(md5);
            }
        }
        let length = open.rest.len().min(into.len());
        open.rest.copy_to_slice(&mut into[..length]);
        Poll::Ready(Ok(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_so_that_fifty_thousand_suffice() {
        assert_eq!(block_size(16 * MIB, 100 * MIB), 16 * MIB);
        let huge = 5u64 << 40;
        let block = block_size(16 * MIB, huge);
        assert!(huge.div_ceil(block) <= MAX_BLOCKS && block.is_multiple_of(MIB));
    }

    #[test]
    fn names_of_metadata_are_names_of_variables() {
        assert!(is_identifier("label_7") && !is_identifier("7label") && !is_identifier("a-b"));
    }
}

//! Puts: in one request, or in parallel parts above a size. Bytes are streamed, never collected.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use forebay_core::bill::RequestClass;
use forebay_core::error::{Error, Result};
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;
use futures::stream::{self, StreamExt, TryStreamExt};
use http_body::Frame;

use super::{Facts, S3Backend, WRITE};
use crate::source::{SourceError, check_custom, md5_bytes};
use crate::{BodyStream, PutBody, RemoteMeta};

/// S3's bound on the number of parts.
const MAX_PARTS: u64 = 10_000;
const MIB: u64 = 1 << 20;

pub(super) async fn put(backend: &S3Backend, name: &str, body: PutBody) -> Result<RemoteMeta> {
    check_custom(&body, "S3")?;
    if body.size > backend.client.settings.multipart_above {
        in_parts(backend, name, body).await
    } else {
        single_put(backend, name, body).await
    }
}

async fn single_put(backend: &S3Backend, name: &str, body: PutBody) -> Result<RemoteMeta> {
    let whole = ByteRange::whole(body.size);
    let md5 = match body.md5.as_deref() {
        Some(known) => Some(md5_header(known)?),
        None => body.part_md5(whole).await?.map(|md5| BASE64_STANDARD.encode(md5)),
    };
    let (bytes, source) = sendable(&body, whole);
    let sent = backend
        .sdk(RequestClass::A)
        .put_object()
        .bucket(&backend.remote)
        .key(name)
        .content_length(signed(body.size)?)
        .set_content_md5(md5)
        .set_content_type(body.content_type.clone())
        .set_content_encoding(body.header("content-encoding"))
        .set_content_language(body.header("content-language"))
        .set_content_disposition(body.header("content-disposition"))
        .set_cache_control(body.header("cache-control"))
        .set_metadata(metadata(&body))
        .set_request_payer(backend.payer())
        .body(bytes)
        .customize()
        .config_override(put_timeout(backend, body.size))
        .send()
        .await;
    let out = sent
        .map_err(|e| source.take().unwrap_or_else(|| backend.errors.of_object(e, WRITE, name)))?;
    body.acknowledge(body.size);
    let facts = Facts {
        etag: out.e_tag(),
        version_id: out.version_id(),
        encryption: out.server_side_encryption(),
        modified: None,
        content_type: body.content_type.as_deref(),
        headers: body.headers.clone(),
        custom: None,
    };
    Ok(RemoteMeta { custom: body.custom, ..backend.meta(body.size, facts) })
}

async fn in_parts(backend: &S3Backend, name: &str, body: PutBody) -> Result<RemoteMeta> {
    let started = backend
        .sdk(RequestClass::A)
        .create_multipart_upload()
        .bucket(&backend.remote)
        .key(name)
        .set_content_type(body.content_type.clone())
        .set_content_encoding(body.header("content-encoding"))
        .set_content_language(body.header("content-language"))
        .set_content_disposition(body.header("content-disposition"))
        .set_cache_control(body.header("cache-control"))
        .set_metadata(metadata(&body))
        .set_request_payer(backend.payer())
        .send()
        .await
        .map_err(|e| backend.errors.of_object(e, WRITE, name))?;
    let id = started.upload_id().unwrap_or_default();
    if id.is_empty() {
        return Err(backend.nonsense("without an upload id", name));
    }
    let mut upload = Upload {
        sdk: backend.client.sdk.clone(),
        bill: Arc::clone(&backend.bill),
        bucket: backend.remote.clone(),
        key: name.to_owned(),
        id: id.to_owned(),
        open: true,
    };
    match send_parts(backend, &upload, &body).await {
        Ok(meta) => {
            upload.open = false;
            Ok(RemoteMeta { custom: body.custom, ..meta })
        }
        Err(e) => {
            upload.open = false;
            upload.abort().await;
            Err(e)
        }
    }
}

async fn send_parts(backend: &S3Backend, upload: &Upload, body: &PutBody) -> Result<RemoteMeta> {
    let settings = &backend.client.settings;
    let part = part_size(settings.part_size, body.size);
    let ranges = (0..body.size.div_ceil(part)).map(|n| {
        (n as i32 + 1, ByteRange { start: n * part, end: ((n + 1) * part).min(body.size) })
    });
    let mut parts: Vec<CompletedPart> = stream::iter(ranges)
        .map(|(number, range)| {
            settings.part_retry.run(move |_| send_part(backend, upload, body, number, range))
        })
        .buffer_unordered(settings.max_parallel_parts.max(1))
        .try_collect()
        .await?;
    parts.sort_unstable_by_key(CompletedPart::part_number);
    let all = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    // Not retried here: after a lost response the second call would not find the upload.
    let sent = backend
        .sdk(RequestClass::A)
        .complete_multipart_upload()
        .bucket(&upload.bucket)
        .key(&upload.key)
        .upload_id(&upload.id)
        .set_request_payer(backend.payer())
        .multipart_upload(all)
        .customize()
        .config_override(put_timeout(backend, body.size))
        .send()
        .await;
    let out = sent.map_err(|e| backend.errors.of_object(e, WRITE, &upload.key))?;
    Ok(backend.meta(
        body.size,
        Facts {
            etag: out.e_tag(),
            version_id: out.version_id(),
            encryption: out.server_side_encryption(),
            modified: None,
            content_type: body.content_type.as_deref(),
            headers: body.headers.clone(),
            custom: None,
        },
    ))
}

async fn send_part(
    backend: &S3Backend,
    upload: &Upload,
    body: &PutBody,
    number: i32,
    range: ByteRange,
) -> Result<CompletedPart> {
    let md5 = body.part_md5(range).await?.map(|md5| BASE64_STANDARD.encode(md5));
    let (bytes, source) = sendable(body, range);
    let sent = backend
        .sdk(RequestClass::A)
        .upload_part()
        .bucket(&upload.bucket)
        .key(&upload.key)
        .upload_id(&upload.id)
        .set_request_payer(backend.payer())
        .part_number(number)
        .content_length(signed(range.len())?)
        .set_content_md5(md5)
        .body(bytes)
        .customize()
        .config_override(put_timeout(backend, range.len()))
        .send()
        .await;
    let out = sent.map_err(|e| {
        source.take().unwrap_or_else(|| backend.errors.of_object(e, WRITE, &upload.key))
    })?;
    body.acknowledge(range.len());
    Ok(CompletedPart::builder().part_number(number).set_e_tag(out.e_tag).build())
}

/// A multipart upload that costs storage until it is completed or aborted.
struct Upload {
    sdk: Client,
    bill: Arc<Bill>,
    bucket: String,
    key: String,
    id: String,
    open: bool,
}

impl Upload {
    async fn abort(&self) {
        self.bill.request(RequestClass::Free);
        let request = self.sdk.abort_multipart_upload().bucket(&self.bucket).key(&self.key);
        if let Err(e) = request.upload_id(&self.id).send().await {
            tracing::warn!(bucket = %self.bucket, key = %self.key, upload = %self.id,
                "an unfinished upload stays at the backend: {}",
                aws_sdk_s3::error::DisplayErrorContext(&e));
        }
    }
}

impl Drop for Upload {
    /// The put was dropped midway.
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let left = Self {
            sdk: self.sdk.clone(),
            bill: Arc::clone(&self.bill),
            bucket: std::mem::take(&mut self.bucket),
            key: std::mem::take(&mut self.key),
            id: std::mem::take(&mut self.id),
            open: false,
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { left.abort().await });
        }
    }
}

/// The size of parts for an object: the configured one, or a larger one where 10,000 parts would
/// not suffice.
fn part_size(wished: u64, size: u64) -> u64 {
    wished.max(size.div_ceil(MAX_PARTS).next_multiple_of(MIB)).max(1)
}

/// Timeout of an upload: the usual wait for a response, and a second per MiB sent.
fn put_timeout(backend: &S3Backend, size: u64) -> aws_sdk_s3::config::Builder {
    let settings = &backend.client.settings;
    let time = settings.read_timeout + std::time::Duration::from_secs(size / MIB);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(settings.connect_timeout)
        .read_timeout(time)
        .build();
    aws_sdk_s3::config::Builder::new().timeout_config(timeouts)
}

fn signed(size: u64) -> Result<i64> {
    i64::try_from(size).map_err(|_| Error::invalid(format!("{size} bytes are too many for S3")))
}

fn md5_header(hexadecimal: &str) -> Result<String> {
    Ok(BASE64_STANDARD.encode(md5_bytes(hexadecimal)?))
}

fn metadata(body: &PutBody) -> Option<std::collections::HashMap<String, String>> {
    (!body.custom.is_empty()).then(|| body.custom.clone().into_iter().collect())
}

/// A request body over part of the source.
fn sendable(body: &PutBody, range: ByteRange) -> (ByteStream, SourceError) {
    let source = SourceError::default();
    let kept = source.clone();
    let stream = body.read(range).inspect_err(move |e| kept.keep(e)).boxed();
    let body = Outgoing { stream: Mutex::new(stream), left: range.len() };
    (ByteStream::from_body_1_x(body), source)
}

/// The SDK requires bodies that threads can share; the lock is never contended.
struct Outgoing {
    stream: Mutex<BodyStream>,
    left: u64,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let stream = this.stream.value_mut();
        let next = std::task::ready!(stream.poll_next_unpin(cx));
        if let Some(Ok(chunk)) = &next {
            this.left = this.left.saturating_sub(chunk.len() as u64);
        }
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.left)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_so_that_ten_thousand_suffice() {
        assert_eq!(part_size(16 * MIB, 100 * MIB), 16 * MIB);
        let huge = 5u64 << 40;
        let part = part_size(16 * MIB, huge);
        assert!(huge.div_ceil(part) <= MAX_PARTS && part.is_multiple_of(MIB));
    }
}

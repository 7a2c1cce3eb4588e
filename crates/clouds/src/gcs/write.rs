//! Puts. Google's crate writes small objects to Google in one request. Large ones, and all to other
//! hosts, are written in chunks of an upload session.
//!
//! The source is read once before, for the checksum that Google compares with the received bytes: a
//! damaged object never becomes visible, and a source that fails sends nothing. Sessions are
//! implemented here, because the crate follows an emulator to an address without its port.

use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::bill::RequestClass;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use futures::{StreamExt, TryStreamExt};
use google_cloud_storage::client::Storage;
use google_cloud_storage::streaming_source::{Seek, SizeHint, StreamingSource};
use reqwest::{Body, Method, Response};
use serde_json::json;
use tokio::time::timeout;

use super::client::GcsClient;
use super::list::Resource;
use super::{Facts, Failure, GcsBackend};
use crate::bounded::{ReadFailure, read_listing};
use crate::source::{SourceError, check_custom, kept_content_type, md5_bytes};
use crate::{BodyStream, PutBody, RemoteMeta};

const MIB: u64 = 1 << 20;
/// Chunk sizes must be a multiple of this.
const CHUNK_UNIT: u64 = 256 << 10;
/// Status of the response to a chunk that is not the last.
const RESUME_INCOMPLETE: u16 = 308;

pub(super) async fn put(backend: &GcsBackend, name: &str, body: PutBody) -> Result<RemoteMeta> {
    check_custom(&body, "Google Cloud Storage")?;
    let sums =
        Sums { crc32c: crc32c(&body).await?, md5: body.md5.as_deref().map(md5_bytes).transpose()? };
    let is_small = body.size <= backend.client.settings.resumable_above;
    let meta = match backend.client.storage.as_ref().filter(|_| is_small) {
        Some(storage) => single_put(backend, storage, name, &body, &sums).await?,
        None => in_chunks(backend, name, &body, &sums).await?,
    };
    Ok(RemoteMeta {
        content_type: kept_content_type(body.content_type.as_deref()),
        headers: body.headers,
        custom: body.custom,
        ..meta
    })
}

struct Sums {
    crc32c: u32,
    /// If the caller knows it.
    md5: Option<Vec<u8>>,
}

async fn crc32c(body: &PutBody) -> Result<u32> {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut source = body.read(ByteRange::whole(body.size));
    while let Some(chunk) = source.next().await {
        digest.update(&chunk?);
    }
    Ok(digest.finalize() as u32)
}

async fn single_put(
    backend: &GcsBackend,
    storage: &Storage,
    name: &str,
    body: &PutBody,
    sums: &Sums,
) -> Result<RemoteMeta> {
    let failed = SourceError::default();
    let source = Source::new(body.clone(), failed.clone());
    backend.bill.request(RequestClass::A);
    let mut request = storage
        .write_object(backend.resource(), name, source)
        .set_metadata(body.custom.clone())
        .with_known_crc32c(sums.crc32c)
        .with_resumable_upload_threshold(usize::MAX);
    if let Some(md5) = &sums.md5 {
        request = request.with_known_md5_hash(md5.clone());
    }
    if let Some(content_type) = &body.content_type {
        request = request.set_content_type(content_type);
    }
    for (name, value) in &body.headers {
        request = match *name {
            "content-encoding" => request.set_content_encoding(value),
            "content-language" => request.set_content_language(value),
            "content-disposition" => request.set_content_disposition(value),
            _ => request.set_cache_control(value),
        };
    }
    let put_timeout = put_timeout(&backend.client, body.size);
    let object = match timeout(put_timeout, request.send_unbuffered()).await {
        Ok(Ok(object)) => object,
        Ok(Err(e)) => match failed.take() {
            Some(error) => return Err(error),
            None => return Err(backend.explain(Failure::of_crate(&e), name).await),
        },
        Err(_) => return Err(backend.errors.of(&Failure::timeout(), Some(name))),
    };
    let facts = Facts {
        size: u64::try_from(object.size).unwrap_or(0),
        generation: object.generation,
        md5: object.checksums.unwrap_or_default().md5_hash.to_vec(),
        content_type: body.content_type.clone(),
        headers: body.headers.clone(),
        custom: Default::default(),
    };
    Ok(facts.meta())
}

async fn in_chunks(
    backend: &GcsBackend,
    name: &str,
    body: &PutBody,
    sums: &Sums,
) -> Result<RemoteMeta> {
    let settings = &backend.client.settings;
    let upload = Upload { backend, name, body, session: begin(backend, name, body, sums).await? };
    let mut at = 0;
    let object = loop {
        let step = settings.chunk_retry.run(|attempt| upload.advance(at, attempt > 0)).await?;
        match step {
            Step::Done(object) => break object,
            Step::Persisted(bytes) => at = bytes,
        }
    };
    let crc32c = BASE64.encode(sums.crc32c.to_be_bytes());
    let arrived = object.size == body.size.to_string() && object.crc32c == crc32c;
    let meta = object.meta().ok_or_else(|| backend.nonsense(name))?;
    match arrived {
        true => Ok(meta),
        // Only a server that lost the checksum from the session's start keeps such an object.
        false => Err(backend.errors.unavailable("the object there is not what was sent")),
    }
}

/// Opens an upload session.
async fn begin(backend: &GcsBackend, name: &str, body: &PutBody, sums: &Sums) -> Result<String> {
    let mut object = json!({ "crc32c": BASE64.encode(sums.crc32c.to_be_bytes()) });
    if let Some(md5) = &sums.md5 {
        object["md5Hash"] = json!(BASE64.encode(md5));
    }
    if let Some(content_type) = &body.content_type {
        object["contentType"] = json!(content_type);
    }
    for (name, value) in &body.headers {
        let field = match *name {
            "content-encoding" => "contentEncoding",
            "content-language" => "contentLanguage",
            "content-disposition" => "contentDisposition",
            _ => "cacheControl",
        };
        object[field] = json!(value);
    }
    if !body.custom.is_empty() {
        object["metadata"] = json!(body.custom);
    }
    let path = format!("/upload/storage/v1/b/{}/o", backend.remote);
    let query = [("uploadType", "resumable"), ("name", name)];
    let request = backend.request(RequestClass::A, Method::POST, &path, &query);
    let request = request.header("x-upload-content-length", body.size).json(&object);
    let answer =
        match timeout(backend.client.settings.read_timeout, backend.client.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => return Err(backend.explain(failure, name).await),
            Err(_) => return Err(backend.errors.of(&Failure::timeout(), Some(name))),
        };
    let session = answer.headers().get("location").and_then(|url| url.to_str().ok());
    session.map(str::to_owned).ok_or_else(|| {
        let what = Failure::Nonsense("it names no session for the upload".into());
        backend.errors.of(&what, Some(name))
    })
}

/// An upload session. One that is given up expires after a week and leaves nothing visible.
struct Upload<'a> {
    backend: &'a GcsBackend,
    name: &'a str,
    body: &'a PutBody,
    session: String,
}

enum Step {
    /// This many bytes are stored, and more are expected.
    Persisted(u64),
    Done(Box<Resource>),
}

impl Upload<'_> {
    /// Sends the chunk at `at`. If `in_doubt`, first checks whether it is stored already.
    async fn advance(&self, at: u64, in_doubt: bool) -> Result<Step> {
        if in_doubt {
            match self.send(None).await? {
                Step::Persisted(bytes) if bytes == at => {}
                step => return self.forward(at, step),
            }
        }
        let settings = &self.backend.client.settings;
        let chunk = settings.chunk_size.next_multiple_of(CHUNK_UNIT).max(CHUNK_UNIT);
        let range = ByteRange { start: at, end: (at + chunk).min(self.body.size) };
        // An object without content is completed by the status request: it has no range.
        let step = self.send((!range.is_empty()).then_some(range)).await?;
        self.forward(at, step)
    }

    fn forward(&self, at: u64, step: Step) -> Result<Step> {
        match step {
            Step::Persisted(bytes) if bytes <= at || bytes > self.body.size => {
                let what = format!("it has {bytes} bytes of the upload after it had {at}");
                Err(self.backend.errors.of(&Failure::Nonsense(what), Some(self.name)))
            }
            step => Ok(step),
        }
    }

    /// Sends these bytes, or requests how many are stored.
    async fn send(&self, range: Option<ByteRange>) -> Result<Step> {
        let Self { backend, name, body, session } = self;
        let total = body.size;
        let failed = SourceError::default();
        // The whole upload is billed as the request that started it.
        backend.bill.request(RequestClass::Free);
        let request = backend.client.put_to_session(session)?;
        // Google takes the type from the session's start, the emulator from here.
        let request = match &body.content_type {
            Some(content_type) => request.header("content-type", content_type),
            None => request,
        };
        let request = match range {
            None => request
                .header("content-length", 0)
                .header("content-range", format!("bytes */{total}")),
            Some(ByteRange { start, end }) => {
                let kept = failed.clone();
                let bytes = body.read(ByteRange { start, end }).inspect_err(move |e| kept.keep(e));
                request
                    .header("content-length", end - start)
                    .header("content-range", format!("bytes {start}-{}/{total}", end - 1))
                    .body(Body::wrap_stream(bytes))
            }
        };
        let sent = async {
            let answer = GcsClient::send_bare(request).await?;
            read_step(answer).await
        };
        let put_timeout = put_timeout(&backend.client, range.map_or(0, |r| r.len()));
        let failure = match timeout(put_timeout, sent).await {
            Ok(Ok(step)) => return Ok(step),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::timeout(),
        };
        if let Some(error) = failed.take() {
            return Err(error);
        }
        // The session is gone: the put starts again.
        if let Failure::Refused { status: 404 | 410, .. } = failure {
            return Err(backend.errors.unavailable("it lost the upload session"));
        }
        Err(backend.errors.of(&failure, Some(name)))
    }
}

async fn read_step(answer: Response) -> Result<Step, Failure> {
    if answer.status().as_u16() != RESUME_INCOMPLETE {
        let body = read_listing(answer).await.map_err(|error| match error {
            ReadFailure::Broken(e) => Failure::of_http(&e),
            ReadFailure::TooLong => Failure::Nonsense(error.why()),
        })?;
        let object = serde_json::from_slice(&body);
        let object = object.map_err(|e| Failure::Nonsense(format!("unreadable: {e}")))?;
        return Ok(Step::Done(Box::new(object)));
    }
    let Some(range) = answer.headers().get("range") else { return Ok(Step::Persisted(0)) };
    let last = range.to_str().ok().and_then(|r| r.strip_prefix("bytes=0-")?.parse::<u64>().ok());
    match last {
        Some(last) => Ok(Step::Persisted(last + 1)),
        None => Err(Failure::Nonsense("an unreadable Range".into())),
    }
}

/// Timeout of an upload: the usual wait for a response, and a second per MiB sent.
fn put_timeout(client: &GcsClient, size: u64) -> Duration {
    client.settings.read_timeout + Duration::from_secs(size / MIB)
}

/// The source in the form that the crate reads.
struct Source {
    body: PutBody,
    at: u64,
    /// The crate requires sources that threads can share; the lock is never contended.
    open: Mutex<Option<BodyStream>>,
    failed: SourceError,
}

impl Source {
    fn new(body: PutBody, failed: SourceError) -> Self {
        Self { body, at: 0, open: Mutex::default(), failed }
    }
}

impl StreamingSource for Source {
    type Error = Error;

    async fn next(&mut self) -> Option<Result<Bytes>> {
        let range = ByteRange { start: self.at, end: self.body.size };
        let open = self.open.value_mut();
        let chunk = open.get_or_insert_with(|| self.body.read(range)).next().await?;
        Some(chunk.inspect_err(|e| self.failed.keep(e)))
    }

    async fn size_hint(&self) -> Result<SizeHint> {
        Ok(SizeHint::with_exact(self.body.size))
    }
}

impl Seek for Source {
    type Error = Error;

    async fn seek(&mut self, offset: u64) -> Result<()> {
        self.at = offset;
        self.open = Mutex::default();
        match offset <= self.body.size {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::Internal, "sought beyond the end of the source")),
        }
    }
}

//! HTTP(S) origins: files of a web server, as read-only objects.
//!
//! HTTP has no listing of files, so these buckets cannot be listed. A version is the server's ETag,
//! or its Last-Modified with the size if there is none.

mod error;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::bill::RequestClass;
use forebay_core::bucket::BackendKind;
use forebay_core::date::parse_http_ns;
use forebay_core::egress::{Egress, EgressPolicy};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::name::Bucket;
use forebay_core::origin::Origin;
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;
use futures::StreamExt;
use futures::stream;
use reqwest::{Method, RequestBuilder, Response, Url};
use tokio::time::timeout;

use super::bounded::{has_long_head, long_head};
use super::content_headers;
use super::place::Place;
use super::source::{content_range, kept_content_type};
use super::{After, Backend, BodyStream, PutBody, RemoteMeta, RemoteObject, RemotePage};
use crate::egress::Guarded;
use error::Errors;

/// Settings for origins.
#[derive(Clone, Debug)]
pub struct OriginSettings {
    /// Addresses that origins may have: every client that may read an object may name any address.
    pub reach: Egress,
    /// The destinations that are open in addition.
    pub egress: EgressPolicy,
    /// Longest wait for the first byte of a response.
    pub read_timeout: Duration,
}

impl Default for OriginSettings {
    fn default() -> Self {
        let (reach, egress) = (Egress::Public, EgressPolicy::default());
        Self { reach, egress, read_timeout: Duration::from_secs(30) }
    }
}

/// See the module.
pub struct OriginBackend {
    origin: Origin,
    client: Guarded,
    settings: OriginSettings,
    errors: Errors,
    bill: Arc<Bill>,
}

impl OriginBackend {
    pub(crate) fn new(bucket: Bucket, url: Option<&str>, settings: OriginSettings) -> Result<Self> {
        let Some(url) = url else {
            return Err(Error::invalid(format!("bucket \"{bucket}\" has no URL behind it"))
                .hint("{\"type\":\"http\",\"endpoint\":\"https://host/path\"}"));
        };
        let origin = Origin::parse(url)?;
        let client = Guarded::new(settings.egress.web(settings.reach), true)?;
        // A violation of the rule is reported when the bucket is created.
        client.url(origin.as_str())?;
        let errors = Errors { place: Place::new(bucket, origin.as_str()) };
        let bill = Arc::new(Bill::unseen(BackendKind::Http));
        Ok(Self { origin, client, settings, errors, bill })
    }

    /// Adds requests to this bill.
    pub(crate) fn billing(self, bill: Arc<Bill>) -> Self {
        Self { bill, ..self }
    }

    fn request(&self, method: Method, name: &str) -> Result<RequestBuilder> {
        let url =
            self.origin.url(name).ok_or_else(|| self.errors.place.bucket.object_not_found(name))?;
        let request = self.client.request(method, self.client.url(&url)?);
        // Without compression, so that ETag and ranges mean the bytes of the file.
        Ok(request.header("accept-encoding", "identity"))
    }

    async fn send(&self, request: RequestBuilder, name: Option<&str>) -> Result<Response> {
        self.bill.request(RequestClass::Request);
        match timeout(self.settings.read_timeout, request.send()).await {
            Ok(Ok(answer)) if has_long_head(&answer) => Err(self.errors.unavailable(&long_head())),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => Err(self.errors.of_send(&e, name)),
            Err(_) => Err(self.errors.unavailable("it did not answer in time")),
        }
    }

    /// The metadata of a file of `size` bytes from a response.
    fn meta(&self, answer: &Response, size: u64) -> RemoteMeta {
        let header = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok());
        let etag = header("etag").map(bare).unwrap_or_default();
        let modified = header("last-modified");
        let version = match (etag.is_empty(), modified) {
            (false, _) => etag.clone(),
            (true, Some(modified)) => format!("{modified}, {size} bytes"),
            (true, None) => String::new(),
        };
        RemoteMeta {
            size,
            version,
            etag,
            mtime_ns: modified.and_then(parse_http_ns).unwrap_or(0),
            content_type: kept_content_type(header("content-type")),
            // The bytes are kept as received, so their encoding is kept too. Cache-Control is not
            // meant for the clients of this cluster.
            headers: content_headers(|name| {
                header(name).filter(|_| name != "cache-control").map(str::to_owned)
            }),
            ..RemoteMeta::default()
        }
    }

    fn read_only(&self, what: &str) -> Error {
        Error::unsupported(format!(
            "cannot {what} in \"{}\": an HTTP origin can only be read",
            self.errors.place.bucket
        ))
        .hint("copy the bucket into one of this cluster or of a cloud")
    }

    /// The size of a file whose server does not support HEAD, by a range of one byte.
    async fn stat_by_range(&self, name: &str) -> Result<RemoteMeta> {
        let request = self.request(Method::GET, name)?.header("range", "bytes=0-0");
        let answer = self.send(request, Some(name)).await?;
        let size = match answer.status().as_u16() {
            206 => total(&answer).map(|(_, size)| size),
            200 => length(&answer),
            // An empty file has no first byte.
            416 => Some(0),
            _ => return Err(self.errors.refused(answer, Some(name)).await),
        };
        let size = size.ok_or_else(|| self.errors.no_length(name))?;
        Ok(self.meta(&answer, size))
    }
}

/// An ETag without quotes. A weak one also distinguishes versions.
fn bare(etag: &str) -> String {
    etag.trim().trim_start_matches("W/").trim_matches('"').to_owned()
}

fn length(answer: &Response) -> Option<u64> {
    // Not by the body: the response to a HEAD has none.
    answer.headers().get("content-length")?.to_str().ok()?.trim().parse().ok()
}

fn total(answer: &Response) -> Option<(ByteRange, u64)> {
    content_range(answer.headers().get("content-range")?.to_str().ok()?)
}

#[async_trait]
impl Backend for OriginBackend {
    /// Any response is accepted: a folder need not have a page of its own.
    async fn head_bucket(&self) -> Result<()> {
        let url: Url = self.client.url(&format!("{}/", self.origin.as_str()))?;
        let answer = self.send(self.client.request(Method::HEAD, url), None).await?;
        match answer.status().as_u16() {
            // It supports GET only.
            501 => Ok(()),
            500.. => Err(self.errors.refused(answer, None).await),
            _ => Ok(()),
        }
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        let answer = self.send(self.request(Method::HEAD, name)?, Some(name)).await?;
        match (answer.status().as_u16(), length(&answer)) {
            (200, Some(size)) => Ok(self.meta(&answer, size)),
            // It supports GET only.
            (200 | 403 | 405 | 501, _) => self.stat_by_range(name).await,
            _ => Err(self.errors.refused(answer, Some(name)).await),
        }
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let mut request = self.request(Method::GET, name)?;
        if let Some(ByteRange { start, end }) = range {
            request = request.header("range", format!("bytes={start}-{}", end.saturating_sub(1)));
        }
        let answer = self.send(request, Some(name)).await?;
        let (sent, size) = match answer.status().as_u16() {
            206 => total(&answer).ok_or_else(|| self.errors.no_length(name))?,
            200 => {
                let size = length(&answer).ok_or_else(|| self.errors.no_length(name))?;
                (ByteRange::whole(size), size)
            }
            _ => return Err(self.errors.refused(answer, Some(name)).await),
        };
        let meta = self.meta(&answer, size);
        // Compared here, not by If-Match: many servers do not support it.
        if if_version.is_some_and(|version| version != meta.version) {
            return Err(self.errors.place.changed(name));
        }
        let wanted = range.unwrap_or(ByteRange::whole(size));
        let got = ByteRange { start: wanted.start, end: wanted.end.min(size) };
        if range.is_some() && wanted.start >= size {
            return Err(self.errors.past_the_end(name, size));
        }
        let covers = sent.start <= got.start && sent.end >= got.end;
        if !covers || (sent.start != got.start && answer.status().as_u16() == 206) {
            return Err(self.errors.place.nonsense("with other bytes than asked", name));
        }
        let errors = self.errors.clone();
        let of = name.to_owned();
        let body =
            answer.bytes_stream().map(move |chunk| chunk.map_err(|e| errors.of_body(&e, &of)));
        Ok(RemoteObject {
            meta,
            range: got,
            stream: cut(body.boxed(), got.start - sent.start, got.len()),
        })
    }

    async fn put(&self, _: &str, _: PutBody) -> Result<RemoteMeta> {
        Err(self.read_only("write"))
    }

    async fn delete(&self, _: &str) -> Result<()> {
        Err(self.read_only("delete"))
    }

    async fn list(&self, _: &str, _: After<'_>, _: usize) -> Result<RemotePage> {
        let text = format!(
            "\"{}\" cannot be listed: an HTTP origin does not list its files",
            self.errors.place.bucket
        );
        Err(Error::new(ErrorCode::Unsupported, text)
            .hint("list what is in the cluster (forebay ls --cached), or name the objects"))
    }
}

/// `length` bytes after the first `skip`: some servers send the whole file for any range.
fn cut(body: BodyStream, skip: u64, length: u64) -> BodyStream {
    stream::unfold((body, skip, length), |(mut body, mut skip, mut left)| async move {
        while left > 0 {
            let mut chunk: Bytes = match body.next().await? {
                Ok(chunk) => chunk,
                Err(e) => return Some((Err(e), (stream::empty().boxed(), 0, 0))),
            };
            let skipped = skip.min(chunk.len() as u64);
            skip -= skipped;
            // Both fit: they are at most the chunk's length.
            chunk = chunk.slice(skipped as usize..);
            chunk.truncate(left.min(chunk.len() as u64) as usize);
            if !chunk.is_empty() {
                left -= chunk.len() as u64;
                return Some((Ok(chunk), (body, skip, left)));
            }
        }
        None
    })
    .boxed()
}

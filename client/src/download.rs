//! The answer to a GET: what it holds, and a stream that survives broken connections.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, Response, StatusCode};

use forebay_core::object::ObjectMeta;
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::v1::headers;
use forebay_core::{Bucket, Error as CoreError, ErrorCode};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::retry::Attempts;
use crate::transport::Download;

/// An object being read.
#[derive(Debug)]
pub struct GetReply {
    /// What is known of the whole object.
    pub meta: ObjectMeta,
    /// Which of its bytes the stream delivers.
    pub range: ByteRange,
    /// The bytes.
    pub stream: ObjectStream,
}

impl GetReply {
    /// All bytes of the stream.
    pub async fn bytes(self) -> Result<Bytes> {
        crate::body::collect(self.stream, self.range.len()).await
    }
}

/// The bytes of an object; it either delivers all of them or ends with an error.
pub struct ObjectStream(Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>);

impl Stream for ObjectStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl std::fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObjectStream")
    }
}

/// What tells one content of an object from another.
#[derive(Debug)]
pub(crate) struct Identity {
    size: u64,
    version: String,
    etag: String,
    checksum: String,
}

/// An answer whose head was read.
pub(crate) struct Opened {
    meta: ObjectMeta,
    identity: Identity,
    range: ByteRange,
    body: Download,
}

impl Identity {
    /// Reads the head of an answer to a GET of `asked`.
    pub(crate) fn open(answer: Response<Download>, asked: Option<RangeSpec>) -> Result<Opened> {
        let (parts, body) = answer.into_parts();
        let odd = |what: &str| Error::broken(body.endpoint(), format!("{what} in the answer"));
        let length = number(&parts.headers, CONTENT_LENGTH.as_str())
            .ok_or_else(|| odd("no Content-Length"))?;
        let (range, size) = match parts.status {
            StatusCode::PARTIAL_CONTENT => {
                let (range, size) =
                    content_range(&parts.headers).ok_or_else(|| odd("no Content-Range"))?;
                if range.len() != length {
                    return Err(odd("Content-Range and Content-Length differ"));
                }
                (range, size)
            }
            _ => {
                let whole = ByteRange::whole(length);
                if asked.is_some_and(|asked| asked.resolve(length).ok() != Some(whole)) {
                    let what = format!("{} ignores the range asked for", body.endpoint());
                    return Err(Error::Api(CoreError::internal(what)));
                }
                (whole, length)
            }
        };
        let meta = headers::object_meta(&parts.headers, size);
        let identity = Self {
            size,
            version: meta.version.clone(),
            etag: meta.etag.clone(),
            checksum: meta.checksum.as_ref().map_or(String::new(), |c| c.value.clone()),
        };
        Ok(Opened { meta, identity, range, body })
    }

    /// Whether nothing says that the contents differ. A property that only one answer has tells
    /// nothing: the checksum, for one, is not known before a cold object has been fetched whole.
    fn may_equal(&self, other: &Self) -> bool {
        let fits = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        self.size == other.size
            && fits(&self.version, &other.version)
            && fits(&self.etag, &other.etag)
            && fits(&self.checksum, &other.checksum)
    }
}

impl Opened {
    /// A reply whose stream asks again, from where it broke.
    pub(crate) fn resumable(
        self,
        client: Client,
        bucket: Bucket,
        name: String,
        query: String,
    ) -> GetReply {
        let (meta, range) = (self.meta, self.range);
        let reading = Reading {
            tries: client.attempts(),
            client,
            bucket,
            name,
            query,
            identity: self.identity,
            body: self.body,
            next: range.start,
            end: range.end,
            finished: false,
        };
        let stream = stream::unfold(reading, |mut reading| async move {
            reading.step().await.map(|item| (item, reading))
        });
        GetReply { meta, range, stream: ObjectStream(Box::pin(stream)) }
    }

    /// A reply whose stream fails where the connection breaks.
    pub(crate) fn plain(self) -> GetReply {
        let Self { meta, range, body, .. } = self;
        let state = (body, range.len(), false);
        let stream = stream::unfold(state, |(mut body, left, over)| async move {
            if over {
                return None;
            }
            match body.next().await {
                Some(Ok(bytes)) if bytes.len() as u64 <= left => {
                    let left = left - bytes.len() as u64;
                    Some((Ok(bytes), (body, left, false)))
                }
                Some(Ok(_)) => {
                    let e = Error::broken(body.endpoint(), "more bytes than announced");
                    Some((Err(e), (body, left, true)))
                }
                Some(Err(e)) => Some((Err(e), (body, left, true))),
                None if left == 0 => None,
                None => {
                    let e = Error::broken(body.endpoint(), "fewer bytes than announced");
                    Some((Err(e), (body, left, true)))
                }
            }
        });
        GetReply { meta, range, stream: ObjectStream(Box::pin(stream)) }
    }
}

/// A GET under way.
struct Reading {
    client: Client,
    bucket: Bucket,
    name: String,
    /// As in [`Client::open`].
    query: String,
    identity: Identity,
    body: Download,
    /// Offset in the object of the next byte to deliver.
    next: u64,
    end: u64,
    tries: Attempts,
    finished: bool,
}

impl Reading {
    async fn step(&mut self) -> Option<Result<Bytes>> {
        while !self.finished {
            let error = match self.body.next().await {
                Some(Ok(bytes)) if bytes.is_empty() => continue,
                Some(Ok(bytes)) if bytes.len() as u64 <= self.end - self.next => {
                    self.next += bytes.len() as u64;
                    self.tries.progressed();
                    return Some(Ok(bytes));
                }
                Some(Ok(_)) => Error::broken(self.body.endpoint(), "more bytes than announced"),
                None if self.next == self.end => break,
                None => Error::broken(self.body.endpoint(), "fewer bytes than announced"),
                Some(Err(e)) => e,
            };
            if let Err(e) = self.resume(error).await {
                self.finished = true;
                return Some(Err(e));
            }
        }
        self.finished = true;
        None
    }

    /// Opens the rest of the object, which must be the same object still.
    async fn resume(&mut self, mut error: Error) -> Result<()> {
        loop {
            self.tries.again(error).await?;
            if self.next == self.end {
                // All bytes are here; only the end of the answer was lost.
                self.finished = true;
                return Ok(());
            }
            if let Ok(map) = self.client.maps().get().await {
                let _ = self.client.maps().replace(Some(&map)).await;
            }
            let rest = RangeSpec::From(self.next, Some(self.end - 1));
            let opened = self
                .client
                .open(&self.bucket, &self.name, &self.query, Some(rest), &mut self.tries)
                .await;
            match opened {
                Ok(opened) if !opened.identity.may_equal(&self.identity) => {
                    return Err(self.changed());
                }
                Ok(opened) if opened.range.start == self.next && opened.range.end == self.end => {
                    self.body = opened.body;
                    return Ok(());
                }
                Ok(opened) => {
                    error = Error::broken(opened.body.endpoint(), "another range than asked for");
                }
                Err(Error::Api(e)) if e.code == ErrorCode::RangeNotSatisfiable => {
                    return Err(self.changed());
                }
                Err(e) => error = e,
            }
        }
    }

    fn changed(&self) -> Error {
        let uri = self.bucket.object_uri(&self.name);
        let e = CoreError::new(
            ErrorCode::ObjectChanged,
            format!("{uri} changed after {} bytes of it were read", self.next),
        );
        Error::Api(e.hint("read it again from the start"))
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// `bytes a-b/total`.
fn content_range(headers: &HeaderMap) -> Option<(ByteRange, u64)> {
    let value = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (start, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let total = total.parse().ok()?;
    (start <= last && last < total).then_some((ByteRange { start, end: last + 1 }, total))
}

//! The answer to a GET: its properties, and a stream that survives broken connections.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use futures::{Stream, StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, Response, StatusCode};

use forebay_core::object::ObjectMeta;
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::{Bucket, Error as CoreError, ErrorCode};
use forebay_v1::headers;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::retry::Attempts;
use crate::transport::Download;

/// Smallest range whose reader drives the connection itself.
const CALLER_DRIVEN_MIN_BYTES: u64 = 512 << 10;

/// Whether a range is so long that moving it by another task costs more than waiting for a permit.
pub(crate) fn is_long(range: Option<RangeSpec>) -> bool {
    matches!(range, Some(RangeSpec::From(first, Some(last))) if last.saturating_sub(first) >= CALLER_DRIVEN_MIN_BYTES)
}

/// An object being read.
#[derive(Debug)]
pub struct GetReply {
    /// The properties of the whole object.
    pub meta: ObjectMeta,
    /// The range of bytes that the stream delivers.
    pub range: ByteRange,
    /// The bytes.
    pub stream: ObjectStream,
}

impl GetReply {
    /// All bytes of the stream.
    pub async fn bytes(self) -> Result<Bytes> {
        crate::body::collect(self.stream, self.range.len()).await
    }

    /// Reads all bytes of the stream into `dest`, which must have exactly their length; see
    /// [`ObjectStream::read_into`].
    pub async fn read_over(self, mut dest: &mut [u8]) -> Result<()> {
        self.stream.read_into(&mut dest).await?;
        if dest.is_empty() {
            return Ok(());
        }
        Err(Error::Api(CoreError::internal("an answer has another length than it announced")))
    }
}

/// The bytes of an object; the stream either delivers all of them or ends with an error.
pub struct ObjectStream(State);

enum State {
    Started(Box<Reading>),
    UnderWay(Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>),
}

impl ObjectStream {
    fn of(reading: Reading) -> Self {
        Self(State::Started(Box::new(reading)))
    }

    /// Appends the rest of the stream to `dest`, which must have space for it. A long answer is not
    /// copied on its way from the socket.
    ///
    /// On a failure `dest` may have some of the bytes.
    pub async fn read_into(self, dest: &mut (impl BufMut + Send)) -> Result<()> {
        match self.0 {
            State::Started(mut reading) => reading.read_into(dest).await,
            State::UnderWay(mut stream) => {
                while let Some(piece) = stream.next().await {
                    let piece = piece?;
                    if piece.len() > dest.remaining_mut() {
                        return Err(Error::Api(no_room()));
                    }
                    dest.put(piece);
                }
                Ok(())
            }
        }
    }
}

impl Stream for ObjectStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            match &mut self.0 {
                State::UnderWay(stream) => return stream.as_mut().poll_next(cx),
                State::Started(_) => {
                    let none = State::UnderWay(Box::pin(stream::empty()));
                    if let State::Started(reading) = std::mem::replace(&mut self.0, none) {
                        self.0 = State::UnderWay(Box::pin(reading.pieces()));
                    }
                }
            }
        }
    }
}

fn no_room() -> CoreError {
    CoreError::internal("there is no room for what was announced")
}

impl std::fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObjectStream")
    }
}

/// The properties that distinguish one content of an object from another.
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

    /// Whether the contents may be equal. A property that only one answer has is ignored: the
    /// checksum, for one, is not known before a cold object has been fetched completely.
    fn may_equal(&self, other: &Self) -> bool {
        let fits = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        self.size == other.size
            && fits(&self.version, &other.version)
            && fits(&self.etag, &other.etag)
            && fits(&self.checksum, &other.checksum)
    }
}

impl Opened {
    /// Returns a reply whose stream resumes where the connection broke.
    pub(crate) fn resumable(
        self,
        client: Client,
        bucket: Bucket,
        name: String,
        query: String,
    ) -> GetReply {
        let mut tries = client.attempts();
        // From the head on, the reader may pause as long as it likes.
        tries.progressed();
        let again = Again { tries, client, bucket, name, query, identity: self.identity };
        Self::reply(self.meta, self.range, self.body, Some(again))
    }

    /// Returns a reply whose stream fails where the connection breaks.
    pub(crate) fn plain(self) -> GetReply {
        Self::reply(self.meta, self.range, self.body, None)
    }

    fn reply(meta: ObjectMeta, range: ByteRange, body: Download, again: Option<Again>) -> GetReply {
        let reading =
            Reading { again, body, next: range.start, end: range.end, is_finished: false };
        GetReply { meta, range, stream: ObjectStream::of(reading) }
    }
}

/// A GET under way.
struct Reading {
    /// How to resume after a failure; `None` if the stream is not resumable.
    again: Option<Again>,
    body: Download,
    /// Offset in the object of the next byte to deliver.
    next: u64,
    end: u64,
    is_finished: bool,
}

/// Requests the rest of an object.
struct Again {
    client: Client,
    bucket: Bucket,
    name: String,
    /// As in [`Client::open`].
    query: String,
    identity: Identity,
    tries: Attempts,
}

impl Reading {
    /// The remaining bytes, chunk by chunk. The stream may be polled again after its end.
    fn pieces(self: Box<Self>) -> impl Stream<Item = Result<Bytes>> + Send {
        let pieces = stream::unfold(self, |mut reading| async move {
            reading.step().await.map(|item| (item, reading))
        });
        pieces.fuse()
    }

    async fn step(&mut self) -> Option<Result<Bytes>> {
        while !self.is_finished {
            let started = Instant::now();
            let error = match self.body.next().await {
                Some(Ok(bytes)) if bytes.is_empty() => continue,
                Some(Ok(bytes)) if bytes.len() as u64 <= self.end - self.next => {
                    self.came(bytes.len() as u64, started.elapsed());
                    return Some(Ok(bytes));
                }
                Some(Ok(_)) => self.body.too_long(),
                None if self.next == self.end => break,
                None => self.body.too_short(),
                Some(Err(e)) => e,
            };
            if let Err(e) = self.resume(error).await {
                self.is_finished = true;
                return Some(Err(e));
            }
        }
        self.is_finished = true;
        None
    }

    async fn read_into(&mut self, dest: &mut (impl BufMut + Send)) -> Result<()> {
        if (dest.remaining_mut() as u64) < self.end - self.next {
            return Err(Error::Api(no_room()));
        }
        while !self.is_finished {
            let started = Instant::now();
            let room = dest.remaining_mut();
            let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
            let read = self.body.read_into(&mut dest.limit(left)).await;
            self.came((room - dest.remaining_mut()) as u64, started.elapsed());
            match read {
                Ok(()) if self.next == self.end => break,
                Ok(()) => self.resume(self.body.too_short()).await?,
                Err(e) => self.resume(e).await?,
            }
        }
        Ok(())
    }

    fn came(&mut self, count: u64, waited: Duration) {
        self.next += count;
        if let (1.., Some(again)) = (count, &mut self.again) {
            again.tries.arrived(count, waited);
        }
    }

    /// Requests the rest of the object, which must not have changed.
    async fn resume(&mut self, error: Error) -> Result<()> {
        let Some(again) = &mut self.again else { return Err(error) };
        if self.next == self.end {
            // All bytes are here; only the end of the answer was lost.
            again.tries.again(error).await?;
            self.is_finished = true;
            return Ok(());
        }
        self.body = again.open(error, self.next, self.end).await?;
        Ok(())
    }
}

impl Again {
    /// Opens the bytes from `next` to `end` after this failure.
    async fn open(&mut self, mut error: Error, next: u64, end: u64) -> Result<Download> {
        loop {
            self.tries.again(error).await?;
            if let Ok(map) = self.client.maps().get().await {
                let _ = self.client.maps().replace(Some(&map)).await;
            }
            let rest = RangeSpec::From(next, Some(end - 1));
            let is_long = is_long(Some(rest));
            let opened = self
                .client
                .open(&self.bucket, &self.name, (&self.query, is_long), Some(rest), &mut self.tries)
                .await;
            match opened {
                Ok(opened) if !opened.identity.may_equal(&self.identity) => {
                    return Err(self.changed(next));
                }
                Ok(opened) if opened.range.start == next && opened.range.end == end => {
                    return Ok(opened.body);
                }
                Ok(opened) => {
                    error = Error::broken(opened.body.endpoint(), "another range than asked for");
                }
                Err(Error::Api(e)) if e.code == ErrorCode::RangeNotSatisfiable => {
                    return Err(self.changed(next));
                }
                Err(e) => error = e,
            }
        }
    }

    fn changed(&self, next: u64) -> Error {
        let uri = self.bucket.object_uri(&self.name);
        let e = CoreError::new(
            ErrorCode::ObjectChanged,
            format!("{uri} changed after {next} bytes of it were read"),
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

//! Decodes objects from their slices. Slices are read concurrently, a stripe at a time; the result is
//! kept only if its checksum is that of the written object.

use bytes::{Bytes, BytesMut};
use forebay_clouds::BodyStream;
use forebay_core::checksum::{Checksum, Hasher};
use forebay_core::copies::requests::SliceRequest;
use forebay_core::copies::{COPY_HEADER, CopyHead, Stamp};
use forebay_core::erasure::Slice;
use forebay_core::replication::SliceSource;
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::{RecordMeta, WorkFile};
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};

use super::coder::{Coder, Layout};
use super::{READ_PATH, SLICE_CHECKSUM};
use crate::object::replication::Replication;
use crate::object::replication::work::Work;

/// A slice and the node that has it; `None`: this target.
type Part = (Option<Node>, Slice);

/// A slice that is being read.
struct Source {
    number: usize,
    head: CopyHead,
    body: BodyStream,
    /// Received bytes that are not used yet.
    ready: BytesMut,
    sum: Hasher,
}

/// Why an object could not be decoded from these slices; with the unusable slice, if it is due to
/// one.
struct Failure {
    part: Option<usize>,
    error: Error,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { part: None, error }
    }
}

impl Source {
    /// Reads the next block.
    async fn block(&mut self, len: usize) -> Result<Bytes> {
        while self.ready.len() < len {
            let chunk = self.body.try_next().await?;
            let chunk = chunk.ok_or_else(|| Error::unavailable("a slice ends too early"))?;
            self.sum.update(&chunk);
            self.ready.extend_from_slice(&chunk);
        }
        Ok(self.ready.split_to(len).freeze())
    }

    /// An error if the slice does not have its recorded length and checksum.
    async fn end(&mut self, uri: &str) -> Result<()> {
        if !self.ready.is_empty() || self.body.try_next().await?.is_some() {
            return Err(Error::new(ErrorCode::Corrupt, format!("a slice of {uri} is too long")));
        }
        let got = std::mem::replace(&mut self.sum, SLICE_CHECKSUM.hasher()).finish();
        match (got, &self.head.slice_sum) {
            (Some(got), Some(sum)) => got.expect(sum, uri),
            _ => Err(Error::new(ErrorCode::Corrupt, format!("a slice of {uri} has no checksum"))),
        }
    }
}

impl Replication {
    /// Decodes the version of an object with this stamp. A slice that cannot be read is replaced by
    /// another one.
    pub(in crate::object::replication) async fn assemble(
        &self,
        work: &Work<'_>,
        stamp: Stamp,
        sources: Vec<SliceSource>,
    ) -> Result<(WorkFile, RecordMeta)> {
        // A second caller for the same object waits for the first.
        let _turn = self.0.assembling.lock(&work.key).await;
        let uri = work.object.uri();
        let state = self.state();
        let of = |source: SliceSource| match source.target == *self.me() {
            true => Some((None, source.slice)),
            false => state.node(&source.target).map(|node| (Some(node.clone()), source.slice)),
        };
        let mut parts: Vec<Part> = sources.into_iter().filter_map(of).collect();
        // Data slices need no decoding, and slices here no network.
        parts.sort_by_key(|(node, slice)| (slice.number >= slice.data, node.is_some()));
        let mut why = None;
        loop {
            let needed = parts.first().map_or(1, |(_, slice)| usize::from(slice.data));
            if parts.len() < needed {
                let why = why.unwrap_or_else(|| Error::unavailable("no target has them"));
                return Err(too_few(&uri, parts.len(), needed, &why));
            }
            match self.join_slices(work, stamp, &parts[..needed]).await {
                Ok((file, head)) => {
                    let meta = RecordMeta::of_object(head.meta, head.epoch, work.info().class);
                    return Ok((file, meta));
                }
                Err(Failure { part: Some(at), error }) => {
                    let (node, slice) = parts.remove(at);
                    let from = node.as_ref().map_or("here", |node| node.id.as_str());
                    let number = slice.number;
                    tracing::warn!(uri, from, number, "a slice cannot be used: {error}");
                    why = Some(error);
                }
                Err(Failure { part: None, error }) => return Err(error),
            }
        }
    }

    /// The bytes of an object from exactly as many slices as are needed.
    async fn join_slices(
        &self,
        work: &Work<'_>,
        stamp: Stamp,
        parts: &[Part],
    ) -> std::result::Result<(WorkFile, CopyHead), Failure> {
        let (info, name) = (work.info(), work.name());
        let uri = work.object.uri();
        let mut sources: Vec<Source> = Vec::with_capacity(parts.len());
        let opened =
            parts.iter().map(|(node, slice)| self.open_slice(work, stamp, node.as_ref(), *slice));
        for (at, opened) in join_all(opened).await.into_iter().enumerate() {
            let source = opened.map_err(|error| Failure { part: Some(at), error })?;
            if let Some(first) = sources.first()
                && (first.head.meta.size, &first.head.meta.checksum)
                    != (source.head.meta.size, &source.head.meta.checksum)
            {
                let error = Error::new(ErrorCode::Corrupt, "it is of another object");
                return Err(Failure { part: Some(at), error });
            }
            sources.push(source);
        }
        let slice = parts.first().map(|(_, slice)| *slice);
        let (Some(slice), Some(first)) = (slice, sources.first()) else {
            return Err(Error::internal("an object is made of no slices").into());
        };
        let head = first.head.clone();
        let layout = Layout::of(slice, head.meta.size);
        let coder = Coder::new(layout);
        let mut file = self.store().begin(info.id, name, Some(head.meta.size)).await?;
        let mut hasher = head.meta.checksum.as_ref().map(|sum| sum.kind.hasher());
        for stripe in layout.stripes() {
            let blocks = sources.iter_mut().map(async |s| (s.number, s.block(stripe.block).await));
            let mut whole = Vec::with_capacity(layout.needed());
            for (at, (number, block)) in join_all(blocks).await.into_iter().enumerate() {
                let block = block.map_err(|error| Failure { part: Some(at), error })?;
                whole.push((number, block));
            }
            let bytes = coder.decode(stripe, &whole)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&bytes);
            }
            file.write(bytes).await?;
        }
        for (at, source) in sources.iter_mut().enumerate() {
            source.end(&uri).await.map_err(|error| Failure { part: Some(at), error })?;
        }
        let got: Option<Checksum> = hasher.and_then(Hasher::finish);
        if let (Some(got), Some(sum)) = (got, &head.meta.checksum) {
            got.expect(sum, &uri)?;
        }
        Ok((file, head))
    }

    /// Opens a slice, here or on another target.
    async fn open_slice(
        &self,
        work: &Work<'_>,
        stamp: Stamp,
        node: Option<&Node>,
        slice: Slice,
    ) -> Result<Source> {
        let (info, name) = (work.info(), work.name().to_owned());
        let request = SliceRequest { bucket: info.bucket.clone(), name, stamp, slice };
        let (head, body) = match node {
            None => {
                let (head, _, body) = self.read_slice(info, &request).await?;
                (head, body)
            }
            Some(node) => {
                let peer = &self.0.peer;
                let asked = peer.post_for_stream(&node.url, READ_PATH, &request);
                let (headers, body) = asked.await?;
                let head = headers.get(COPY_HEADER).map_or(&b""[..], |value| value.as_bytes());
                (CopyHead::from_header(head)?, body.map_err(Error::from).boxed())
            }
        };
        if head.stamp() != stamp || head.slice != Some(slice) {
            return Err(Error::new(ErrorCode::Corrupt, "it is not the slice that was asked for"));
        }
        let (number, sum) = (slice.number.into(), SLICE_CHECKSUM.hasher());
        Ok(Source { number, head, body, ready: BytesMut::new(), sum })
    }
}

/// The error if there are too few slices to decode an object.
fn too_few(uri: &str, there: usize, needed: usize, why: &Error) -> Error {
    let text = format!("{uri}: {there} of {needed} slices can be read: {}", why.message);
    Error::unavailable(text)
        .hint("it is served again when the targets that have the others are back")
}

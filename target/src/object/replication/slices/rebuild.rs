//! Rebuilds objects from their slices: for a target that is to serve an object and does not have
//! the whole, and if the whole is damaged. Slices are read concurrently, a stripe at a time; the
//! result is kept only if its checksum is that of the written object.

use bytes::{Bytes, BytesMut};
use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::{Checksum, Hasher};
use forebay_core::copies::{COPY_HEADER, CopyHead, CopyLook, CopyRequest, Stamp};
use forebay_core::erasure::Slice;
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, Result};
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};

use super::SUM;
use super::coder::{Coder, Layout};
use super::newest::slices_of;
use crate::backend::BodyStream;
use crate::object::Key;
use crate::object::replication::Replication;
use crate::object::replication::transfer::PEEK_PATH;
use crate::store::{Record, RecordMeta, WorkFile};

/// A slice and the node that has it; `None`: this target.
pub(super) type Part = (Option<Node>, Slice);

/// The object, and the version of it, to rebuild.
#[derive(Clone, Copy)]
struct Making<'a> {
    info: &'a BucketInfo,
    name: &'a str,
    stamp: Stamp,
}

/// A slice that is being read.
struct Source {
    number: usize,
    head: CopyHead,
    body: BodyStream,
    /// Received bytes that are not used yet.
    ready: BytesMut,
    sum: Hasher,
}

/// Why an object could not be rebuilt from these slices; with the unusable slice, if it is due to
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
        let got = std::mem::replace(&mut self.sum, SUM.hasher()).finish();
        match (got, &self.head.slice_sum) {
            (Some(got), Some(sum)) => got.expect(sum, uri),
            _ => Err(Error::new(ErrorCode::Corrupt, format!("a slice of {uri} has no checksum"))),
        }
    }
}

impl Replication {
    /// Rebuilds an object here from slices of one version, and keeps it. `replaces`: the damaged
    /// commit that it replaces.
    pub(super) async fn rebuild(
        &self,
        (info, name): (&BucketInfo, &str),
        stamp: Stamp,
        mut parts: Vec<Part>,
        replaces: Option<u64>,
    ) -> Result<Record> {
        let making = Making { info, name, stamp };
        let (key, uri) = (Key::new(info, name), info.bucket.object_uri(name));
        // A second caller for the same object waits for the first.
        let _turn = self.0.rebuilding.lock(&key).await;
        if let Some(now) = self.made_already(making, replaces).await? {
            return Ok(now);
        }
        // Data slices need no decoding, and slices here no network.
        parts.sort_by_key(|(node, slice)| (slice.number >= slice.data, node.is_some()));
        let mut why = None;
        loop {
            let needed = parts.first().map_or(1, |(_, slice)| usize::from(slice.data));
            if parts.len() < needed {
                let why: Error = why.unwrap_or_else(|| Error::unavailable("nobody has them"));
                return Err(too_few(&uri, parts.len(), needed, &why));
            }
            match self.join_slices(making, &parts[..needed]).await {
                Ok((work, head)) => {
                    let source = parts.swap_remove(0).0;
                    return self.keep_rebuilt(making, (work, head), source, replaces).await;
                }
                Err(Failure { part: Some(at), error }) => {
                    let (node, slice) = parts.remove(at);
                    let from = node.as_ref().map_or("here", |node| node.id.as_str());
                    tracing::warn!(
                        uri,
                        from,
                        number = slice.number,
                        "a slice is of no use: {error}"
                    );
                    why = Some(error);
                }
                Err(Failure { part: None, error }) => return Err(error),
            }
        }
    }

    /// The record here, if it is as new as the one to rebuild.
    async fn made_already(
        &self,
        making: Making<'_>,
        replaces: Option<u64>,
    ) -> Result<Option<Record>> {
        let now = self.store().get(making.info.id, making.name).await?;
        Ok(now.filter(|now| {
            let same = now.stamp() == making.stamp && Some(now.generation) != replaces;
            now.stamp() > making.stamp || same
        }))
    }

    /// The bytes of an object from exactly as many slices as are needed.
    async fn join_slices(
        &self,
        making: Making<'_>,
        parts: &[Part],
    ) -> std::result::Result<(WorkFile, CopyHead), Failure> {
        let Making { info, name, .. } = making;
        let uri = info.bucket.object_uri(name);
        let mut sources: Vec<Source> = Vec::with_capacity(parts.len());
        let opened =
            parts.iter().map(|(node, slice)| self.open_slice(making, node.as_ref(), *slice));
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
        let mut work = self.store().begin(info.id, name, Some(head.meta.size)).await?;
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
            work.write(bytes).await?;
        }
        for (at, source) in sources.iter_mut().enumerate() {
            source.end(&uri).await.map_err(|error| Failure { part: Some(at), error })?;
        }
        let got: Option<Checksum> = hasher.and_then(Hasher::finish);
        if let (Some(got), Some(sum)) = (got, &head.meta.checksum) {
            got.expect(sum, &uri)?;
        }
        Ok((work, head))
    }

    /// Opens a slice, here or on another target.
    async fn open_slice(
        &self,
        making: Making<'_>,
        node: Option<&Node>,
        slice: Slice,
    ) -> Result<Source> {
        let Making { info, name, stamp } = making;
        let request =
            CopyRequest { stamp, slice: Some(slice), ..CopyRequest::new(&info.bucket, name) };
        let (head, body) = match node {
            None => {
                let (head, _, body) = self.read_slice(info, &request).await?;
                (head, body)
            }
            Some(node) => {
                let peer = &self.0.peer;
                let asked = peer.post_for_stream(&node.url, super::READ_PATH, &request);
                let (headers, body) = asked.await?;
                let head = headers.get(COPY_HEADER).map_or(&b""[..], |value| value.as_bytes());
                (CopyHead::from_header(head)?, body.map_err(Error::from).boxed())
            }
        };
        if head.stamp() != stamp || head.slice != Some(slice) {
            return Err(Error::new(ErrorCode::Corrupt, "it is not the slice that was asked for"));
        }
        let (number, sum) = (slice.number.into(), SUM.hasher());
        Ok(Source { number, head, body, ready: BytesMut::new(), sum })
    }

    /// Commits the rebuilt object, unless it was changed or removed meanwhile. `source`: a node
    /// that has one of the slices.
    async fn keep_rebuilt(
        &self,
        making: Making<'_>,
        (work, head): (WorkFile, CopyHead),
        source: Option<Node>,
        replaces: Option<u64>,
    ) -> Result<Record> {
        let Making { info, name, stamp } = making;
        let key = Key::new(info, name);
        let _guard = self.local().locks.lock(&key).await;
        if let Some(now) = self.made_already(making, replaces).await? {
            return Ok(now);
        }
        let gone = || {
            let text = format!("{} was removed just now", info.bucket.object_uri(name));
            Error::unavailable(text).retry_after(1)
        };
        let removed = self.tombstone(info, name).await?.max(self.untold_removal(info, name));
        if removed >= Some(stamp) {
            return Err(gone());
        }
        if self.is_quiescent(&self.state()) {
            // There are no tombstones now; a removal deletes the slices, so a missing slice shows
            // it.
            let request = CopyRequest { in_part: true, ..CopyRequest::new(&info.bucket, name) };
            let look: CopyLook = match &source {
                None => self.peek(info, &request).await?,
                Some(node) => self.0.peer.post_json(&node.url, PEEK_PATH, &request).await?,
            };
            if !look.slices.iter().any(|here| here.stamp == stamp) {
                return Err(gone());
            }
        }
        let meta = RecordMeta::of_object(head.meta, head.epoch, info.class);
        let record = self.store().commit(work, meta).await?;
        self.local().lost.forget(&key);
        let uri = info.bucket.object_uri(name);
        tracing::info!(uri, bytes = record.size, "an object was made of its slices");
        Ok(record)
    }

    /// Replaces a damaged whole by a rebuilt one; false if that is not possible.
    pub(in crate::object) async fn rebuild_damaged(
        &self,
        info: &BucketInfo,
        record: &Record,
    ) -> bool {
        if !self.may_have_slices(info) {
            return false;
        }
        let (name, stamp) = (record.name.as_str(), record.stamp());
        let (nodes, looks) = self.look_at_all(info, name).await;
        let (slices, _) = slices_of(&looks, stamp);
        let parts: Vec<Part> = slices.into_iter().map(|(at, s)| (nodes[at].clone(), s)).collect();
        if parts.is_empty() {
            return false;
        }
        match self.rebuild((info, name), stamp, parts, Some(record.generation)).await {
            Ok(_) => true,
            Err(e) => {
                tracing::warn!(name, "no slices for a damaged object: {e}");
                false
            }
        }
    }
}

/// The error if there are too few slices to rebuild an object.
pub(super) fn too_few(uri: &str, there: usize, needed: usize, why: &Error) -> Error {
    let text = format!("{uri}: {there} of {needed} slices can be read: {}", why.message);
    Error::unavailable(text)
        .hint("it is served again when the targets that have the others are back")
}

//! Batches: many objects in one ordered answer, in bounded memory.
//!
//! [`native`] answers our own clients and other targets with what this target can read;
//! [`answer`] makes a v1 batch a job; [`assembler`] builds it by pulling from all owners, [`output`]
//! writes it as an archive, and [`spool`] keeps one that must not go out in parts.

pub(crate) mod answer;
pub(crate) mod assembler;
pub(crate) mod native;
pub(crate) mod output;
pub(crate) mod spool;

use bytes::{Bytes, BytesMut};
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::bucket::BucketInfo;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, NodeId, Result, placement};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use crate::object::{ObjectService, Turns, begun};
use crate::shard::Shards;

/// Objects up to this many bytes are read whole ahead of their turn.
const SMALL: u64 = 1 << 20;
/// Entries of a batch that are read ahead at once; times [`SMALL`] is the batch's memory.
pub(crate) const LOOK_AHEAD: usize = 16;

/// What a task sends, as the body of an answer; dropping it tells the task that the client is gone.
pub(crate) fn outgoing(
    receiver: mpsc::Receiver<Result<Bytes>>,
) -> impl Stream<Item = Result<Bytes>> + Send {
    futures::stream::unfold(receiver, |mut r| async move { Some((r.recv().await?, r)) })
}

/// An entry that is ready to go out.
pub(crate) enum Loaded {
    Whole(Bytes),
    /// Too large to be read ahead.
    Stream {
        size: u64,
        /// What tells this content from any other under its name.
        version: String,
        stream: BoxStream<'static, Result<Bytes>>,
    },
}

/// A stream of `size` bytes, read now when that is little.
async fn load(
    mut stream: BoxStream<'static, Result<Bytes>>,
    size: u64,
    version: String,
) -> Result<Loaded> {
    if size > SMALL {
        return Ok(Loaded::Stream { size, version, stream });
    }
    let mut all = BytesMut::with_capacity(size as usize);
    while let Some(chunk) = stream.next().await {
        all.extend_from_slice(&chunk?);
    }
    if all.len() as u64 != size {
        return Err(Error::internal(format!("{} of {size} bytes were read", all.len())));
    }
    Ok(Loaded::Whole(all.freeze()))
}

/// Reads the entries of one request on this target.
#[derive(Clone)]
pub(crate) struct Loader {
    pub(crate) service: ObjectService,
    pub(crate) shards: Shards,
    pub(crate) me: NodeId,
}

impl Loader {
    /// Reads one entry. A native object that belongs to another target is refused, one of a
    /// backend is fetched here: the sender chose this target as a stand-in.
    pub(crate) async fn load(&self, request: &BatchRequest, entry: &BatchEntry) -> Result<Loaded> {
        let mut turns = Turns::default();
        let loaded = loop {
            let loaded = self.try_load(request, entry).await;
            if !turns.again(&loaded) {
                break loaded;
            }
        };
        let result = match &loaded {
            Ok(_) => "ok",
            Err(e) if e.code.status() == 404 => "missing",
            Err(_) => "error",
        };
        self.service.metrics().batch_entry(result);
        loaded
    }

    async fn try_load(&self, request: &BatchRequest, entry: &BatchEntry) -> Result<Loaded> {
        let state = self.service.state();
        let bucket = request
            .buckets
            .get(entry.bucket as usize)
            .ok_or_else(|| Error::invalid(format!("no bucket {} in the request", entry.bucket)))?;
        let info: &BucketInfo = state.bucket(bucket)?;
        let name = entry.name.as_str();
        if !info.has_backend() {
            let owner = placement::owner(&state, info, name)?;
            if owner.id != self.me {
                return Err(Error::new(
                    ErrorCode::WrongOwner,
                    format!("{} belongs to target {}", info.bucket.object_uri(name), owner.id),
                ));
            }
        }
        if !entry.archpath.is_empty() {
            let data = self.shards.member(info, name, &entry.archpath, None).await?;
            let (range, size) = (entry.resolve(data.size)?, data.size);
            let version = data.version().to_owned();
            self.service.metrics().served(data.result(), range.len());
            if range == ByteRange::whole(size) && size <= SMALL {
                return Ok(Loaded::Whole(data.read_all().await?));
            }
            // Unpacked only when its turn comes: members of one compressed shard then follow each
            // other through one decoder, instead of each unpacking all that lies before it.
            let stream = futures::stream::once(async move { data.stream(range) }).flatten();
            return load(stream.boxed(), range.len(), version).await;
        }
        let found = self.service.get(info, name).await?;
        let (size, version) = (found.meta().size, found.meta().version.clone());
        let range = entry.resolve(size)?;
        let result = found.result();
        if range == ByteRange::whole(size) && size <= SMALL {
            let bytes = found.read_all().await?;
            self.service.metrics().served(result, range.len());
            return Ok(Loaded::Whole(bytes));
        }
        let stream = begun(found.stream(range)).await?;
        self.service.metrics().served(result, range.len());
        load(stream, range.len(), version).await
    }
}

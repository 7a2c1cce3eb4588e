//! Batches: many objects in one ordered response, in bounded memory.
//!
//! [`budget`] limits the memory of a batch, [`reading`] reads its entries ahead within that limit.
//! [`native`] serves Forebay's own clients and other targets with entries of this target.
//! [`answer`] makes a v1 batch a job; [`assembler`] builds it by pulling from [`sources`],
//! [`output`] writes it as an archive, and [`spool`] keeps one that must not be sent in parts.

pub(crate) mod answer;
pub(crate) mod assembler;
pub(crate) mod budget;
pub(crate) mod native;
pub(crate) mod output;
pub(crate) mod reading;
mod repeats;
mod resume;
mod sources;
pub(crate) mod spool;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_clouds::Announced;
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::bucket::BucketInfo;
use forebay_core::cloud_rules::CloudRules;
use forebay_core::size::ByteRange;
use forebay_core::timing::ReadStage;
use forebay_core::{Error, ErrorCode, NodeId, ObjectName, Result, placement};
use forebay_node::bill::Bill;
use forebay_node::bucket_reads::BucketCounter;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use crate::object::{ObjectService, Turns, read_first_chunk};
use crate::shard::Shards;

/// Most bytes of a large object that are in memory while it is sent.
const PIECE: usize = 256 << 10;

/// The counters of each bucket of a request, if it exists.
type Counters = Arc<[Option<Counted>]>;

/// The counters of a bucket's reads, and its bill, if it has one.
struct Counted {
    reads: Arc<BucketCounter>,
    bill: Option<Arc<Bill>>,
}

/// The stream of a task, as the body of a response. Dropping it notifies the task that the client
/// is gone.
pub(crate) fn outgoing(
    receiver: mpsc::Receiver<Result<Bytes>>,
) -> impl Stream<Item = Result<Bytes>> + Send {
    futures::stream::unfold(receiver, |mut r| async move { Some((r.recv().await?, r)) })
}

/// An entry that is ready to be sent.
pub(crate) enum Loaded {
    Whole(Bytes),
    /// Too large to be read ahead.
    Stream {
        size: u64,
        /// Where the stream comes from.
        stage: ReadStage,
        stream: BoxStream<'static, Result<Bytes>>,
    },
}

/// A stream of `size` bytes; read now if that is at most `whole`.
async fn load(
    mut stream: BoxStream<'static, Result<Bytes>>,
    stage: ReadStage,
    size: u64,
    whole: usize,
) -> Result<Loaded> {
    if size > whole as u64 {
        return Ok(Loaded::Stream { size, stage, stream });
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
    /// The request's rules for calls to backends.
    pub(crate) cloud: CloudRules,
}

impl Loader {
    /// Reads one entry, as a whole if it has at most `whole` bytes, and returns what the read waited for. A native object that belongs to
    /// another target is rejected. An object of a backend is fetched here, because the sender chose
    /// this target as a substitute.
    async fn load(
        &self,
        request: &BatchRequest,
        entry: &BatchEntry,
        whole: usize,
    ) -> (Result<Loaded>, ReadStage) {
        let (mut turns, mut stage) = (Turns::default(), ReadStage::Disk);
        loop {
            let loaded = self.try_load(request, entry, whole, &mut stage).await;
            if !turns.again(&loaded) {
                return (loaded, stage);
            }
        }
    }

    async fn try_load(
        &self,
        request: &BatchRequest,
        entry: &BatchEntry,
        whole: usize,
        stage: &mut ReadStage,
    ) -> Result<Loaded> {
        let info = &self.info(request, entry.bucket, &entry.name)?;
        let name = entry.name.as_str();
        if info.has_backend() {
            // Until it is found here: a read that fails at the backend waited for the backend.
            *stage = ReadStage::Cold;
        }
        if !entry.archpath.is_empty() {
            let data = self.shards.member(info, name, &entry.archpath, None).await?;
            let (range, size, result) = (entry.resolve(data.size)?, data.size, data.result());
            *stage = ReadStage::of_result(result);
            if range == ByteRange::whole(size) && size <= whole as u64 {
                let bytes = data.read_all().await?;
                self.service.served(info, result, range.len());
                return Ok(Loaded::Whole(bytes));
            }
            self.service.served(info, result, range.len());
            // Decompressed only when its turn comes: members of one compressed shard then follow
            // each other through one decoder, instead of each decompressing everything before it.
            let stream = futures::stream::once(async move { data.stream(range) }).flatten();
            return load(stream.boxed(), *stage, range.len(), whole).await;
        }
        let found = self.service.reads().get(info, name).await?;
        let (size, result) = (found.meta().size, found.result());
        *stage = ReadStage::of_result(result);
        let range = entry.resolve(size)?;
        if range == ByteRange::whole(size) && size <= whole as u64 {
            let bytes = found.read_all().await?;
            self.service.served(info, result, range.len());
            return Ok(Loaded::Whole(bytes));
        }
        let stream = read_first_chunk(found.stream(range)).await?;
        self.service.served(info, result, range.len());
        load(stream, *stage, range.len(), whole).await
    }

    /// The bucket of an entry that this target may serve.
    fn info(
        &self,
        request: &BatchRequest,
        bucket: u32,
        name: &ObjectName,
    ) -> Result<Arc<BucketInfo>> {
        let state = self.service.state();
        let bucket = request
            .buckets
            .get(bucket as usize)
            .ok_or_else(|| Error::invalid(format!("no bucket {bucket} in the request")))?;
        let info = state.bucket(bucket)?;
        if !info.has_backend() {
            let owner = placement::owner(&state, info, name.as_str())?;
            if owner.id != self.me {
                let uri = info.bucket.object_uri(name.as_str());
                let text = format!("{uri} belongs to target {}", owner.id);
                return Err(Error::new(ErrorCode::WrongOwner, text));
            }
        }
        Ok(info.clone().asked_by(&self.cloud))
    }

    /// The counters of a request's buckets, looked up once for all entries.
    fn counters(&self, request: &BatchRequest) -> Counters {
        let state = self.service.state();
        let of = |bucket| {
            let info = state.bucket(bucket).ok()?;
            let reads = self.service.metrics().bucket_reads().of(info);
            Some(Counted { reads, bill: self.service.cold_cache().bill(info) })
        };
        request.buckets.iter().map(of).collect()
    }

    /// Announces how many of the wanted entries are whole objects, by the request's buckets.
    fn announce(&self, request: &BatchRequest, wanted: &[usize]) -> Vec<Option<Announced>> {
        let state = self.service.state();
        let backed =
            |bucket| state.bucket(bucket).ok().filter(|info: &&Arc<BucketInfo>| info.has_backend());
        let infos: Vec<_> = request.buckets.iter().map(backed).collect();
        let mut counts = vec![0; infos.len()];
        if infos.iter().any(Option::is_some) {
            let entries = wanted.iter().map(|index| &request.entries[*index]);
            for entry in entries.filter(|entry| entry.archpath.is_empty()) {
                if let Some(count) = counts.get_mut(entry.bucket as usize) {
                    *count += 1;
                }
            }
        }
        let of = |(info, count): (Option<&Arc<BucketInfo>>, usize)| {
            self.service.cold_cache().announce(info?, usize::MAX, || count)
        };
        infos.into_iter().zip(counts).map(of).collect()
    }

    /// The requested bytes of an entry whose object is in memory.
    fn part(&self, counters: &Counters, entry: &BatchEntry, bytes: Bytes) -> Result<Bytes> {
        let range = entry.resolve(bytes.len() as u64)?;
        self.service.metrics().served("hit", range.len());
        if let Some(Some(Counted { reads, bill })) = counters.get(entry.bucket as usize) {
            reads.served("hit", range.len());
            if let Some(bill) = bill {
                bill.saved(range.len());
            }
        }
        Ok(bytes.slice(range.start as usize..range.end as usize))
    }

    /// Members of one shard: `indices` are entries that name it. Those of more than `most` bytes,
    /// and those beyond `total` bytes, are left to be read individually.
    async fn members(
        &self,
        request: &BatchRequest,
        shard: &ObjectName,
        indices: &[usize],
        most: usize,
        total: usize,
    ) -> (Vec<Option<Result<Loaded>>>, ReadStage) {
        let entries: Vec<&BatchEntry> = indices.iter().map(|i| &request.entries[*i]).collect();
        let Some(first) = entries.first() else { return (Vec::new(), ReadStage::Disk) };
        let info = match self.info(request, first.bucket, shard) {
            Ok(info) => info,
            Err(e) => {
                let failed = indices.iter().map(|_| Some(Err(e.clone())));
                return (failed.collect(), ReadStage::Disk);
            }
        };
        let (most, total) = (most as u64, total as u64);
        let bulk = self.shards.members(&info, shard.as_str(), &entries, most, total).await;
        let served = |answer: Result<Bytes>| {
            if let Ok(bytes) = &answer {
                self.service.served(&info, bulk.result, bytes.len() as u64);
            }
            answer.map(Loaded::Whole)
        };
        let members = bulk.members.into_iter().map(|answer| answer.map(served)).collect();
        (members, ReadStage::of_result(bulk.result))
    }

    /// Counts a finished entry.
    fn count(&self, answer: &Result<Loaded>) {
        let result = match answer {
            Ok(_) => "ok",
            Err(e) if e.code.status() == 404 => "missing",
            Err(_) => "error",
        };
        self.service.metrics().batch_entry(result);
    }
}

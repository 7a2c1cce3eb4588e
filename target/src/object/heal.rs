//! Damage: stored bytes that are not what was written. Their object's other source takes over
//! within the same request, and the damaged copy goes; an object without one is reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_core::bucket::BucketInfo;
use forebay_core::erasure::Slice;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result, history};
use forebay_node::metrics::CheckPath;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::{Key, ObjectService};
use crate::backend::BodyStream;
use crate::store::{Record, Volume, is_corrupt};

/// Bytes of a block of the store, which is what a checksum covers.
const BLOCK: u64 = 64 << 10;
/// Lost objects that are remembered by name.
const REMEMBERED: usize = 1000;
/// Bytes that a check reads at once; whole blocks.
const STEP: u64 = 16 * BLOCK;
/// How many of them the node reports by name.
const LOST_NAMES: usize = 8;
/// Turns of a request whose object is replaced under it.
const TURNS: usize = 3;

/// Objects of which bytes are gone for good, by key, with the commit that is damaged.
#[derive(Debug, Default)]
pub(crate) struct Lost(Mutex<BTreeMap<(u64, String), u64>>);

impl Lost {
    fn table(&self) -> MutexGuard<'_, BTreeMap<(u64, String), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an object; false when it was known.
    fn note(&self, record: &Record) -> bool {
        let mut table = self.table();
        let key = (record.bucket_id, record.name.clone());
        if table.len() >= REMEMBERED && !table.contains_key(&key) {
            return true;
        }
        table.insert(key, record.generation) != Some(record.generation)
    }

    /// The object was written again or removed.
    pub(super) fn forget(&self, key: &Key) {
        let mut table = self.table();
        if !table.is_empty() {
            table.remove(&(key.bucket_id, key.name.to_string()));
        }
    }

    pub(super) fn forget_bucket(&self, bucket_id: u64) {
        self.table().retain(|(id, _), _| *id != bucket_id);
    }
}

/// What checking a commit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    /// Damaged, and mended from another target's copy, or dropped: its backend has it.
    Healed,
    /// Damaged, and there is no other copy.
    Lost,
    /// Removed or replaced meanwhile.
    Gone,
}

/// Where the bytes of one commit come from when those on the disk are damaged.
pub(crate) struct Healer {
    service: ObjectService,
    info: BucketInfo,
    record: Record,
}

impl Healer {
    /// The bytes of `range` from elsewhere, of the very version that is damaged here.
    ///
    /// `damage` itself when there is no other source; [`ErrorCode::ObjectChanged`] when the source
    /// has another version by now; the source's own error when it cannot be asked.
    pub(super) async fn stream(&self, damage: Error, range: ByteRange) -> Result<BodyStream> {
        let Self { service, info, record } = self;
        service.metrics().damaged(CheckPath::Read);
        if service.mend(info, record, CheckPath::Read).await {
            return self.mended(range).await;
        }
        if !has_source(info, record) {
            return Err(service.lose(info, record, CheckPath::Read, damage));
        }
        let uri = info.bucket.object_uri(&record.name);
        tracing::warn!(%uri, "the rest of a damaged copy comes from the backend");
        let version = record.meta.backend_version.as_str();
        let backend = service.backend(info).await?;
        match backend.get(&record.name, Some(range), Some(version)).await {
            Ok(remote) if remote.range == range => {
                service.give_up(record, CheckPath::Read).await;
                Ok(exactly(remote.stream, range.len(), uri))
            }
            // As long, as old and another length: not the same after all.
            Ok(_) => {
                service.give_up(record, CheckPath::Read).await;
                Err(replaced(&uri))
            }
            Err(e) if is_another(e.code) => {
                service.give_up(record, CheckPath::Read).await;
                Err(replaced(&uri))
            }
            // What is sound of the copy may be all there is for a while.
            Err(e) => Err(e),
        }
    }

    /// The bytes of `range` once the damaged copy was replaced.
    async fn mended(&self, range: ByteRange) -> Result<BodyStream> {
        let Self { service, info, record } = self;
        let now = service.store().get(record.bucket_id, &record.name).await?;
        match now.filter(|now| now.stamp() == record.stamp()) {
            Some(now) => Ok(service.store().reader(&now).await?.stream(range).boxed()),
            None => Err(replaced(&info.bucket.object_uri(&record.name))),
        }
    }

    /// As [`Self::stream`], in memory.
    pub(super) async fn read(&self, damage: Error, range: ByteRange) -> Result<Bytes> {
        let mut stream = self.stream(damage, range).await?;
        let mut all = BytesMut::with_capacity(range.len() as usize);
        while let Some(chunk) = stream.try_next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }
}

fn is_another(code: ErrorCode) -> bool {
    use ErrorCode::{ObjectChanged, ObjectNotFound, RangeNotSatisfiable};
    matches!(code, ObjectChanged | ObjectNotFound | RangeNotSatisfiable)
}

fn replaced(uri: &str) -> Error {
    Error::new(ErrorCode::ObjectChanged, format!("{uri} was replaced while it was read"))
}

/// Whether somebody else has the same bytes.
fn has_source(info: &BucketInfo, record: &Record) -> bool {
    info.has_backend() && record.evictable() && !record.meta.backend_version.is_empty()
}

/// The stream, if it yields `len` bytes; else it fails.
fn exactly(stream: BodyStream, len: u64, uri: String) -> BodyStream {
    futures::stream::try_unfold((stream, 0u64, uri), move |(mut stream, seen, uri)| async move {
        let Some(chunk) = stream.try_next().await? else {
            return match seen == len {
                true => Ok(None),
                false => Err(Error::unavailable(format!(
                    "the backend sent {seen} of {len} bytes that are damaged here of {uri}"
                ))),
            };
        };
        let seen = seen + chunk.len() as u64;
        if seen > len {
            return Err(Error::unavailable(format!("the backend sent too much of {uri}")));
        }
        Ok(Some((chunk, (stream, seen, uri))))
    })
    .boxed()
}

impl ObjectService {
    /// What takes over when the bytes of this commit are damaged.
    pub(super) fn healer(&self, info: &BucketInfo, record: &Record) -> Healer {
        Healer { service: self.clone(), info: info.clone(), record: record.clone() }
    }

    /// Deals with a commit that turned out damaged before a byte of it went out. `Ok`: it is no
    /// more, and its object is to be looked up, or fetched, again.
    pub(crate) async fn damaged(
        &self,
        info: &BucketInfo,
        record: &Record,
        path: CheckPath,
        damage: Error,
    ) -> Result<()> {
        self.metrics().damaged(path);
        if self.mend(info, record, path).await {
            return Ok(());
        }
        if !has_source(info, record) {
            return Err(self.lose(info, record, path, damage));
        }
        tracing::warn!(error = %damage, "damaged copy dropped, to be fetched again");
        self.give_up(record, path).await;
        Ok(())
    }

    /// Drops a damaged copy. The next read fetches the object as a whole.
    async fn give_up(&self, record: &Record, path: CheckPath) {
        match self.store().discard(record).await {
            Ok(true) => self.metrics().healed(path),
            // Another reader was first, or it was replaced.
            Ok(false) => {}
            Err(e) => tracing::warn!(error = %e, "could not drop a damaged copy"),
        }
    }

    /// Notes damage that nothing heals; the error for who asked.
    fn lose(&self, info: &BucketInfo, record: &Record, path: CheckPath, damage: Error) -> Error {
        self.metrics().lost(path);
        let uri = info.bucket.object_uri(&record.name);
        if self.0.lost.note(record) {
            tracing::error!(%uri, generation = record.generation, "lost: {}", damage.message);
        }
        Error { message: format!("{uri}: {}", damage.message), ..damage }
            .hint("there is no other copy: write the object again, or delete it")
    }

    /// Compares all of a commit with its checksums, with a rest after each step: `rest` is told how
    /// many bytes it read, how long that took, and whether it was a full step.
    pub(crate) async fn check(
        &self,
        record: &Record,
        mut rest: impl FnMut(u64, Duration, bool) -> Duration + Send,
    ) -> Result<Verdict> {
        let state = self.state();
        let is_slice = Slice::of_id(record.bucket_id).is_some();
        let bucket_id = match is_slice {
            true => history::bucket_id(record.bucket_id),
            false => record.bucket_id,
        };
        let Some(info) = state.buckets.values().find(|b| b.id == bucket_id) else {
            // A bucket that is no more; its data is on its way out.
            return Ok(Verdict::Gone);
        };
        let checked = match self.store().reader(record).await {
            Ok(reader) => {
                let mut at = 0;
                loop {
                    if at >= record.size {
                        break Ok(());
                    }
                    let range = ByteRange { start: at, end: (at + STEP).min(record.size) };
                    at = range.end;
                    let started = Instant::now();
                    let done = reader.check(range).await;
                    self.count_checked(CheckPath::Scrub, record.size, range);
                    let pause = rest(range.len(), started.elapsed(), range.len() == STEP);
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                    if done.is_err() {
                        break done;
                    }
                }
            }
            Err(e) => Err(e),
        };
        match checked {
            Ok(()) => Ok(Verdict::Sound),
            Err(e) if e.code == ErrorCode::ObjectNotFound => Ok(Verdict::Gone),
            Err(e) if is_corrupt(&e) => {
                // Overwritten meanwhile, it is nobody's loss.
                let now = self.store().get(record.bucket_id, &record.name).await?;
                if now.is_none_or(|now| now.generation != record.generation) {
                    return Ok(Verdict::Gone);
                }
                if is_slice {
                    return Ok(self.damaged_slice(info, record, e).await);
                }
                match self.damaged(info, record, CheckPath::Scrub, e).await {
                    Ok(()) => Ok(Verdict::Healed),
                    Err(_) => Ok(Verdict::Lost),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Deals with a slice that turned out damaged.
    async fn damaged_slice(&self, info: &BucketInfo, record: &Record, damage: Error) -> Verdict {
        self.metrics().damaged(CheckPath::Scrub);
        match self.repair_damaged_fragment(info, record).await {
            Ok(true) => {
                self.metrics().healed(CheckPath::Scrub);
                Verdict::Healed
            }
            done => {
                // What is left of it is no loss while enough others are sound.
                let uri = info.bucket.object_uri(&record.name);
                tracing::warn!(uri, "a damaged slice stays: {}, {done:?}", damage.message);
                Verdict::Lost
            }
        }
    }

    /// The copy here, as it is.
    pub(crate) async fn record(&self, info: &BucketInfo, name: &str) -> Result<Option<Record>> {
        self.store().get(info.id, name).await
    }

    /// Records of a bucket in the order of names, from after a name on; and whether more follow.
    pub(crate) async fn records(
        &self,
        bucket_id: u64,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Record>, bool)> {
        self.store().list(bucket_id, "", Some(after), None, limit).await
    }

    /// The disk of this number, while it is in use.
    pub(crate) fn volume(&self, number: usize) -> Result<Arc<Volume>> {
        let found = self.store().volumes().iter().find(|v| v.number() == number).cloned();
        found.ok_or_else(|| Error::unavailable("the disk is not in use just now"))
    }

    /// Takes up what was found before a restart, as far as it is still so.
    pub(crate) async fn remember_lost(&self, bucket_id: u64, name: &str, generation: u64) {
        let record = self.store().get(bucket_id, name).await;
        if let Ok(Some(record)) = record
            && record.generation == generation
        {
            self.0.lost.note(&record);
        }
    }

    /// Objects known to be damaged with no other copy: bucket id, name and the damaged commit. At
    /// most a thousand are known.
    pub(crate) fn lost(&self) -> Vec<(u64, String, u64)> {
        let table = self.0.lost.table();
        table.iter().map(|((id, name), generation)| (*id, name.clone(), *generation)).collect()
    }

    /// How many such objects there are, and the first few of them for people.
    pub(crate) fn lost_summary(&self) -> (u64, Vec<String>) {
        let state = self.state();
        let table = self.0.lost.table();
        let names = table.keys().take(LOST_NAMES).map(|(id, name)| {
            let info = state.buckets.values().find(|b| b.id == *id);
            info.map_or_else(|| name.clone(), |info| info.bucket.object_uri(name))
        });
        (table.len() as u64, names.collect())
    }

    /// Counts the blocks that a read of `range` compared with their checksums.
    pub(super) fn count_checked(&self, path: CheckPath, size: u64, range: ByteRange) {
        if range.start < range.end {
            let (first, end) = (range.start / BLOCK, range.end.div_ceil(BLOCK));
            let bytes = (end * BLOCK).min(size) - first * BLOCK;
            self.metrics().checked(path, end - first, bytes);
        }
    }
}

/// The turns of a request that begins again when its object turns out to be replaced before a byte
/// went out.
#[derive(Default)]
pub(crate) struct Turns(usize);

impl Turns {
    pub(crate) fn again<T>(&mut self, done: &Result<T>) -> bool {
        self.0 += 1;
        self.0 < TURNS && done.as_ref().is_err_and(|e| e.code == ErrorCode::ObjectChanged)
    }
}

/// The stream with its first piece read: what fails at once is an error here, while an answer can
/// still say so.
pub(crate) async fn read_first_chunk<T: Send + 'static>(
    mut stream: BoxStream<'static, Result<T>>,
) -> Result<BoxStream<'static, Result<T>>> {
    match stream.next().await {
        Some(Ok(first)) => Ok(futures::stream::iter([Ok(first)]).chain(stream).boxed()),
        Some(Err(e)) => Err(e),
        None => Ok(futures::stream::empty().boxed()),
    }
}

//! Damage: stored bytes that differ from those written. The object's other source serves the same
//! request, and the damaged copy is dropped; an object without one is reported as lost.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::erasure::Slice;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result, history};
use forebay_node::metrics::CheckPath;
use forebay_store::{Record, is_corrupt};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::Reads;

/// Bytes of a block of the store, the unit of a checksum.
const BLOCK: u64 = 64 << 10;
/// Bytes that a check reads at once; whole blocks.
const STEP: u64 = 16 * BLOCK;
/// Attempts of a request whose object is replaced meanwhile.
const TURNS: usize = 3;

/// The result of checking a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    /// Damaged, and repaired from another target's copy, or dropped because its backend has it.
    Healed,
    /// Damaged, and there is no other copy.
    Lost,
    /// Removed or replaced meanwhile.
    Gone,
}

/// The other source of one commit's bytes, for use when those on the disk are damaged.
pub(crate) struct Healer {
    reads: Reads,
    info: BucketInfo,
    record: Record,
}

impl Healer {
    /// The bytes of `range` from elsewhere, of the same version as the damaged copy.
    ///
    /// Returns `damage` itself if there is no other source; [`ErrorCode::ObjectChanged`] if the
    /// source has another version by now; the source's own error if it cannot be reached.
    pub(super) async fn stream(&self, damage: Error, range: ByteRange) -> Result<BodyStream> {
        let Self { reads, info, record } = self;
        reads.metrics().damaged(CheckPath::Read);
        if reads.replication().replace_damaged(info, record, CheckPath::Read).await {
            return self.repaired(range).await;
        }
        if !has_source(info, record) {
            return Err(reads.lose(info, record, CheckPath::Read, damage));
        }
        let uri = info.bucket.object_uri(&record.name);
        tracing::warn!(%uri, "the rest of a damaged copy comes from the backend");
        let version = record.meta.backend_version.as_str();
        let backend = reads.cold_cache().backend(info).await?;
        match backend.get(&record.name, Some(range), Some(version)).await {
            Ok(remote) if remote.range == range => {
                reads.give_up(record, CheckPath::Read).await;
                Ok(exactly(remote.stream, range.len(), uri))
            }
            // The sizes differ, so it is another version after all.
            Ok(_) => {
                reads.give_up(record, CheckPath::Read).await;
                Err(replaced(&uri))
            }
            Err(e) if is_another(e.code) => {
                reads.give_up(record, CheckPath::Read).await;
                Err(replaced(&uri))
            }
            // The undamaged parts of the copy may be all that is available for a while.
            Err(e) => Err(e),
        }
    }

    /// The bytes of `range` after the damaged copy was replaced.
    async fn repaired(&self, range: ByteRange) -> Result<BodyStream> {
        let Self { reads, info, record } = self;
        let now = reads.store().get(record.bucket_id, &record.name).await?;
        match now.filter(|now| now.stamp() == record.stamp()) {
            Some(now) => Ok(reads.store().reader(&now).await?.stream(range).boxed()),
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

/// Whether another target or the backend has the same bytes.
fn has_source(info: &BucketInfo, record: &Record) -> bool {
    info.has_backend() && record.evictable() && !record.meta.backend_version.is_empty()
}

/// The stream, which fails unless it has `len` bytes.
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

impl Reads {
    /// The [`Healer`] of this commit.
    pub(super) fn healer(&self, info: &BucketInfo, record: &Record) -> Healer {
        Healer { reads: self.clone(), info: info.clone(), record: record.clone() }
    }

    /// Handles a commit that was found damaged before a byte of it was sent. `Ok`: the commit is
    /// dropped, and the caller looks the object up, or fetches it, again.
    pub(crate) async fn damaged(
        &self,
        info: &BucketInfo,
        record: &Record,
        path: CheckPath,
        damage: Error,
    ) -> Result<()> {
        self.metrics().damaged(path);
        if self.replication().replace_damaged(info, record, path).await {
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

    /// Records damage without another source; returns the error for the caller.
    fn lose(&self, info: &BucketInfo, record: &Record, path: CheckPath, damage: Error) -> Error {
        self.metrics().lost(path);
        let uri = info.bucket.object_uri(&record.name);
        if self.local().lost.note(record) {
            tracing::error!(%uri, generation = record.generation, "lost: {}", damage.message);
        }
        Error { message: format!("{uri}: {}", damage.message), ..damage }
            .hint("there is no other copy: write the object again, or delete it")
    }

    /// Compares all of a commit with its checksums, with a pause after each step: `rest` gets the
    /// number of bytes read, the duration, and whether it was a full step.
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
            // The bucket was destroyed; its data is being removed.
            return Ok(Verdict::Gone);
        };
        let checked = match self.store().stored_reader(record).await {
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
                // Overwritten meanwhile: nothing is lost.
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

    /// Handles a slice that was found damaged.
    async fn damaged_slice(&self, info: &BucketInfo, record: &Record, damage: Error) -> Verdict {
        self.metrics().damaged(CheckPath::Scrub);
        match self.replication().repair_damaged_slice(info, record).await {
            Ok(true) => {
                self.metrics().healed(CheckPath::Scrub);
                Verdict::Healed
            }
            done => {
                // A damaged slice is no loss while enough other slices are sound.
                let uri = info.bucket.object_uri(&record.name);
                tracing::warn!(uri, "a damaged slice stays: {}, {done:?}", damage.message);
                Verdict::Lost
            }
        }
    }

    /// Counts the blocks that a read of `range` verified.
    pub(super) fn count_checked(&self, path: CheckPath, size: u64, range: ByteRange) {
        if range.start < range.end {
            let (first, end) = (range.start / BLOCK, range.end.div_ceil(BLOCK));
            let bytes = (end * BLOCK).min(size) - first * BLOCK;
            self.metrics().checked(path, end - first, bytes);
        }
    }
}

/// The attempts of a request that starts again if its object is replaced before a byte was sent.
#[derive(Default)]
pub(crate) struct Turns(usize);

impl Turns {
    pub(crate) fn again<T>(&mut self, done: &Result<T>) -> bool {
        self.0 += 1;
        self.0 < TURNS && done.as_ref().is_err_and(|e| e.code == ErrorCode::ObjectChanged)
    }
}

/// The stream with its first chunk read: an immediate failure is an error here, while the response
/// can still report it.
pub(crate) async fn read_first_chunk<T: Send + 'static>(
    mut stream: BoxStream<'static, Result<T>>,
) -> Result<BoxStream<'static, Result<T>>> {
    match stream.next().await {
        Some(Ok(first)) => Ok(futures::stream::iter([Ok(first)]).chain(stream).boxed()),
        Some(Err(e)) => Err(e),
        None => Ok(futures::stream::empty().boxed()),
    }
}

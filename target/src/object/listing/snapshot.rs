//! One listing of a backend, in progress or complete: blocks of rows in the order of names, in
//! memory while it is small, then in a temporary file.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_core::intra::BackendListRequest;
use forebay_core::locks::MutexExt;
use forebay_core::object::ListEntry;
use forebay_core::size::ByteRange;
use forebay_core::warmth::ListingTotals;
use forebay_core::{Error, Result};
use forebay_store::DiskFile;
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::overlay::Overlay;
use super::rows::{Rows, RowsBuilder};
use crate::object::{Scratch, cold_cache::read_at};

/// Maximum of bytes of one listing in memory.
const IN_MEMORY: u64 = 1 << 20;
/// Maximum of bytes of one listing; later names belong to another listing.
const MOST: u64 = 256 << 20;

/// The names of a prefix after a given name, as far as they were listed.
pub(super) struct Snapshot {
    pub(super) bucket_id: u64,
    pub(super) prefix: String,
    /// The listing has names after this one.
    pub(super) from: String,
    /// Unix nanoseconds: the listing has all objects that existed before.
    pub(super) taken_ns: u64,
    /// The time in the request that started the listing.
    since_ns: u64,
    /// Whether it is completed even if it is not read.
    to_the_end: bool,
    blocks: Mutex<Blocks>,
    progress: watch::Sender<Progress>,
    used: Mutex<Instant>,
    overlay: Mutex<Arc<Overlay>>,
}

#[derive(Default)]
struct Blocks {
    all: Vec<Block>,
    bytes: u64,
    /// Objects in the rows, and their bytes.
    objects: (u64, u64),
    file: Option<Arc<dyn DiskFile>>,
    /// Holds the disk space of the file.
    scratch: Option<Scratch>,
}

/// Rows that were added together.
#[derive(Clone)]
struct Block {
    last: String,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Memory(Bytes),
    File(ByteRange),
}

#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// The journal positions are not read yet.
    Starting,
    /// This many blocks are available.
    UnderWay(usize),
    /// All names are available.
    Whole,
    /// It ends before the last name.
    Cut,
    /// It was not read any more, and cancelled.
    GivenUp,
    Failed(Error),
}

impl Snapshot {
    /// The listing that a request starts.
    pub(super) fn new(request: &BackendListRequest, taken_ns: u64) -> Self {
        Self {
            bucket_id: request.info.id,
            prefix: request.prefix.clone(),
            from: request.after.clone(),
            taken_ns,
            since_ns: request.since_ns,
            to_the_end: request.to_the_end,
            blocks: Mutex::default(),
            progress: watch::channel(Progress::Starting).0,
            used: Mutex::new(Instant::now()),
            overlay: Mutex::default(),
        }
    }

    /// Sets the journal positions; from here on the listing can be updated with later writes.
    pub(super) fn begin(&self, overlay: Overlay) {
        self.set_overlay(Arc::new(overlay));
        self.progress.send_replace(Progress::UnderWay(0));
    }

    /// Waits for [`Self::begin`] or the end of the listing.
    pub(super) async fn wait_started(&self) {
        let began = |p: &Progress| !matches!(p, Progress::Starting);
        let _ = self.progress.subscribe().wait_for(began).await;
    }

    pub(super) fn overlay(&self) -> Arc<Overlay> {
        self.overlay.locked().clone()
    }

    pub(super) fn set_overlay(&self, overlay: Arc<Overlay>) {
        *self.overlay.locked() = overlay;
    }

    /// Whether it was started for this listing, or job, which the time of its requests identifies.
    pub(super) fn is_of(&self, since_ns: u64) -> bool {
        self.since_ns == since_ns
    }

    /// Returns when it was not read for this time; never if it is completed in any case.
    pub(super) async fn left_alone(&self, rest: Duration) {
        while self.to_the_end || self.rested() < rest {
            tokio::time::sleep(rest / 4).await;
        }
    }

    pub(super) fn keep_file(&self, scratch: Option<Scratch>) {
        self.lock().scratch = scratch;
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.locked()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    pub(super) fn rested(&self) -> Duration {
        self.used.locked().elapsed()
    }

    fn touch(&self) {
        *self.used.locked() = Instant::now();
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::Starting | Progress::UnderWay(_))
    }

    /// The totals of all objects of the bucket, if the listing has them.
    pub(super) fn complete_totals(&self) -> Option<ListingTotals> {
        let is_all = self.prefix.is_empty() && self.from.is_empty();
        if !is_all || !matches!(*self.progress.borrow(), Progress::Whole) {
            return None;
        }
        let (objects, bytes) = self.lock().objects;
        Some(ListingTotals { objects, bytes, taken_ns: self.taken_ns })
    }

    /// Whether it covers the names with `prefix` after `after`.
    pub(super) fn covers(&self, bucket_id: u64, prefix: &str, after: &str) -> bool {
        let within = self.bucket_id == bucket_id && prefix.starts_with(self.prefix.as_str());
        within
            && self.from.as_str() <= after
            && match &*self.progress.borrow() {
                Progress::Starting | Progress::UnderWay(_) | Progress::Whole => true,
                Progress::Cut => {
                    self.lock().all.last().is_some_and(|b| after.max(prefix) < b.last.as_str())
                }
                Progress::GivenUp | Progress::Failed(_) => false,
            }
    }

    /// Ends the listing with this result.
    pub(super) fn end(&self, how: Progress) {
        self.progress.send_replace(how);
    }

    /// Appends rows; false if there is no space for more.
    pub(super) async fn add(
        &self,
        rows: &[ListEntry],
        scratch: &mut Option<Scratch>,
        open: impl AsyncFnOnce() -> Result<Scratch>,
    ) -> Result<bool> {
        let Some(last) = rows.last().map(|row| row.name.clone()) else { return Ok(true) };
        let bytes = Bytes::from(Rows::encode(rows)?);
        let (len, before) = (bytes.len() as u64, self.bytes());
        if before + len > MOST {
            return Ok(false);
        }
        let place = if before + len <= IN_MEMORY {
            Place::Memory(bytes)
        } else {
            let file = match scratch {
                Some(file) => file,
                // Without space on the disks the listing ends here; the rows in memory stay valid.
                None => match open().await {
                    Ok(opened) => scratch.insert(opened),
                    Err(_) => return Ok(false),
                },
            };
            let at = file.written();
            file.write(bytes).await?;
            self.lock().file = Some(file.file());
            Place::File(ByteRange { start: at, end: at + len })
        };
        let mut blocks = self.lock();
        blocks.bytes += len;
        blocks.objects.0 += rows.len() as u64;
        blocks.objects.1 += rows.iter().map(|row| row.meta.size).sum::<u64>();
        blocks.all.push(Block { last, place });
        let all = blocks.all.len();
        drop(blocks);
        self.progress.send_replace(Progress::UnderWay(all));
        Ok(true)
    }

    /// Block `at`, if it is available before `until`; and whether there is none because the listing
    /// is complete.
    async fn block(&self, at: usize, tags: bool, until: Instant) -> Result<(Option<Rows>, bool)> {
        self.touch();
        let mut progress = self.progress.subscribe();
        let there = |p: &Progress| match p {
            Progress::Starting => false,
            Progress::UnderWay(blocks) => *blocks > at,
            _ => true,
        };
        let progress = match timeout_at(until.into(), progress.wait_for(there)).await {
            Ok(Ok(progress)) => progress.clone(),
            Ok(Err(_)) => Progress::GivenUp,
            Err(_) => return Ok((None, false)),
        };
        self.touch();
        let (block, file) = {
            let blocks = self.lock();
            (blocks.all.get(at).cloned(), blocks.file.clone())
        };
        let Some(block) = block else {
            return match progress {
                Progress::Whole => Ok((None, true)),
                Progress::Failed(e) => Err(e),
                _ => Ok((None, false)),
            };
        };
        let bytes = match (block.place, file) {
            (Place::Memory(bytes), _) => bytes,
            (Place::File(range), Some(file)) => read_at(file, range.start, range.len()).await?,
            (Place::File(_), None) => return Err(Error::internal("a listing lost its file")),
        };
        Rows::decode(&bytes, tags).map(|rows| (Some(rows), false))
    }

    /// Up to `limit` names with `prefix` after `after`, updated with later writes; and whether more
    /// follow. Fewer names, or none, if the listing ends or more do not arrive within `timeout`.
    pub(super) async fn page<B: RowsBuilder>(
        &self,
        overlay: &Overlay,
        prefix: &str,
        after: &str,
        limit: usize,
        timeout: Duration,
    ) -> Result<(B, bool)> {
        let until = Instant::now() + timeout;
        let start = |block: &Block| block.last.as_str() <= after || block.last.as_str() < prefix;
        let mut at = self.lock().all.partition_point(start);
        let mut page = B::default();
        let mut last = after.to_owned();
        loop {
            let (rows, over) = self.block(at, B::TAGS, until).await?;
            let Some(rows) = rows else {
                if over {
                    // Names that were written after the last listed one.
                    let full = overlay.add_between(&mut page, prefix, &last, None, limit);
                    return Ok((page, full));
                }
                return Ok((page, true));
            };
            at += 1;
            let is_past = |name: &str| name > prefix && !name.starts_with(prefix);
            for n in rows.first_behind(&last, prefix)..rows.len() {
                let name = rows.name(n);
                let past = is_past(name);
                let until = if past { None } else { Some(name) };
                if overlay.add_between(&mut page, prefix, &last, until, limit)
                    || page.count() >= limit
                {
                    return Ok((page, true));
                }
                if past {
                    return Ok((page, false));
                }
                if !overlay.replaces(name) {
                    page.push(rows.row(n));
                }
                last.clear();
                last.push_str(name);
            }
        }
    }
}

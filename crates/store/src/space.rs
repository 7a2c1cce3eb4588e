//! Space on one disk: used bytes, reservations of writers, and the wait for eviction.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Longest wait of a writer for eviction.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(800);
/// Bytes that eviction frees beyond the request for which the file system was full.
const AFTER_FULL: u64 = 64 << 20;
/// Dead space of the log that is accepted while space is short: this part of the budget.
const DEAD_SHARE: u64 = 16;
/// Percent of the budget above which space is short.
const PRESSED: u64 = 80;

/// Usage of a disk, or of all disks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub objects: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Bytes on the disk that objects need: payload, block tables, records and sidecars.
    pub stored: u64,
    /// Bytes of the log that no object needs any more; compaction frees them.
    pub dead: u64,
    /// Limit for `stored` and `dead` together.
    pub budget: u64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, o: Self) -> Self {
        Self {
            objects: self.objects + o.objects,
            bytes: self.bytes + o.bytes,
            stored: self.stored + o.stored,
            dead: self.dead + o.dead,
            budget: self.budget + o.budget,
        }
    }
}

/// The values by which eviction decides how much to free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes stored and reserved.
    pub used: u64,
    /// Bytes that writers are waiting for.
    pub wanted: u64,
    pub budget: u64,
}

#[derive(Default)]
struct Counts {
    objects: u64,
    bytes: u64,
    stored: u64,
    dead: u64,
    /// Space of other files beside objects, such as sidecars.
    aside: u64,
    reserved: u64,
    wanted: u64,
    /// Bytes to free because the file system, not the budget, was full.
    shortfall: u64,
}

impl Counts {
    fn used(&self) -> u64 {
        self.stored + self.dead + self.aside
    }

    fn is_pressed(&self, budget: u64) -> bool {
        self.wanted > 0 || (self.used() + self.reserved) * 100 > budget * PRESSED
    }
}

/// The accounts of one disk.
pub(crate) struct Room {
    budget: u64,
    counts: Mutex<Counts>,
    /// Number of finished eviction passes; also signalled when a pass frees something.
    passes: watch::Sender<u64>,
    evictor: Arc<EvictionNotifier>,
}

/// Wakes the one task that evicts, for all disks of a store.
#[derive(Default)]
pub struct EvictionNotifier {
    /// Notified when space is short, or accesses should be written.
    pub ring: Notify,
    state: Mutex<EvictorState>,
}

#[derive(Default)]
struct EvictorState {
    attached: bool,
    /// Percent of the budget above which a commit notifies the evictor.
    high: u8,
}

impl EvictionNotifier {
    fn lock(&self) -> MutexGuard<'_, EvictorState> {
        self.state.locked()
    }

    /// Sets whether an evictor runs, so whether waiting makes sense.
    pub fn attach(&self, high: Option<u8>) {
        *self.lock() = EvictorState { attached: high.is_some(), high: high.unwrap_or_default() };
    }
}

impl Room {
    pub(crate) fn new(budget: u64, evictor: Arc<EvictionNotifier>) -> Arc<Self> {
        let counts = Mutex::new(Counts::default());
        Arc::new(Self { budget, counts, passes: watch::Sender::new(0), evictor })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // The counts are plain numbers; a panic never leaves them half-changed.
        self.counts.locked()
    }

    pub(crate) fn usage(&self) -> Usage {
        let c = self.lock();
        Usage {
            objects: c.objects,
            bytes: c.bytes,
            stored: c.stored + c.aside,
            dead: c.dead,
            budget: self.budget,
        }
    }

    pub(crate) fn demand(&self) -> Demand {
        let c = self.lock();
        // Eviction does not help against dead space beyond what compaction leaves.
        let used = c.stored + c.aside + c.dead.min(self.budget / DEAD_SHARE) + c.reserved;
        let beyond = self.budget.saturating_sub(used) + c.shortfall;
        let wanted = if c.shortfall > 0 { c.wanted.max(beyond) } else { c.wanted };
        Demand { used, wanted, budget: self.budget }
    }

    /// Updates the accounts of the disk.
    pub(crate) fn show(&self, objects: u64, bytes: u64, stored: u64, dead: u64) {
        let mut c = self.lock();
        let freed = stored + dead < c.stored + c.dead;
        (c.objects, c.bytes, c.stored, c.dead) = (objects, bytes, stored, dead);
        drop(c);
        self.changed(freed);
    }

    /// Accounts for a sidecar that was written or removed: no object, but space.
    pub(crate) fn set_aside(&self, new: u64, old: u64) {
        let mut c = self.lock();
        c.aside = (c.aside + new).saturating_sub(old);
        drop(c);
        self.changed(new < old);
    }

    fn changed(&self, freed: bool) {
        if freed {
            self.passes.send_modify(|_| {});
        }
        let used = self.lock().used();
        let high = self.evictor.lock().high;
        if u128::from(used) * 100 > u128::from(self.budget) * u128::from(high) {
            self.evictor.ring.notify_one();
        }
    }

    /// Whether space is short.
    pub(crate) fn is_pressed(&self) -> bool {
        self.lock().is_pressed(self.budget)
    }

    /// Whether the log holds more dead space than it should while space is short.
    pub(crate) fn wants_compaction(&self) -> bool {
        let c = self.lock();
        c.is_pressed(self.budget) && c.dead > self.budget / DEAD_SHARE
    }

    /// Whether compaction would free anything.
    pub(crate) fn has_dead_space(&self) -> bool {
        self.lock().dead > self.budget / DEAD_SHARE
    }

    /// Called when the file system had no space for `bytes`, independent of the budget.
    pub(crate) fn note_full(&self, bytes: u64) {
        let mut c = self.lock();
        c.shortfall = c.shortfall.max(bytes + AFTER_FULL);
        drop(c);
        self.evictor.ring.notify_one();
    }

    /// Called by the evictor after a pass over this disk, even if it freed nothing.
    pub(crate) fn pass_done(&self) {
        self.lock().shortfall = 0;
        self.passes.send_modify(|n| *n += 1);
    }

    fn try_take(&self, bytes: u64) -> bool {
        let mut c = self.lock();
        let fits = c.used() + c.reserved + bytes <= self.budget;
        if fits {
            c.reserved += bytes;
        }
        fits
    }

    /// Reserves `bytes` if they are free.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        self.try_take(bytes).then(|| Reservation { room: self.clone(), bytes })
    }

    /// Reserves `bytes`; `fits` checks whether the file system has them. Waits a little for
    /// eviction.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        fits: impl Fn() -> bool,
    ) -> Result<Reservation> {
        let mut reservation = Reservation { room: self.clone(), bytes: 0 };
        reservation.grow(bytes, fits).await?;
        Ok(reservation)
    }

    async fn take(self: &Arc<Self>, bytes: u64, fits: impl Fn() -> bool) -> Result<()> {
        if bytes > self.budget {
            return Err(Error::new(
                ErrorCode::OutOfSpace,
                format!("{bytes} bytes do not fit into the disk's budget of {}", self.budget),
            ));
        }
        let take = || fits() && self.try_take(bytes);
        if take() {
            return Ok(());
        }
        let mut passes = self.passes.subscribe();
        let _wanted = Wanted::new(self, bytes);
        let deadline = Instant::now() + EVICTION_TIMEOUT;
        let first = *passes.borrow_and_update();
        loop {
            if take() {
                return Ok(());
            }
            // A pass that ran when this wait started did not include it; the second one did.
            let over = passes.borrow().wrapping_sub(first) >= 2;
            if over || !self.evictor.lock().attached {
                return Err(self.full(bytes));
            }
            if !fits() {
                self.note_full(bytes);
            }
            self.evictor.ring.notify_one();
            if tokio::time::timeout_at(deadline, passes.changed()).await.is_err() {
                return Err(self.full(bytes));
            }
        }
    }

    pub(crate) fn full(&self, bytes: u64) -> Error {
        let u = self.usage();
        Error::new(
            ErrorCode::OutOfSpace,
            format!(
                "no room for {bytes} bytes: {} of {} in use and nothing to evict",
                u.stored + u.dead,
                u.budget
            ),
        )
        .hint("delete objects, or give the disk a larger size")
    }
}

/// Bytes that a writer waits for; counted until it is dropped.
struct Wanted {
    room: Arc<Room>,
    bytes: u64,
}

impl Wanted {
    fn new(room: &Arc<Room>, bytes: u64) -> Self {
        room.lock().wanted += bytes;
        Self { room: room.clone(), bytes }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.room.lock().wanted -= self.bytes;
    }
}

/// Space reserved for a file that is being written; released when dropped.
pub(crate) struct Reservation {
    room: Arc<Room>,
    bytes: u64,
}

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) async fn grow(&mut self, more: u64, fits: impl Fn() -> bool) -> Result<()> {
        self.room.take(more, fits).await?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.lock().reserved -= self.bytes;
            self.room.passes.send_modify(|_| {});
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_disk_rejects_writes_immediately_without_an_evictor() {
        let room = Room::new(100, Arc::default());
        let held = room.reserve(60, || true).await.unwrap();
        let e = room.reserve(60, || true).await.err().unwrap();
        assert_eq!(e.code, ErrorCode::OutOfSpace);
        drop(held);
        room.reserve(60, || true).await.unwrap();
        assert_eq!(room.demand(), Demand { used: 0, wanted: 0, budget: 100 });
    }

    #[tokio::test]
    async fn a_writer_waits_for_the_pass_that_frees_its_bytes() {
        let bell = Arc::new(EvictionNotifier::default());
        bell.attach(Some(90));
        let room = Room::new(100, bell.clone());
        room.show(1, 90, 90, 0);
        let writer = tokio::spawn({
            let room = room.clone();
            async move { room.reserve(50, || true).await.map(|r| r.bytes()) }
        });
        bell.ring.notified().await;
        while room.demand().wanted == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(room.demand(), Demand { used: 90, wanted: 50, budget: 100 });
        room.pass_done();
        room.show(0, 0, 0, 0);
        assert_eq!(writer.await.unwrap().unwrap(), 50);
    }

    #[tokio::test]
    async fn two_barren_passes_end_the_wait() {
        let bell = Arc::new(EvictionNotifier::default());
        bell.attach(Some(90));
        let room = Room::new(100, bell.clone());
        room.show(1, 90, 90, 0);
        let writer = tokio::spawn({
            let room = room.clone();
            async move { room.reserve(50, || true).await.map(|r| r.bytes()) }
        });
        while !writer.is_finished() {
            room.pass_done();
            tokio::task::yield_now().await;
        }
        assert_eq!(writer.await.unwrap().unwrap_err().code, ErrorCode::OutOfSpace);
    }

    #[tokio::test]
    async fn a_full_file_system_asks_for_more_than_the_budget_leaves() {
        let room = Room::new(1 << 40, Arc::default());
        room.note_full(10);
        let d = room.demand();
        assert!(d.used + d.wanted >= d.budget + 10, "{d:?}");
        room.pass_done();
        assert_eq!(room.demand().wanted, 0);
    }
}

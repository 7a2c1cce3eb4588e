//! The task that evicts. It is woken when a disk passes its high mark, a writer waits for space or
//! a bucket exceeds its share, and from time to time for copies that were not read for long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_node::clock::unix_s;
use forebay_store::{Arrival, Record, Store, Volume, blocking};
use tokio_util::sync::CancellationToken;

use super::residents::Resident;
use super::watch::{CacheWatch, Rules, seconds};
use super::watermark::Watermarks;

mod pass;

/// Shortest frequency of writing access times to the index, and of dropping copies past their
/// bucket's `ttl`.
const TICK: Duration = Duration::from_secs(30);
/// Rest after a pass that freed nothing, so that a disk without evictable objects is not scanned in
/// a loop.
const REST: Duration = Duration::from_millis(100);
/// Most victims of one pass; more passes follow if they are not enough.
const MAX_VICTIMS: usize = 4096;
/// How often the residents are read again from the index when no victim can be found.
const LEARN_AGAIN: Duration = Duration::from_secs(60);
/// Records read from the index at once after a start.
const PAGE: usize = 10_000;
/// A bucket over its share is reduced by this part of it, so that it is not trimmed for each copy.
const BELOW_SHARE: u64 = 32;

type Protected = dyn Fn(&Record) -> bool + Send + Sync;
type CurrentRules = dyn Fn() -> Option<Rules> + Send + Sync;
type Counted = dyn Fn(&'static str, u64) + Send + Sync;

/// Keeps a store's disks within their budgets and its buckets within their rules.
#[derive(Clone)]
pub struct Evictor {
    store: Store,
    watch: Arc<CacheWatch>,
    marks: Watermarks,
    rules: Arc<CurrentRules>,
    protected: Arc<Protected>,
    counted: Arc<Counted>,
}

impl Evictor {
    /// `rules` returns the present rules of all buckets; `None`: not known yet, so nothing may be
    /// evicted.
    pub fn new(
        store: Store,
        watch: Arc<CacheWatch>,
        marks: Watermarks,
        rules: impl Fn() -> Option<Rules> + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            watch,
            marks,
            rules: Arc::new(rules),
            protected: Arc::new(|_| false),
            counted: Arc::new(|_, _| {}),
        }
    }

    /// Sets which records must stay for now, such as those a writer has locked.
    #[must_use]
    pub fn protecting(mut self, f: impl Fn(&Record) -> bool + Send + Sync + 'static) -> Self {
        self.protected = Arc::new(f);
        self
    }

    /// Sets a function that is called with the reason of evictions (`room`, `share`, `ttl`), and
    /// the bytes of their payload.
    #[must_use]
    pub fn counting(mut self, f: impl Fn(&'static str, u64) + Send + Sync + 'static) -> Self {
        self.counted = Arc::new(f);
        self
    }

    /// Runs until `token` is cancelled, then flushes the store's notes in memory.
    pub async fn run(self, token: CancellationToken) {
        let _attached = Attached::new(&self.store, self.marks.high);
        self.store.observe(self.watch.clone());
        tokio::select! {
            () = token.cancelled() => {}
            () = self.learn() => self.work(&token).await,
        }
        if let Err(e) = self.store.flush().await {
            tracing::warn!("the index was not flushed: {e}");
        }
    }

    /// Reads the residents from the index. Evicts those known so far meanwhile.
    async fn learn(&self) {
        for volume in self.store.volumes().iter() {
            let mut last = 0;
            loop {
                let (watch, page) = (self.watch.clone(), volume.clone());
                let read = blocking(move || {
                    let records = page.residents(last, PAGE)?;
                    records.iter().for_each(|r| watch.learn(page.number(), &Arrival::of(r)));
                    Ok(records.last().map(|r| r.generation))
                });
                match read.await {
                    Ok(Some(generation)) => last = generation,
                    Ok(None) => break,
                    Err(e) => {
                        let disk = volume.path().display();
                        tracing::warn!(%disk, "what is cached here is not known to eviction: {e}");
                        break;
                    }
                }
                self.relieve().await;
            }
        }
    }

    async fn work(&self, token: &CancellationToken) {
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + TICK, TICK);
        let mut learned = Instant::now();
        loop {
            let (mut flush_is_due, mut ttl_is_due) = (false, false);
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = self.store.bell().ring.notified() => {
                    flush_is_due = self.store.has_many_touches();
                }
                () = self.watch.over_share.notified() => {}
                _ = tick.tick() => (flush_is_due, ttl_is_due) = (true, true),
            }
            let barren = self.relieve().await;
            if ttl_is_due {
                self.expire(unix_s()).await;
            }
            if flush_is_due && let Err(e) = self.store.flush().await {
                tracing::warn!("times of access were not written: {e}");
            }
            if barren {
                if learned.elapsed() > LEARN_AGAIN {
                    self.learn().await;
                    learned = Instant::now();
                }
                tokio::select! {
                    () = token.cancelled() => return,
                    () = tokio::time::sleep(REST) => {}
                }
            }
        }
    }

    /// Passes over each disk until it needs nothing. True if some disk needs space and has none.
    async fn relieve(&self) -> bool {
        let Some(rules) = (self.rules)() else { return false };
        self.watch.set_rules(&rules, &self.store.budgets());
        let mut barren = false;
        for volume in self.store.volumes().iter() {
            self.trim_shares(volume).await;
            loop {
                let need = self.marks.bytes_to_free(&volume.demand());
                if need == 0 {
                    volume.pass_done();
                    break;
                }
                let freed = self.pass(volume, None, need, "room").await;
                volume.pass_done();
                if freed == 0 {
                    barren = true;
                    break;
                }
            }
        }
        barren
    }

    /// Reduces buckets that exceed their share below it.
    async fn trim_shares(&self, volume: &Arc<Volume>) {
        let over: Vec<(u64, u64)> = {
            let has_parts = volume.has_partials();
            let in_parts = |id| if has_parts { volume.partial_space_of(id) } else { 0 };
            let residents = self.watch.lock(volume.number());
            let over = residents.tallies().iter().filter(|t| !t.pinned).filter_map(|t| {
                let stored = t.stored + in_parts(t.bucket_id);
                let over = Some(stored.saturating_sub(t.limit)).filter(|over| *over > 0)?;
                (t.limit > 0).then_some((t.bucket_id, over + t.limit / BELOW_SHARE))
            });
            over.collect()
        };
        for (bucket_id, mut need) in over {
            let of_bucket = move |id| id == bucket_id;
            let parts = self.drop_parts(volume, (need, Duration::ZERO, "share"), of_bucket).await;
            need = need.saturating_sub(parts);
            while need > 0 {
                match self.pass(volume, Some(bucket_id), need, "share").await {
                    0 => break,
                    freed => need = need.saturating_sub(freed),
                }
            }
        }
    }

    /// Buckets that are not evicted for lack of space.
    fn pinned(&self) -> BTreeSet<u64> {
        let rules = (self.rules)().unwrap_or_default();
        rules.iter().filter(|(_, rules)| rules.pin).map(|(id, _)| *id).collect()
    }

    /// Drops copies that were not read for their bucket's `ttl`. `now_s` is unix time.
    pub(super) async fn expire(&self, now_s: u64) {
        let Some(rules) = (self.rules)() else { return };
        for (bucket_id, ttl) in rules.iter().filter_map(|(id, r)| Some((*id, r.ttl?))) {
            let before_s = seconds(now_s.saturating_sub(ttl));
            for volume in self.store.volumes().iter() {
                let of_bucket = move |id| id == bucket_id;
                self.drop_parts(volume, (u64::MAX, Duration::from_secs(ttl), "ttl"), of_bucket)
                    .await;
                let mut from = Some(0);
                while let Some(at) = from {
                    let (old, next) = self.watch.lock(volume.number()).expired(
                        bucket_id,
                        before_s,
                        at,
                        MAX_VICTIMS,
                    );
                    // Only the index has access times from before a start.
                    let is_old =
                        move |r: &Record| r.meta.atime_ns / 1_000_000_000 < u64::from(before_s);
                    self.drop_copies(volume, old, "ttl", is_old).await;
                    from = next;
                }
            }
        }
    }

    /// Drops copies that were taken out of the watch, and returns to it those that must stay.
    /// Returns the bytes freed.
    async fn drop_copies(
        &self,
        volume: &Arc<Volume>,
        copies: Vec<Resident>,
        why: &'static str,
        may_go: impl Fn(&Record) -> bool + Send + 'static,
    ) -> u64 {
        if copies.is_empty() {
            return 0;
        }
        let (me, disk) = (self.clone(), volume.clone());
        let dropped = blocking(move || Ok(me.drop_blocking(&disk, &copies, why, may_go)));
        dropped.await.unwrap_or(0)
    }

    fn drop_blocking(
        &self,
        volume: &Volume,
        copies: &[Resident],
        why: &'static str,
        may_go: impl Fn(&Record) -> bool,
    ) -> u64 {
        let disk = volume.path().display();
        let generations: Vec<u64> = copies.iter().map(|c| c.generation).collect();
        let records = match volume.records_of(&generations) {
            Ok(records) => records,
            Err(e) => {
                tracing::warn!(%disk, "eviction failed: {e}");
                self.watch.put_back(volume.number(), copies);
                return 0;
            }
        };
        // The watch may be outdated: the record decides.
        let (go, stay): (Vec<Record>, Vec<Record>) = records
            .into_iter()
            .filter(Record::evictable)
            .partition(|record| may_go(record) && !(self.protected)(record));
        stay.iter().for_each(|r| self.watch.learn(volume.number(), &Arrival::of(r)));
        let (mut objects, mut freed) = (0u64, 0);
        match volume.remove_all_blocking(&go) {
            Ok(removed) => {
                for record in removed {
                    objects += 1;
                    freed += record.stored_bytes();
                    (self.counted)(why, record.size);
                }
            }
            Err(e) => {
                tracing::warn!(%disk, "eviction failed: {e}");
                go.iter().for_each(|r| self.watch.learn(volume.number(), &Arrival::of(r)));
            }
        }
        // Space of objects in the log is free only after their segments were rewritten.
        if let Err(e) = volume.reclaim() {
            tracing::warn!(%disk, "compaction failed: {e}");
        }
        tracing::debug!(%disk, objects, freed, why, "evicted");
        freed
    }
}

/// Marks the store as having an evictor, until dropped.
struct Attached(Store);

impl Attached {
    fn new(store: &Store, high: u8) -> Self {
        store.bell().attach(Some(high));
        // A disk may be above its mark from before the start.
        store.bell().ring.notify_one();
        Self(store.clone())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.bell().attach(None);
    }
}

#[cfg(test)]
#[path = "evictor_tests.rs"]
mod tests;

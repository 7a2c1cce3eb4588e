//! The task that evicts: woken when a disk passes its high mark or a writer waits for room.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use tokio_util::sync::CancellationToken;

use super::eviction::{EvictionPolicy, Victims};
use super::watermark::Watermarks;
use crate::store::{Record, Store, Volume, blocking};

/// Times of access reach the index at least this often.
const FLUSH_EVERY: Duration = Duration::from_secs(30);
/// Rest after a pass that freed nothing: a disk of objects that must stay is not scanned in a loop.
const REST: Duration = Duration::from_millis(100);

type Protected = dyn Fn(&Record) -> bool + Send + Sync;

/// Keeps a store's disks within their budgets.
pub struct Evictor {
    store: Store,
    policy: Arc<dyn EvictionPolicy>,
    marks: Watermarks,
    protected: Arc<Protected>,
}

impl Evictor {
    /// `protected` names records that must stay for now, such as those a writer has locked.
    pub fn new(
        store: Store,
        policy: Arc<dyn EvictionPolicy>,
        marks: Watermarks,
        protected: impl Fn(&Record) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { store, policy, marks, protected: Arc::new(protected) }
    }

    /// Runs until `token` is cancelled, then writes down what the store has in memory.
    pub async fn run(self, token: CancellationToken) {
        let _attached = Attached::new(&self.store, self.marks.high);
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        loop {
            let flush_is_due = tokio::select! {
                biased;
                () = token.cancelled() => break,
                () = self.store.bell().ring.notified() => self.store.has_many_touches(),
                _ = flush.tick() => true,
            };
            let barren = self.relieve().await;
            if flush_is_due && let Err(e) = self.store.flush().await {
                tracing::warn!("times of access were not written: {e}");
            }
            if barren {
                tokio::select! {
                    () = token.cancelled() => break,
                    () = tokio::time::sleep(REST) => {}
                }
            }
        }
        if let Err(e) = self.store.flush().await {
            tracing::warn!("the index was not flushed: {e}");
        }
    }

    /// Passes over each disk until it needs nothing. True: some disk wants room and has none.
    async fn relieve(&self) -> bool {
        let mut barren = false;
        for volume in self.store.volumes().iter() {
            loop {
                let need = self.marks.bytes_to_free(&volume.demand());
                if need == 0 {
                    volume.pass_done();
                    break;
                }
                let freed = match self.pass(volume.clone(), need).await {
                    Ok(freed) => freed,
                    Err(e) => {
                        tracing::warn!(disk = %volume.path().display(), "eviction failed: {e}");
                        0
                    }
                };
                volume.pass_done();
                if freed == 0 {
                    barren = true;
                    break;
                }
            }
        }
        barren
    }

    /// One pass: picks victims and drops them. Returns the bytes freed.
    async fn pass(&self, volume: Arc<Volume>, need: u64) -> Result<u64> {
        let (policy, protected) = (self.policy.clone(), self.protected.clone());
        blocking(move || {
            let mut victims = Victims::new(&*policy, need);
            for record in volume.records() {
                let record = record?;
                if record.evictable() && !protected(&record) {
                    victims.offer(record);
                }
            }
            let victims: Vec<Record> =
                victims.into_sorted().into_iter().filter(|record| !protected(record)).collect();
            let removed = volume.remove_all_blocking(&victims)?;
            let objects = removed.len();
            let freed: u64 = removed.iter().map(Record::stored_bytes).sum();
            // What lay in the log is free only after its segments were rewritten.
            volume.reclaim()?;
            tracing::debug!(disk = %volume.path().display(), objects, freed, need, "evicted");
            Ok(freed)
        })
        .await
    }
}

/// Tells the store that somebody evicts, as long as it lives.
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

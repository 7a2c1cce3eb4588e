//! Repairs damaged copies of native objects from other targets' copies.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::rebalance;
use forebay_core::state::Node;
use forebay_node::metrics::CheckPath;

use super::Replication;
use crate::object::Key;
use crate::object::lock::KeyLocks;
use crate::store::Record;

/// Timeout of the repair from one target, before the next one is tried.
const MENDED_WITHIN: Duration = Duration::from_secs(60);

/// Copies that are being repaired: a copy of the same stamp from another target is accepted for
/// them.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    /// A reader that finds the same damage waits for the first repair.
    turns: KeyLocks,
    /// The damaged commit, by object.
    damaged: Mutex<HashMap<Key, u64>>,
}

impl Mending {
    /// Whether this commit is being repaired as damaged.
    pub(super) fn has(&self, key: &Key, record: &Record) -> bool {
        self.damaged().get(key) == Some(&record.generation)
    }

    fn damaged(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.damaged.locked()
    }
}

/// Marks a commit as damaged until this value is dropped.
struct Marked<'a>(&'a Mending, &'a Key);

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.0.damaged().remove(self.1);
    }
}

impl Replication {
    /// Replaces a damaged copy by another target's. False: no target has one as new, or can be
    /// reached; then the damaged one stays as it is.
    pub(in crate::object) async fn mend(
        &self,
        info: &BucketInfo,
        record: &Record,
        path: CheckPath,
    ) -> bool {
        if !info.has_copies() || info.id != record.bucket_id {
            return false;
        }
        let (name, key) = (record.name.as_str(), Key::new(info, &record.name));
        let _turn = self.0.mending.turns.lock(&key).await;
        if self.is_replaced(record).await {
            return true;
        }
        self.0.mending.damaged().insert(key.clone(), record.generation);
        let _marked = Marked(&self.0.mending, &key);
        for node in self.who_has(info, record).await {
            let fetched = self.fetch_copy(info, name, &node, true);
            match tokio::time::timeout(MENDED_WITHIN, fetched).await {
                Ok(Ok(_)) if self.is_replaced(record).await => {
                    let uri = info.bucket.object_uri(name);
                    tracing::warn!(%uri, from = %node.id, "a damaged copy was mended");
                    self.local().lost.forget(&key);
                    self.local().metrics.healed(path);
                    return true;
                }
                Ok(Ok(_)) => {}
                Ok(Err(e)) => {
                    tracing::warn!(name, from = %node.id, "no copy for a damaged one: {e}")
                }
                Err(_) => {
                    tracing::warn!(name, from = %node.id, "no copy for a damaged one in time")
                }
            }
        }
        if self.rebuild_damaged(info, record).await && self.is_replaced(record).await {
            let uri = info.bucket.object_uri(name);
            tracing::warn!(%uri, "a damaged object was mended from its slices");
            self.local().lost.forget(&key);
            self.local().metrics.healed(path);
            return true;
        }
        false
    }

    /// The other targets whose copy is as new as this one.
    async fn who_has(&self, info: &BucketInfo, record: &Record) -> Vec<Node> {
        let state = self.state();
        let others = rebalance::duty(&state, info, &record.name, self.me()).others;
        let others = others.into_iter().filter(|node| node.alive).cloned().collect();
        let answers = self.look_elsewhere(info, &record.name, others).await;
        let has = answers
            .into_iter()
            .filter_map(|(node, look)| Some((node, look.ok()?)))
            .filter(|(_, look)| !look.damaged && look.there >= Some(record.stamp()))
            .map(|(node, _)| node);
        has.collect()
    }

    async fn is_replaced(&self, record: &Record) -> bool {
        let now = self.store().get(record.bucket_id, &record.name).await;
        now.is_ok_and(|now| now.is_some_and(|now| now.generation != record.generation))
    }
}

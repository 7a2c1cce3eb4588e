//! Damaged copies of native objects, mended from those that other targets have.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::rebalance;
use forebay_core::state::Node;
use forebay_node::metrics::CheckPath;

use super::lock::KeyLocks;
use super::{Key, ObjectService};
use crate::store::Record;

/// How long one target may take to mend a copy before the next is asked.
const MENDED_WITHIN: Duration = Duration::from_secs(60);

/// Copies that are being mended: for the same ones that others send there is room.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    /// Who finds the same damage waits for the first.
    turns: KeyLocks,
    /// By object, the commit that is damaged.
    damaged: Mutex<HashMap<Key, u64>>,
}

impl Mending {
    /// Whether this commit is known to be damaged just now.
    pub(super) fn has(&self, key: &Key, record: &Record) -> bool {
        self.damaged().get(key) == Some(&record.generation)
    }

    fn damaged(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a commit count as damaged for as long as it lives.
struct Marked<'a>(&'a Mending, &'a Key);

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.0.damaged().remove(self.1);
    }
}

impl ObjectService {
    /// Has another target's copy take the place of one that is damaged here. False: nobody has one
    /// that is as new, or can be asked; then the damaged one stays as it is.
    pub(super) async fn mend(&self, info: &BucketInfo, record: &Record, path: CheckPath) -> bool {
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
                    self.0.lost.forget(&key);
                    self.metrics().healed(path);
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
            self.0.lost.forget(&key);
            self.metrics().healed(path);
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

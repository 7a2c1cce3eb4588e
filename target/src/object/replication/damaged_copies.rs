//! Repairs damaged copies of native objects from other targets' copies.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_node::metrics::CheckPath;
use forebay_store::Record;

use super::Replication;
use crate::object::Key;
use crate::object::lock::KeyLocks;

/// Copies that are being repaired: a copy of the same stamp from another target is accepted for
/// them.
#[derive(Debug, Default)]
pub(super) struct DamagedCopies {
    /// A reader that finds the same damage waits for the first repair.
    turns: KeyLocks,
    /// The damaged commit, by object.
    damaged: Mutex<HashMap<Key, u64>>,
}

impl DamagedCopies {
    /// Whether this commit is being repaired as damaged.
    pub(super) fn has(&self, key: &Key, record: &Record) -> bool {
        self.damaged().get(key) == Some(&record.generation)
    }

    fn damaged(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.damaged.locked()
    }
}

/// Marks a commit as damaged until this value is dropped.
struct Marked<'a>(&'a DamagedCopies, &'a Key);

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.0.damaged().remove(self.1);
    }
}

impl Replication {
    /// Replaces a damaged copy by another target's. False: no target has one as new, or can be
    /// reached; then the damaged one stays as it is.
    pub(in crate::object) async fn replace_damaged(
        &self,
        info: &BucketInfo,
        record: &Record,
        path: CheckPath,
    ) -> bool {
        if !info.has_copies() || info.id != record.bucket_id {
            return false;
        }
        let (name, key) = (record.name.as_str(), Key::new(info, &record.name));
        let _turn = self.0.damaged.turns.lock(&key).await;
        self.0.damaged.damaged().insert(key.clone(), record.generation);
        let _marked = Marked(&self.0.damaged, &key);
        match self.repair(info, record).await {
            Ok(true) => {
                let uri = info.bucket.object_uri(name);
                tracing::warn!(%uri, "a damaged copy was replaced by that of another target");
                self.local().lost.forget(&key);
                self.local().metrics.healed(path);
                true
            }
            Ok(false) => false,
            Err(e) => {
                tracing::warn!(name, "a damaged copy was not repaired: {e}");
                false
            }
        }
    }
}

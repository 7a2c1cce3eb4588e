//! Pending replications: changes of objects with copies that may not have reached all holders.
//! Reads never return them: if this target died, other targets would return the previous version.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::command::LocalCopy;
use super::replicate::Change;
use super::steps::Steps;
use crate::bucket::BucketInfo;
use crate::copies::Stamp;
use crate::error::{Error, Result};
use crate::locks::MutexExt;

/// How long a read waits for a write in progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(7);

/// Bucket id and name.
pub(super) type Key = (u64, Arc<str>);

/// The objects of one target whose last change may not have reached all holders.
#[derive(Debug, Default)]
pub struct PendingReplications {
    /// Mostly 0: then the table need not be locked.
    count: AtomicUsize,
    /// The stamp of the removal, if the change is one.
    changes: Mutex<HashMap<Key, Option<Stamp>>>,
}

impl PendingReplications {
    fn table(&self) -> MutexGuard<'_, HashMap<Key, Option<Stamp>>> {
        self.changes.locked()
    }

    /// Marks an object, before it is changed here. The stamp of an unreplicated removal is kept
    /// when a write follows that may fail.
    fn begin(&self, key: Key, removal: Option<Stamp>) {
        let mut changes = self.table();
        let known = changes.get(&key).copied().flatten();
        changes.insert(key, removal.or(known));
        self.count.store(changes.len(), Ordering::SeqCst);
    }

    fn complete(&self, key: &Key) {
        let mut changes = self.table();
        changes.remove(key);
        self.count.store(changes.len(), Ordering::SeqCst);
    }

    fn get(&self, key: &Key) -> Option<Option<Stamp>> {
        if self.is_empty() { None } else { self.table().get(key).copied() }
    }

    /// Whether the object's last change may not have reached all holders.
    pub fn has(&self, info: &BucketInfo, name: &str) -> bool {
        !self.is_empty() && self.get(&(info.id, name.into())).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

impl Steps {
    pub(super) fn key(&self) -> Key {
        (self.object.stored_id(), self.object.stored_name().into())
    }

    /// Marks the object, whose lock the caller holds and which it is about to change.
    pub(super) fn begin_replication(&self, removal: Option<Stamp>) {
        if self.info().has_copies() {
            self.engine.pending.begin(self.key(), removal);
        }
    }

    /// Marks the replication of the object's last change as complete.
    pub(super) fn complete_replication(&self) {
        if self.info().has_copies() {
            self.engine.pending.complete(&self.key());
        }
    }

    /// The stamp of a removal that was made here and may not have reached all holders.
    pub(super) fn unreplicated_delete(&self) -> Option<Stamp> {
        self.engine.pending.get(&self.key()).flatten().filter(|_| self.info().has_copies())
    }

    /// The copy here after its replication is complete; it may be another one by then.
    pub(super) async fn replicated_copy(&self, copy: LocalCopy) -> Result<Option<LocalCopy>> {
        if !self.is_pending() {
            return Ok(Some(copy));
        }
        self.flush().await?;
        self.copy_here().await
    }

    /// Before a read returns an object: waits for a write in progress, and completes the
    /// replication of a write whose writer gave up.
    pub(super) async fn flush(&self) -> Result<()> {
        if !self.is_pending() {
            return Ok(());
        }
        let lock = self.commands.timeout(WRITE_TIMEOUT, self.lock()).await;
        let being_written = || {
            let text = format!("{} is being written", self.object.uri());
            Error::unavailable(text).retry_after(1)
        };
        let _guard = lock.ok_or_else(being_written)??;
        let Some(removal) = self.engine.pending.get(&self.key()) else { return Ok(()) };
        match (self.copy_here().await?, removal) {
            (Some(copy), _) => self.replicate(Change::Written(copy)).await,
            (None, Some(stamp)) => self.replicate(Change::Removed(stamp)).await,
            // The change was not made, and no object existed before.
            (None, None) => {
                self.complete_replication();
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_pending_from_its_begin_to_its_end() {
        let pending = PendingReplications::default();
        let [a, b]: [Key; 2] = [(1, "a".into()), (1, "b".into())];
        pending.begin(a.clone(), None);
        pending.begin(b.clone(), Some(Stamp::default()));
        assert_eq!(pending.get(&a), Some(None));
        assert_eq!(pending.get(&b), Some(Some(Stamp::default())));
        pending.begin(b.clone(), None);
        assert_eq!(pending.get(&b), Some(Some(Stamp::default())), "removed before");
        pending.complete(&a);
        assert!(pending.get(&a).is_none() && !pending.is_empty());
        pending.complete(&b);
        assert!(pending.is_empty());
    }
}

//! Pending replications: changes of objects with copies that may not have reached all holders.
//! Reads never return them: if this target died, other targets would return the previous version.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};

use super::Replication;
use super::neighbor::News;
use crate::object::Key;
use crate::store::Record;

/// How long a read waits for a write in progress.
const WRITTEN_WITHIN: Duration = Duration::from_secs(7);

/// The objects whose last change may not have reached all holders, with the stamp of a removal.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    /// Mostly 0: then the table need not be locked.
    count: AtomicUsize,
    keys: Mutex<HashMap<Key, Option<Stamp>>>,
}

impl Unsettled {
    fn table(&self) -> MutexGuard<'_, HashMap<Key, Option<Stamp>>> {
        self.keys.locked()
    }

    /// Called before the change is made here. The stamp of an unreplicated removal is kept when a
    /// write follows that may fail.
    fn begin(&self, key: Key, removal: Option<Stamp>) {
        let mut keys = self.table();
        let known = keys.get(&key).copied().flatten();
        keys.insert(key, removal.or(known));
        self.count.store(keys.len(), Ordering::SeqCst);
    }

    fn end(&self, key: &Key) {
        let mut keys = self.table();
        keys.remove(key);
        self.count.store(keys.len(), Ordering::SeqCst);
    }

    fn of(&self, key: &Key) -> Option<Option<Stamp>> {
        if self.is_empty() { None } else { self.table().get(key).copied() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

impl Replication {
    /// Marks an object that the caller, which holds its lock, is about to change or to remove.
    pub(super) fn unsettle(&self, info: &BucketInfo, name: &str, removal: Option<Stamp>) {
        if info.has_copies() {
            self.0.unsettled.begin(Key::new(info, name), removal);
        }
    }

    /// Whether the object's last change may not have reached all holders.
    pub(super) fn is_unsettled(&self, info: &BucketInfo, name: &str) -> bool {
        !self.0.unsettled.is_empty() && self.0.unsettled.of(&Key::new(info, name)).is_some()
    }

    /// The stamp of a removal that was made here and may not have reached all holders.
    pub(super) fn untold_removal(&self, info: &BucketInfo, name: &str) -> Option<Stamp> {
        if !info.has_copies() || self.0.unsettled.is_empty() {
            return None;
        }
        self.0.unsettled.of(&Key::new(info, name)).flatten()
    }

    /// Marks the replication of the object's last change as complete.
    pub(super) fn complete_replication(&self, info: &BucketInfo, name: &str) {
        if info.has_copies() {
            self.0.unsettled.end(&Key::new(info, name));
        }
    }

    /// The copy here after its replication is complete; it may be another one by then.
    pub(super) async fn settled(
        &self,
        info: &BucketInfo,
        name: &str,
        record: Record,
    ) -> Result<Option<Record>> {
        if !self.is_unsettled(info, name) {
            return Ok(Some(record));
        }
        self.settle(info, name).await?;
        self.store().get(info.id, name).await
    }

    /// Before a read returns an object: waits for a write in progress, and completes the
    /// replication of a write whose writer gave up.
    pub(super) async fn settle(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let key = Key::new(info, name);
        if !info.has_copies() || !self.is_unsettled(info, name) {
            return Ok(());
        }
        let uri = || info.bucket.object_uri(name);
        let lock = tokio::time::timeout(WRITTEN_WITHIN, self.local().locks.lock(&key)).await;
        let _guard = lock.map_err(|_| {
            Error::unavailable(format!("{} is being written", uri())).retry_after(1)
        })?;
        let Some(removal) = self.0.unsettled.of(&key) else { return Ok(()) };
        match (self.store().get(info.id, name).await?, removal) {
            (Some(record), _) => self.tell_others(info, name, News::Written(&record)).await,
            (None, Some(stamp)) => self.tell_others(info, name, News::Removed(stamp)).await,
            // The change was not made, and no object existed before.
            (None, None) => {
                self.0.unsettled.end(&key);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_unsettled_from_its_begin_to_its_end() {
        let unsettled = Unsettled::default();
        let key = |name: &str| Key { bucket_id: 1, name: name.into() };
        unsettled.begin(key("a"), None);
        unsettled.begin(key("b"), Some(Stamp::default()));
        assert_eq!(unsettled.of(&key("a")), Some(None));
        assert_eq!(unsettled.of(&key("b")), Some(Some(Stamp::default())));
        unsettled.begin(key("b"), None);
        assert_eq!(unsettled.of(&key("b")), Some(Some(Stamp::default())), "removed before");
        unsettled.end(&key("a"));
        assert_eq!(unsettled.of(&key("a")), None);
        assert!(!unsettled.is_empty());
        unsettled.end(&key("b"));
        assert!(unsettled.is_empty());
    }
}

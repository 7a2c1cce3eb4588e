//! What jobs ask of the store as a whole, and objects that move to the target that owns them now.

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;

use super::{Key, ObjectService};
use crate::store::{ObjectLock, Record};

impl ObjectService {
    /// Wakes the task that evicts, whatever the marks say.
    pub(crate) fn make_room(&self) {
        self.store().bell().ring.notify_one();
    }

    /// The locks of objects, for the store's own work on them.
    pub(crate) fn object_lock(&self) -> ObjectLock {
        let objects = self.clone();
        Box::new(move |bucket_id, name| {
            let objects = objects.clone();
            Box::pin(async move {
                let guard: Box<dyn Send> = Box::new(objects.lock_key(bucket_id, &name).await);
                guard
            })
        })
    }

    /// Moves objects that lie on another disk than they should; how many.
    pub(crate) async fn move_to_their_disks(&self) -> Result<u64> {
        self.store().resilver_once(&self.object_lock()).await
    }

    /// An error while objects may be on a disk that is not in use.
    pub(crate) fn check_whole(&self) -> Result<()> {
        self.store().check_whole()
    }

    /// The disks as they were told of by their numbers; more may come while the target runs.
    pub(crate) fn disk_numbers(&self) -> std::ops::Range<usize> {
        0..self.store().budgets().len()
    }

    /// Counts comings and goings of disks.
    pub(crate) fn disk_turns(&self) -> tokio::sync::watch::Receiver<u64> {
        self.store().disk_turns()
    }

    /// Takes over an object that belongs here, if a former owner has it still.
    pub(crate) async fn settle(&self, info: &BucketInfo, name: &str) -> Result<()> {
        self.head(info, name).await.map(drop)
    }

    /// Drops a copy that its owner has taken over, unless it was replaced meanwhile.
    pub(crate) async fn drop_moved(&self, info: &BucketInfo, moved: &Record) -> Result<()> {
        let key = Key::new(info, &moved.name);
        let _guard = self.0.locks.lock(&key).await;
        let now = self.store().get(info.id, &moved.name).await?;
        if now.is_some_and(|now| now.generation == moved.generation) {
            self.store().remove(info.id, &moved.name).await?;
        }
        Ok(())
    }
}

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

    /// Moves objects that lie on another disk than they should; how many.
    pub(crate) async fn move_to_their_disks(&self) -> Result<u64> {
        let objects = self.clone();
        let lock: ObjectLock = Box::new(move |bucket_id, name| {
            let objects = objects.clone();
            Box::pin(async move {
                let guard: Box<dyn Send> = Box::new(objects.lock_key(bucket_id, &name).await);
                guard
            })
        });
        self.store().resilver_once(&lock).await
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

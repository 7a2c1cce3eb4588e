//! Evictions by the cache's policy. They also run in the background; such a job starts one at once.

use async_trait::async_trait;
use forebay_core::Result;

use super::run::{Job, JobRun};
use crate::object::ObjectService;

pub(super) struct Lru {
    pub(super) objects: ObjectService,
}

#[async_trait]
impl Job for Lru {
    async fn run(&self, _job: &JobRun) -> Result<()> {
        self.objects.make_room();
        Ok(())
    }
}

//! Cleanups: deletes temporary objects that were left in clouds. The next compaction and scrub
//! remove unneeded data of the disks.

use async_trait::async_trait;
use forebay_core::Result;

use super::run::{Job, JobRun};
use crate::object::ObjectService;

pub(super) struct Cleanup {
    pub(super) objects: ObjectService,
}

#[async_trait]
impl Job for Cleanup {
    async fn run(&self, job: &JobRun) -> Result<()> {
        let swept = self.objects.sweep_clouds().await?;
        job.count(swept, 0);
        Ok(())
    }
}

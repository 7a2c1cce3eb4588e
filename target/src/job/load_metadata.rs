//! Loads of metadata into memory: AIStore's clients request them. The index needs none, so such a
//! job ends at once.

use async_trait::async_trait;
use forebay_core::Result;

use super::run::{Job, JobRun};

pub(super) struct LoadMetadata;

#[async_trait]
impl Job for LoadMetadata {
    async fn run(&self, _job: &JobRun) -> Result<()> {
        Ok(())
    }
}

//! Indexes of shards, built before the first read.

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::shard::ArchiveFormat;

use super::scope::{Item, Scope};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;
use crate::shard::Shards;

pub(super) struct IndexShard {
    pub(super) shards: Shards,
}

#[async_trait]
impl ObjectJob for IndexShard {
    fn scope(&self) -> Scope {
        Scope::OWNED
    }

    /// Builds the index of a shard, if the object is one.
    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        let name = item.name.as_str();
        if ArchiveFormat::from_name(name).is_none() {
            return Ok(Outcome::Nothing);
        }
        let (meta, _) = self.shards.described(&walk.info, name, None).await?;
        Ok(Outcome::Done(meta.size))
    }
}

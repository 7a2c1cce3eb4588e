//! Indexes of shards, built before the first read.

use forebay_core::Result;
use forebay_core::archive::ArchiveFormat;

use super::work::Walk;

/// Builds the index of a shard, if the object is one.
pub(super) async fn one(walk: &Walk<'_>, name: &str) -> Result<Option<u64>> {
    if ArchiveFormat::from_name(name).is_none() {
        return Ok(None);
    }
    let (meta, _) = walk.jobs.0.shards.described(&walk.info, name, None).await?;
    Ok(Some(meta.size))
}

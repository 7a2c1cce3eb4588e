//! Evictions by name or prefix: drops the copies on this target; their backend keeps the objects.

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::job::Selection;

use super::scope::{Item, Listed, Scope};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;

pub(super) struct Evict;

#[async_trait]
impl ObjectJob for Evict {
    fn scope(&self) -> Scope {
        Scope::copies_here(Listed::Copies)
    }

    async fn prepare(&self, walk: &Walk<'_>) -> Result<()> {
        let spec = &walk.job.spec;
        if let Selection::Prefix(prefix) = &spec.selection {
            walk.objects.cold_cache().keep_nothing_under_way(&walk.info, prefix, spec.flat);
        }
        Ok(())
    }

    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        walk.objects.cold_cache().evict(&walk.info, &item.name).await.map(Outcome::from)
    }
}

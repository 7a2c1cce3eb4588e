//! Deletions of many objects.

use async_trait::async_trait;
use forebay_core::Result;

use super::scope::{Item, Scope};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;

pub(super) struct Delete;

#[async_trait]
impl ObjectJob for Delete {
    fn scope(&self) -> Scope {
        Scope::OWNED
    }

    /// The owner deletes the object, wherever it is stored.
    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        Box::pin(walk.objects.remove_at_owner(&walk.info, &item.name)).await?;
        Ok(Outcome::Done(0))
    }
}

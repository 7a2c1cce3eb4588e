//! Kinds that this version does not run: each object counts as a failure.

use async_trait::async_trait;
use forebay_core::{Error, Result};

use super::scope::{Item, Scope};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;

pub(super) struct Unserved;

#[async_trait]
impl ObjectJob for Unserved {
    fn scope(&self) -> Scope {
        Scope::OWNED
    }

    async fn step(&self, walk: &Walk<'_>, _item: &Item) -> Result<Outcome> {
        let kind = walk.job.spec.kind.as_str();
        Err(Error::unsupported(format!("jobs {kind} are not served yet")))
    }
}

//! Scrubs: compares the stored bytes of objects with their checksums.

use std::time::Duration;

use async_trait::async_trait;
use forebay_core::{Error, ErrorCode, Result};

use super::scope::{Item, Listed, Scope};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;
use crate::object::Verdict;

pub(super) struct Scrub;

#[async_trait]
impl ObjectJob for Scrub {
    fn scope(&self) -> Scope {
        Scope::copies_here(Listed::Anything)
    }

    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        check(walk, &item.name).await.map(Outcome::from)
    }
}

/// Checks all copies of one object. Returns the bytes checked; `None` if there are none. A client
/// waits for it, so it does not pause as the background scrub does.
async fn check(walk: &Walk<'_>, name: &str) -> Result<Option<u64>> {
    let (objects, info) = (walk.objects, &walk.info);
    let mut checked = None;
    for record in objects.replication().anything_of(info, name).await? {
        match objects.reads().check(&record, |_, _, _| Duration::ZERO).await? {
            Verdict::Sound => {}
            Verdict::Gone => continue,
            Verdict::Healed => {
                let uri = info.bucket.object_uri(name);
                walk.job
                    .note(format!("{uri}: a damaged copy was dropped; its backend has the object"));
            }
            Verdict::Lost => {
                let uri = info.bucket.object_uri(name);
                return Err(Error::new(ErrorCode::Corrupt, format!("{uri} is damaged"))
                    .hint("there is no other copy: write the object again, or delete it"));
            }
        }
        checked = Some(checked.unwrap_or(0) + record.size);
    }
    if let Some(parts) =
        objects.cold_cache().check_parts(info.id, name, |_, _, _| Duration::ZERO).await?
    {
        if parts.damaged > 0 {
            let uri = info.bucket.object_uri(name);
            walk.job.note(format!(
                "{uri}: {} damaged parts were dropped; its backend has the object",
                parts.damaged
            ));
        }
        checked = Some(checked.unwrap_or(0) + parts.bytes);
    }
    Ok(checked)
}

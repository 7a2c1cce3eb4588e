//! Caches size and checksum of generations from recent listings. A composition names exactly that
//! generation, so with an outdated entry it fails, and never returns wrong bytes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::locks::MutexExt;
use tokio::time::Instant;

use crate::{Backend, Described};

/// Names that one listing call returns.
const PAGE: usize = 1000;
/// A listing call is worth it if it covers this many objects of a group, or all that are left.
const WORTH: usize = 8;
/// Most objects in the cache.
const REMEMBERED: usize = 1 << 16;
/// How long an entry is valid.
const FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Known {
    objects: Mutex<HashMap<String, (Instant, Described)>>,
    /// One listing at a time: the page of one group contains the objects of the next.
    listing: tokio::sync::Mutex<()>,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, Described)>> {
        self.objects.locked()
    }

    /// The cached descriptions of the objects, in the order of `names`; each is used once.
    pub(super) async fn of(&self, inner: &dyn Backend, names: &[&str]) -> Vec<Option<Described>> {
        self.learn(inner, names).await;
        let mut objects = self.lock();
        let mut take = |name: &&str| {
            let (at, described) = objects.remove(*name)?;
            (at.elapsed() < FOR).then_some(described)
        };
        names.iter().map(&mut take).collect()
    }

    /// Lists where names are dense enough; other names stay unknown.
    async fn learn(&self, inner: &dyn Backend, names: &[&str]) {
        let _one = self.listing.lock().await;
        let mut unknown: Vec<&str> = {
            let objects = self.lock();
            let is_known = |name: &str| objects.get(name).is_some_and(|(at, _)| at.elapsed() < FOR);
            names.iter().copied().filter(|name| !is_known(name)).collect()
        };
        unknown.sort_unstable();
        while let Some(first) = unknown.first() {
            let Ok(page) = inner.describe(first, PAGE).await else { return };
            let Some(last) = page.last().map(|d| d.name.clone()) else { return };
            let before = unknown.len();
            unknown.retain(|name| *name > last.as_str());
            self.remember(page);
            if before - unknown.len() < WORTH.min(before) {
                return;
            }
        }
    }

    fn remember(&self, page: Vec<Described>) {
        let now = Instant::now();
        let mut objects = self.lock();
        if objects.len() + page.len() > REMEMBERED {
            objects.retain(|_, (at, _)| at.elapsed() < FOR);
        }
        if objects.len() + page.len() > REMEMBERED {
            objects.clear();
        }
        objects.extend(page.into_iter().map(|described| {
            let name = described.name.clone();
            (name, (now, described))
        }));
    }
}

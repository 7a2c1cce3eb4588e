//! Listings of backends that somebody reads to their end, page after page: the pages after the one
//! that is asked for are fetched ahead, many at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::ListPage;
use forebay_core::object::{ListEntry, ObjectMeta, RowKind};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::ObjectService;
use crate::backend::RemoteEntry;
use crate::backend::sweep::{SweepOptions, sweep};

/// Listings that are read at the same time; the one that rested longest goes first.
const MOST: usize = 8;
/// A listing whose reader does not come back for so long is given up.
const REST: Duration = Duration::from_secs(10);

/// Listings under way, by where they go on.
#[derive(Default)]
pub(super) struct Ahead(Mutex<HashMap<Place, Rest>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    bucket_id: u64,
    prefix: String,
    after: String,
}

/// What is left of a listing.
struct Rest {
    pages: BoxStream<'static, Result<Vec<ListEntry>>>,
    /// Rows that came with the last page and were too many for it.
    left: Vec<ListEntry>,
    since: Instant,
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, place: &Place) -> Option<Rest> {
        let mut all = self.lock();
        all.retain(|_, rest| rest.since.elapsed() < REST);
        all.remove(place)
    }

    fn keep(&self, place: Place, rest: Rest) {
        let mut all = self.lock();
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, rest)| rest.since).map(|(place, _)| place);
            if let Some(oldest) = oldest.cloned() {
                all.remove(&oldest);
            }
        }
        all.insert(place, rest);
    }

    /// Forgets what was fetched ahead of a bucket, which was just written to.
    pub(super) fn forget(&self, bucket_id: u64) {
        self.lock().retain(|place, _| place.bucket_id != bucket_id);
    }
}

impl ObjectService {
    /// All that a backend has of a prefix behind `after`, in order.
    pub(crate) async fn sweep(
        &self,
        info: &BucketInfo,
        prefix: &str,
        after: &str,
    ) -> Result<BoxStream<'static, Result<Vec<ListEntry>>>> {
        let backend = self.backend(info).await?;
        let pages = sweep(backend, prefix, after, SweepOptions::default());
        Ok(pages.map_ok(|rows| rows.into_iter().map(listed).collect()).boxed())
    }

    /// As [`Self::page_backend`], for a reader of all pages.
    pub(crate) async fn page_ahead(
        &self,
        info: &BucketInfo,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<ListPage> {
        let place = |after: &str| Place {
            bucket_id: info.id,
            prefix: prefix.to_owned(),
            after: after.to_owned(),
        };
        let mut rest = match self.0.listings.take(&place(after)) {
            Some(rest) => rest,
            None => {
                let pages = self.sweep(info, prefix, after).await?;
                Rest { pages, left: Vec::new(), since: Instant::now() }
            }
        };
        let mut entries = std::mem::take(&mut rest.left);
        while entries.len() <= limit {
            match rest.pages.try_next().await? {
                Some(rows) => entries.extend(rows),
                None => return Ok(ListPage { entries, more: false }),
            }
        }
        rest.left = entries.split_off(limit);
        rest.since = Instant::now();
        if let Some(last) = entries.last() {
            self.0.listings.keep(place(&last.name), rest);
        }
        Ok(ListPage { entries, more: true })
    }
}

/// A backend's row as the cluster lists it.
pub(super) fn listed(entry: RemoteEntry) -> ListEntry {
    let RemoteEntry { name, size, version, etag, mtime_ns } = entry;
    let meta = ObjectMeta { size, version, etag, mtime_ns, ..ObjectMeta::default() };
    ListEntry { name, kind: RowKind::Object, meta }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::bucket::Freshness;

    use crate::object::tests::Bench;

    #[tokio::test]
    async fn pages_of_any_size_join_to_the_listing_also_after_a_break() {
        let bench = Bench::new(1 << 30).await;
        let info = bench.bucket("b", true, Freshness::Never);
        std::fs::create_dir(bench.folder().join("d")).unwrap();
        let names: Vec<String> = (0..2500).map(|n| format!("d/{n:04}")).collect();
        for name in &names {
            std::fs::write(bench.folder().join(name), "x").unwrap();
        }
        let mut got: Vec<String> = Vec::new();
        for limit in [1, 700, 1000, 333].into_iter().cycle() {
            let after = got.last().cloned().unwrap_or_default();
            let page = bench.service.page_ahead(&info, "d/", &after, limit).await.unwrap();
            assert!(page.entries.len() <= limit);
            got.extend(page.entries.into_iter().map(|entry| entry.name));
            if got.len() > 1500 {
                // As another target would, or one that had forgotten.
                bench.service.0.listings.forget(info.id);
            }
            if !page.more {
                break;
            }
        }
        assert_eq!(got, names);
        assert!(bench.service.0.listings.lock().is_empty());
    }
}

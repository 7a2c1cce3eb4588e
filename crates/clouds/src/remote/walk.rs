//! Listings of an AIStore, which are not in byte order.
//!
//! It walks folder by folder: `a/b` comes before `a-b`, although `-` is the smaller byte. So a page
//! does not bound the next one's names, and continuing behind a name would lose some. Here a folder
//! is walked once by the tokens of one listing, sorted, and kept while readers continue in it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::locks::MutexExt;
use tokio::time::{Instant, sleep};

use crate::{RemoteEntry, RemotePage};

/// A listing that was not read for this time is dropped,
const IDLE_LISTING_TTL: Duration = Duration::from_secs(10);
/// and one of this age is not continued.
const MAX_LISTING_AGE: Duration = Duration::from_secs(60);
/// Listings with more names are not kept in memory.
const MAX_LISTED_NAMES: usize = 1_000_000;

/// The walked folders of one bucket.
#[derive(Clone)]
pub(super) struct Walks {
    /// How long a walk is kept without a reader.
    keep_for: Duration,
    /// Held by the walking caller: concurrent callers use its result.
    turn: Arc<tokio::sync::Mutex<()>>,
    kept: Arc<Mutex<HashMap<String, Kept>>>,
}

struct Kept {
    /// Start of the walk.
    started: Instant,
    used: Instant,
    names: Arc<Vec<RemoteEntry>>,
}

/// The folder that contains all names with this prefix: AIStore treats a prefix as a folder.
pub(super) fn folder(prefix: &str) -> &str {
    prefix.rfind('/').map_or("", |slash| &prefix[..=slash])
}

impl Default for Walks {
    fn default() -> Self {
        Self { keep_for: IDLE_LISTING_TTL, turn: Arc::default(), kept: Arc::default() }
    }
}

impl Walks {
    /// A page as in [`crate::Backend::list`]. `walk` lists a folder in any order; the
    /// first page of a listing always walks.
    pub(super) async fn list<F>(
        &self,
        (prefix, after, limit): (&str, &str, usize),
        walk: impl FnOnce(String) -> F,
    ) -> Result<RemotePage>
    where
        F: Future<Output = Result<Vec<RemoteEntry>>>,
    {
        let folder = folder(prefix);
        let known = if after.is_empty() { None } else { self.kept(folder) };
        let names = match known {
            Some(names) => names,
            None => {
                let asked = Instant::now();
                let _turn = self.turn.lock().await;
                match self.kept_since(folder, asked) {
                    Some(names) => names,
                    None => {
                        let started = Instant::now();
                        self.keep(folder, started, walk(folder.to_owned()).await?)
                    }
                }
            }
        };
        Ok(page(&names, prefix, after, limit))
    }

    fn kept(&self, folder: &str) -> Option<Arc<Vec<RemoteEntry>>> {
        let mut all = self.all();
        let kept = all.get_mut(folder).filter(|kept| kept.started.elapsed() < MAX_LISTING_AGE)?;
        kept.used = Instant::now();
        Some(kept.names.clone())
    }

    /// A walk that started after `asked`.
    fn kept_since(&self, folder: &str, asked: Instant) -> Option<Arc<Vec<RemoteEntry>>> {
        self.all().get(folder).filter(|kept| kept.started > asked).map(|kept| kept.names.clone())
    }

    fn keep(
        &self,
        folder: &str,
        started: Instant,
        mut names: Vec<RemoteEntry>,
    ) -> Arc<Vec<RemoteEntry>> {
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        names.dedup_by(|a, b| a.name == b.name);
        let names = Arc::new(names);
        let kept = Kept { started, used: Instant::now(), names: names.clone() };
        self.all().insert(folder.to_owned(), kept);
        tokio::spawn(forgotten(self.clone(), folder.to_owned(), Arc::downgrade(&names)));
        names
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.locked()
    }
}

/// Drops a walk when it was idle for its time; keeps another walk of that folder.
async fn forgotten(walks: Walks, folder: String, names: std::sync::Weak<Vec<RemoteEntry>>) {
    loop {
        sleep(walks.keep_for).await;
        let mut all = walks.all();
        match all.get(&folder) {
            Some(kept) if std::ptr::eq(Arc::as_ptr(&kept.names), names.as_ptr()) => {
                if kept.used.elapsed() >= walks.keep_for {
                    all.remove(&folder);
                    return;
                }
            }
            _ => return,
        }
    }
}

fn page(names: &[RemoteEntry], prefix: &str, after: &str, limit: usize) -> RemotePage {
    let from = names.partition_point(|e| e.name.as_str() <= after || e.name.as_str() < prefix);
    let mut rest = names[from..].iter().take_while(|e| e.name.starts_with(prefix));
    let entries = rest.by_ref().take(limit).cloned().collect();
    RemotePage { entries, more: rest.next().is_some(), ..RemotePage::default() }
}

/// Rejects listings that would not fit into memory.
pub(super) fn check_count(of: &str, count: usize) -> Result<()> {
    if count <= MAX_LISTED_NAMES {
        return Ok(());
    }
    let text = format!(
        "{of} is in an AIStore and has more than {MAX_LISTED_NAMES} names: it lists in an order that cannot be gone on in"
    );
    Err(Error::new(ErrorCode::InvalidArgument, text)
        .hint("list one folder of it at a time: prefix folder/"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn entries(names: &[&str]) -> Vec<RemoteEntry> {
        let entry = |name: &&str| RemoteEntry {
            name: (*name).to_owned(),
            size: 1,
            version: "1".into(),
            etag: String::new(),
            mtime_ns: 0,
        };
        names.iter().map(entry).collect()
    }

    /// A bucket that is walked folder by folder, with a counter of walks.
    struct Bucket {
        walks: Walks,
        walked: AtomicUsize,
    }

    impl Bucket {
        async fn list(&self, prefix: &str, after: &str, limit: usize) -> (Vec<String>, bool) {
            let walk = |folder: String| async move {
                self.walked.fetch_add(1, Ordering::Relaxed);
                let all = entries(&["a/b", "a/c/d", "a/c-d", "a-b", "a0", "b"]);
                Ok(all.into_iter().filter(|e| e.name.starts_with(&folder)).collect())
            };
            let page = self.walks.list((prefix, after, limit), walk).await.unwrap();
            (page.entries.into_iter().map(|e| e.name).collect(), page.more)
        }
    }

    fn bucket() -> Bucket {
        Bucket { walks: Walks::default(), walked: AtomicUsize::new(0) }
    }

    #[tokio::test]
    async fn pages_in_byte_order_are_served_from_one_walk() {
        let bucket = bucket();
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let (names, more) = bucket.list("a", &after, 2).await;
            after = names.last().unwrap().clone();
            all.extend(names);
            if !more {
                break;
            }
        }
        assert_eq!(all, ["a-b", "a/b", "a/c-d", "a/c/d", "a0"]);
        assert_eq!(bucket.walked.load(Ordering::Relaxed), 1);
        assert_eq!(bucket.list("a/c", "", 9).await.0, ["a/c-d", "a/c/d"]);
    }

    #[tokio::test]
    async fn a_listing_begins_with_a_walk_of_its_own_and_what_nobody_reads_is_forgotten() {
        let mut bucket = bucket();
        bucket.walks.keep_for = Duration::from_millis(20);
        bucket.list("", "", 1).await;
        bucket.list("", "", 1).await;
        assert_eq!(bucket.walked.load(Ordering::Relaxed), 2);
        while !bucket.walks.all().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        bucket.list("", "a0", 1).await;
        assert_eq!(bucket.walked.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn more_names_than_memory_is_for_are_refused_with_a_way_out() {
        assert!(check_count("ais://@far/b", MAX_LISTED_NAMES).is_ok());
        let error = check_count("ais://@far/b", MAX_LISTED_NAMES + 1).unwrap_err();
        assert!(error.message.contains("ais://@far/b") && error.hint.is_some());
    }
}

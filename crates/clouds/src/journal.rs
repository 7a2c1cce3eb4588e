//! The writes of this target to a bucket's backend. With them an older listing is corrected without
//! another request to the backend.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use forebay_core::error::{ErrorCode, Result};
use forebay_core::intra::{Change, Changed, JournalMark};
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use rand::RngExt;

use super::{After, Backend, Described, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// Most changes of one bucket that are kept; the oldest are dropped first.
const REMEMBERED: usize = 1 << 16;

/// The changes of one bucket that went through this target.
pub struct Journal {
    /// Differs after a restart.
    id: u64,
    changes: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    /// Number of dropped changes.
    gone: u64,
    kept: VecDeque<Change>,
}

impl Default for Journal {
    fn default() -> Self {
        Self { id: rand::rng().random(), changes: Mutex::default() }
    }
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.changes.locked()
    }

    fn note(&self, change: Change) {
        let mut changes = self.lock();
        if changes.kept.len() >= REMEMBERED {
            changes.kept.pop_front();
            changes.gone += 1;
        }
        changes.kept.push_back(change);
    }

    /// The current mark, and the changes since an earlier mark; `None` if they were dropped.
    pub fn since(&self, mark: Option<JournalMark>) -> (JournalMark, Option<Vec<Change>>) {
        let changes = self.lock();
        let now = JournalMark { journal: self.id, at: changes.gone + changes.kept.len() as u64 };
        let Some(mark) = mark else { return (now, Some(Vec::new())) };
        let from = mark.at.checked_sub(changes.gone).and_then(|from| usize::try_from(from).ok());
        let since = from.filter(|_| mark.journal == self.id);
        let since = since.map(|from| changes.kept.iter().skip(from).cloned().collect());
        (now, since)
    }
}

/// The journals of a target's buckets.
#[derive(Default)]
pub(crate) struct Journals(Mutex<HashMap<u64, Arc<Journal>>>);

impl Journals {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Journal>>> {
        self.0.locked()
    }

    pub(crate) fn of(&self, bucket_id: u64) -> Arc<Journal> {
        self.lock().entry(bucket_id).or_default().clone()
    }

    pub(crate) fn forget(&self, bucket_id: u64) {
        self.lock().remove(&bucket_id);
    }
}

/// A backend whose writes are recorded before they are acknowledged.
pub(crate) struct Journaled {
    inner: Arc<dyn Backend>,
    journal: Arc<Journal>,
}

impl From<RemoteMeta> for Changed {
    fn from(meta: RemoteMeta) -> Self {
        let etag = meta.shown_etag();
        let RemoteMeta { size, version, mtime_ns, .. } = meta;
        Self::There { size, version, etag, mtime_ns }
    }
}

/// A write in progress. If it is given up, the object may have changed or not.
struct Write<'a> {
    journal: &'a Journal,
    name: &'a str,
    now: Changed,
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        let now = std::mem::replace(&mut self.now, Changed::Unknown);
        self.journal.note(Change { name: self.name.to_owned(), now });
    }
}

impl Journaled {
    pub(crate) fn new(inner: Arc<dyn Backend>, journal: Arc<Journal>) -> Self {
        Self { inner, journal }
    }

    fn write<'a>(&'a self, name: &'a str) -> Write<'a> {
        Write { journal: &self.journal, name, now: Changed::Unknown }
    }
}

#[async_trait]
impl Backend for Journaled {
    async fn head_bucket(&self) -> Result<()> {
        self.inner.head_bucket().await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.inner.stat(name).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        self.inner.get(name, range, if_version).await
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        let mut write = self.write(name);
        let done = self.inner.put(name, body).await;
        if let Ok(meta) = &done {
            write.now = meta.clone().into();
        }
        done
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let mut write = self.write(name);
        let done = self.inner.delete(name).await;
        if done.as_ref().map_or_else(|e| e.code == ErrorCode::ObjectNotFound, |()| true) {
            write.now = Changed::Gone;
        }
        done
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.inner.list(prefix, after, limit).await
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.inner.describe(from, limit).await
    }

    async fn check_composing(&self) -> Result<()> {
        self.inner.check_composing().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str) -> Change {
        Change { name: name.into(), now: Changed::Gone }
    }

    #[test]
    fn changes_since_a_mark_are_returned_while_the_journal_has_them() {
        let journal = Journal::default();
        journal.note(change("before"));
        let (start, nothing) = journal.since(None);
        assert_eq!(nothing, Some(vec![]));
        journal.note(change("a"));
        journal.note(change("b"));
        let (then, since) = journal.since(Some(start));
        assert_eq!(since, Some(vec![change("a"), change("b")]));
        assert_eq!(journal.since(Some(then)), (then, Some(vec![])));
        for _ in 0..REMEMBERED {
            journal.note(change("c"));
        }
        assert_eq!(journal.since(Some(start)).1, None, "too long ago");
        assert_eq!(journal.since(Some(then)).1.map(|all| all.len()), Some(REMEMBERED));
        assert_eq!(Journal::default().since(Some(then)).1, None, "of another process");
    }
}

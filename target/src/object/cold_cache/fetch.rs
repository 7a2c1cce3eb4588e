//! Cold GET: one fetch per object for all concurrent readers, which receive its bytes while these
//! are written to the disk. A failed fetch leaves nothing behind.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::BytesMut;
use forebay_clouds::RemoteObject;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::locks::MutexExt;
use forebay_core::size::RangeSpec;
use forebay_core::{Error, ErrorCode, Result};
use futures::StreamExt;
use tokio::sync::watch;

use super::ColdCache;
use super::meta::Checks;
use super::progress::{Progress, Started, gone};
use super::ranges::{BlobOptions, Ranges};
use super::{Following, cached_meta, object_meta};
use crate::object::Key;
use crate::object::learn::Learner;

/// Objects up to this size are kept in memory until all waiters have them.
const IN_MEMORY: u64 = 1 << 20;
/// A fetch without readers continues if at most this many bytes are missing.
const MAX_FETCHED_FOR_NOBODY: u64 = 64 << 20;
/// A range read waits for a fetch of the whole object if that reaches the range within this many
/// bytes.
const SOON: u64 = 16 << 20;

/// The fetches in progress, by object.
#[derive(Default)]
pub(super) struct Fetches {
    table: Mutex<HashMap<Key, Arc<Fetch>>>,
    /// Number of writes to the objects that share a slot.
    writes: [AtomicU64; 32],
}

/// The fetch of one object from the backend.
pub(super) struct Fetch {
    progress: watch::Receiver<Progress>,
    /// A write superseded it: its bytes must not be kept.
    superseded: AtomicBool,
}

impl Fetch {
    fn is_over(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::Done { .. } | Progress::Failed { .. })
    }
}

impl Fetches {
    /// Keeps a fetch in progress out of the store: the object was written or removed meanwhile.
    pub(super) fn supersede(&self, key: &Key) {
        self.place(key).fetch_add(1, Ordering::SeqCst);
        let fetch = self.table().remove(key);
        if let Some(fetch) = fetch {
            fetch.superseded.store(true, Ordering::SeqCst);
        }
    }

    /// As [`Self::supersede`], for all objects for which `chosen` is true.
    pub(super) fn supersede_all(&self, chosen: impl Fn(&Key) -> bool) {
        // A range read that has just begun is not in the table yet.
        for place in &self.writes {
            place.fetch_add(1, Ordering::SeqCst);
        }
        let keys: Vec<Key> = self.table().keys().filter(|key| chosen(key)).cloned().collect();
        keys.iter().for_each(|key| self.supersede(key));
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Key, Arc<Fetch>>> {
        self.table.locked()
    }

    fn place(&self, key: &Key) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.writes[(hasher.finish() % self.writes.len() as u64) as usize]
    }

    /// A counter that changes with every write of this object, and perhaps of others.
    pub(super) fn writes(&self, key: &Key) -> u64 {
        self.place(key).load(Ordering::SeqCst)
    }

    /// Whether a fetch of the whole object has reached the range, or soon does.
    pub(super) fn soon_has(&self, key: &Key, asked: RangeSpec) -> bool {
        let Some(fetch) = self.table().get(key).cloned() else { return false };
        let progress = fetch.progress.borrow();
        match (&*progress, asked) {
            (Progress::Filling { start, written }, asked) => asked
                .resolve(start.meta.size)
                .is_ok_and(|range| written.saturating_add(SOON) >= range.end),
            (Progress::AlreadyHere | Progress::Done { .. }, _) => true,
            (Progress::Starting | Progress::Failed { .. }, _) => false,
        }
    }

    /// Whether a fetch of the object is in progress.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.table().get(key).is_some_and(|fetch| !fetch.is_over())
    }

    /// Ends a fetch that has no readers. False: it has some.
    fn abandon(&self, key: &Key, fetch: &Arc<Fetch>, progress: &watch::Sender<Progress>) -> bool {
        let mut table = self.table();
        // One receiver is the fetch's own; a reader that joins holds the fetch first.
        let in_table = table.get(key).is_some_and(|f| Arc::ptr_eq(f, fetch));
        let holders = 1 + usize::from(in_table);
        if progress.receiver_count() > 1 || Arc::strong_count(fetch) > holders {
            return false;
        }
        if in_table {
            table.remove(key);
        }
        true
    }

    fn forget(&self, key: &Key, fetch: &Arc<Fetch>) {
        let mut table = self.table();
        if table.get(key).is_some_and(|f| Arc::ptr_eq(f, fetch)) {
            table.remove(key);
        }
    }
}

impl ColdCache {
    /// Joins the fetch of this object, or starts it. Returns when the backend has responded, with
    /// whether this call started the fetch; `None` if the store has the object after all.
    pub(in crate::object) async fn cold(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<(Following, bool)>> {
        self.cold_by(info, name, None).await
    }

    /// As [`Self::cold`]; a fetch that starts here uses several ranges if `how` requests that.
    pub(in crate::object) async fn cold_by(
        &self,
        info: &BucketInfo,
        name: &str,
        how: Option<BlobOptions>,
    ) -> Result<Option<(Following, bool)>> {
        for n in 0..3 {
            let joined = self.join(info, name, how).await?;
            match joined {
                // A fetch that is joined later began after this request.
                Some((ref following, false))
                    if (n == 0 || !following.meta.version.is_empty())
                        && !self.is_current(info, name, following).await? => {}
                joined => return Ok(joined),
            }
        }
        Err(Error::unavailable(format!("{} keeps changing", info.bucket.object_uri(name))))
    }

    /// If the bucket requires it: whether a fetch that began before this request has the backend's
    /// current version. If not, the fetch is kept out of the store.
    async fn is_current(
        &self,
        info: &BucketInfo,
        name: &str,
        under_way: &Following,
    ) -> Result<bool> {
        if info.freshness != Freshness::Always {
            return Ok(true);
        }
        let remote = self.stat(info, name).await?;
        let current = remote.has_version() && remote.version == under_way.meta.version;
        if !current {
            self.0.fetches.supersede(&Key::new(info, name));
        }
        Ok(current)
    }

    /// Completes a fetch even if its readers leave: a reader that retries needs all of it, however
    /// long that takes.
    pub(in crate::object) fn fetch_to_the_end(&self, following: &Following) {
        if following.meta.size > MAX_FETCHED_FOR_NOBODY {
            let following = following.clone();
            self.local().lifecycle.spawn(async move { drop(following.finished().await) });
        }
    }

    async fn join(
        &self,
        info: &BucketInfo,
        name: &str,
        how: Option<BlobOptions>,
    ) -> Result<Option<(Following, bool)>> {
        let key = Key::new(info, name);
        let (fetch, started_here) = {
            let mut table = self.0.fetches.table();
            // A finished fetch that is still in the table has the state before this request.
            match table.get(&key).filter(|fetch| !fetch.is_over()) {
                Some(fetch) => (fetch.clone(), false),
                None => {
                    let (sender, progress) = watch::channel(Progress::Starting);
                    let fetch = Arc::new(Fetch { progress, superseded: AtomicBool::new(false) });
                    table.insert(key.clone(), fetch.clone());
                    self.spawn_fetch(info.clone(), key, fetch.clone(), sender, how);
                    (fetch, true)
                }
            }
        };
        let mut progress = fetch.progress.clone();
        let answered = progress.wait_for(|p| !matches!(p, Progress::Starting)).await;
        let start = match answered.map(|p| p.clone()) {
            Ok(Progress::Filling { start, .. } | Progress::Done { start, .. }) => start,
            Ok(Progress::Failed { start: Some(start), .. }) => start,
            Ok(Progress::Failed { error, .. }) => return Err(error),
            Ok(Progress::AlreadyHere) => return Ok(None),
            Ok(Progress::Starting) | Err(_) => return Err(gone()),
        };
        let following = Following { meta: start.meta.clone(), file: start.file.clone(), progress };
        Ok(Some((following, started_here)))
    }

    fn spawn_fetch(
        &self,
        info: BucketInfo,
        key: Key,
        fetch: Arc<Fetch>,
        progress: watch::Sender<Progress>,
        how: Option<BlobOptions>,
    ) {
        let service = self.clone();
        let stop = self.local().lifecycle.token();
        self.local().lifecycle.spawn(async move {
            let mut start = None;
            let filled = tokio::select! {
                filled = service.fill(&info, &key, &fetch, &progress, &mut start, how) => filled,
                () = stop.cancelled() => Err(Error::unavailable("this target is stopping")),
            };
            service.0.fetches.forget(&key, &fetch);
            if let Err(error) = filled {
                tracing::debug!(bucket = %info.bucket, error = %error, "cold GET failed");
                progress.send_replace(Progress::Failed { start, error });
            }
        });
    }

    /// Fetches the object into the store; the caller reports a failure to the waiters.
    async fn fill(
        &self,
        info: &BucketInfo,
        key: &Key,
        fetch: &Arc<Fetch>,
        progress: &watch::Sender<Progress>,
        started: &mut Option<Arc<Started>>,
        how: Option<BlobOptions>,
    ) -> Result<()> {
        let _permit = self.0.cold_permits.acquire().await.map_err(|_| gone())?;
        self.let_assemble(key).await;
        // A fetch may have ended between the caller's look-up and this one.
        if self.current_copy(info, &key.name).await?.is_some() {
            progress.send_replace(Progress::AlreadyHere);
            return Ok(());
        }
        let epoch = self.state().version;
        let how = how.map_or_else(|| Ranges::of(info), Ranges::from);
        let RemoteObject { meta: remote, mut stream, .. } = self.whole(info, key, how).await?;
        let mut work = self.store().begin(info.id, &key.name, Some(remote.size)).await?;
        let meta = object_meta(&remote, true);
        let start = Arc::new(Started { meta, file: work.file() });
        *started = Some(start.clone());
        progress.send_replace(Progress::Filling { start: start.clone(), written: 0 });

        let mut memory = (remote.size <= IN_MEMORY).then(BytesMut::new);
        let mut checks = Checks::new(info.checksum, &remote);
        let mut learner = Learner::new(&key.name);
        while let Some(chunk) = stream.next().await {
            let chunk = chunk?;
            checks.update(&chunk);
            learner.update(&chunk);
            if let Some(memory) = &mut memory {
                memory.extend_from_slice(&chunk);
            }
            work.write(chunk).await?;
            let written = work.written();
            // Readers get the last byte only after all bytes are verified and kept.
            let written = written.min(remote.size.saturating_sub(1));
            progress.send_replace(Progress::Filling { start: start.clone(), written });
            let is_alone = progress.receiver_count() == 1;
            if is_alone
                && remote.size - written > MAX_FETCHED_FOR_NOBODY
                && self.0.fetches.abandon(key, fetch, progress)
            {
                return Err(Error::unavailable("its last reader left"));
            }
        }
        if work.written() != remote.size {
            return Err(Error::unavailable(format!(
                "the backend sent {} of {} bytes of {}",
                work.written(),
                remote.size,
                info.bucket.object_uri(&key.name)
            )));
        }
        let checksum = checks.finish(&remote, &info.bucket.object_uri(&key.name))?;

        let guard = self.local().locks.lock(key).await;
        if !fetch.superseded.load(Ordering::SeqCst) {
            match self.store().commit(work, cached_meta(&remote, checksum, epoch)).await {
                Ok(record) => self.local().keep_learned(learner, &record),
                // Readers have the bytes, although they could not be kept.
                Err(e) if e.code == ErrorCode::OutOfSpace => {
                    tracing::debug!(bucket = %info.bucket, "no room to keep what was fetched: {e}");
                }
                Err(e) => return Err(e),
            }
        }
        drop(guard);
        let bytes = memory.map(BytesMut::freeze);
        progress.send_replace(Progress::Done { start, bytes });
        Ok(())
    }
}

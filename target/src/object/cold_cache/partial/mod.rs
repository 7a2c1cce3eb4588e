//! Partial copies of large cold objects: only the requested ranges are fetched and kept.
//!
//! This module decides which objects are cached in part, and whether a partial copy is still
//! current; [`run`] fetches, [`read`] reads, [`whole`] makes objects of partial copies.

mod known;
mod read;
mod run;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_clouds::{RemoteMeta, RemoteObject};
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::locks::MutexExt;
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_store::{GRANULE, Partial, PartialHead, Validation};

use super::ColdCache;
use crate::object::Key;
use crate::object::lock::KeyLocks;

pub(crate) use self::known::CheckedParts;
pub(crate) use self::read::Parts;

use self::run::Run;

/// Larger objects are cached in part; smaller ones are fetched whole for any range.
const LARGE: u64 = 16 << 20;
/// A range up to this size is the first request for an unknown object.
const FIRST: u64 = 8 << 20;
/// Maximum number of partial copies that are open.
const OPEN: usize = 256;
/// Maximum readahead in bytes.
const AHEAD: u64 = 32 << 20;
/// A reader that continues within this many bytes reads sequentially.
const GAP: u64 = 64 << 10;
/// Maximum number of versions of an object within a request.
const TURNS: u32 = 3;
/// Number of readers remembered per object.
const READERS: usize = 16;

/// The open partial copies.
#[derive(Default)]
pub(super) struct Lives {
    open: Mutex<HashMap<Key, Arc<Live>>>,
    /// Serializes the first request and comparisons with the backend.
    opening: KeyLocks,
}

/// An open partial copy.
pub(super) struct Live {
    partial: Arc<Partial>,
    /// Fetches in progress.
    runs: Mutex<Vec<Arc<Run>>>,
    readers: Mutex<Vec<Reader>>,
    assembling: AtomicBool,
}

/// The end of a reader's last range, and its readahead.
struct Reader {
    end: u64,
    ahead: u64,
}

impl Lives {
    fn table(&self) -> MutexGuard<'_, HashMap<Key, Arc<Live>>> {
        self.open.locked()
    }

    fn get(&self, key: &Key) -> Option<Arc<Live>> {
        let mut table = self.table();
        let live = table.get(key)?.clone();
        if live.partial.is_over() {
            // A reader needs it while it is being assembled.
            if !live.assembling.load(Ordering::SeqCst) {
                table.remove(key);
            }
            return None;
        }
        Some(live)
    }

    /// Whether it is being assembled: neither a partial copy any more nor in the index yet.
    fn is_turning(&self, key: &Key) -> bool {
        let table = self.table();
        let live = table.get(key);
        live.is_some_and(|l| l.partial.is_over() && l.assembling.load(Ordering::SeqCst))
    }

    fn insert(&self, key: &Key, partial: Arc<Partial>) -> Arc<Live> {
        let live = Arc::new(Live {
            partial,
            runs: Mutex::default(),
            readers: Mutex::default(),
            assembling: AtomicBool::new(false),
        });
        let mut table = self.table();
        if table.len() >= OPEN {
            // An idle one is opened again when it is needed.
            table.retain(|_, live| {
                let over = live.partial.is_over() && !live.assembling.load(Ordering::SeqCst);
                Arc::strong_count(live) > 1 && !over
            });
        }
        table.insert(key.clone(), live.clone());
        live
    }

    fn forget(&self, key: &Key, live: &Arc<Live>) {
        let mut table = self.table();
        if table.get(key).is_some_and(|l| Arc::ptr_eq(l, live)) {
            table.remove(key);
        }
    }
}

impl Live {
    fn runs(&self) -> MutexGuard<'_, Vec<Arc<Run>>> {
        self.runs.locked()
    }

    /// Records a reader; returns how many bytes after its range are fetched with it. Random readers
    /// get none; for a reader that continues where it ended the readahead doubles each time.
    fn note_reader(&self, range: ByteRange) -> u64 {
        let mut readers = self.readers.locked();
        let goes_on =
            |r: &Reader| (r.end..=r.end.saturating_add(GAP)).contains(&range.start) && r.end > 0;
        let ahead = match readers.iter().position(goes_on) {
            Some(n) => (readers.remove(n).ahead * 2).clamp(range.len(), AHEAD.max(range.len())),
            None => 0,
        };
        if readers.len() >= READERS {
            readers.remove(0);
        }
        readers.push(Reader { end: range.end, ahead });
        ahead
    }

    fn remote_meta(&self) -> RemoteMeta {
        let PartialHead { size, version, etag, md5, mtime_ns, custom, .. } =
            self.partial.head().clone();
        RemoteMeta { size, version, etag, md5, mtime_ns, ..RemoteMeta::default() }
            .with_kept_custom(custom)
    }
}

impl ColdCache {
    /// Reads a range of an object that has no whole copy here. `None`: the object is to be fetched
    /// whole.
    pub(in crate::object) async fn parts(
        &self,
        info: &BucketInfo,
        name: &str,
        asked: Option<RangeSpec>,
    ) -> Result<Option<Parts>> {
        let Some(asked) = asked.filter(|a| !matches!(a, RangeSpec::From(0, None))) else {
            return Ok(None);
        };
        let key = Key::new(info, name);
        if self.0.lives.is_turning(&key) || self.0.fetches.soon_has(&key, asked) {
            return Ok(None);
        }
        for turn in 0..TURNS {
            let Some((live, met)) = self.live(info, &key, Some(asked)).await? else {
                return Ok(None);
            };
            let size = live.partial.head().size;
            // The caller expects more bytes than there were: a newer version may have them.
            if !met && info.freshness != Freshness::Never && reaches_end(asked, size) {
                match self.stat(info, name).await {
                    Err(e) if !e.code.is_transient() => return Err(e),
                    _ if live.partial.is_over() => continue,
                    _ => {}
                }
            }
            let mut parts = Parts::new(self.clone(), info.clone(), key.clone(), live, met);
            let Ok(range) = asked.resolve(size) else { return Ok(Some(parts)) };
            if range.len() == size {
                return Ok(None);
            }
            match parts.begin(range, turn + 1 == TURNS).await {
                Ok(()) => return Ok(Some(parts)),
                // Nothing was sent yet: the new version is as good as the old one.
                Err(e) if e.code == ErrorCode::ObjectChanged => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::unavailable(format!("{} keeps changing", info.bucket.object_uri(name))))
    }

    /// Waits for the assembly of an object, so that it is not fetched again.
    pub(super) async fn let_assemble(&self, key: &Key) {
        if self.0.lives.is_turning(key) {
            drop(self.local().locks.lock(key).await);
        }
    }

    /// The partial copy of an object, compared with the backend when that is due. With a range, a
    /// partial copy of a large object is started; the second value is whether this call started it.
    async fn live(
        &self,
        info: &BucketInfo,
        key: &Key,
        asked: Option<RangeSpec>,
    ) -> Result<Option<(Arc<Live>, bool)>> {
        let lives = &self.0.lives;
        if let Some(live) = lives.get(key)
            && self.is_fresh(info, &key.name, live.partial.validation())
        {
            return Ok(Some((live, false)));
        }
        let _turn = lives.opening.lock(key).await;
        let live = match lives.get(key) {
            Some(live) => Some(live),
            None => {
                let partial = self.store().partial(key.bucket_id, &key.name).await?;
                partial.map(|partial| lives.insert(key, partial))
            }
        };
        if let Some(live) = live
            && self.compare(info, key, &live).await?
        {
            self.assemble_if_complete(info, key, &live);
            return Ok(Some((live, false)));
        }
        match asked {
            Some(asked) => Ok(self.meet(info, key, asked).await?.map(|live| (live, true))),
            None => Ok(None),
        }
    }

    /// Whether the partial copy may be served; if not, it is dropped.
    async fn compare(&self, info: &BucketInfo, key: &Key, live: &Arc<Live>) -> Result<bool> {
        let known = live.partial.validation();
        if self.is_fresh(info, &key.name, known) {
            return Ok(true);
        }
        let epoch = self.state().version;
        match self.backend(info).await?.stat(&key.name).await {
            Ok(remote) if remote.version == live.partial.head().version => {
                live.partial.validated(Validation { epoch, ns: unix_ns() });
                Ok(true)
            }
            Ok(_) => {
                self.discard_live(key, live).await?;
                Ok(false)
            }
            Err(e) if e.code == ErrorCode::ObjectNotFound => {
                self.discard_live(key, live).await?;
                Err(e)
            }
            Err(e) if e.code.is_transient() && self.may_outlive_outage(info, &key.name, known) => {
                tracing::warn!(bucket = %info.bucket, error = %e, "backend away, serving parts past their age");
                Ok(true)
            }
            Err(e) => Err(e),
        }
    }

    async fn discard_live(&self, key: &Key, live: &Arc<Live>) -> Result<()> {
        self.store().discard_partial(&live.partial).await?;
        self.0.lives.forget(key, live);
        Ok(())
    }

    /// Requests the object from the backend, by reading the range if it is short. `None`: the
    /// object is small.
    async fn meet(
        &self,
        info: &BucketInfo,
        key: &Key,
        asked: RangeSpec,
    ) -> Result<Option<Arc<Live>>> {
        let writes = self.0.fetches.writes(key);
        let epoch = self.state().version;
        let backend = self.backend(info).await?;
        let opened = match first_range(asked) {
            Some(range) => match backend.get(&key.name, Some(range), None).await {
                Ok(object) => Some(object),
                // The object ends before the range: the response needs its size.
                Err(e) if e.code == ErrorCode::RangeNotSatisfiable => None,
                Err(e) => return Err(e),
            },
            None => None,
        };
        let remote = match &opened {
            Some(object) => object.meta.clone(),
            None => backend.stat(&key.name).await?,
        };
        // Without a version a change could not be detected.
        if remote.size <= LARGE || remote.version.is_empty() {
            return Ok(None);
        }
        let _guard = self.local().locks.lock(key).await;
        let overtaken = self.0.fetches.writes(key) != writes
            || self.store().get(key.bucket_id, &key.name).await?.is_some();
        if overtaken {
            return Ok(None);
        }
        let now = unix_ns();
        let custom = remote.kept_custom();
        let RemoteMeta { size, version, etag, md5, mtime_ns, .. } = remote;
        let (bucket_id, name) = (key.bucket_id, key.name.to_string());
        let head = PartialHead {
            bucket_id,
            name,
            size,
            version,
            etag,
            md5,
            mtime_ns,
            made_ns: now,
            custom,
        };
        let partial = self.store().begin_partial(head, Validation { epoch, ns: now }).await?;
        let live = self.0.lives.insert(key, partial);
        if let Some(object) = opened {
            self.keep_granules_of(info, key, &live, object);
        }
        Ok(Some(live))
    }

    /// Keeps the granules of a read that is already in progress.
    fn keep_granules_of(
        &self,
        info: &BucketInfo,
        key: &Key,
        live: &Arc<Live>,
        object: RemoteObject,
    ) {
        let first = (object.range.start / GRANULE) as u32;
        let end = object.range.end.div_ceil(GRANULE) as u32;
        let mut runs = live.runs();
        self.start_run(info, key, live, &mut runs, first..end, Some(object));
    }

    fn assemble_if_complete(&self, info: &BucketInfo, key: &Key, live: &Arc<Live>) {
        if !live.partial.is_complete() || live.assembling.swap(true, Ordering::SeqCst) {
            return;
        }
        let (service, info, key, live) = (self.clone(), info.clone(), key.clone(), live.clone());
        self.local().lifecycle.spawn(async move {
            if let Err(e) = service.assemble(&info, &key, &live).await {
                tracing::warn!(bucket = %info.bucket, name = &*key.name, "not assembled: {e}");
            }
            live.assembling.store(false, Ordering::SeqCst);
        });
    }
}

/// Whether a range extends beyond the end of an object of this size.
fn reaches_end(asked: RangeSpec, size: u64) -> bool {
    match asked {
        RangeSpec::From(first, last) => first >= size || last.is_some_and(|last| last >= size),
        RangeSpec::Suffix(len) => len > size,
    }
}

/// The granules of a short range of an object whose size is not known yet.
fn first_range(asked: RangeSpec) -> Option<ByteRange> {
    match asked {
        RangeSpec::From(first, Some(last)) if last - first < FIRST => {
            let start = first / GRANULE * GRANULE;
            let end = (last / GRANULE + 1).checked_mul(GRANULE)?;
            Some(ByteRange { start, end })
        }
        _ => None,
    }
}

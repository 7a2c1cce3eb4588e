//! Appends: bytes are collected behind a handle, not visible to readers. A flush adds them to the
//! end of the object as it is at that moment, so that two concurrent appenders lose nothing.
//!
//! Handles do not outlive the process; one that was idle for [`IDLE`] is dropped. If the disk of a
//! handle leaves service, its next use fails, and its collected bytes are freed immediately.
//!
//! [`Appends`] is the one entrance. Its dependencies are this target ([`Local`]), which stores the bytes;
//! the replication ([`Replication`]), which commits an object that gets longer; and, for one that is
//! rewritten, its old bytes ([`Reads`]) and its write ([`Writes`]).

mod longer;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::checksum::Checksum;
use forebay_core::locks::MutexExt;
use forebay_core::object::ObjectMeta;
use forebay_core::replication::WriteOptions;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::{Store, WorkFile};
use futures::StreamExt;
use futures::stream::BoxStream;

use self::longer::{LongerVersion, stays};
use super::Key;
use super::attrs::AtEndMeta;
use super::condition::if_still;
use super::local::Local;
use super::lock::{KeyGuard, KeyLocks};
use super::reads::Reads;
use super::replication::Replication;
use super::scratch::reread;
use super::writes::{PutRequest, Writes};

/// A handle that was idle for this time is dropped.
const IDLE: Duration = Duration::from_secs(3600);
/// Interval of the search for idle handles.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum number of handles of one target.
const MOST: usize = 1024;
/// Attempts of a flush while others write the same object.
const TRIES: usize = 5;

/// The appends of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Appends(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    replication: Replication,
    reads: Reads,
    writes: Writes,
    /// The handles in use.
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// The locks of writers of members to a shard.
    shards: KeyLocks,
}

/// The bytes that were appended by one handle.
struct Session {
    key: Key,
    used: Mutex<Instant>,
    /// `None` after a flush or an error; the error of the next use after the disk left service.
    work: tokio::sync::Mutex<Option<Result<WorkFile>>>,
}

impl Session {
    fn used(&self) -> MutexGuard<'_, Instant> {
        self.used.locked()
    }

    /// Removes the collected bytes if their disk left service. A handle in use gets the error
    /// itself.
    fn void_if_left(&self) {
        let Ok(mut work) = self.work.try_lock() else { return };
        if let Some(Ok(open)) = &*work
            && let Err(e) = open.in_use()()
        {
            *work = Some(Err(e));
        }
    }
}

impl Appends {
    pub(super) fn new(
        local: Arc<Local>,
        replication: Replication,
        reads: Reads,
        writes: Writes,
    ) -> Self {
        let (sessions, shards) = (Mutex::default(), KeyLocks::default());
        Self(Arc::new(Inner { local, replication, reads, writes, sessions, shards }))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.sessions.locked()
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    fn replication(&self) -> &Replication {
        &self.0.replication
    }

    fn reads(&self) -> &Reads {
        &self.0.reads
    }

    fn writes(&self) -> &Writes {
        &self.0.writes
    }

    /// Locks a shard against other writers of its members while the guard exists.
    pub(crate) async fn lock_shard(&self, info: &BucketInfo, name: &str) -> KeyGuard {
        self.0.shards.lock(&Key::new(info, name)).await
    }

    /// Appends bytes to `handle`, or to a new one. Returns the handle for the next call. An error
    /// removes the handle and its collected bytes.
    pub(crate) async fn append(
        &self,
        info: &BucketInfo,
        name: &str,
        handle: Option<&str>,
        mut body: BoxStream<'static, Result<Bytes>>,
    ) -> Result<String> {
        info.check_access(BucketChange::Append)?;
        let handle = match handle {
            Some(handle) => handle.to_owned(),
            None => self.begin(info, name).await?,
        };
        let session = self.session(info, name, &handle)?;
        let mut place = session.work.lock().await;
        let work = place.take().ok_or_else(|| unknown(&handle))?;
        let written = async {
            let mut work = work?;
            while let Some(chunk) = body.next().await {
                work.write(chunk?).await?;
            }
            Ok(work)
        };
        match written.await {
            Ok(work) => *place = Some(Ok(work)),
            Err(e) => {
                self.table().remove(&handle);
                return Err(e);
            }
        }
        *session.used() = Instant::now();
        Ok(handle)
    }

    async fn begin(&self, info: &BucketInfo, name: &str) -> Result<String> {
        if self.table().len() >= MOST {
            return Err(Error::new(
                ErrorCode::TooManyRequests,
                format!("there are {MOST} appends under way on this target already"),
            )
            .hint("flush some of them"));
        }
        let large = self.store().get(info.id, name).await?.filter(|r| stays(info, r));
        let work = match large {
            Some(record) => self.store().begin_behind(&record, None).await?,
            None => self.store().begin(info.id, name, None).await?,
        };
        let handle = format!("{}|{:032x}", self.0.local.id, rand::random::<u128>());
        let session = Session {
            key: Key::new(info, name),
            used: Mutex::new(Instant::now()),
            work: tokio::sync::Mutex::new(Some(Ok(work))),
        };
        self.table().insert(handle.clone(), Arc::new(session));
        Ok(handle)
    }

    fn session(&self, info: &BucketInfo, name: &str, handle: &str) -> Result<Arc<Session>> {
        let found = self.table().get(handle).cloned();
        found.filter(|s| s.key == Key::new(info, name)).ok_or_else(|| unknown(handle))
    }

    /// Appends the collected bytes to the object; creates it if it does not exist.
    pub(crate) async fn flush(
        &self,
        info: &BucketInfo,
        name: &str,
        handle: &str,
        announced: Option<Checksum>,
    ) -> Result<ObjectMeta> {
        let session = self.session(info, name, handle)?;
        self.table().remove(handle);
        let work = session.work.lock().await.take().ok_or_else(|| unknown(handle))??;
        work.in_use()()?;
        self.replication().fetch_newest(info, name).await?;
        let before = self.store().get(info.id, name).await?;
        if before.is_some_and(|r| stays(info, &r)) {
            return self.append_behind(info, name, work, announced).await;
        }
        self.append_anew(info, name, &work, announced).await
    }

    /// Appends without rewriting the object's bytes; these are read only for the checksum.
    async fn append_behind(
        &self,
        info: &BucketInfo,
        name: &str,
        work: WorkFile,
        announced: Option<Checksum>,
    ) -> Result<ObjectMeta> {
        let longer = (self.store(), self.writes());
        let mut version = LongerVersion::new(longer, (info, name), work, announced);
        // The condition: the object is still one whose bytes can stay where they are.
        let options = WriteOptions { fetch_first: false, conditional: true };
        match self.replication().write(info, name, &mut version, options).await {
            Ok(record) => {
                version.written();
                Ok(record.object_meta())
            }
            Err(e) => match version.into_unwritten() {
                Some((work, announced)) => self.append_anew(info, name, &work, announced).await,
                None => Err(e),
            },
        }
    }

    /// Rewrites the object with the new bytes at its end.
    async fn append_anew(
        &self,
        info: &BucketInfo,
        name: &str,
        work: &WorkFile,
        announced: Option<Checksum>,
    ) -> Result<ObjectMeta> {
        let more = reread(work.file());
        for _ in 0..TRIES {
            let before = match self.reads().get(info, name).await {
                Ok(found) => Some((found.meta().clone(), found)),
                Err(e) if e.code == ErrorCode::ObjectNotFound => None,
                Err(e) => return Err(e),
            };
            let meta = before.as_ref().map(|(meta, _)| meta.clone());
            let size = meta.as_ref().map_or(0, |m| m.size);
            let old = match before {
                Some((_, found)) => found.stream(ByteRange::whole(size)),
                None => futures::stream::empty().boxed(),
            };
            let body = old.chain(more(ByteRange::whole(work.written()))).boxed();
            let in_use = work.in_use();
            let put = PutRequest {
                len: Some(size + work.written()),
                at_end: Some(Box::new(move || in_use().map(|()| AtEndMeta::default()))),
                announced: announced.clone(),
                custom: meta.as_ref().map(|m| m.custom.clone()),
                only_if: Some(if_still(meta, info)),
                ..PutRequest::new(body)
            };
            match self.writes().put(info, name, put).await {
                Ok(Some(meta)) => return Ok(meta),
                Ok(None) => return self.reads().head(info, name).await,
                Err(e) if e.code == ErrorCode::Conflict => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::unavailable(format!("{} keeps changing", info.bucket.object_uri(name))))
    }

    /// Frees the collected bytes on disks that left service.
    fn void_those_of_left_disks(&self) {
        let sessions: Vec<_> = self.table().values().cloned().collect();
        sessions.iter().for_each(|session| session.void_if_left());
    }

    /// Drops the handles that were idle for [`IDLE`].
    fn drop_idle(&self) {
        self.table().retain(|_, session| session.used().elapsed() < IDLE);
    }

    /// Frees what idle handles and those on disks that left service hold, until the node stops.
    pub(crate) async fn watch(self) {
        let stop = self.0.local.lifecycle.token();
        let mut turns = self.store().disk_turns();
        let mut ticks = tokio::time::interval(IDLE_CHECK_INTERVAL);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = turns.changed() => self.void_those_of_left_disks(),
                _ = ticks.tick() => self.drop_idle(),
            }
        }
    }
}

fn unknown(handle: &str) -> Error {
    Error::new(ErrorCode::UploadNotFound, format!("append handle \"{handle}\" does not exist"))
}

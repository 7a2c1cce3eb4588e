//! Appends: bytes are collected behind a handle, not visible to readers. A flush adds them to the
//! end of the object as it is at that moment, so that two concurrent appenders lose nothing.
//!
//! Handles do not outlive the process; one that was idle for [`IDLE`] is dropped. If the disk of a
//! handle leaves service, its next use fails, and its collected bytes are freed immediately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::checksum::Checksum;
use forebay_core::copies::Stamp;
use forebay_core::locks::MutexExt;
use forebay_core::object::ObjectMeta;
use forebay_core::replication::WriteOptions;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::{Record, RecordMeta, WorkFile};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::lock::{KeyGuard, KeyLocks};
use super::put::{AtEndMeta, Hashes, Making, OnlyIf, PutRequest, reread};
use super::replication::NewVersion;
use super::{Key, ObjectService};

/// A handle that was idle for this time is dropped.
const IDLE: Duration = Duration::from_secs(3600);
/// Maximum number of handles of one target.
const MOST: usize = 1024;
/// Objects of at least this many bytes are not rewritten by an append.
const LARGE: u64 = 1 << 20;
/// Attempts of a flush while others write the same object.
const TRIES: usize = 5;

/// The handles in use, and the locks of writers of members to a shard.
#[derive(Default)]
pub(crate) struct Appends {
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    shards: KeyLocks,
}

/// A spool file on a disk; removed on drop.
pub(crate) struct Spool(WorkFile);

/// The bytes that were appended by one handle.
struct Session {
    key: Key,
    used: Mutex<Instant>,
    /// `None` after a flush or an error; the error of the next use after the disk left service.
    work: tokio::sync::Mutex<Option<Result<WorkFile>>>,
}

impl Appends {
    fn table(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.locked()
    }
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

impl Spool {
    pub(crate) fn len(&self) -> u64 {
        self.0.written()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Streams the bytes; may be called several times.
    pub(crate) fn stream(&self) -> BoxStream<'static, Result<Bytes>> {
        reread(self.0.file())(ByteRange::whole(self.len()))
    }
}

impl ObjectService {
    /// Spools a client's body for a reader that needs it later or more than once.
    pub(crate) async fn spool(
        &self,
        info: &BucketInfo,
        name: &str,
        mut body: BoxStream<'static, Result<Bytes>>,
        len: Option<u64>,
    ) -> Result<Spool> {
        let mut work = self.store().begin(info.id, name, len).await?;
        while let Some(chunk) = body.next().await {
            work.write(chunk?).await?;
        }
        match len {
            Some(len) if len != work.written() => {
                Err(Error::invalid(format!("{} of {len} bytes came", work.written())))
            }
            _ => Ok(Spool(work)),
        }
    }

    /// Locks a shard against other writers of its members while the guard exists.
    pub(crate) async fn shard_turn(&self, info: &BucketInfo, name: &str) -> KeyGuard {
        self.0.appends.shards.lock(&Key::new(info, name)).await
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
            None => self.begin_append(info, name).await?,
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
                self.0.appends.table().remove(&handle);
                return Err(e);
            }
        }
        *session.used() = Instant::now();
        Ok(handle)
    }

    async fn begin_append(&self, info: &BucketInfo, name: &str) -> Result<String> {
        if self.0.appends.table().len() >= MOST {
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
        let handle = format!("{}|{:032x}", self.me(), rand::random::<u128>());
        let session = Session {
            key: Key::new(info, name),
            used: Mutex::new(Instant::now()),
            work: tokio::sync::Mutex::new(Some(Ok(work))),
        };
        self.0.appends.table().insert(handle.clone(), Arc::new(session));
        Ok(handle)
    }

    fn session(&self, info: &BucketInfo, name: &str, handle: &str) -> Result<Arc<Session>> {
        let found = self.0.appends.table().get(handle).cloned();
        found.filter(|s| s.key == Key::new(info, name)).ok_or_else(|| unknown(handle))
    }

    /// Appends the collected bytes to the object; creates it if it does not exist.
    pub(crate) async fn flush_append(
        &self,
        info: &BucketInfo,
        name: &str,
        handle: &str,
        announced: Option<Checksum>,
    ) -> Result<ObjectMeta> {
        let session = self.session(info, name, handle)?;
        self.0.appends.table().remove(handle);
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
        let mut version = LongerVersion {
            service: self,
            info,
            name,
            announced,
            work: Some(work),
            grown: None,
            meta: None,
        };
        // The condition: the object is still one whose bytes can stay where they are.
        let options = WriteOptions { fetch_first: false, conditional: true };
        match self.replication().write(info, name, &mut version, options).await {
            Ok(record) => Ok(record.object_meta()),
            Err(e) => match version.work.filter(|_| version.grown.is_none()) {
                Some(work) => self.append_anew(info, name, &work, version.announced).await,
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
            let before = match self.get(info, name).await {
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
                only_if: Some(Self::if_still(meta, info)),
                ..PutRequest::new(body)
            };
            match self.put(info, name, put).await {
                Ok(Some(meta)) => return Ok(meta),
                Ok(None) => return self.head(info, name).await,
                Err(e) if e.code == ErrorCode::Conflict => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::unavailable(format!("{} keeps changing", info.bucket.object_uri(name))))
    }

    /// Permits a write only if the object is unchanged. A backend's object is compared by its
    /// version; the version of a native object starts again after a removal, so it alone is not
    /// enough.
    pub(crate) fn if_still(before: Option<ObjectMeta>, info: &BucketInfo) -> OnlyIf {
        let has_backend = info.has_backend();
        Box::new(move |now| {
            let same = match (&before, now) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    a.version == b.version && (has_backend || a.mtime_ns == b.mtime_ns)
                }
                _ => false,
            };
            same.then_some(())
                .ok_or_else(|| Error::new(ErrorCode::Conflict, "the object has changed"))
        })
    }

    /// Frees the collected bytes on disks that left service.
    pub(super) fn void_appends_of_left_disks(&self) {
        let sessions: Vec<_> = self.0.appends.table().values().cloned().collect();
        sessions.iter().for_each(|session| session.void_if_left());
    }

    /// Drops the handles that were idle for [`IDLE`].
    pub(super) fn drop_idle_appends(&self) {
        self.0.appends.table().retain(|_, session| session.used().elapsed() < IDLE);
    }
}

/// An object with bytes at its end.
struct LongerVersion<'a> {
    service: &'a ObjectService,
    info: &'a BucketInfo,
    name: &'a str,
    announced: Option<Checksum>,
    /// The bytes; `None` once they are at the end of the object.
    work: Option<WorkFile>,
    /// The object that they are appended to.
    grown: Option<Record>,
    meta: Option<RecordMeta>,
}

impl LongerVersion<'_> {
    /// The checksum of the object with the new bytes at its end.
    async fn checksum(&self, record: &Record, work: &WorkFile) -> Result<Option<Checksum>> {
        let mut hashes = Hashes::new(self.info.checksum, self.announced.clone(), false);
        let reader = self.service.store().reader(record).await?;
        let mut old = std::pin::pin!(reader.stream(ByteRange::whole(record.size)));
        while let Some(bytes) = old.try_next().await? {
            hashes.update(&bytes);
        }
        let mut new = reread(work.file())(ByteRange::whole(work.written()));
        while let Some(bytes) = new.try_next().await? {
            hashes.update(&bytes);
        }
        Ok(hashes.finish(&self.info.bucket.object_uri(self.name))?.checksum)
    }
}

#[async_trait]
impl NewVersion for LongerVersion<'_> {
    async fn check(&mut self, current: Option<&Record>) -> Result<()> {
        match current.filter(|record| stays(self.info, record)) {
            Some(record) => {
                self.grown = Some(record.clone());
                Ok(())
            }
            None => Err(Error::new(ErrorCode::Conflict, "the object has to be rewritten")),
        }
    }

    async fn prepare(&mut self, replaced: Option<Record>, stamp: Stamp) -> Result<()> {
        let (Some(record), Some(work)) = (&self.grown, &self.work) else {
            return Err(Error::internal("an append is prepared before it is checked"));
        };
        let checksum = self.checksum(record, work).await?;
        let making = Making { checksum, ..Making::default() };
        let (service, info, name) = (self.service, self.info, self.name);
        self.meta = Some(service.native_meta(info, name, making, (replaced, stamp)).await?);
        Ok(())
    }

    async fn commit(&mut self) -> Result<Record> {
        match (&self.grown, self.work.take(), self.meta.take()) {
            (Some(record), Some(work), Some(meta)) => {
                self.service.store().append_work(record, work, meta).await
            }
            _ => Err(Error::internal("an append is committed before it is prepared")),
        }
    }
}

/// Whether the object's bytes can stay where they are.
fn stays(info: &BucketInfo, record: &Record) -> bool {
    !info.has_backend() && record.size >= LARGE
}

fn unknown(handle: &str) -> Error {
    Error::new(ErrorCode::UploadNotFound, format!("append handle \"{handle}\" does not exist"))
}

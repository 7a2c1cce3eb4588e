//! Multipart uploads: parts arrive in any order and concurrently, and become one object that is not
//! visible before. Uploads survive a restart; abandoned ones are dropped.
//!
//! [`Uploads`] is the one entrance. Its dependencies are this target ([`Local`]), which stores the parts,
//! and the write of the object that they become ([`Writes`]).

mod complete;
mod registry;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::bucket::{BucketInfo, Class};
use forebay_core::bucket_access::BucketChange;
use forebay_core::checksum::{Checksum, ChecksumKind};
pub(crate) use forebay_core::upload::ChosenPart;
use forebay_core::upload::{MAX_PART, Part, Upload, UploadsPage, UploadsRequest};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_store::Store;
use futures::StreamExt;
use futures::stream::BoxStream;

use self::registry::{Kept, Line, Live, UploadTable};
use super::Key;
use super::attrs::{AtEnd, AtEndMeta};
use super::condition::OnlyIf;
use super::local::Local;
use super::writes::{Hashes, Writes};

/// An upload that was idle for this time is dropped.
const IDLE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Interval of the search for idle uploads.
const SWEEP: Duration = Duration::from_secs(600);
/// Maximum number of uploads of one target.
const MOST: usize = 10_000;

/// Options of an upload.
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadOptions {
    /// Custom metadata of the object; if absent, existing ones are kept.
    pub(crate) custom: Option<BTreeMap<String, String>>,
    /// Compute MD5 of each part, and give the object S3's ETag: the MD5 of all MD5s, and `-N`.
    pub(crate) md5: bool,
    /// Stored with the upload for its creator.
    pub(crate) notes: BTreeMap<String, String>,
}

/// A part from a client.
pub(crate) struct PartRequest {
    pub(crate) body: BoxStream<'static, Result<Bytes>>,
    pub(crate) len: Option<u64>,
    /// The checksum that the client announced.
    pub(crate) announced: Option<Checksum>,
    /// Called after the last byte: its custom metadata become the part's notes, its ETag is
    /// ignored.
    pub(crate) at_end: Option<AtEnd>,
}

/// Metadata of an object that are known only when its parts are chosen.
pub(crate) type CompleteMeta = Box<dyn FnOnce(&[Part]) -> Result<AtEndMeta> + Send>;

/// Options of a completion.
#[derive(Default)]
pub(crate) struct Completion {
    /// The parts of the object; they are joined in ascending order of their numbers.
    pub(crate) parts: Vec<ChosenPart>,
    /// All uploaded parts must be among them.
    pub(crate) all: bool,
    /// Called before anything is written, while the object is locked.
    pub(crate) only_if: Option<OnlyIf>,
    /// Called with the chosen parts in order; returns more metadata of the object.
    pub(crate) at_end: Option<CompleteMeta>,
}

/// The uploads of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Uploads(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    writes: Writes,
    table: UploadTable,
}

impl Uploads {
    pub(super) fn new(local: Arc<Local>, writes: Writes) -> Self {
        Self(Arc::new(Inner { local, writes, table: UploadTable::default() }))
    }

    fn local(&self) -> &Arc<Local> {
        &self.0.local
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    fn writes(&self) -> &Writes {
        &self.0.writes
    }

    /// Starts an upload; its id is opaque and cannot be guessed.
    pub(crate) async fn begin(
        &self,
        info: &BucketInfo,
        name: &str,
        options: UploadOptions,
    ) -> Result<String> {
        info.check_access(BucketChange::Put)?;
        self.load().await?;
        if self.0.table.len() >= MOST {
            return Err(Error::new(
                ErrorCode::TooManyRequests,
                format!("there are {MOST} uploads in parts on this target already"),
            )
            .hint("complete or abort some of them"));
        }
        let started_ns = unix_ns();
        let upload = Upload {
            // Uploads of one object are listed in the order of their ids, which is that of time.
            id: format!("{started_ns:016x}{:016x}", rand::random::<u64>()),
            name: name.to_owned(),
            started_ns,
            custom: options.custom,
            md5: options.md5,
            notes: options.notes,
        };
        let id = upload.id.clone();
        let line = Line::Upload { bucket_id: info.id, upload: upload.clone() }.encode()?;
        let dir = self.store().begin_upload(info.id, name, &id, &line).await?;
        self.0.table.insert(Live::new(info.id, upload, dir));
        Ok(id)
    }

    /// Adds a part, in place of an existing one with the same number.
    pub(crate) async fn put_part(
        &self,
        info: &BucketInfo,
        name: &str,
        id: &str,
        number: u32,
        mut request: PartRequest,
    ) -> Result<Part> {
        if !(1..=MAX_PART).contains(&number) {
            return Err(Error::invalid(format!("invalid part number {number}")));
        }
        let live = self.find(info, name, id).await?;
        let uri = format!("part {number} of {}", info.bucket.object_uri(name));
        let (dir, store) = (&live.dir, self.store());
        self.check_quota(info, &live, number, request.len.unwrap_or(0)).await?;
        let mut work = store.begin_upload_part(dir, info.id, name, request.len).await?;
        let mut hashes = Hashes::new(ChecksumKind::None, request.announced.take(), live.upload.md5);
        while let Some(chunk) = request.body.next().await {
            let chunk = chunk?;
            hashes.update(&chunk);
            work.write(chunk).await?;
        }
        if let Some(len) = request.len.filter(|len| *len != work.written()) {
            return Err(Error::invalid(format!("{uri}: {} of {len} bytes came", work.written())));
        }
        if request.len.is_none() {
            self.check_quota(info, &live, number, work.written()).await?;
        }
        let received = hashes.finish(&uri)?;
        let notes = request.at_end.map_or(Ok(AtEndMeta::default()), |at_end| at_end())?.custom;

        // Holds off completion and abort of the upload while the part is added.
        let _turn = live.turn.read().await;
        live.check_open(info)?;
        let file = store.keep_part(dir, work, info.class == Class::Owned).await?;
        let md5 = received.md5.unwrap_or_default();
        let part = Part { number, size: file.size, md5, stored_ns: unix_ns(), notes };
        let line = Line::Part { file: file.id, part: part.clone() }.encode()?;
        let replaced = {
            let _one = live.journal.lock().await;
            store.note_upload(dir, line).await?;
            live.keep(Kept { part: part.clone(), file })
        };
        if let Some(old) = replaced
            && let Err(e) = store.drop_part(dir, old.file).await
        {
            tracing::debug!(upload = id, "a replaced part stays for now: {e}");
        }
        Ok(part)
    }

    /// Refuses a part of `len` bytes if the object of all parts would pass the quota. Parts reserve
    /// nothing: the completion does.
    async fn check_quota(
        &self,
        info: &BucketInfo,
        live: &Live,
        number: u32,
        len: u64,
    ) -> Result<()> {
        if !info.quota().is_set() {
            return Ok(());
        }
        let others = live.parts().into_iter().filter(|part| part.number != number);
        let size = others.map(|part| part.size).sum::<u64>().saturating_add(len);
        let replaced = self.store().get(info.id, &live.upload.name).await?;
        self.writes().reserve(info, replaced.as_ref(), size, None).await.map(drop)
    }

    /// An upload and its parts in the order of their numbers.
    pub(crate) async fn get(
        &self,
        info: &BucketInfo,
        name: &str,
        id: &str,
    ) -> Result<(Upload, Vec<Part>)> {
        let live = self.find(info, name, id).await?;
        Ok((live.upload.clone(), live.parts()))
    }

    /// The uploads of a bucket on this target, ordered by name and id.
    pub(crate) async fn page(&self, request: &UploadsRequest) -> Result<UploadsPage> {
        self.load().await?;
        Ok(self.0.table.page(request))
    }

    /// Ends an upload without an object.
    pub(crate) async fn abort(&self, info: &BucketInfo, name: &str, id: &str) -> Result<()> {
        let live = self.find(info, name, id).await?;
        let _turn = live.turn.write().await;
        live.check_open(info)?;
        self.end(&live).await;
        Ok(())
    }

    /// Reads existing uploads from the disks, once.
    async fn load(&self) -> Result<()> {
        let table = &self.0.table;
        let load = async || {
            for found in self.store().find_uploads().await? {
                match Live::recovered(found) {
                    // The process that would have completed it has ended.
                    Ok(live) if live.is_aside() => self.store().drop_upload(&live.dir).await?,
                    Ok(live) => table.insert(live),
                    // The process ended while it created or dropped the upload: no client has its
                    // id.
                    Err(found) if found.files.is_empty() => {
                        self.store().drop_upload(&found.dir).await?;
                    }
                    Err(found) => tracing::warn!(
                        place = found.dir.place(),
                        parts = found.files.len(),
                        "the journal of an upload cannot be read; its parts stay on the disk"
                    ),
                }
            }
            Ok(())
        };
        table.loaded.get_or_try_init(load).await.map(drop)
    }

    /// The upload of this id, if it belongs to this object.
    async fn find(&self, info: &BucketInfo, name: &str, id: &str) -> Result<Arc<Live>> {
        self.load().await?;
        let found = self.0.table.find(&Key::new(info, name), id);
        found.ok_or_else(|| registry::unknown(info, name, id))
    }

    /// Removes an upload and its data on the disk. The caller holds its lock.
    async fn end(&self, live: &Live) {
        live.end();
        self.0.table.remove(live);
        if let Err(e) = self.store().drop_upload(&live.dir).await {
            tracing::warn!(upload = live.upload.id, "parts of an upload stay on the disk: {e}");
        }
    }

    /// Drops the uploads that were idle since `before_ns`.
    async fn drop_idle(&self, before_ns: u64) -> Result<usize> {
        self.load().await?;
        let mut dropped = 0;
        for live in self.0.table.idle_since(before_ns) {
            let _turn = live.turn.write().await;
            if live.is_open() && live.touched_ns() < before_ns {
                tracing::info!(upload = live.upload.id, object = live.upload.name, "given up");
                self.end(&live).await;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// Drops the uploads of a bucket that was destroyed.
    pub(super) async fn drop_bucket(&self, bucket_id: u64) -> Result<()> {
        self.load().await?;
        for live in self.0.table.of_bucket(bucket_id) {
            let _turn = live.turn.write().await;
            if live.is_open() {
                self.end(&live).await;
            }
        }
        Ok(())
    }

    /// Buckets that have uploads here.
    pub(super) async fn buckets(&self) -> Result<Vec<u64>> {
        self.load().await?;
        Ok(self.0.table.buckets())
    }

    /// Drops idle uploads until the node stops.
    pub(crate) async fn watch(self) {
        let stop = self.local().lifecycle.token();
        // Load now, so that leftovers of jobs are removed immediately, not on the next upload.
        if let Err(e) = self.load().await {
            tracing::warn!("uploads are looked for again when one is asked for: {e}");
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SWEEP) => {}
            }
            let before = unix_ns().saturating_sub(IDLE.as_nanos() as u64);
            if let Err(e) = self.drop_idle(before).await {
                tracing::warn!("cannot look for forgotten uploads: {e}");
            }
        }
    }
}

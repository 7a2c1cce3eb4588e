//! One disk of the store: its folders, and how objects are added, read and removed.
//!
//! ```text
//! DISK/.forebay/{lock,disk.json,index/,lost/}   DISK/log/<segment>
//! DISK/objects/xx/<file>   DISK/work/<file>     DISK/companions/<generation>
//! DISK/partial/{<id>,<id>.map}
//! ```
//! All ids are numbers in hexadecimal; names of objects never become paths.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use forebay_core::bucket::Class;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result, placement};

use super::change::{Change, MetaChange, Outcome};
use super::committer::Committer;
use super::compaction::Compactor;
use super::disk::{DiskFile, DiskLock};
use super::format;
use super::identity::{Identity, failed};
use super::index::Span;
use super::observer::Observer;
use super::reader::{Body, ObjectReader, OpenExtent, corrupt};
use super::record::{Extent, Place, Record, RecordMeta, Spot};
use super::shared::Shared;
use super::space::{Demand, Reservation, Room};
use super::work::{Filling, Finished, Payload};

/// Removals in one request, so that other writers get their turn.
const REMOVALS_PER_GROUP: usize = 256;

/// The files of an object to be committed.
pub(crate) struct Parts {
    /// The existing files.
    pub(crate) kept: Vec<Extent>,
    /// The new files that follow.
    pub(crate) fresh: Vec<Filling>,
}

/// One disk.
pub(crate) struct Volume {
    // In drop order: compaction needs the committer, both need the lock.
    pub(super) compactor: Compactor,
    pub(super) committer: Arc<Committer>,
    pub(super) shared: Arc<Shared>,
    pub(super) digest: u64,
    pub(super) identity: Mutex<Identity>,
    pub(super) _lock: DiskLock,
}

impl Volume {
    pub(crate) fn number(&self) -> usize {
        self.shared.number
    }

    pub(crate) fn path(&self) -> &Path {
        &self.shared.root
    }

    /// Records on the disk that the store was opened `opens` times.
    pub(crate) fn raise(&self, opens: u64) -> Result<()> {
        let mut identity = self.identity.locked();
        identity.opens = identity.opens.max(opens);
        identity.write(&*self.shared.io, &self.shared.root.join(".forebay"))
    }

    /// Records on the disk which target and which cluster it belongs to; empty ids change nothing.
    pub(crate) fn belong_to(&self, node: &str, cluster: &str) -> Result<()> {
        let mut identity = self.identity.locked();
        let before = (identity.node.clone(), identity.cluster.clone());
        if !node.is_empty() {
            identity.node = node.to_owned();
        }
        if !cluster.is_empty() {
            identity.cluster = cluster.to_owned();
        }
        if before == (identity.node.clone(), identity.cluster.clone()) {
            return Ok(());
        }
        identity.write(&*self.shared.io, &self.shared.root.join(".forebay"))
    }

    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        // `Disks` sets only the first observer.
        drop(self.shared.observer.set(observer));
    }

    /// Ends the use of this disk: callers that wait for it get an error.
    pub(crate) fn retire(&self) {
        self.shared.failed.store(true, Ordering::Relaxed);
        self.shared.retired.cancel();
        self.shared.partials.close();
    }

    /// Whether eviction or compaction could free anything here.
    pub(crate) fn may_free(&self) -> bool {
        let evictable = self.shared.index.residents(0, 1).is_ok_and(|r| !r.is_empty());
        evictable || self.shared.partials.is_any() || self.shared.room.has_dead_space()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.shared.room
    }

    /// Reserves `bytes` if disk and budget have them. Removes recycled segments first if needed.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        if !self.shared.file_system_fits(bytes) {
            return None;
        }
        let reserve = || self.room().try_reserve(bytes);
        reserve().or_else(|| (self.shared.give_up_spares() > 0).then(reserve)?)
    }

    pub(crate) fn demand(&self) -> Demand {
        self.shared.room.demand()
    }

    pub(crate) fn pass_done(&self) {
        self.shared.room.pass_done();
    }

    /// Frees dead space of the log while space is short. Returns the bytes freed. Blocks.
    pub(crate) fn reclaim(&self) -> Result<u64> {
        self.compactor.reclaim()
    }

    #[cfg(test)]
    pub(crate) fn compactor(&self) -> &Compactor {
        &self.compactor
    }

    #[cfg(test)]
    pub(crate) fn compact_all(&self) -> Result<u64> {
        self.compactor.compact_all()
    }

    /// Every record of the disk with its latest access.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.shared.index.all().map(|record| record.map(|record| self.refreshed(record)))
    }

    /// Evictable records committed after `generation`, in the order of their commits, at most
    /// `limit` of them; none at the end.
    pub(crate) fn residents(&self, generation: u64, limit: usize) -> Result<Vec<Record>> {
        let mut last = generation;
        loop {
            let page = self.shared.index.residents(last, limit)?;
            let Some((newest, _)) = page.last() else { return Ok(Vec::new()) };
            last = *newest;
            let mut found = Vec::with_capacity(page.len());
            for (generation, key) in page {
                let record = self.shared.get(&key)?;
                found.extend(record.filter(|r| r.generation == generation && r.evictable()));
            }
            // All records of a page may be gone although more follow.
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// The records of these commits that still exist and are evictable.
    pub(crate) fn records_of(&self, generations: &[u64]) -> Result<Vec<Record>> {
        let mut found = Vec::with_capacity(generations.len());
        for generation in generations {
            let Some(key) = self.shared.index.resident(*generation)? else { continue };
            let record = self.shared.get(&key)?;
            found.extend(record.filter(|r| r.generation == *generation));
        }
        Ok(found)
    }

    /// Decodes the record of an entry of the index, with its latest access.
    pub(crate) fn decode(&self, key: &[u8], value: &[u8]) -> Result<Record> {
        self.shared.index.decode(key, value).map(|record| self.refreshed(record))
    }

    fn refreshed(&self, mut record: Record) -> Record {
        self.shared.recency.refresh(&mut record);
        record
    }

    /// Score of this disk for a key. A new object goes to the disk with the highest score.
    pub(crate) fn score(&self, key_digest: u64) -> u64 {
        placement::mix(self.digest ^ key_digest)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        self.shared.get(key)
    }

    /// Commits a written object. `misplaced`: another disk has an older copy.
    pub(crate) async fn commit(
        &self,
        finished: Finished,
        meta: RecordMeta,
        misplaced: bool,
    ) -> Result<Record> {
        let Finished { bucket_id, name, payload, reservation, .. } = finished;
        match payload {
            Payload::Memory(bytes) => {
                let mut record = self.record(bucket_id, name, meta);
                record.size = bytes.len() as u64;
                self.submit_put(record, bytes, Vec::new(), misplaced, vec![reservation]).await
            }
            Payload::File(filling) => {
                let parts = Parts { kept: Vec::new(), fresh: vec![*filling] };
                let record = self.record(bucket_id, name, meta);
                self.commit_files(record, parts, misplaced, vec![reservation]).await
            }
        }
    }

    /// Makes an object of files: the existing ones, then the new ones.
    pub(crate) async fn commit_files(
        &self,
        mut record: Record,
        parts: Parts,
        misplaced: bool,
        held: Vec<Reservation>,
    ) -> Result<Record> {
        self.shared.check_alive()?;
        let Parts { mut kept, fresh } = parts;
        kept.extend(fresh.iter().map(|f| Extent { id: f.id, size: f.written }));
        record.sequence = self.shared.next_sequence();
        record.generation = record.sequence;
        record.size = kept.iter().map(|e| e.size).sum();
        record.place = Place::Files(Spot::default(), kept);
        let (shared, mine) = (self.shared.clone(), record.clone());
        let ended = super::blocking(move || end_files(&shared, fresh, &mine));
        let fresh = self.shared.while_in_use(ended).await?;
        self.submit_put(record, Bytes::new(), fresh, misplaced, held).await
    }

    /// A record of this disk that is not committed yet.
    pub(crate) fn record(&self, bucket_id: u64, name: String, meta: RecordMeta) -> Record {
        Record {
            bucket_id,
            name,
            size: 0,
            generation: 0,
            sequence: 0,
            meta,
            place: Place::Log(Spot::default()),
            disk: self.number(),
        }
    }

    async fn submit_put(
        &self,
        record: Record,
        payload: Bytes,
        files: Vec<Filling>,
        misplaced: bool,
        held: Vec<Reservation>,
    ) -> Result<Record> {
        let change = Change::Put { record: Box::new(record), payload, files, misplaced };
        let mut outcomes = self.committer.submit(vec![change], held).await?;
        let new = outcomes.pop().and_then(|o| o.new);
        new.ok_or_else(|| Error::internal("a commit was overtaken by a later one of its object"))
    }

    /// Waits until all changes that were submitted before are made.
    pub(crate) async fn drain(&self) -> Result<()> {
        // Changes of a group that need no sync are answered first. The second request is in a later
        // group.
        for _ in 0..2 {
            self.committer.submit(Vec::new(), Vec::new()).await?;
        }
        Ok(())
    }

    /// Changes metadata. `None` if the object is gone or was committed again since.
    pub(crate) async fn update(
        &self,
        record: &Record,
        change: MetaChange,
    ) -> Result<Option<Record>> {
        let change = Change::Update { record: Box::new(record.clone()), change };
        Ok(self.one(change).await?.new)
    }

    /// Removes exactly this commit of an object. False if it was gone or committed again already.
    pub(crate) async fn remove(&self, record: &Record) -> Result<bool> {
        let change = removal(record);
        Ok(self.one(change).await?.old.is_some())
    }

    /// Removes exactly these commits. Returns those that still existed.
    pub(crate) fn remove_all_blocking(&self, records: &[Record]) -> Result<Vec<Record>> {
        let mut removed = Vec::new();
        for chunk in records.chunks(REMOVALS_PER_GROUP) {
            let changes = chunk.iter().map(removal).collect();
            let outcomes = self.committer.submit_blocking(changes)?;
            removed.extend(outcomes.into_iter().filter_map(|o| o.old));
        }
        Ok(removed)
    }

    /// Drops the note that another disk may have an older copy of this key.
    pub(crate) async fn clear_misplaced(&self, key: Vec<u8>) -> Result<()> {
        self.one(Change::ClearMisplaced { key }).await.map(drop)
    }

    async fn one(&self, change: Change) -> Result<Outcome> {
        let mut outcomes = self.committer.submit(vec![change], Vec::new()).await?;
        Ok(outcomes.pop().unwrap_or_default())
    }

    /// Opens an object. `None` if its bytes are gone (its entry is then removed), or if it has
    /// moved.
    pub(crate) fn open_object(&self, record: &Record) -> Result<Option<ObjectReader>> {
        self.try_open(record).inspect_err(|e| self.shared.suspect_if(e))
    }

    fn try_open(&self, record: &Record) -> Result<Option<ObjectReader>> {
        let body = match &record.place {
            Place::Log(spot) => match self.shared.log.read(spot, record.size) {
                Ok(Some((found, payload))) => {
                    if !is_same(&found, record) {
                        return Err(corrupt(record, "another object lies in its place"));
                    }
                    Some(Body::Memory(payload))
                }
                Ok(None) => None,
                Err(e) if super::is_corrupt(&e) => return Err(corrupt(record, &e.message)),
                Err(e) => return Err(e),
            },
            Place::Files(_, extents) => self.open_files(extents)?.map(Body::Files),
        };
        match body {
            Some(body) => Ok(Some(ObjectReader::new(record.clone(), body))),
            None => {
                self.forget_lost(record)?;
                Ok(None)
            }
        }
    }

    fn open_files(&self, extents: &[Extent]) -> Result<Option<Vec<OpenExtent>>> {
        let mut open = Vec::with_capacity(extents.len());
        for extent in extents {
            let path = self.shared.object_path(extent.id);
            let file = match self.shared.io.open(&path) {
                // Committed, but the file is not in its place yet.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    match self.shared.io.open(&self.shared.work_path(extent.id)) {
                        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                            self.shared.io.open(&path)
                        }
                        other => other,
                    }
                }
                other => other,
            };
            match file {
                Ok(file) => open.push(self.open_extent(file, extent)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(failed("open", &path)(e)),
            }
        }
        Ok(Some(open))
    }

    fn open_extent(&self, file: Arc<dyn DiskFile>, extent: &Extent) -> OpenExtent {
        OpenExtent::new(file, extent.size, Some((extent.id, self.shared.checked.clone())))
    }

    /// Removes an entry whose bytes are gone, unless it was changed since the look-up.
    fn forget_lost(&self, record: &Record) -> Result<()> {
        let Some(now) = self.shared.current(record)? else { return Ok(()) };
        if now.place != record.place {
            return Ok(());
        }
        let (name, bucket_id) = (&record.name, record.bucket_id);
        tracing::warn!(name, bucket_id, generation = record.generation, "object lost its bytes");
        self.shared.losses.send_modify(|n| *n += 1);
        self.remove_all_blocking(std::slice::from_ref(&now)).map(drop)
    }

    /// Removes every object of a bucket. Returns how many and how many bytes.
    pub(crate) fn remove_bucket(&self, bucket_id: u64) -> Result<(u64, u64)> {
        let span = Span { bucket_id, ..Span::default() };
        let (mut objects, mut bytes) = (0, 0);
        loop {
            let page: Vec<Record> =
                self.shared.index.scan(&span).take(REMOVALS_PER_GROUP).collect::<Result<_>>()?;
            if page.is_empty() {
                return Ok((objects, bytes));
            }
            for record in self.remove_all_blocking(&page)? {
                objects += 1;
                bytes += record.size;
            }
        }
    }

    /// Writes noted access times to the index.
    pub(crate) fn write_times(&self) -> Result<()> {
        let touches = self.shared.recency.take();
        for chunk in touches.chunks(REMOVALS_PER_GROUP) {
            self.committer.submit_blocking(vec![Change::Times(chunk.to_vec())])?;
        }
        Ok(())
    }
}

fn removal(record: &Record) -> Change {
    Change::Remove {
        bucket_id: record.bucket_id,
        name: record.name.clone(),
        generation: Some(record.generation),
    }
}

fn is_same(found: &Record, wanted: &Record) -> bool {
    (found.bucket_id, &found.name, found.generation, found.size)
        == (wanted.bucket_id, &wanted.name, wanted.generation, wanted.size)
}

/// Completes files of `work/`, so that the log may name them. Each gets a trailer with this record.
fn end_files(shared: &Shared, mut files: Vec<Filling>, record: &Record) -> Result<Vec<Filling>> {
    let trailer = format::encode_trailer(record)?;
    for file in &mut files {
        file.end(&trailer)?;
        if record.meta.class == Class::Owned {
            shared.synced(file.file.sync(), &file.path)?;
        }
    }
    let folder = files.first().and_then(|f| f.path.parent());
    if let Some(folder) = folder.filter(|_| record.meta.class == Class::Owned) {
        shared.synced(shared.io.sync_dir(folder), folder)?;
    }
    Ok(files)
}

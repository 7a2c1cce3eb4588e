//! One disk of the store: its folders, and the order of steps by which objects appear and go.
//!
//! ```text
//! DISK/.forebay/{lock,disk.json,index/,lost/}   DISK/work/<id>   DISK/objects/xx/<id>
//! DISK/companions/<id>
//! ```
//! An id is the commit's generation in hexadecimal; names of objects never become paths.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_core::bucket::Class;
use forebay_core::{Error, ErrorCode, Result, placement};

use super::DiskSettings;
use super::companion::Companions;
use super::disk::{Disk, DiskFile, DiskLock};
use super::format;
use super::identity::{self, Identity, failed};
use super::index::{Index, Span};
use super::reader::ObjectReader;
use super::rebuild;
use super::recency::Recency;
use super::record::{Extent, Place, Record, RecordMeta};
use super::space::{Demand, EvictorBell, Room, Weight};
use super::work::Work;

/// Default budget: this part of the file system, or [`MAX_DEFAULT_BUDGET`], the smaller.
const DEFAULT_SHARE: u64 = 10;
const MAX_DEFAULT_BUDGET: u64 = 20 << 30;
/// Left free on the file system, so that the index and deletes go on working: at most this,
const HEADROOM: u64 = 64 << 20;
/// or this part of a small one.
const HEADROOM_SHARE: u64 = 50;

/// One disk.
pub(crate) struct Volume {
    pub(crate) number: usize,
    pub(crate) root: PathBuf,
    pub(crate) io: Arc<dyn Disk>,
    pub(crate) index: Index,
    pub(crate) room: Arc<Room>,
    pub(crate) recency: Recency,
    pub(crate) companions: Companions,
    digest: u64,
    generation: AtomicU64,
    /// A sync failed: what the disk holds is unknown until it is opened again.
    failed: AtomicBool,
    _lock: DiskLock,
}

impl Volume {
    pub(crate) fn open(
        number: usize,
        settings: &DiskSettings,
        io: Arc<dyn Disk>,
        bell: Arc<EvictorBell>,
    ) -> Result<Self> {
        let root = &settings.path;
        let (own, work, objects) = (root.join(".forebay"), root.join("work"), root.join("objects"));
        for dir in [&own, &work, &objects] {
            io.create_dir(dir).map_err(failed("create folder", dir))?;
        }
        let lock = identity::lock(&*io, root, &own)?;
        let identity = Identity::load(&*io, &own, || has_files(&*io, &objects))?;
        remove_work(&*io, &work)?;
        create_folders(&*io, &objects)?;
        let companions = Companions::open(root, &*io)?;
        let index = rebuild::open_index(number, settings, io.clone(), &own, &objects)?;
        let budget = match settings.budget {
            Some(budget) => budget,
            None => {
                let total = io.space(root).map_err(failed("measure", root))?.total;
                (total / DEFAULT_SHARE).min(MAX_DEFAULT_BUDGET)
            }
        };
        Ok(Self {
            number,
            root: root.clone(),
            index,
            room: Room::new(budget, bell),
            recency: Recency::default(),
            companions,
            digest: placement::digest(&identity.id),
            generation: AtomicU64::new(identity.first_generation()),
            failed: AtomicBool::new(false),
            io,
            _lock: lock,
        })
    }

    /// Ends what a crash left half done, then counts what is there. `elsewhere` says whether
    /// another disk has a key: then its copy was to replace the marked one.
    pub(crate) fn recover(&self, elsewhere: &dyn Fn(&[u8]) -> Result<bool>) -> Result<()> {
        for (generation, key) in self.index.marks()? {
            let path = self.object_path(generation);
            let is_entry = self.index.get(&key)?.is_some_and(|r| r.generation == generation);
            let there = match self.io.open(&path) {
                Ok(_) => true,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
                Err(e) => return Err(failed("open", &path)(e)),
            };
            if is_entry && there && !elsewhere(&key)? {
                self.index.unmark(generation)?;
                continue;
            }
            if there {
                self.io.unlink(&path).map_err(failed("remove", &path))?;
            }
            self.index.erase(&key, generation)?;
        }
        let mut found = self.companions.found(&*self.io)?;
        for record in self.index.all() {
            let record = record?;
            self.room.replace(Some(weight(&record)), None);
            if let Some(space) = found.remove(&record.generation) {
                self.companions.adopt(record.generation, space);
                self.room.set_aside(space, 0);
            }
        }
        // Nobody's: a crash came between the end of an object and that of its companion.
        found.into_keys().try_for_each(|orphan| self.companions.remove_orphan(&*self.io, orphan))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn demand(&self) -> Demand {
        self.room.demand()
    }

    pub(crate) fn pass_done(&self) {
        self.room.pass_done();
    }

    /// Every record of the disk with its latest access.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.index.all().map(|record| {
            let mut record = record?;
            self.recency.refresh(&mut record);
            Ok(record)
        })
    }

    /// Score of this disk for a key; the highest of all disks is where a new object goes.
    pub(crate) fn score(&self, key_digest: u64) -> u64 {
        placement::mix(self.digest ^ key_digest)
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn work_path(&self, generation: u64) -> PathBuf {
        self.root.join("work").join(format!("{generation:016x}"))
    }

    pub(crate) fn object_path(&self, generation: u64) -> PathBuf {
        object_path(&self.root.join("objects"), generation)
    }

    /// Whether the file system has `bytes` beside what must stay free.
    pub(crate) fn file_system_fits(&self, bytes: u64) -> bool {
        self.io
            .space(&self.root)
            .is_ok_and(|s| s.free >= bytes.saturating_add(HEADROOM.min(s.total / HEADROOM_SHARE)))
    }

    /// Refuses writes after a failed sync.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::internal(format!(
                "disk {} failed to sync; it takes no writes until restart",
                self.root.display()
            ))
            .hint("look at the kernel's log, replace the disk if it is failing"));
        }
        Ok(())
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        let mut record = self.index.get(key)?;
        if let Some(record) = &mut record {
            self.recency.refresh(record);
        }
        Ok(record)
    }

    /// Turns a finished work file into the object of its name.
    pub(crate) fn commit(&self, mut work: Box<Work>, meta: RecordMeta) -> Result<Record> {
        self.check_alive()?;
        let owned = meta.class == Class::Owned;
        let record = Record {
            bucket_id: work.bucket_id,
            name: std::mem::take(&mut work.name),
            size: work.written,
            generation: work.generation,
            sequence: work.generation,
            meta,
            place: Place::Files(vec![Extent { id: work.generation, size: work.written }]),
            disk: self.number,
        };
        let mut tail = work.take_table();
        tail.extend(format::encode_trailer(&record)?);
        work.file.write_at(&tail, record.size).map_err(|e| {
            let error = failed("write", &work.path)(e);
            if error.code == ErrorCode::OutOfSpace {
                self.room.note_full(tail.len() as u64);
            }
            error
        })?;
        if owned {
            self.synced(work.file.sync(), &work.path)?;
        }
        let key = format::key(record.bucket_id, &record.name);
        let path = self.object_path(record.generation);
        self.index.mark(record.generation, &key)?;
        self.io.rename(&work.path, &path).map_err(failed("rename", &work.path))?;
        work.moved = true;
        if owned && let Err(e) = self.sync_folder(&path) {
            self.drop_file(record.generation);
            return Err(e);
        }
        let old = self.index.publish(&record)?;
        self.room.replace(Some(weight(&record)), old.as_ref().map(weight));
        if owned {
            self.synced_index()?;
        }
        if let Some(old) = old {
            self.drop_file(old.generation);
        }
        Ok(record)
    }

    /// Removes a file that no entry names, and its mark; what fails is left to the next start.
    fn drop_file(&self, generation: u64) {
        self.drop_companion(generation);
        let path = self.object_path(generation);
        let removed = self.io.unlink(&path).map_err(failed("remove", &path));
        if let Err(e) = removed.and_then(|()| self.index.unmark(generation)) {
            tracing::warn!("a file without an object stays until restart: {e}");
        }
    }

    /// Changes metadata. `None`: the object is gone or was committed again since.
    pub(crate) fn update(
        &self,
        record: &Record,
        f: impl FnOnce(&mut RecordMeta),
    ) -> Result<Option<Record>> {
        self.check_alive()?;
        let key = format::key(record.bucket_id, &record.name);
        let Some(mut new) = self.get(&key)?.filter(|r| r.generation == record.generation) else {
            return Ok(None);
        };
        let old = new.meta.clone();
        f(&mut new.meta);
        let owned = new.meta.class == Class::Owned;
        if owned && !new.meta.same_lasting(&old) {
            let path = self.object_path(new.generation);
            let trailer = format::encode_trailer(&new)?;
            let file = self.io.open_write(&path).map_err(failed("open", &path))?;
            let end = file.size().map_err(failed("measure", &path))?;
            file.write_at(&trailer, end).map_err(failed("write", &path))?;
            self.synced(file.sync(), &path)?;
        }
        let meta = new.meta;
        let changed = self.index.change(record, |m| *m = meta)?;
        if owned && changed.is_some() {
            self.synced_index()?;
        }
        Ok(changed)
    }

    /// Removes this very commit of an object. False: it was gone or committed again already.
    pub(crate) fn remove(&self, record: &Record, durable: bool) -> Result<bool> {
        let key = format::key(record.bucket_id, &record.name);
        let path = self.object_path(record.generation);
        self.index.mark(record.generation, &key)?;
        match self.io.unlink(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("remove", &path)(e));
            }
            _ => {}
        }
        let durable = durable && record.meta.class == Class::Owned;
        if durable {
            self.sync_folder(&path)?;
        }
        let removed = self.forget(&key, record.generation)?;
        if durable {
            self.synced_index()?;
        }
        Ok(removed)
    }

    /// Removes an entry whose file is gone.
    fn forget(&self, key: &[u8], generation: u64) -> Result<bool> {
        let erased = self.index.erase(key, generation)?;
        // Not before: nobody keeps a companion for an entry that is gone.
        self.drop_companion(generation);
        let Some(old) = erased else { return Ok(false) };
        self.recency.forget(key);
        self.room.replace(None, Some(weight(&old)));
        Ok(true)
    }

    /// Opens an object's file. `None`: it is gone, and so is its entry now.
    pub(crate) fn open_object(&self, record: &Record) -> Result<Option<ObjectReader>> {
        let path = self.object_path(record.generation);
        match self.io.open(&path) {
            Ok(file) => Ok(Some(self.reader(record, file))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let key = format::key(record.bucket_id, &record.name);
                let known = self.index.is_marked(record.generation)?;
                if self.forget(&key, record.generation)? && !known {
                    let (name, bucket_id) = (&record.name, record.bucket_id);
                    tracing::warn!(name, bucket_id, path = %path.display(), "object lost its file");
                }
                Ok(None)
            }
            Err(e) => Err(failed("open", &path)(e)),
        }
    }

    fn reader(&self, record: &Record, file: Arc<dyn DiskFile>) -> ObjectReader {
        ObjectReader::new(record.clone(), file)
    }

    /// Removes every object of a bucket; returns how many and how many bytes.
    pub(crate) fn remove_bucket(&self, bucket_id: u64) -> Result<(u64, u64)> {
        let span = Span { bucket_id, ..Span::default() };
        let (mut objects, mut bytes) = (0, 0);
        for record in self.index.scan(&span) {
            let record = record?;
            // Ids of buckets are never used again: what a power cut brings back is nobody's.
            if self.remove(&record, false)? {
                objects += 1;
                bytes += record.size;
            }
        }
        self.synced_index()?;
        Ok((objects, bytes))
    }

    /// Writes noted times of access to the index.
    pub(crate) fn write_times(&self) -> Result<()> {
        for (key, touch) in self.recency.take() {
            self.index.set_atime(&key, touch.generation, touch.atime_ns)?;
        }
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> Result<()> {
        match path.parent() {
            Some(dir) => self.synced(self.io.sync_dir(dir), dir),
            None => Ok(()),
        }
    }

    fn synced_index(&self) -> Result<()> {
        self.index.persist().inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    /// A failed sync may have thrown away dirty pages: trying again would lie.
    fn synced(&self, result: std::io::Result<()>, path: &Path) -> Result<()> {
        result.map_err(|e| {
            self.failed.store(true, Ordering::Relaxed);
            tracing::error!(disk = %self.root.display(), "sync failed, disk takes no writes: {e}");
            failed("sync", path)(e)
        })
    }
}

/// What a record counts for in the accounts.
pub(crate) fn weight(record: &Record) -> Weight {
    Weight { bytes: record.size, stored: record.stored_bytes() }
}

pub(crate) fn object_path(objects: &Path, generation: u64) -> PathBuf {
    objects.join(format!("{:02x}", generation & 0xff)).join(format!("{generation:016x}"))
}

fn has_files(io: &dyn Disk, objects: &Path) -> Result<bool> {
    for dir in io.list(objects).map_err(failed("list", objects))? {
        let dir = objects.join(dir);
        if !io.list(&dir).map_err(failed("list", &dir))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn remove_work(io: &dyn Disk, work: &Path) -> Result<()> {
    for name in io.list(work).map_err(failed("list", work))? {
        let path = work.join(name);
        io.unlink(&path).map_err(failed("remove", &path))?;
    }
    Ok(())
}

fn create_folders(io: &dyn Disk, objects: &Path) -> Result<()> {
    let there = io.list(objects).map_err(failed("list", objects))?;
    let missing = (0..256u64).map(|i| format!("{i:02x}")).filter(|name| !there.contains(name));
    let mut created = false;
    for name in missing {
        let dir = objects.join(name);
        io.create_dir(&dir).map_err(failed("create folder", &dir))?;
        created = true;
    }
    if created {
        io.sync_dir(objects).map_err(failed("sync", objects))?;
    }
    Ok(())
}

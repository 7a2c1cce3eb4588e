//! Sidecars: data derived from an object's content, in a file of the same id that is removed with
//! it.
//!
//! A sidecar can always be made again, so it is never synced, and a damaged one counts as absent.
//! It belongs to one commit: the next commit of the name has another id.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};

use super::disk::Disk;
use super::format;
use super::identity::failed;
use super::record::Record;
use super::shared::Shared;
use super::{Store, blocking};

/// The sidecars of one disk.
pub(crate) struct Sidecars {
    folder: PathBuf,
    /// Space on the disk, by the object's generation. Locked while a file is created or removed, so
    /// that a file exists if and only if it is in this map.
    known: Mutex<HashMap<u64, u64>>,
    /// Two writers of one sidecar would share a work file.
    writing: Mutex<()>,
}

impl Sidecars {
    pub(crate) fn open(root: &Path, io: &dyn Disk) -> Result<Self> {
        let folder = root.join("companions");
        io.create_dir(&folder).map_err(failed("create folder", &folder))?;
        Ok(Self { folder, known: Mutex::default(), writing: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.known.locked()
    }

    fn path(&self, generation: u64) -> PathBuf {
        self.folder.join(format!("{generation:016x}"))
    }

    /// Generations that have a sidecar in the folder, with the space it takes.
    pub(crate) fn found(&self, io: &dyn Disk) -> Result<HashMap<u64, u64>> {
        let mut found = HashMap::new();
        for name in io.list(&self.folder).map_err(failed("list", &self.folder))? {
            let path = self.folder.join(&name);
            let Ok(generation) = u64::from_str_radix(&name, 16) else {
                tracing::warn!(path = %path.display(), "not a sidecar file, left alone");
                continue;
            };
            let size = io.open(&path).and_then(|file| file.size());
            let size = size.map_err(failed("measure", &path))?;
            found.insert(generation, format::sidecar_space(size));
        }
        Ok(found)
    }

    /// Loads the sidecars of existing objects and removes the others, which are left if a crash
    /// came between the removal of an object and that of its sidecar.
    pub(crate) fn recover(&self, shared: &Shared) -> Result<()> {
        for (generation, space) in self.found(&*shared.io)? {
            let is_current = match shared.index.sidecar(generation)? {
                Some(key) => shared.index.get(&key)?.is_some_and(|r| r.generation == generation),
                None => false,
            };
            if is_current {
                self.known().insert(generation, space);
                shared.room.set_aside(space, 0);
            } else {
                let path = self.path(generation);
                shared.io.unlink(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Removes the sidecar of a commit that is no longer the object of its name.
    pub(crate) fn drop_of(&self, shared: &Shared, generation: u64) {
        let mut known = self.known();
        let Some(space) = known.remove(&generation) else { return };
        let path = self.path(generation);
        let removed = shared.io.unlink(&path).map_err(failed("remove", &path));
        if let Err(e) = removed.and_then(|()| shared.index.set_sidecar(generation, None)) {
            tracing::warn!(path = %path.display(), "sidecar file stays until restart: {e}");
        }
        drop(known);
        shared.room.set_aside(0, space);
    }
}

impl Shared {
    /// The sidecar of this commit, if there is a sound one.
    pub(crate) fn sidecar(&self, record: &Record) -> Result<Option<Vec<u8>>> {
        if !self.sidecars.known().contains_key(&record.generation) {
            return Ok(None);
        }
        let path = self.sidecars.path(record.generation);
        let read = || -> io::Result<Vec<u8>> {
            let file = self.io.open(&path)?;
            let mut bytes = vec![0; file.size()? as usize];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => match format::decode_sidecar(bytes, record.generation) {
                Ok(payload) => return Ok(Some(payload)),
                Err(e) => tracing::warn!(path = %path.display(), "dropped: {e}"),
            },
            // Removed with its object since the check above.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => tracing::warn!(path = %path.display(), "cannot be read, dropped: {e}"),
        }
        self.sidecars.drop_of(self, record.generation);
        Ok(None)
    }

    /// Stores `payload` beside the object. False if there is no space, or the commit was replaced
    /// or removed.
    pub(crate) fn keep_sidecar(&self, record: &Record, payload: &[u8]) -> Result<bool> {
        self.check_alive()?;
        let bytes = format::encode_sidecar(record.generation, payload);
        let space = format::sidecar_space(bytes.len() as u64);
        if !self.file_system_fits(space) {
            return Ok(false);
        }
        let Some(_reserved) = self.room.try_reserve(space) else { return Ok(false) };
        let writing = &self.sidecars.writing;
        let _writing = writing.locked();
        let work = self.work_path(record.generation).with_extension("companion");
        let kept = self.write_sidecar(&work, &bytes).and_then(|()| {
            let mut known = self.sidecars.known();
            // A removal changes the entry before it looks for a sidecar: either it sees this
            // sidecar, or this check sees the changed entry.
            if self.current(record)?.is_none() {
                return Ok(false);
            }
            let key = format::key(record.bucket_id, &record.name);
            self.index.set_sidecar(record.generation, Some(&key))?;
            let path = self.sidecars.path(record.generation);
            self.io.rename(&work, &path).map_err(failed("rename", &work))?;
            let before = known.insert(record.generation, space);
            self.room.set_aside(space, before.unwrap_or(0));
            Ok(true)
        });
        if !matches!(kept, Ok(true))
            && let Err(e) = self.io.unlink(&work)
        {
            tracing::debug!(path = %work.display(), "work file stays until restart: {e}");
        }
        kept
    }

    fn write_sidecar(&self, work: &Path, bytes: &[u8]) -> Result<(), Error> {
        let file = match self.io.create(work) {
            // An earlier try failed and could not clean up.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.io.unlink(work).map_err(failed("remove", work))?;
                self.io.create(work)
            }
            created => created,
        };
        let file = file.map_err(failed("create", work))?;
        file.write_at(bytes, 0).map_err(failed("write", work))
    }
}

impl Store {
    /// The sidecar that [`Self::keep_sidecar`] stored for exactly this commit. `None` if there is
    /// none, or if it was damaged and is removed now.
    pub async fn sidecar(&self, record: &Record) -> Result<Option<Vec<u8>>> {
        let (volume, record) = (self.volume(record)?, record.clone());
        blocking(move || volume.shared().sidecar(&record)).await
    }

    /// Stores a sidecar for exactly this commit and replaces the previous one. It is removed with
    /// the commit and may get lost before. False if there is no space, or the object was removed or
    /// replaced.
    pub async fn keep_sidecar(&self, record: &Record, bytes: Vec<u8>) -> Result<bool> {
        let (volume, record) = (self.volume(record)?, record.clone());
        blocking(move || volume.shared().keep_sidecar(&record, &bytes)).await
    }
}

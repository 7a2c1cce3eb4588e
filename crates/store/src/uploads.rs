//! Parts of unfinished uploads. Each upload is a folder `uploads/ID` of one disk, with a file for
//! each part and a journal that lists them. It survives the process.
//!
//! A file has its block table behind its bytes, like an object's file, so that it becomes a part of
//! an object without being copied.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::{Error, ErrorCode, ObjectName, Result};

use super::disk::Disk;
use super::format::{self, BLOCK};
use super::identity::failed;
use super::reader::{Body, OpenExtent};
use super::record::{Place, Record, RecordMeta, Spot};
use super::space::Reservation;
use super::volume::{Parts, Volume};
use super::work::{Filling, WorkFile};
use super::{ObjectReader, Store, blocking};

/// Free space that a disk must have for a new upload.
const ROOM: u64 = 16 << 20;
/// Name of the journal; those of parts are hexadecimal numbers.
const JOURNAL: &str = "journal";
/// Longest journal that is read: a line takes some hundred bytes, and there are 10,000 parts, each
/// of which may have been sent several times.
const MAX_JOURNAL: u64 = 64 << 20;

/// The folder of one upload.
#[derive(Clone, Debug)]
pub struct UploadDir {
    /// Number of the disk that has it.
    disk: usize,
    id: String,
}

/// A file with the bytes of a part.
pub struct PartFile {
    pub id: u64,
    /// Bytes of payload.
    pub size: u64,
    /// The reserved space; `None` if the part is from before a restart and no space was left.
    _held: Option<Reservation>,
}

/// A part of an object that is about to be committed.
pub enum Piece {
    /// A part as it was uploaded.
    Kept(u64, u64),
    /// Bytes written for this commit.
    Fresh(WorkFile),
}

/// An upload found on a disk: its folder, the lines of its journal, and its files.
pub struct FoundUpload {
    pub dir: UploadDir,
    pub lines: Vec<Vec<u8>>,
    pub files: Vec<PartFile>,
}

fn uploads_dir(root: &Path) -> PathBuf {
    root.join("uploads")
}

impl UploadDir {
    /// Its path below the root of its disk.
    pub fn place(&self) -> String {
        format!("uploads/{} of disk {}", self.id, self.disk)
    }

    fn path(&self, root: &Path) -> PathBuf {
        uploads_dir(root).join(&self.id)
    }

    fn part_path(&self, root: &Path, file: u64) -> PathBuf {
        self.path(root).join(format!("{file:016x}"))
    }
}

impl Store {
    fn disk_of(&self, dir: &UploadDir) -> Result<Arc<Volume>> {
        self.disks.number(dir.disk)
    }

    /// Creates an upload on the disk where the object belongs, or on one that has space. `line` is
    /// the first line of the journal.
    pub async fn begin_upload(
        &self,
        bucket_id: u64,
        name: &str,
        id: &str,
        line: &[u8],
    ) -> Result<UploadDir> {
        let (volume, _room) = self.reserve(bucket_id, name, ROOM).await?;
        let dir = UploadDir { disk: volume.number(), id: id.to_owned() };
        let (line, mine) = (line.to_vec(), dir.clone());
        let shared = volume.shared().clone();
        blocking(move || {
            let path = mine.path(&shared.root);
            shared.io.create_dir(&path).map_err(failed("create folder", &path))?;
            let journal = path.join(JOURNAL);
            let file = shared.io.create(&journal).map_err(failed("create", &journal))?;
            file.write_at(&line, 0).map_err(failed("write", &journal))
        })
        .await?;
        Ok(dir)
    }

    /// Starts writing a part.
    pub async fn begin_upload_part(
        &self,
        dir: &UploadDir,
        bucket_id: u64,
        name: &str,
        size_hint: Option<u64>,
    ) -> Result<WorkFile> {
        let (volume, name) = (self.disk_of(dir)?, ObjectName::new(name)?);
        volume.shared().check_alive()?;
        let need = format::space_for(size_hint.unwrap_or(0), name.as_ref());
        let fits = || volume.shared().file_system_fits(need);
        let reservation = volume.room().reserve(need, fits).await?;
        Ok(WorkFile::new(&volume, bucket_id, name.as_ref(), size_hint, reservation))
    }

    /// Stores a written part in the folder of its upload; with `sync` it is durable.
    pub async fn keep_part(&self, dir: &UploadDir, part: WorkFile, sync: bool) -> Result<PartFile> {
        let volume = self.disk_of(dir)?;
        let (mut filling, held) = part.finish_in_file().await?;
        let (shared, dir) = (volume.shared().clone(), dir.clone());
        let in_use = shared.clone();
        let kept = blocking(move || {
            let to = dir.part_path(&shared.root, filling.id);
            filling.end(&[])?;
            if sync {
                shared.synced(filling.file.sync(), &filling.path)?;
            }
            shared.io.rename(&filling.path, &to).map_err(failed("rename", &filling.path))?;
            filling.handed_over = true;
            Ok(PartFile { id: filling.id, size: filling.written, _held: Some(held) })
        });
        in_use.while_in_use(kept).await
    }

    /// Adds a line to an upload's journal. The caller must serialize the calls.
    pub async fn note_upload(&self, dir: &UploadDir, line: Vec<u8>) -> Result<()> {
        let (shared, dir) = (self.disk_of(dir)?.shared().clone(), dir.clone());
        blocking(move || {
            let path = dir.path(&shared.root).join(JOURNAL);
            let file = shared.io.open_write(&path).map_err(failed("open", &path))?;
            let end = file.size().map_err(failed("measure", &path))?;
            file.write_at(&line, end).map_err(failed("write", &path))
        })
        .await
    }

    /// Opens a part for reading; its bytes are compared with their checksums.
    pub async fn read_upload_part(
        &self,
        dir: &UploadDir,
        file: u64,
        size: u64,
    ) -> Result<ObjectReader> {
        let (volume, dir) = (self.disk_of(dir)?, dir.clone());
        blocking(move || {
            let shared = volume.shared();
            let path = dir.part_path(&shared.root, file);
            let open = shared.io.open(&path).map_err(failed("open", &path))?;
            let mut record = volume.record(0, format!("upload {}", dir.id), RecordMeta::default());
            record.size = size;
            record.place = Place::Files(Spot::default(), Vec::new());
            Ok(ObjectReader::new(record, Body::Files(vec![OpenExtent::new(open, size, None)])))
        })
        .await
    }

    /// Removes the file of a replaced part.
    pub async fn drop_part(&self, dir: &UploadDir, part: PartFile) -> Result<()> {
        let (shared, dir) = (self.disk_of(dir)?.shared().clone(), dir.clone());
        blocking(move || {
            let path = dir.part_path(&shared.root, part.id);
            shared.io.unlink(&path).map_err(failed("remove", &path))
        })
        .await
    }

    /// Removes an upload with all its parts.
    pub async fn drop_upload(&self, dir: &UploadDir) -> Result<()> {
        let (shared, dir) = (self.disk_of(dir)?.shared().clone(), dir.clone());
        blocking(move || {
            let path = dir.path(&shared.root);
            // The journal is removed last. Parts without a journal look like those of an upload
            // whose journal is damaged, and would stay after a crash in between.
            for part in list(&*shared.io, &path)?.into_iter().filter(|name| name != JOURNAL) {
                let part = path.join(part);
                shared.io.unlink(&part).map_err(failed("remove", &part))?;
            }
            shared.io.remove_tree(&path).map_err(failed("remove", &path))
        })
        .await
    }

    /// Makes one object of parts of an upload and of other written bytes, in their order, and
    /// replaces the object of that name. Nothing is copied. Guarantees are those of
    /// [`Self::commit`]; after an error the parts are gone.
    pub async fn commit_upload(
        &self,
        dir: &UploadDir,
        bucket_id: u64,
        name: &str,
        pieces: Vec<Piece>,
        meta: RecordMeta,
    ) -> Result<Record> {
        let volume = self.disk_of(dir)?;
        let (mut fresh, mut held) = (Vec::with_capacity(pieces.len()), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Kept(file, size) => {
                    let (volume, dir) = (volume.clone(), dir.clone());
                    fresh.push(blocking(move || take(&volume, &dir, file, size)).await?);
                }
                Piece::Fresh(work) => {
                    let (filling, reservation) = work.finish_in_file().await?;
                    fresh.push(filling);
                    held.push(reservation);
                }
            }
        }
        let parts = Parts { kept: Vec::new(), fresh };
        self.commit_parts(&volume, bucket_id, name.to_owned(), parts, meta, held).await
    }

    /// All uploads on the disks that are in use.
    pub async fn find_uploads(&self) -> Result<Vec<FoundUpload>> {
        let volumes = self.disks.online();
        blocking(move || {
            let mut found = Vec::new();
            for volume in volumes.iter() {
                let root = uploads_dir(&volume.shared().root);
                for id in list(&*volume.shared().io, &root)? {
                    let dir = UploadDir { disk: volume.number(), id };
                    match open(volume, &dir) {
                        Ok(upload) => found.push(upload),
                        Err(e) => tracing::warn!(upload = dir.id, "an upload is lost: {e}"),
                    }
                }
            }
            Ok(found)
        })
        .await
    }
}

/// Names in a folder; none if the folder does not exist.
fn list(io: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    match io.list(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(failed("list", dir)),
    }
}

/// The bytes of a journal; none if the process ended before it was created. Blocks.
fn read_journal(io: &dyn Disk, journal: &Path) -> Result<Vec<u8>> {
    let file = match io.open(journal) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(failed("open", journal))?,
    };
    let len = file.size().map_err(failed("measure", journal))?;
    if len > MAX_JOURNAL {
        return Err(Error::new(ErrorCode::Corrupt, format!("its journal has {len} bytes")));
    }
    let mut text = vec![0; len as usize];
    file.read_exact_at(&mut text, 0).map_err(failed("read", journal))?;
    Ok(text)
}

/// Reads the folder of an upload. Blocks.
fn open(volume: &Arc<Volume>, dir: &UploadDir) -> Result<FoundUpload> {
    let shared = volume.shared();
    let path = dir.path(&shared.root);
    let text = read_journal(&*shared.io, &path.join(JOURNAL))?;
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let mut files = Vec::new();
    for name in list(&*shared.io, &path)? {
        let Ok(id) = u64::from_str_radix(&name, 16) else { continue };
        let path = dir.part_path(&shared.root, id);
        let len = shared.io.open(&path).and_then(|f| f.size()).map_err(failed("open", &path))?;
        let Some(size) = payload_of(len) else { continue };
        let _held = volume.room().try_reserve(format::file_space(size, ""));
        files.push(PartFile { id, size, _held });
    }
    Ok(FoundUpload { dir: dir.clone(), lines: lines.map(<[u8]>::to_vec).collect(), files })
}

/// Bytes of payload of a file that has `len` bytes with its block table.
fn payload_of(len: u64) -> Option<u64> {
    let blocks = len.div_ceil(BLOCK + format::TABLE_ENTRY);
    let size = len.checked_sub(blocks * format::TABLE_ENTRY)?;
    (size + format::table_len(size) == len).then_some(size)
}

/// Moves the file of a part to `work/`, ready to become a part of an object. Blocks.
fn take(volume: &Arc<Volume>, dir: &UploadDir, file: u64, size: u64) -> Result<Filling> {
    let shared = volume.shared();
    let (from, to) = (dir.part_path(&shared.root, file), shared.work_path(file));
    let open = shared.io.open_write(&from).map_err(failed("open", &from))?;
    let mut table = vec![0; format::table_len(size) as usize];
    open.read_exact_at(&mut table, size).map_err(failed("read", &from))?;
    shared.io.rename(&from, &to).map_err(failed("rename", &from))?;
    Ok(Filling::filled(shared, file, open, size, table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_file_tells_that_of_its_payload() {
        for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 7 * BLOCK, 1 << 30] {
            assert_eq!(payload_of(size + format::table_len(size)), Some(size));
        }
        assert_eq!((payload_of(3), payload_of(4)), (None, None), "a table without a block");
    }
}

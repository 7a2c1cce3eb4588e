//! Puts and deletes files of the folder: write to a work file, sync, rename.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use forebay_node::file_modes;
use futures::stream::StreamExt;
use tokio::io::AsyncWriteExt;

use super::marker::{self, MAX_PUT_ATTEMPTS};
use super::{Folder, WORK_FILE_PREFIX, blocking, meta_of, problem_with};
use crate::{PutBody, RemoteMeta};

/// A work file beside its final place; removed when dropped before the commit.
struct WorkFile {
    path: PathBuf,
    place: PathBuf,
    committed: bool,
    /// Dropped after the file is removed.
    folders: MadeFolders,
}

/// The folders that were created for a put. An empty folder would be a marker that was never put,
/// so they are removed with a put that is given up.
pub(super) struct MadeFolders {
    uppermost: Option<PathBuf>,
    last: PathBuf,
}

impl MadeFolders {
    pub(super) fn new(last: &Path) -> Self {
        Self { uppermost: None, last: last.to_owned() }
    }

    pub(super) fn keep(&mut self) {
        self.uppermost = None;
    }

    /// Like `mkdir -p`, but follows no link and syncs the folders it creates.
    pub(super) fn make(&mut self, root: &Path) -> io::Result<()> {
        let last = self.last.clone();
        self.make_one(root, &last)
    }

    fn make_one(&mut self, root: &Path, folder: &Path) -> io::Result<()> {
        if folder == root {
            return Ok(());
        }
        match fs::symlink_metadata(folder) {
            Ok(m) if m.is_dir() => {
                // The folder itself is no link; those above it may still be links.
                let real = fs::canonicalize(folder)?;
                return match real == folder {
                    true => Ok(()),
                    false => Err(io::ErrorKind::NotADirectory.into()),
                };
            }
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let parent = folder.parent().unwrap_or(root);
        self.make_one(root, parent)?;
        match fs::create_dir(folder) {
            Ok(()) => {
                file_modes::share(&File::open(folder)?)?;
                if self.uppermost.as_ref().is_none_or(|known| known.starts_with(folder)) {
                    self.uppermost = Some(folder.to_owned());
                }
                sync_folder(parent)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.make_one(root, folder),
            Err(e) => Err(e),
        }
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        if let Some(above) = self.uppermost.as_deref().and_then(Path::parent) {
            remove_empty_folders(above, Some(&self.last));
        }
    }
}

impl Drop for WorkFile {
    fn drop(&mut self) {
        if !self.committed {
            // There is no caller to report an error to; listings skip leftover work files.
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) async fn put(folder: &Arc<Folder>, name: &str, body: PutBody) -> Result<RemoteMeta> {
    if let Some(inner) = marker::folder_name(name) {
        let (folder, inner, size) = (Arc::clone(folder), inner.to_owned(), body.size);
        return blocking(move || marker::put(&folder, &inner, size)).await;
    }
    let failed = |e: io::Error| folder.error(e, "write", name);
    let (work, file) = {
        let (folder, name) = (Arc::clone(folder), name.to_owned());
        blocking(move || begin(&folder, &name)).await?
    };
    let mut file = tokio::fs::File::from_std(file);
    let mut stream = body.read(ByteRange::whole(body.size));
    while let Some(chunk) = stream.next().await {
        file.write_all(&chunk?).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    let file = file.into_std().await;
    let (folder, name) = (Arc::clone(folder), name.to_owned());
    blocking(move || commit(&folder, &name, work, &file)).await
}

/// The error for a rejected write of the object `name`.
pub(super) fn refusal(folder: &Folder, code: ErrorCode, name: &str, why: &str) -> Error {
    let uri = folder.bucket.object_uri(&name.escape_debug().to_string());
    Error::new(code, format!("cannot write {uri} into a folder: {why}"))
}

/// Creates the folders on the way and the work file.
fn begin(folder: &Folder, name: &str) -> Result<(WorkFile, File)> {
    let refuse = |code, why: &str| refusal(folder, code, name, why);
    if let Some(problem) = problem_with(name) {
        return Err(refuse(ErrorCode::InvalidName, problem)
            .hint("names in a folder bucket are clean relative paths"));
    }
    let place = folder.root.join(name);
    let parent = place.parent().unwrap_or(&folder.root).to_owned();
    let work_name = format!("{WORK_FILE_PREFIX}{:016x}", rand::random::<u64>());
    let path = parent.join(work_name);
    // A delete may remove a folder that just became empty between its creation and its use.
    let mut folders = MadeFolders::new(&parent);
    for _ in 0..MAX_PUT_ATTEMPTS {
        match folders.make(&folder.root) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(refuse(ErrorCode::Conflict, "a part of its path is a file or a link"));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                folder.check_root_exists()?;
                continue;
            }
            Err(e) => return Err(write_error(folder, e, name)),
        }
        if place.is_dir() {
            return Err(refuse(ErrorCode::Conflict, "a folder of that name is there"));
        }
        match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => {
                let work = WorkFile { path, place, committed: false, folders };
                file_modes::share(&file).map_err(|e| write_error(folder, e, name))?;
                return Ok((work, file));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => folder.check_root_exists()?,
            Err(e) => return Err(write_error(folder, e, name)),
        }
    }
    Err(marker::removed_again(folder, name))
}

/// Removes `folder` and its parents below `root`, as far as they are empty. A folder that was put
/// as a marker has a file in it, so it stays.
pub(super) fn remove_empty_folders(root: &Path, folder: Option<&Path>) {
    let mut above = folder;
    while let Some(folder) = above.filter(|p| *p != root) {
        match fs::remove_dir(folder) {
            // A folder whose name is too long was never created.
            Err(e) if !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENAMETOOLONG)) => break,
            _ => above = folder.parent(),
        }
    }
}

fn commit(folder: &Folder, name: &str, mut work: WorkFile, file: &File) -> Result<RemoteMeta> {
    let failed = |e: io::Error| write_error(folder, e, name);
    file.sync_all().map_err(failed)?;
    let meta = meta_of(&file.metadata().map_err(failed)?);
    fs::rename(&work.path, &work.place).map_err(failed)?;
    work.committed = true;
    work.folders.keep();
    sync_folder(work.place.parent().unwrap_or(&folder.root)).map_err(failed)?;
    Ok(meta)
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// As [`Folder::error`], but for a name that cannot be written.
pub(super) fn write_error(folder: &Folder, e: io::Error, name: &str) -> Error {
    let uri = folder.bucket.object_uri(name);
    match e.raw_os_error() {
        Some(libc::ENAMETOOLONG) => {
            Error::new(ErrorCode::InvalidName, format!("cannot write {uri} into a folder: {e}"))
                .hint("file systems take elements of at most 255 bytes")
        }
        Some(libc::EISDIR | libc::ENOTDIR | libc::ENOTEMPTY) => {
            Error::new(ErrorCode::Conflict, format!("cannot write {uri} into a folder: {e}"))
        }
        _ => folder.error(e, "write", name),
    }
}

/// Removes the file, and the folders above it that became empty and were not put as markers.
pub(super) fn delete(folder: &Folder, name: &str) -> Result<()> {
    folder.existing(name)?;
    let path = folder.root.join(name);
    let meta = fs::symlink_metadata(&path).map_err(|e| folder.error(e, "delete", name))?;
    if !meta.is_file() && !meta.is_symlink() {
        return Err(folder.bucket.object_not_found(name));
    }
    fs::remove_file(&path).map_err(|e| folder.error(e, "delete", name))?;
    remove_empty_folders(&folder.root, path.parent());
    Ok(())
}

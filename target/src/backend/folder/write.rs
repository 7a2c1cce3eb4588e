//! Puts and deletes files of the folder: write aside, sync, rename.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use futures::stream::StreamExt;
use tokio::io::AsyncWriteExt;

use super::{Folder, WORK_FILE_PREFIX, blocking, meta_of, problem_with};
use crate::backend::{PutBody, RemoteMeta};

/// A file being written beside its final place; removed when dropped before the commit.
struct WorkFile {
    path: PathBuf,
    place: PathBuf,
    committed: bool,
}

impl Drop for WorkFile {
    fn drop(&mut self) {
        if !self.committed {
            // Nobody can be told; listings skip what stays behind.
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) async fn put(folder: &Arc<Folder>, name: &str, body: PutBody) -> Result<RemoteMeta> {
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

/// Creates the folders on the way and the work file.
fn begin(folder: &Folder, name: &str) -> Result<(WorkFile, File)> {
    let refuse = |code, why: &str| {
        let uri = folder.bucket.object_uri(&name.escape_debug().to_string());
        Error::new(code, format!("cannot write {uri} into a folder: {why}"))
    };
    if let Some(problem) = problem_with(name) {
        return Err(refuse(ErrorCode::InvalidName, problem)
            .hint("names in a folder bucket are clean relative paths"));
    }
    let place = folder.root.join(name);
    let parent = place.parent().unwrap_or(&folder.root).to_owned();
    let work_name = format!("{WORK_FILE_PREFIX}{:016x}", rand::random::<u64>());
    let path = parent.join(work_name);
    // A delete may remove a folder that just became empty between its creation and its use.
    for _ in 0..8 {
        match make_folders(&folder.root, &parent) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(refuse(ErrorCode::Conflict, "a part of its path is a file or a link"));
            }
            Err(e) => return Err(write_error(folder, e, name)),
        }
        if place.is_dir() {
            return Err(refuse(ErrorCode::Conflict, "a folder of that name is there"));
        }
        match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((WorkFile { path, place, committed: false }, file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => folder.check_root_exists()?,
            Err(e) => return Err(write_error(folder, e, name)),
        }
    }
    Err(refuse(ErrorCode::Unavailable, "its folder is being removed all the time"))
}

/// `mkdir -p` that follows no link and syncs what it makes.
fn make_folders(root: &Path, folder: &Path) -> io::Result<()> {
    if folder == root {
        return Ok(());
    }
    match fs::symlink_metadata(folder) {
        Ok(m) if m.is_dir() => {
            // The folder is real; those above it may still be links.
            let real = fs::canonicalize(folder)?;
            return if real == folder { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) };
        }
        Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let parent = folder.parent().unwrap_or(root);
    make_folders(root, parent)?;
    match fs::create_dir(folder) {
        Ok(()) => sync_folder(parent),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => make_folders(root, folder),
        Err(e) => Err(e),
    }
}

fn commit(folder: &Folder, name: &str, mut work: WorkFile, file: &File) -> Result<RemoteMeta> {
    let failed = |e: io::Error| write_error(folder, e, name);
    file.sync_all().map_err(failed)?;
    let meta = meta_of(&file.metadata().map_err(failed)?);
    fs::rename(&work.path, &work.place).map_err(failed)?;
    work.committed = true;
    sync_folder(work.place.parent().unwrap_or(&folder.root)).map_err(failed)?;
    Ok(meta)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// As [`Folder::error`], but for a name that cannot be written rather than is not there.
fn write_error(folder: &Folder, e: io::Error, name: &str) -> Error {
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

/// Removes the file, and the folders above it that became empty: keys have no folders.
pub(super) fn delete(folder: &Folder, name: &str) -> Result<()> {
    folder.existing(name)?;
    let path = folder.root.join(name);
    let meta = fs::symlink_metadata(&path).map_err(|e| folder.error(e, "delete", name))?;
    if !meta.is_file() && !meta.is_symlink() {
        return Err(folder.bucket.object_not_found(name));
    }
    fs::remove_file(&path).map_err(|e| folder.error(e, "delete", name))?;
    let mut above = path.parent();
    while let Some(parent) = above.filter(|p| *p != folder.root) {
        if fs::remove_dir(parent).is_err() {
            break;
        }
        above = parent.parent();
    }
    Ok(())
}

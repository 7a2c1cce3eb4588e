//! Puts and deletes files of the folder: write to a work file, sync, rename.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_core::error::{ErrorCode, Result};
use forebay_core::size::ByteRange;
use forebay_node::file_modes;
use futures::stream::StreamExt;
use tokio::io::AsyncWriteExt;

use super::parents::{
    MAX_PUT_ATTEMPTS, MadeFolders, refusal, remove_empty_folders, removed_again, sync_folder,
    write_error,
};
use super::{Folder, WORK_FILE_PREFIX, blocking, marker, meta_of, problem_with};
use crate::{PutBody, RemoteMeta};

/// A work file beside its final place; removed when dropped before the commit.
struct WorkFile {
    path: PathBuf,
    place: PathBuf,
    committed: bool,
    /// Dropped after the file is removed.
    folders: MadeFolders,
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
    Err(removed_again(folder, name))
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

//! The folders that a name lies in: made for a put, removed when they become empty, and what went wrong
//! with that.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use forebay_core::error::{Error, ErrorCode};
use forebay_node::file_modes;

use super::Folder;

/// Most attempts of a put whose folder is removed meanwhile.
pub(super) const MAX_PUT_ATTEMPTS: usize = 64;

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

/// Makes the entries of a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The error for a rejected write of the object `name`.
pub(super) fn refusal(folder: &Folder, code: ErrorCode, name: &str, why: &str) -> Error {
    let uri = folder.bucket.object_uri(&name.escape_debug().to_string());
    Error::new(code, format!("cannot write {uri} into a folder: {why}"))
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

/// The error of a put whose folder was removed in every attempt.
pub(super) fn removed_again(folder: &Folder, key: &str) -> Error {
    let why = "other requests remove its folder again and again";
    refusal(folder, ErrorCode::Unavailable, key, why)
}

//! The folder of a cluster that this command creates (`serve`, `dev`): its secret, and files that
//! are written atomically.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use forebay_core::{Error, ErrorCode};
use rand::RngExt;

use crate::node::{Stopped, check_folder, exit};

/// A cluster's folder, locked against other processes while this value exists.
#[derive(Debug)]
pub(crate) struct Home {
    /// Absolute.
    pub(crate) dir: PathBuf,
    _lock: fs::File,
}

impl Home {
    /// Opens the folder; creates it if it does not exist.
    pub(crate) fn open(dir: &Path) -> Result<Self, Stopped> {
        check_folder(dir)?;
        let dir = fs::canonicalize(dir).map_err(|e| failed(dir, &e))?;
        let path = dir.join("lock");
        let lock = fs::OpenOptions::new().create(true).append(true).open(&path);
        let lock = lock.map_err(|e| failed(&path, &e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => {
                let what = format!("{} is in use by another forebay", dir.display());
                let error = Error::new(ErrorCode::Conflict, what);
                Err(Stopped::new(exit::DISK_UNUSABLE, error)
                    .hint("stop that one first, or choose another --dir"))
            }
            Err(fs::TryLockError::Error(e)) => Err(failed(&path, &e)),
        }
    }
}

/// Path of the cluster's secret; created on first use, readable by its owner only.
pub(crate) fn secret(dir: &Path) -> Result<PathBuf, Stopped> {
    let path = dir.join("secret");
    if !path.exists() {
        write(&path, format!("{}\n", random_word(48)).as_bytes(), 0o600)?;
    }
    Ok(path)
}

/// Writes a file by rename, with these permissions.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Stopped> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let written = (|| {
        match fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    written.map_err(|e| failed(path, &e))
}

/// Removes a file; it is no error if the file does not exist.
pub(crate) fn remove(path: &Path) -> Result<(), Stopped> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path, &e)),
        _ => Ok(()),
    }
}

/// A random word of `length` letters and digits.
pub(crate) fn random_word(length: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rng = rand::rng();
    (0..length).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect()
}

/// The error for a file or folder here that cannot be used.
pub(crate) fn failed(path: &Path, e: &io::Error) -> Stopped {
    let error = Error::internal(format!("cannot use {}: {e}", path.display()));
    Stopped::new(exit::DISK_UNUSABLE, error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_secret_is_made_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = secret(dir.path()).unwrap();
        let first = fs::read_to_string(&path).unwrap();
        forebay_core::sign::ClusterSecret::new(&first).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(secret(dir.path()).unwrap()).unwrap(), first);
    }

    #[test]
    fn a_folder_has_one_user_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Home::open(dir.path()).unwrap();
        let second = Home::open(dir.path()).unwrap_err();
        assert_eq!(second.code, exit::DISK_UNUSABLE);
        assert!(second.error.message.contains("in use"), "{}", second.error);
        drop(first);
        Home::open(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_code_11() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        let stopped = Home::open(&file.join("inside")).unwrap_err();
        assert_eq!(stopped.code, exit::DISK_UNUSABLE);
        assert!(stopped.error.message.contains("inside"), "{}", stopped.error);
    }
}

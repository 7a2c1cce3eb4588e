//! The file of the audit log: appended, limited in size, rotated.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::{Error, Result};

/// Pause after a write that failed, for example on a full disk.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Mode of the file: it names users and addresses.
const MODE: u32 = 0o600;

/// A file that is renamed to `NAME.1` when it is full, `NAME.1` to `NAME.2`, and so on. It is opened
/// again if another program (such as logrotate) moved it away.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    max_bytes: u64,
    keep: u32,
    file: File,
    bytes: u64,
    inode: u64,
}

impl AuditFile {
    /// Opens the file, or creates it. It begins a new file above `max_bytes` (0: never), and keeps
    /// `keep` old ones.
    pub(super) fn open(path: PathBuf, max_bytes: u64, keep: u32) -> Result<Self> {
        let opened = open(&path).map_err(|e| {
            Error::invalid(format!("audit.file: cannot open {}: {e}", path.display()))
        })?;
        let (file, bytes, inode) = opened;
        Ok(Self { path, max_bytes, keep, file, bytes, inode })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends whole lines with one write. Blocks on the disk.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if fs::metadata(&self.path).map_or(0, |meta| meta.ino()) != self.inode {
            self.reopen()?;
        }
        if self.max_bytes > 0 && self.bytes > 0 && self.bytes + lines.len() as u64 > self.max_bytes
        {
            self.rotate()?;
        }
        if let Err(e) = self.file.write_all(lines) {
            // The next write opens the file again, which ends a line that was written in part.
            self.inode = 0;
            return Err(e);
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.bytes, self.inode) = open(&self.path)?;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for n in (1..self.keep).rev() {
            rename(&self.old(n), &self.old(n + 1))?;
        }
        if self.keep > 0 {
            rename(&self.path, &self.old(1))?;
        } else {
            fs::remove_file(&self.path)?;
        }
        self.reopen()
    }

    fn old(&self, n: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{n}"));
        name.into()
    }
}

/// Opens or creates the file and its folder, which a new node does not have yet. A last line that a
/// crash or a full disk cut short is ended, so that the next record has a line of its own.
fn open(path: &Path) -> io::Result<(File, u64, u64)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(MODE).open(path)?;
    let meta = file.metadata()?;
    let mut bytes = meta.len();
    let mut last = [b'\n'];
    if bytes > 0 {
        file.read_exact_at(&mut last, bytes - 1)?;
    }
    if last != *b"\n" {
        file.write_all(b"\n")?;
        bytes += 1;
    }
    Ok((file, bytes, meta.ino()))
}

/// Renames a file that may be missing.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn content(dir: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
    }

    #[test]
    fn a_full_file_is_rotated_and_the_oldest_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = AuditFile::open(dir.path().join("a"), 8, 2).unwrap();
        for line in ["1111\n", "22\n", "3333\n", "4444\n", "5555\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        let expected = pairs(&[("a", "5555\n"), ("a.1", "4444\n"), ("a.2", "3333\n")]);
        assert_eq!(content(dir.path()), expected);
    }

    #[test]
    fn the_folder_of_a_new_node_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = AuditFile::open(dir.path().join("state/log/a"), 0, 2).unwrap();
        file.append(b"one\n").unwrap();
        assert_eq!(content(&dir.path().join("state/log")), pairs(&[("a", "one\n")]));
    }

    #[test]
    fn an_existing_file_is_continued_and_only_its_owner_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        for line in ["one\n", "two\n"] {
            let mut file = AuditFile::open(dir.path().join("a"), 0, 2).unwrap();
            file.append(line.as_bytes()).unwrap();
        }
        assert_eq!(content(dir.path()), pairs(&[("a", "one\ntwo\n")]));
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_record_after_a_line_that_was_cut_short_has_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "one\n{\"cut").unwrap();
        let mut file = AuditFile::open(dir.path().join("a"), 0, 2).unwrap();
        file.append(b"two\n").unwrap();
        assert_eq!(content(dir.path()), pairs(&[("a", "one\n{\"cut\ntwo\n")]));
    }

    #[test]
    fn a_new_file_replaces_one_that_was_moved_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = AuditFile::open(dir.path().join("a"), 0, 2).unwrap();
        file.append(b"one\n").unwrap();
        fs::rename(dir.path().join("a"), dir.path().join("moved")).unwrap();
        file.append(b"two\n").unwrap();
        assert_eq!(content(dir.path()), pairs(&[("a", "two\n"), ("moved", "one\n")]));
    }
}

//! Who a disk is: its lock, its id and format in `.forebay/disk.json`, and how often it was opened.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_core::{Error, Result, placement};
use serde::{Deserialize, Serialize};

use super::disk::{Disk, DiskLock};
use super::format::{FIRST_FORMAT, FORMAT, unknown_format};

/// Bits of a sequence that count records since the store was opened; the rest counts openings.
const COMMIT_BITS: u32 = 40;
/// How long a disk may still be another's when it is taken.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// Contents of `disk.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) format: u16,
    /// Random; decides which objects belong on this disk, so it never changes.
    pub(crate) id: String,
    /// How often the store was opened, as this disk knows it. Makes sequences grow whatever a
    /// crash took away.
    pub(crate) opens: u64,
}

impl Identity {
    /// The first sequence of an opening.
    pub(crate) fn first_sequence(opens: u64) -> u64 {
        opens << COMMIT_BITS
    }

    /// The id as a number, for headers of files.
    pub(crate) fn number(&self) -> u64 {
        u64::from_str_radix(&self.id, 16).unwrap_or_else(|_| placement::digest(&self.id))
    }

    /// Reads the disk's identity; makes one up for an empty disk.
    pub(crate) fn read(
        io: &dyn Disk,
        folder: &Path,
        has_objects: impl FnOnce() -> Result<bool>,
    ) -> Result<Self> {
        let path = folder.join("disk.json");
        match read(io, &path) {
            Ok(text) => parse(&path, &text),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !has_objects()? => {
                Ok(Self { format: FORMAT, id: format!("{:016x}", rand::random::<u64>()), opens: 0 })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::internal(format!(
                "{} is missing, yet there are objects beside it",
                path.display()
            ))
            .hint("restore the file, or give an empty folder")),
            Err(e) => Err(failed("read", &path)(e)),
        }
    }

    /// Writes the identity down, durably.
    pub(crate) fn write(&self, io: &dyn Disk, folder: &Path) -> Result<()> {
        let path = folder.join("disk.json");
        let text = serde_json::to_vec(self)
            .map_err(|e| Error::internal(format!("{}: {e}", path.display())))?;
        replace(io, &path, &text).map_err(failed("write", &path))
    }
}

/// Takes the disk for this process. Whoever has it gets a moment to let go: a process that ends, or one
/// that was just forked and has not closed yet what it inherits.
pub(crate) fn lock(io: &dyn Disk, root: &Path, folder: &Path) -> Result<DiskLock> {
    let path = folder.join("lock");
    let begun = Instant::now();
    let taken = loop {
        match io.lock(&path) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < LET_GO_WITHIN => {
                std::thread::sleep(LET_GO_WITHIN / 50);
            }
            taken => break taken,
        }
    };
    taken.map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => {
            Error::internal(format!("disk {} is in use by another process", root.display()))
                .hint("stop the other target, or give this one another folder")
        }
        _ => failed("lock", &path)(e),
    })
}

/// Turns an I/O error into one that says what was attempted and where.
pub(crate) fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| {
        let mut error = Error::from(io::Error::from(e.kind()));
        error.message = format!("{verb} {}: {e}", path.display());
        match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                error.hint("the target needs to write there: check owner, mode and mount options")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                error.hint("free space on the file system")
            }
            _ => error,
        }
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<Identity> {
    #[derive(Deserialize)]
    struct Format {
        format: u16,
    }
    let bad = |e: serde_json::Error| {
        Error::internal(format!("{} cannot be read: {e}", path.display()))
            .hint("restore the file, or give an empty folder")
    };
    let Format { format } = serde_json::from_slice(text).map_err(bad)?;
    if !(FIRST_FORMAT..=FORMAT).contains(&format) {
        return Err(unknown_format(&path.display().to_string(), format));
    }
    serde_json::from_slice(text).map_err(bad)
}

fn read(io: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = io.open(path)?;
    let mut text = vec![0; file.size()? as usize];
    file.read_exact_at(&mut text, 0)?;
    Ok(text)
}

/// Replaces a small file so that a crash leaves the old or the new one.
fn replace(io: &dyn Disk, path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match io.unlink(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = io.create(&temporary)?;
    file.write_at(text, 0)?;
    file.sync()?;
    io.rename(&temporary, path)?;
    match path.parent() {
        Some(folder) => io.sync_dir(folder),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::disk::RealDisk;
    use super::*;

    #[test]
    fn what_was_written_is_read_and_an_empty_disk_gets_an_id() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Identity::read(&RealDisk, dir.path(), || Ok(false)).unwrap();
        first.opens = 7;
        first.write(&RealDisk, dir.path()).unwrap();
        first.write(&RealDisk, dir.path()).unwrap();
        let second = Identity::read(&RealDisk, dir.path(), || Ok(true)).unwrap();
        assert_eq!(first, second);
        assert!(Identity::first_sequence(8) > Identity::first_sequence(7) + 1_000_000_000_000);
    }

    #[test]
    fn a_newer_format_is_refused_with_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"format":7,"shape":"unheard of"}"#;
        std::fs::write(dir.path().join("disk.json"), text).unwrap();
        let e = Identity::read(&RealDisk, dir.path(), || Ok(true)).unwrap_err();
        assert!(e.message.contains("disk.json") && e.message.contains("format 7"), "{e}");
    }

    #[test]
    fn a_lost_identity_is_not_replaced_over_objects() {
        let dir = tempfile::tempdir().unwrap();
        let e = Identity::read(&RealDisk, dir.path(), || Ok(true)).unwrap_err();
        assert!(e.message.contains("disk.json is missing"), "{e}");
    }

    #[test]
    fn a_disk_that_is_about_to_be_free_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(&RealDisk, dir.path(), dir.path()).unwrap();
        assert!(lock(&RealDisk, dir.path(), dir.path()).is_err());
        let end = std::thread::spawn(move || {
            std::thread::sleep(LET_GO_WITHIN / 10);
            drop(held);
        });
        lock(&RealDisk, dir.path(), dir.path()).unwrap();
        end.join().unwrap();
    }
}

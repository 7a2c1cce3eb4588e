//! Identity of a disk: its lock, its id and format in `.forebay/disk.json`, and how often it was
//! opened.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_core::error::is_out_of_descriptors;
use forebay_core::{Error, Result, placement};
use serde::{Deserialize, Serialize};

use super::disk::{Disk, DiskLock};
use super::format::{FIRST_FORMAT, FORMAT, unknown_format};

/// Bits of a sequence that count records since the store was opened; the rest counts openings.
const COMMIT_BITS: u32 = 40;
/// How long to wait for another process to release a disk.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// Contents of `disk.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) format: u16,
    /// Random; decides which objects belong on this disk, so it never changes.
    pub(crate) id: String,
    /// How often the store was opened, as this disk knows it. Makes sequences grow even if a crash
    /// lost some.
    pub(crate) opens: u64,
    /// The target that uses the disk; empty on a new disk, and on one of an older version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) node: String,
    /// The cluster whose objects the disk holds; empty until the target is a member.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) cluster: String,
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

    /// Reads the disk's identity; creates one for an empty disk.
    pub(crate) fn read(
        io: &dyn Disk,
        folder: &Path,
        has_objects: impl FnOnce() -> Result<bool>,
    ) -> Result<Self> {
        let path = folder.join("disk.json");
        match read(io, &path) {
            Ok(text) => parse(&path, &text),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !has_objects()? => {
                let id = format!("{:016x}", rand::random::<u64>());
                let (node, cluster) = (String::new(), String::new());
                Ok(Self { format: FORMAT, id, opens: 0, node, cluster })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::internal(format!(
                "{} is missing, yet there are objects beside it",
                path.display()
            ))
            .hint("restore the file, or give an empty folder")),
            Err(e) => Err(failed("read", &path)(e)),
        }
    }

    /// Rejects a disk of another target, or one that holds objects of another cluster. Empty ids
    /// are not compared.
    pub(crate) fn check_owner(&self, root: &Path, node: &str, cluster: &str) -> Result<()> {
        let differs =
            |ours: &str, noted: &str| !ours.is_empty() && !noted.is_empty() && ours != noted;
        let at = root.display();
        if differs(node, &self.node) {
            let theirs = &self.node;
            return Err(Error::invalid(format!(
                "disk {at} belongs to {theirs}, and this is {node}"
            ))
            .hint(format!(
                "start {theirs} with this disk, or give {node} an empty folder; `forebay disk \
                     attach --force` takes over what {theirs} left there"
            )));
        }
        if differs(cluster, &self.cluster) {
            let theirs = &self.cluster;
            let text = format!("disk {at} holds objects of cluster {theirs}, not of {cluster}");
            return Err(Error::invalid(text).hint("give an empty folder"));
        }
        Ok(())
    }

    /// Writes the identity durably.
    pub(crate) fn write(&self, io: &dyn Disk, folder: &Path) -> Result<()> {
        let path = folder.join("disk.json");
        let text = serde_json::to_vec(self)
            .map_err(|e| Error::internal(format!("{}: {e}", path.display())))?;
        replace(io, &path, &text).map_err(failed("write", &path))
    }
}

/// Locks the disk for this process. Waits a moment for the holder of the lock to release it: a
/// process that ends, or one that was just forked and has not closed its inherited files yet.
pub(crate) fn lock(io: &dyn Disk, root: &Path, folder: &Path) -> Result<DiskLock> {
    let path = folder.join("lock");
    let started = Instant::now();
    let taken = loop {
        match io.lock(&path) {
            Err(e)
                if e.kind() == io::ErrorKind::WouldBlock && started.elapsed() < LET_GO_WITHIN =>
            {
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

/// Converts an I/O error into one with the attempted operation and its path.
pub(crate) fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| {
        if is_out_of_descriptors(&e) {
            return Error::out_of_descriptors(&e);
        }
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

/// Replaces a small file so that after a crash the old or the new one is there.
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
        let text = r#"{"format":4,"shape":"unheard of"}"#;
        std::fs::write(dir.path().join("disk.json"), text).unwrap();
        let e = Identity::read(&RealDisk, dir.path(), || Ok(true)).unwrap_err();
        assert!(e.message.contains("disk.json") && e.message.contains("format 4"), "{e}");
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

    #[test]
    fn a_disk_of_another_target_or_cluster_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = Identity::read(&RealDisk, dir.path(), || Ok(false)).unwrap();
        assert!(fresh.check_owner(dir.path(), "target01", "c1").is_ok());
        let owned = Identity { node: "target01".into(), cluster: "c1".into(), ..fresh };
        assert!(owned.check_owner(dir.path(), "target01", "c1").is_ok());
        assert!(owned.check_owner(dir.path(), "", "").is_ok());
        let e = owned.check_owner(dir.path(), "target02", "c1").unwrap_err();
        assert!(e.message.contains("belongs to target01") && e.hint.is_some(), "{e}");
        let e = owned.check_owner(dir.path(), "target01", "c2").unwrap_err();
        assert!(e.message.contains("cluster c1"), "{e}");
        owned.write(&RealDisk, dir.path()).unwrap();
        assert_eq!(Identity::read(&RealDisk, dir.path(), || Ok(true)).unwrap(), owned);
    }
}

//! The one module of a target that creates, writes, reads, syncs, renames and unlinks object files.
//!
//! Everything goes through [`Disk`], so a test can stop the store at any single step. Calls block;
//! the store runs them on tokio's blocking pool. (The index library does its own I/O; the store
//! announces each of its writes by [`Disk::step`], which makes them steps as well.)

mod measured;
mod real;

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use forebay_node::fast_http::Held;

pub use self::measured::MeasuredDisk;
pub use self::real::RealDisk;
pub(crate) use self::real::open_files_limit;
#[cfg(test)]
pub(crate) use self::real::shut_down;

/// An open file. Reading while another thread still writes it is fine.
pub trait DiskFile: Send + Sync {
    /// Reads at most `buf.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `parts`, one behind the other, at `offset`; one call where the system can.
    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Cuts the file to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// As [`Self::read_at`], without waiting for a disk. `None` if it would wait, or if that is
    /// unknown.
    fn read_now_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// Makes contents and length survive a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// When contents, length or name were last changed, in ns since 1970. `Unsupported` where the
    /// system does not keep it.
    fn changed_ns(&self) -> io::Result<i128> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The open file itself, to be sent from, if `len` bytes at `offset` are in the page cache. An
    /// error where the system cannot report that.
    fn resident(self: Arc<Self>, _offset: u64, _len: u64) -> io::Result<Option<Arc<dyn Held>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Self::read_exact_at`], for callers that read everything once: pages that were not in
    /// the page cache before are not left there.
    fn read_uncached(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }

    /// Fills `buf` from `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Size of a file system and the free space that this process may use.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

/// Held while a process uses a disk; the lock goes with it.
pub struct DiskLock {
    _file: Option<File>,
}

/// Every operation on files that the store makes.
pub trait Disk: Send + Sync {
    /// Creates a file that must not exist, for writing and reading.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Makes names created, renamed or removed in `dir` survive a power cut.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Names in `dir`, in no order; names that are not UTF-8 have replacement characters.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates a folder and those above it; an existing one is fine.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes a folder with all in it; a missing one is fine.
    fn remove_tree(&self, dir: &Path) -> io::Result<()>;

    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Whether a file system of its own is mounted at `dir`.
    fn is_mount(&self, dir: &Path) -> io::Result<bool>;

    /// Creates a file of `len` bytes with its blocks allocated. After an error no file is left.
    fn allocate(&self, path: &Path, len: u64) -> io::Result<()>;

    /// Takes the exclusive lock at `path`; `WouldBlock` when another process has it.
    fn lock(&self, path: &Path) -> io::Result<DiskLock>;

    /// Called before each write of the index library.
    fn step(&self, _what: &'static str) -> io::Result<()> {
        Ok(())
    }
}

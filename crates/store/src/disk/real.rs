//! Files of the operating system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use forebay_node::fast_http::Held;

use super::{Disk, DiskFile, DiskLock, Space};
use crate::page_cache::{PAGE, advise, is_cached, is_resident, read_now};

/// Bytes for which [`DiskFile::read_uncached`] decides at once whether they stay in the page cache.
const UNCACHED: u64 = 64 << 10;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

struct RealFile(File);

impl Held for RealFile {
    fn is_here(&self, start: u64, end: u64) -> bool {
        is_resident(&self.0, start, end - start).unwrap_or(false)
    }
}

impl AsFd for RealFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_vectored(&self.0, parts, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn read_now_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        read_now(&self.0, buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn changed_ns(&self) -> io::Result<i128> {
        let meta = self.0.metadata()?;
        Ok(i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec()))
    }

    fn resident(self: Arc<Self>, offset: u64, len: u64) -> io::Result<Option<Arc<dyn Held>>> {
        Ok(is_resident(&self.0, offset, len)?.then_some(self as _))
    }

    fn read_uncached(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        // No read-ahead: pages in the cache must be there because of other readers.
        advise(&self.0, 0, 0, libc::POSIX_FADV_RANDOM);
        let (end, step) = (offset + buf.len() as u64, UNCACHED);
        let cached: Vec<bool> = (offset..end)
            .step_by(step as usize)
            .map(|at| is_cached(&self.0, at) && is_cached(&self.0, (at + step).min(end) - 1))
            .collect();
        let read = self.read_exact_at(buf, offset);
        for (at, _) in (offset..end).step_by(step as usize).zip(cached).filter(|(_, c)| !c) {
            let start = at / PAGE * PAGE;
            let len = (at + step).min(end).next_multiple_of(PAGE) - start;
            advise(&self.0, start, len, libc::POSIX_FADV_DONTNEED);
        }
        // Other readers may share this open file.
        advise(&self.0, 0, 0, libc::POSIX_FADV_NORMAL);
        read
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(File::open(path)?)))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(dir)?
            .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        file_system_space(path)
    }

    fn is_mount(&self, dir: &Path) -> io::Result<bool> {
        let here = fs::metadata(dir)?;
        let above = fs::metadata(dir.join(".."))?;
        Ok(here.dev() != above.dev() || here.ino() == above.ino())
    }

    fn allocate(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        allocate(&file, len).inspect_err(|_| drop(fs::remove_file(path)))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(|e| match e {
            fs::TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            fs::TryLockError::Error(e) => e,
        })?;
        Ok(DiskLock { _file: Some(file) })
    }
}

/// How many files this process may have open.
#[allow(unsafe_code)]
pub(crate) fn open_files_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to `limit` only.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => limit.rlim_cur,
        // The minimum that POSIX guarantees to every process.
        _ => 256,
    }
}

/// Makes a file system fail from now on, like a dying disk.
#[cfg(test)]
#[allow(unsafe_code)]
pub(crate) fn shut_down(path: &Path) -> io::Result<()> {
    /// `FS_IOC_SHUTDOWN`, and that its journal is not written either.
    const SHUTDOWN: libc::c_ulong = 0x8004_587d;
    let (folder, how) = (File::open(path)?, 2u32);
    // SAFETY: the call reads four bytes at `how`, and the folder is open.
    match unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN, &how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Most parts of one call.
const MAX_PARTS: usize = 1024;

#[allow(unsafe_code)]
fn write_vectored(file: &File, mut parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
    let mut at = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Bytes of the first part that are written already.
    let mut done = 0;
    while let Some(first) = parts.first() {
        if first.len() == done {
            (parts, done) = (&parts[1..], 0);
            continue;
        }
        if done > 0 {
            file.write_all_at(&first[done..], at as u64)?;
            at += (first.len() - done) as i64;
            (parts, done) = (&parts[1..], 0);
            continue;
        }
        let count = parts.len().min(MAX_PARTS);
        // SAFETY: `IoSlice` has the layout of `iovec`; `parts` has `count` of them, which live
        // through the call and are only read.
        let n = unsafe {
            libc::pwritev(file.as_raw_fd(), parts.as_ptr().cast(), count as libc::c_int, at)
        };
        match usize::try_from(n) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(mut n) => {
                at += n as i64;
                while n > 0 && n >= parts[0].len() {
                    n -= parts[0].len();
                    parts = &parts[1..];
                }
                done = n;
            }
            Err(_) => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
    Ok(())
}

#[allow(unsafe_code)]
fn allocate(file: &File, len: u64) -> io::Result<()> {
    let len = i64::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the call has numbers only, and the file is open.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(unsafe_code)]
fn file_system_space(path: &Path) -> io::Result<Space> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends in NUL and `stat` is large enough for what the call writes.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled `stat`.
    let stat = unsafe { stat.assume_init() };
    Ok(Space { total: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_cache::stay_on_one_cpu;
    use crate::skip;

    #[test]
    fn an_uncached_read_leaves_the_page_cache_as_it_was() {
        stay_on_one_cpu();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..1u32 << 20).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let file = RealFile(File::open(&path).unwrap());
        file.0.sync_all().unwrap();
        advise(&file.0, 0, 0, libc::POSIX_FADV_RANDOM);
        advise(&file.0, 0, 0, libc::POSIX_FADV_DONTNEED);
        if is_cached(&file.0, 700_000) {
            return skip::skipped("the temporary folder is on a file system in memory");
        }
        let hot = 4 * UNCACHED as usize..5 * UNCACHED as usize;
        file.read_exact_at(&mut vec![0; hot.len()], hot.start as u64).unwrap();
        let mut got = vec![0; content.len()];
        file.read_uncached(&mut got, 0).unwrap();
        assert!(got == content);
        let there = |at: usize| is_cached(&file.0, at as u64);
        assert!(there(hot.start) && there(hot.end - 1), "in use by others");
        // The kernel keeps pages that another CPU has just put into its lists.
        let outside = (0..content.len()).step_by(4096).filter(|at| !hot.contains(at));
        assert!(outside.filter(|at| there(*at)).count() < 48);
    }
}

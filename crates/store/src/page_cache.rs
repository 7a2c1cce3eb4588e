//! Queries about the page cache, and advice to the kernel about files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Only whole pages are dropped. Where pages are larger, the kernel rounds.
pub(super) const PAGE: u64 = 4096;

/// Advises the kernel how a file is used. The kernel may ignore it.
#[allow(unsafe_code)]
pub(super) fn advise(file: &File, offset: u64, len: u64, advice: libc::c_int) {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, len as i64, advice) };
}

/// Drops the pages of a synced file from the page cache.
/// Keeps this thread on its CPU. The kernel does not drop pages that are in the lists of another CPU,
/// where a thread that moves leaves them.
#[cfg(test)]
#[allow(unsafe_code)]
pub(super) fn stay_on_one_cpu() {
    // SAFETY: the set is plain memory of the size that is passed, and zeros are an empty set.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[cfg(test)]
pub(crate) fn forget_cached(file: &File) {
    advise(file, 0, 0, libc::POSIX_FADV_DONTNEED);
}

/// Whether the byte at `offset` can be read without the disk. `false` where that is unknown.
pub(super) fn is_cached(file: &File, offset: u64) -> bool {
    matches!(read_now(file, &mut [0], offset), Ok(Some(1)))
}

/// Whether all of these bytes are in the page cache. An error where the system cannot report it:
/// kernels before Linux 6.5, file systems without a page cache.
#[allow(unsafe_code)]
pub(super) fn is_resident(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    /// The same on all architectures but Alpha; libc does not name it on all.
    const CACHESTAT: libc::c_long = 451;
    // Offset and length; what is found: pages in the cache, and of four other kinds (cachestat(2)).
    let (range, mut found) = ([offset, len], [0u64; 5]);
    // SAFETY: the call reads two numbers at `range` and writes five to `found`, which both live
    // through it; the file is open.
    let reported = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0)
    };
    if reported != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call only returns a number.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE);
    let all = len > 0 && found[0] >= (offset + len).div_ceil(page) - offset / page;
    // `cachestat` also counts pages that are still being read.
    Ok(all && is_cached(file, offset) && is_cached(file, offset + len - 1))
}

/// Reads at most `buf.len()` bytes at `offset` without waiting for a disk. `None` if it would wait,
/// or if that is unknown.
#[allow(unsafe_code)]
pub(super) fn read_now(file: &File, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    let at = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: `part` is the whole of `buf`, which lives through the call and is ours to write.
    let n = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, at, libc::RWF_NOWAIT) };
    match usize::try_from(n) {
        Ok(n) => Ok(Some(n)),
        Err(_) => match io::Error::last_os_error() {
            e if matches!(
                e.raw_os_error(),
                Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR)
            ) =>
            {
                Ok(None)
            }
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::skip;

    #[test]
    fn what_lies_in_the_page_cache_is_resident_until_a_page_is_lost() {
        // Much larger than a folio, of which the kernel drops no part.
        const SIZE: u64 = 16 << 20;
        stay_on_one_cpu();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, vec![7; SIZE as usize]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let is_here = |offset: u64, len: u64| is_resident(&file, offset, len).unwrap_or(false);
        if !is_here(0, SIZE) {
            return skip::skipped("a kernel before 6.5 does not report what is cached");
        }
        assert!(is_here(5000, 1) && is_here(4095, 2));
        assert!(!is_here(SIZE, 1) && !is_here(0, 0), "nothing is there");
        advise(&file, SIZE / 2, 0, libc::POSIX_FADV_DONTNEED);
        if is_cached(&file, SIZE - 1) {
            return skip::skipped("the temporary folder is on a file system in memory");
        }
        assert!(is_here(0, SIZE / 4) && !is_here(0, SIZE));
    }
}

//! What only the operating system knows or does: memory, CPU time, disk use, power cuts.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Ends a file system at once: whatever is not on the disk is gone (ext4, xfs).
const FS_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587d;
const WITHOUT_LOG: u32 = 2;

/// Peak of the resident memory of this process, in bytes.
pub fn peak_memory() -> Result<u64> {
    status("VmHWM:")
}

/// Resident memory of this process that is no file's page, in bytes.
pub fn anonymous_memory() -> Result<u64> {
    status("RssAnon:")
}

fn status(field: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix(field)).context("no such field")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// CPU time of this process, user and system, all threads.
pub fn cpu_time() -> Duration {
    // SAFETY: an all-zero rusage is valid, and the call only fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// CPU time of this thread.
pub fn thread_cpu_time() -> Duration {
    // SAFETY: an all-zero timespec is valid, and the call only fills it in.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of the disk that a folder takes, holes left out.
pub fn disk_use(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    // Files come and go meanwhile, so one that is gone counts nothing.
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_use(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// All files below a folder.
pub fn files(path: &Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => out.extend(files(&entry.path())),
            Ok(_) => out.push(entry.path()),
            Err(_) => {}
        }
    }
    out
}

/// Writes some dirty pages of a file to its disk, as the kernel may do with any at any time.
pub fn write_back(file: &File, offset: u64, len: u64) {
    // SAFETY: plain numbers and a descriptor that outlives the call.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset as i64,
            len as i64,
            libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER,
        );
    }
}

/// Ends the file system mounted at `mount` as a power cut would.
pub fn cut_power(mount: &Path) -> Result<()> {
    let folder = File::open(mount)?;
    // SAFETY: the request reads one u32, which outlives the call.
    let rc = unsafe { libc::ioctl(folder.as_raw_fd(), FS_IOC_SHUTDOWN, &WITHOUT_LOG) };
    if rc != 0 {
        return Err(io::Error::last_os_error()).context("FS_IOC_SHUTDOWN");
    }
    Ok(())
}

pub fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

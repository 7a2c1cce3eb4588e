//! Times of reads, writes and syncs, by disk.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use forebay_node::Histogram;
use forebay_node::fast_http::Held;
use forebay_node::metrics::DiskTimes;

use super::{Disk, DiskFile, DiskLock, Space};

/// Measures the operations of another [`Disk`]. A file belongs to the disk whose folder it is in; disks
/// are known from the time they are locked.
pub struct MeasuredDisk<D> {
    inner: D,
    times: DiskTimes,
    disks: RwLock<Vec<(PathBuf, FileTimes)>>,
}

/// The histograms of one disk.
#[derive(Clone)]
struct FileTimes {
    reads: Arc<Histogram>,
    writes: Arc<Histogram>,
    syncs: Arc<Histogram>,
}

impl<D> MeasuredDisk<D> {
    pub fn new(inner: D, times: DiskTimes) -> Self {
        Self { inner, times, disks: RwLock::default() }
    }

    /// Adds the disk at `root`, unless it is known.
    fn know(&self, root: &Path) {
        let label = root.display().to_string();
        let labels = [label.as_str()];
        let times = FileTimes {
            reads: self.times.reads.with_label_values(&labels),
            writes: self.times.writes.with_label_values(&labels),
            syncs: self.times.syncs.with_label_values(&labels),
        };
        let mut disks = self.disks.write().unwrap_or_else(PoisonError::into_inner);
        if !disks.iter().any(|(known, _)| known == root) {
            disks.push((root.to_owned(), times));
        }
    }

    fn measured(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let disks = self.disks.read().unwrap_or_else(PoisonError::into_inner);
        match disks.iter().find(|(root, _)| path.starts_with(root)) {
            Some((_, times)) => Arc::new(MeasuredFile { inner: file, times: times.clone() }),
            None => file,
        }
    }
}

struct MeasuredFile {
    inner: Arc<dyn DiskFile>,
    times: FileTimes,
}

fn timed<T>(histogram: &Histogram, operation: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = operation();
    histogram.observe(started.elapsed());
    result
}

impl DiskFile for MeasuredFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        timed(&self.times.reads, || self.inner.read_at(buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        timed(&self.times.writes, || self.inner.write_at(bytes, offset))
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        timed(&self.times.writes, || self.inner.write_vectored_at(parts, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    // Not measured: it never waits for the disk, and small reads feel each nanosecond.
    fn read_now_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.inner.read_now_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        timed(&self.times.syncs, || self.inner.sync())
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn changed_ns(&self) -> io::Result<i128> {
        self.inner.changed_ns()
    }

    fn resident(self: Arc<Self>, offset: u64, len: u64) -> io::Result<Option<Arc<dyn Held>>> {
        self.inner.clone().resident(offset, len)
    }

    fn read_uncached(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        timed(&self.times.reads, || self.inner.read_uncached(buf, offset))
    }
}

impl<D: Disk> Disk for MeasuredDisk<D> {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.measured(path, self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.measured(path, self.inner.open(path)?))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.measured(path, self.inner.open_write(path)?))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        let lock = self.inner.lock(path)?;
        // The lock is in the store's folder on the disk.
        if let Some(root) = path.parent().and_then(Path::parent) {
            self.know(root);
        }
        Ok(lock)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        self.inner.remove_tree(dir)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }

    fn is_mount(&self, dir: &Path) -> io::Result<bool> {
        self.inner.is_mount(dir)
    }

    fn allocate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.inner.allocate(path, len)
    }

    fn step(&self, what: &'static str) -> io::Result<()> {
        self.inner.step(what)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_node::metrics::Metrics;

    use super::*;
    use crate::RealDisk;

    #[test]
    fn the_operations_on_a_file_count_for_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (metrics, root) = (Metrics::default(), folder.path().join("disk0"));
        let disk = MeasuredDisk::new(RealDisk, metrics.disk_times().clone());
        disk.create_dir(&root.join(".forebay")).unwrap();
        let _lock = disk.lock(&root.join(".forebay/lock")).unwrap();
        let file = disk.create(&root.join(".forebay/1")).unwrap();
        file.write_at(b"hello", 0).unwrap();
        file.sync().unwrap();
        file.read_exact_at(&mut [0; 5], 0).unwrap();
        file.read_now_at(&mut [0; 5], 0).unwrap();
        let text = metrics.render();
        for operation in ["read", "write", "sync"] {
            let line =
                format!("forebay_disk_{operation}_seconds_count{{disk=\"{}\"}} 1", root.display());
            assert!(text.contains(&line), "{line} not in\n{text}");
        }
    }
}

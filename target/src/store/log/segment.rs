//! One file of the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use forebay_core::Result;

use crate::store::disk::{Disk, DiskFile};
use crate::store::format::{SEGMENT_HEADER, SegmentHeader};
use crate::store::identity::failed;
use crate::store::page_cache::PAGE;

/// A segment with a sound header.
pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) path: PathBuf,
    /// Bytes of header and frames.
    len: AtomicU64,
    /// Open while it is read; closed again when too many are.
    file: ArcSwapOption<OpenFile>,
}

/// A sized wrapper, so that a trait object fits an atomic pointer.
struct OpenFile(Arc<dyn DiskFile>);

/// The result of opening a segment.
pub(super) enum Header {
    Sound(Segment),
    /// The file is too short for a header, so it has no frames.
    Missing,
    Damaged(String),
}

impl Segment {
    /// Makes a new segment; its header is written with the first frames.
    pub(super) fn create(
        io: &dyn Disk,
        folder: &Path,
        header: SegmentHeader,
    ) -> Result<(Self, Arc<dyn DiskFile>)> {
        let path = segment_path(folder, header.segment);
        let file = io.create(&path).map_err(failed("create", &path))?;
        let open = ArcSwapOption::from_pointee(OpenFile(file.clone()));
        Ok((Self { header, path, len: AtomicU64::new(0), file: open }, file))
    }

    /// Makes a segment of a recycled file whose name is `spare`. Header and `len` are durable
    /// before it gets its new name.
    pub(super) fn over(
        io: &dyn Disk,
        folder: &Path,
        header: SegmentHeader,
        spare: &Path,
        len: u64,
    ) -> Result<(Self, Arc<dyn DiskFile>)> {
        let path = segment_path(folder, header.segment);
        let file = io.open_write(spare).map_err(failed("open", spare))?;
        // All of the page, so that no part of it has to be read.
        let mut page = [0; PAGE as usize];
        page[..SEGMENT_HEADER as usize].copy_from_slice(&header.encode());
        file.write_at(&page, 0).map_err(failed("write", spare))?;
        file.set_len(len).map_err(failed("cut", spare))?;
        file.sync().map_err(failed("sync", spare))?;
        io.rename(spare, &path).map_err(failed("rename", spare))?;
        let open = ArcSwapOption::from_pointee(OpenFile(file.clone()));
        Ok((Self { header, path, len: AtomicU64::new(SEGMENT_HEADER), file: open }, file))
    }

    /// Reads the header of an existing segment.
    pub(super) fn inspect(
        io: &dyn Disk,
        folder: &Path,
        segment: u64,
        disk_id: u64,
    ) -> Result<Header> {
        let path = segment_path(folder, segment);
        let file = io.open(&path).map_err(failed("open", &path))?;
        let len = file.size().map_err(failed("measure", &path))?;
        if len < SEGMENT_HEADER {
            return Ok(Header::Missing);
        }
        let mut bytes = [0; SEGMENT_HEADER as usize];
        if let Err(e) = file.read_exact_at(&mut bytes, 0) {
            return Ok(Header::Damaged(format!("its header cannot be read: {e}")));
        }
        match SegmentHeader::decode(&bytes, segment, disk_id) {
            Ok(header) => {
                let file = ArcSwapOption::empty();
                Ok(Header::Sound(Self { header, path, len: AtomicU64::new(len), file }))
            }
            Err(e) if e.code == forebay_core::ErrorCode::Unsupported => Err(e),
            Err(e) => Ok(Header::Damaged(e.message)),
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.header.segment
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(super) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// The file if it is open. The caller has to hold the segment while it uses the file: a segment
    /// that is not held may be overwritten.
    pub(super) fn opened(&self) -> Option<Arc<dyn DiskFile>> {
        self.file.load().as_ref().map(|file| file.0.clone())
    }

    /// Opens the file, to be used as that of [`Self::opened`]. True: it was closed before.
    pub(super) fn open(&self, io: &dyn Disk) -> io::Result<(Arc<dyn DiskFile>, bool)> {
        if let Some(file) = self.opened() {
            return Ok((file, false));
        }
        let file = io.open(&self.path)?;
        self.file.store(Some(Arc::new(OpenFile(file.clone()))));
        Ok((file, true))
    }

    /// Closes the file; readers that hold it continue.
    pub(super) fn close(&self) {
        self.file.store(None);
    }
}

fn segment_path(folder: &Path, segment: u64) -> PathBuf {
    folder.join(format!("{segment:016x}"))
}

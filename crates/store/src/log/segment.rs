//! One file of the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use forebay_core::Result;

use super::room;
use crate::disk::{Disk, DiskFile};
use crate::format::{SEGMENT_HEADER, SegmentHeader, SegmentState, TailContent};
use crate::identity::failed;
use crate::page_cache::PAGE;

/// A segment with a sound header.
pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) path: PathBuf,
    /// Bytes of header and frames; of the whole file while there is a [`Self::tail`].
    len: AtomicU64,
    /// Open while it is read; closed again when too many are.
    file: ArcSwapOption<OpenFile>,
    /// False: it was written before headers had a state.
    has_state: bool,
    /// The bytes behind the frames when the log was opened.
    found_tail: Option<TailContent>,
    is_cut: AtomicBool,
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
    /// A segment of this process.
    fn new(header: SegmentHeader, path: PathBuf, len: u64, file: &Arc<dyn DiskFile>) -> Self {
        Self {
            header,
            path,
            len: AtomicU64::new(len),
            file: ArcSwapOption::from_pointee(OpenFile(file.clone())),
            has_state: true,
            found_tail: None,
            is_cut: AtomicBool::new(false),
        }
    }

    /// Makes a new segment; its header is written with the first frames.
    pub(super) fn create(
        io: &dyn Disk,
        folder: &Path,
        header: SegmentHeader,
    ) -> Result<(Self, Arc<dyn DiskFile>)> {
        let path = segment_path(folder, header.segment);
        let file = io.create(&path).map_err(failed("create", &path))?;
        Ok((Self::new(header, path, 0, &file), file))
    }

    /// Makes a segment of a recycled file whose name is `spare`. Its header is durable before it
    /// gets its new name, so no frame is ever behind the header of another segment.
    pub(super) fn over(
        io: &dyn Disk,
        folder: &Path,
        header: SegmentHeader,
        spare: &Path,
    ) -> Result<(Self, Arc<dyn DiskFile>)> {
        let path = segment_path(folder, header.segment);
        let file = io.open_write(spare).map_err(failed("open", spare))?;
        // All of the page, so that no part of it has to be read.
        let mut page = [0; PAGE as usize];
        let state = SegmentState::Open(TailContent::Recycled);
        page[..SEGMENT_HEADER as usize].copy_from_slice(&header.encode(Some(state)));
        file.write_at(&page, 0).map_err(failed("write", spare))?;
        file.sync().map_err(failed("sync", spare))?;
        io.rename(spare, &path).map_err(failed("rename", spare))?;
        Ok((Self::new(header, path, SEGMENT_HEADER, &file), file))
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
            Ok((header, state)) => {
                let (len, found_tail) = match state {
                    Some(SegmentState::Sealed { end }) => (len.min(u64::from(end)), None),
                    Some(SegmentState::Open(tail)) => (len, Some(tail)),
                    None => (len, room::tail_by_length(len)),
                };
                Ok(Header::Sound(Self {
                    header,
                    path,
                    len: AtomicU64::new(len),
                    file: ArcSwapOption::empty(),
                    has_state: state.is_some(),
                    found_tail,
                    is_cut: AtomicBool::new(false),
                }))
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

    /// The bytes that may be behind the last frame, if the process that wrote the segment did not
    /// seal it. `None`: the frames end at [`Self::len`].
    pub(super) fn tail(&self) -> Option<TailContent> {
        self.found_tail.filter(|_| !self.is_cut.load(Ordering::Acquire))
    }

    /// The header that a new segment begins with.
    pub(super) fn first_header(&self) -> [u8; SEGMENT_HEADER as usize] {
        self.header.encode(Some(SegmentState::Open(TailContent::Zeros)))
    }

    /// Ends the frames of a segment that has a [`Self::tail`] at `end`. The frames are synced before
    /// the header says that they are there.
    pub(super) fn cut(&self, file: &dyn DiskFile, end: u64) -> io::Result<()> {
        file.set_len(end)?;
        self.set_len(end);
        self.is_cut.store(true, Ordering::Release);
        if !self.has_state {
            return Ok(());
        }
        file.sync()?;
        self.write_sealed(file)
    }

    /// Writes into the header where the frames end. They have to be synced, if that matters.
    ///
    /// The header is not synced. A power cut may leave the old one: then the segment is read as one
    /// that was in use.
    pub(super) fn seal(&self, file: &dyn DiskFile) {
        let is_written = self.len() >= SEGMENT_HEADER;
        if is_written && let Err(e) = self.write_sealed(file) {
            tracing::debug!(path = %self.path.display(), "the header is not sealed: {e}");
        }
    }

    fn write_sealed(&self, file: &dyn DiskFile) -> io::Result<()> {
        let end = u32::try_from(self.len()).map_err(io::Error::other)?;
        file.write_at(&self.header.encode(Some(SegmentState::Sealed { end })), 0)
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

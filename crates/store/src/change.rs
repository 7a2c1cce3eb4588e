//! Requests to change a disk, and their results.

use bytes::Bytes;

use super::format;
use super::observer::key_digest;
use super::recency::Touch;
use super::record::{Record, RecordMeta};
use super::work::Filling;

pub(crate) type MetaChange = Box<dyn FnOnce(&mut RecordMeta) + Send>;

/// One change of a disk.
pub(crate) enum Change {
    /// A commit. The payload is empty when the record's place is in files. `files` are the new
    /// files; they move to their places when the log has the record. A `sequence` (and then a
    /// `generation`) of 0 is filled in. `misplaced`: another disk has an older copy.
    Put { record: Box<Record>, payload: Bytes, files: Vec<Filling>, misplaced: bool },
    /// A removal. If `generation` is given, only that commit is removed.
    Remove { bucket_id: u64, name: String, generation: Option<u64> },
    /// A change of the metadata of exactly this commit.
    Update { record: Box<Record>, change: MetaChange },
    /// Times of access: index only.
    Times(Vec<Touch>),
    /// Compaction: the same record at the head of the log, if it is current.
    Move { record: Box<Record>, payload: Bytes },
    /// Compaction: the same removal at the head of the log, if it still hides something.
    WriteTombstone { from: u64, bucket_id: u64, name: String, sequence: u64 },
    /// Compaction: nothing of this segment is needed any more.
    Release { segment: u64 },
    /// No other disk has an older copy of this key.
    ClearMisplaced { key: Vec<u8> },
}

/// The result of a change; both fields are `None` when there was nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) new: Option<Record>,
    pub(crate) old: Option<Record>,
}

impl Change {
    /// A digest of the object that the change is about.
    pub(crate) fn digest(&self) -> Option<u64> {
        match self {
            Self::Put { record, .. } | Self::Update { record, .. } | Self::Move { record, .. } => {
                Some(record.digest())
            }
            Self::Remove { bucket_id, name, .. } | Self::WriteTombstone { bucket_id, name, .. } => {
                Some(key_digest(*bucket_id, name))
            }
            Self::ClearMisplaced { key } => {
                format::parse_key(key).ok().map(|(bucket_id, name)| key_digest(bucket_id, name))
            }
            Self::Times(_) | Self::Release { .. } => None,
        }
    }

    /// Whether the change has to wait while the file system is full. Changes that free space do not
    /// wait.
    pub(crate) fn needs_room(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Times(_))
    }

    pub(crate) fn payload(&self) -> usize {
        match self {
            Self::Put { payload, .. } | Self::Move { payload, .. } => payload.len(),
            _ => 0,
        }
    }
}

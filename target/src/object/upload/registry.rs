//! The uploads of this target: in memory, and on disk as a journal per upload that is read again
//! after a restart.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::upload::{ASIDE, Part, Upload, UploadsPage, UploadsRequest};
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::{FoundUpload, PartFile, UploadDir};
use serde::{Deserialize, Serialize};
use tokio::sync::{OnceCell, RwLock};

use crate::object::Key;

/// Uploads by bucket, name of the object, and id.
#[derive(Default)]
pub(super) struct UploadTable {
    table: Mutex<BTreeMap<(u64, String, String), Arc<Live>>>,
    /// Set when the disks were searched for uploads.
    pub(super) loaded: OnceCell<()>,
}

/// A line of a journal. A later part replaces an earlier one with the same number.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Upload { bucket_id: u64, upload: Upload },
    Part { file: u64, part: Part },
}

/// An upload.
pub(super) struct Live {
    pub(super) bucket_id: u64,
    pub(super) upload: Upload,
    pub(super) dir: UploadDir,
    /// Held shared to add parts, exclusively to end the upload.
    pub(super) turn: RwLock<()>,
    /// Held to write to the journal.
    pub(super) journal: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: BTreeMap<u32, Kept>,
    /// Completed or aborted.
    over: bool,
}

/// A part and its file.
pub(super) struct Kept {
    pub(super) part: Part,
    pub(super) file: PartFile,
}

/// The error for an unknown id.
pub(super) fn unknown(info: &BucketInfo, name: &str, id: &str) -> Error {
    Error::new(
        ErrorCode::UploadNotFound,
        format!("upload \"{id}\" of {} does not exist", info.bucket.object_uri(name)),
    )
}

impl Line {
    /// The encoded line with its line end.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)
            .map_err(|e| Error::internal(format!("an upload cannot be written down: {e}")))?;
        line.push(b'\n');
        Ok(line)
    }
}

impl Live {
    pub(super) fn new(bucket_id: u64, upload: Upload, dir: UploadDir) -> Self {
        Self {
            bucket_id,
            upload,
            dir,
            turn: RwLock::default(),
            journal: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// The upload that was found on a disk; if its journal is unusable, what was found is returned.
    pub(super) fn recovered(found: FoundUpload) -> std::result::Result<Self, FoundUpload> {
        let mut lines = found.lines.iter().map(|line| serde_json::from_slice(line));
        let Some(Ok(Line::Upload { bucket_id, upload })) = lines.next() else { return Err(found) };
        let live = Self::new(bucket_id, upload, found.dir);
        let mut files: HashMap<u64, PartFile> =
            found.files.into_iter().map(|file| (file.id, file)).collect();
        // The last line may be incomplete. A part without its file was replaced, or was not
        // finished.
        for line in lines {
            if let Ok(Line::Part { file, part }) = line
                && let Some(file) = files.remove(&file).filter(|f| f.size == part.size)
            {
                live.keep(Kept { part, file });
            }
        }
        Ok(live)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Adds a part; returns the one that it replaces.
    pub(super) fn keep(&self, kept: Kept) -> Option<Kept> {
        self.state().parts.insert(kept.part.number, kept)
    }

    /// Removes a part whose bytes are lost.
    pub(super) fn forget(&self, number: u32) {
        self.state().parts.remove(&number);
    }

    pub(super) fn parts(&self) -> Vec<Part> {
        self.state().parts.values().map(|kept| kept.part.clone()).collect()
    }

    /// The part of this number, and its file.
    pub(super) fn part(&self, number: u32) -> Option<(Part, u64)> {
        self.state().parts.get(&number).map(|kept| (kept.part.clone(), kept.file.id))
    }

    pub(super) fn is_open(&self) -> bool {
        !self.state().over
    }

    pub(super) fn check_open(&self, info: &BucketInfo) -> Result<()> {
        let open = self.is_open();
        open.then_some(()).ok_or_else(|| unknown(info, &self.upload.name, &self.upload.id))
    }

    pub(super) fn end(&self) {
        self.state().over = true;
    }

    /// Whether a job started it and clients must not see it.
    pub(super) fn is_aside(&self) -> bool {
        self.upload.notes.contains_key(ASIDE)
    }

    /// Time of the last operation on it, unix nanoseconds.
    pub(super) fn touched_ns(&self) -> u64 {
        let last = self.state().parts.values().map(|kept| kept.part.stored_ns).max();
        last.unwrap_or(0).max(self.upload.started_ns)
    }
}

impl UploadTable {
    fn table(&self) -> MutexGuard<'_, BTreeMap<(u64, String, String), Arc<Live>>> {
        self.table.locked()
    }

    pub(super) fn len(&self) -> usize {
        self.table().len()
    }

    pub(super) fn insert(&self, live: Live) {
        let key = (live.bucket_id, live.upload.name.clone(), live.upload.id.clone());
        self.table().insert(key, Arc::new(live));
    }

    pub(super) fn remove(&self, live: &Live) {
        let key = (live.bucket_id, live.upload.name.clone(), live.upload.id.clone());
        self.table().remove(&key);
    }

    pub(super) fn find(&self, key: &Key, id: &str) -> Option<Arc<Live>> {
        self.table().get(&(key.bucket_id, key.name.to_string(), id.to_owned())).cloned()
    }

    pub(super) fn of_bucket(&self, bucket_id: u64) -> Vec<Arc<Live>> {
        let first = (bucket_id, String::new(), String::new());
        let table = self.table();
        let of_bucket = table.range(first..).take_while(|((id, ..), _)| *id == bucket_id);
        of_bucket.map(|(_, live)| live.clone()).collect()
    }

    pub(super) fn idle_since(&self, before_ns: u64) -> Vec<Arc<Live>> {
        let table = self.table();
        table.values().filter(|live| live.touched_ns() < before_ns).cloned().collect()
    }

    pub(super) fn buckets(&self) -> Vec<u64> {
        let ids: BTreeSet<u64> = self.table().keys().map(|(id, ..)| *id).collect();
        ids.into_iter().collect()
    }

    pub(super) fn page(&self, request: &UploadsRequest) -> UploadsPage {
        let UploadsRequest { info, prefix, after, after_id, limit } = request;
        let begin = if after > prefix { after } else { prefix };
        let table = self.table();
        let from = (info.id, begin.clone(), String::new());
        let mut page = UploadsPage::default();
        for ((bucket_id, name, id), live) in table.range(from..) {
            if *bucket_id != info.id || !name.starts_with(prefix) {
                break;
            }
            let skipped = !after.is_empty()
                && name == after
                && after_id.as_ref().is_none_or(|after_id| id <= after_id);
            if skipped || live.is_aside() {
                continue;
            }
            if page.uploads.len() == *limit {
                page.more = true;
                break;
            }
            page.uploads.push(live.upload.clone());
        }
        page
    }
}

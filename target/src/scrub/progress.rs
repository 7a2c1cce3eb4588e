//! The progress of the scrub of a disk: saved on the disk, so that a restart continues there.

use std::path::{Path, PathBuf};

use forebay_core::{Error, Result};
use forebay_store::blocking;
use serde::{Deserialize, Serialize};

/// The position of a pass and its findings. A missing or unreadable file means a fresh start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Progress {
    /// The object checked last.
    pub(super) bucket_id: u64,
    pub(super) name: String,
    /// Unix nanoseconds; 0 if no pass is in progress.
    pub(super) started_ns: u64,
    /// When the last complete pass ended; 0 before the first.
    pub(super) ended_ns: u64,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) damaged: u64,
    pub(super) orphans: u64,
    /// Damaged objects with no other copy: bucket id, name, damaged commit.
    pub(super) lost: Vec<(u64, String, u64)>,
}

impl Progress {
    /// Starts a pass, unless one is in progress.
    pub(super) fn begin(&mut self, now_ns: u64) {
        if self.started_ns == 0 {
            let (ended_ns, lost) = (self.ended_ns, std::mem::take(&mut self.lost));
            *self = Self { started_ns: now_ns, ended_ns, lost, ..Self::default() };
        }
    }

    pub(super) fn end(&mut self, now_ns: u64) {
        self.started_ns = 0;
        self.ended_ns = now_ns;
        (self.bucket_id, self.name) = (0, String::new());
    }

    pub(super) async fn load(disk: &Path) -> Self {
        let path = file(disk);
        match tokio::fs::read(&path).await {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|e| {
                tracing::warn!(path = %path.display(), "unreadable, the scrub begins anew: {e}");
                Self::default()
            }),
            Err(_) => Self::default(),
        }
    }

    /// Replaces the file on the disk as a whole.
    pub(super) async fn save(&self, disk: &Path) -> Result<()> {
        let path = file(disk);
        let bytes = serde_json::to_vec(self)
            .map_err(|e| Error::internal(format!("the scrub's progress: {e}")))?;
        blocking(move || {
            let new = path.with_extension("new");
            std::fs::write(&new, bytes)?;
            std::fs::rename(&new, &path)?;
            Ok(())
        })
        .await
    }
}

fn file(disk: &Path) -> PathBuf {
    disk.join(".forebay/scrub.json")
}

//! Counts and warnings of a plan, which all of its steps add to.

use serde::{Deserialize, Serialize};

/// Maximum number of warnings that are kept; all are counted.
const MAX_WARNINGS: usize = 32;

/// Counts over a whole plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Objects of the source under the prefix.
    pub listed: u64,
    pub shards: u64,
    pub samples: u64,
    pub files: u64,
    /// Bytes of the files, without the archive's overhead.
    pub bytes: u64,
    /// Markers of folders, which have no content.
    pub skipped_folders: u64,
    pub dropped_samples: u64,
    pub dropped_files: u64,
    pub dropped_bytes: u64,
    /// Samples that lack an expected extension.
    pub incomplete_samples: u64,
    /// Files whose extension is not among the expected ones.
    pub extra_files: u64,
    /// Further files of the same name in a sample.
    pub duplicates: u64,
    /// Samples that no rule of the external key map matches.
    pub unmatched_samples: u64,
}

/// The first few warnings, and the total number.
#[derive(Default)]
pub(super) struct Warnings {
    lines: Vec<String>,
    more: u64,
}

impl Warnings {
    pub(super) fn push(&mut self, text: impl FnOnce() -> String) {
        match self.lines.len() < MAX_WARNINGS {
            true => self.lines.push(text()),
            false => self.more += 1,
        }
    }

    pub(super) fn finish(mut self, totals: &Totals) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more", self.more));
        }
        let mut count = |n: u64, text: &str| {
            if n > 0 {
                self.lines.push(format!("{n} {text}"));
            }
        };
        count(totals.skipped_folders, "folder markers were skipped");
        count(totals.incomplete_samples, "samples are incomplete");
        count(totals.extra_files, "files have an extension that was not expected");
        count(totals.duplicates, "files would have had the name of another of their sample");
        count(totals.unmatched_samples, "samples match no rule of the external key map");
        if totals.dropped_files > 0 {
            self.lines.push(format!(
                "left out: {} whole samples, {} files, {} bytes",
                totals.dropped_samples, totals.dropped_files, totals.dropped_bytes
            ));
        }
        self.lines
    }
}

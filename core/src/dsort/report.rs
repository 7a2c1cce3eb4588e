//! Progress of a job, by phase and target.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::NodeId;

/// When a phase began and ended, unix nanoseconds; 0: not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    pub started_ns: u64,
    pub ended_ns: u64,
}

impl Phase {
    pub fn is_running(&self) -> bool {
        self.started_ns > 0 && self.ended_ns == 0
    }

    pub fn is_finished(&self) -> bool {
        self.ended_ns > 0
    }

    /// Elapsed nanoseconds, so far or in total.
    pub fn elapsed_ns(&self, now_ns: u64) -> u64 {
        let end = if self.is_finished() { self.ended_ns } else { now_ns };
        if self.started_ns == 0 { 0 } else { end.saturating_sub(self.started_ns) }
    }
}

/// Durations of units of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub total_ms: u64,
    pub min_ms: u64,
    pub max_ms: u64,
    /// Bytes that were processed.
    pub bytes: u64,
}

impl Times {
    pub fn add(&mut self, ms: u64, bytes: u64) {
        self.min_ms = if self.count == 0 { ms } else { self.min_ms.min(ms) };
        self.max_ms = self.max_ms.max(ms);
        self.count += 1;
        self.total_ms += ms;
        self.bytes += bytes;
    }

    pub fn avg_ms(&self) -> u64 {
        self.total_ms.checked_div(self.count).unwrap_or(0)
    }
}

/// The part of one target: of the input shards that it owns, and of the output shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetPart {
    pub inputs: u64,
    pub input_records: u64,
    /// Bytes of the members, unpacked.
    pub input_bytes: u64,
    pub to_create: u64,
    /// Output shards that are complete, and their bytes.
    pub created: u64,
    pub created_bytes: u64,
    pub extraction: Times,
    pub creation: Times,
}

/// The additional status of a dsort job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DsortReport {
    pub description: String,
    /// Indexing the input shards.
    pub extraction: Phase,
    /// Planning.
    pub sorting: Phase,
    /// Writing the output shards, and publishing them.
    pub creation: Phase,
    /// Input shards to be indexed.
    pub inputs: u64,
    pub targets: BTreeMap<NodeId, TargetPart>,
}

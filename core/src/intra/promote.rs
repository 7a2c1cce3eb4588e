//! Promotion of files of the targets' file systems: the scan, and its start on each target.

use serde::{Deserialize, Serialize};

use crate::name::Bucket;
use crate::promote::PromoteArgs;

/// The files of a promotion that a target sees. Requested by `POST /internal/v1/promote/scan` with
/// [`PromoteArgs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromoteScan {
    pub files: u64,
    /// Digest of names, sizes and times: equal if targets see the same files.
    pub digest: u64,
    /// There are more files than were scanned.
    pub more: bool,
}

/// `POST /internal/v1/promote`: starts a promotion on one target, under an id that all targets
/// share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PromoteRequest {
    pub id: String,
    pub bucket: Bucket,
    pub args: PromoteArgs,
    /// All targets see the same files: each takes those whose objects it owns.
    pub shared: bool,
}

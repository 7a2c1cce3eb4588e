//! The list of shards that a job writes next to them.

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;

/// One line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestLine {
    pub shard: String,
    pub samples: u64,
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes of the shard as an object.
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
}

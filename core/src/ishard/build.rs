//! What targets say to each other while a job's shards are built, and the lines of a manifest.

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::error::Error;
use crate::name::{Bucket, ObjectName};

/// `POST /internal/v1/shard/build` on a shard's owner: pack these objects, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildRequest {
    /// Unique; asks, waits and stops name it.
    pub id: String,
    pub source: Bucket,
    pub destination: Bucket,
    pub shard: ObjectName,
    /// Says the format.
    pub ext: String,
    pub members: Vec<BuildMember>,
}

/// One file: the object, its name in the shard, and the size that was listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildMember(pub ObjectName, pub String, pub u64);

/// How far a shard is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BuildStatus {
    /// Files packed.
    pub files: u64,
    /// Of these files.
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<BuildOutcome>,
}

/// How it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildOutcome {
    /// It is an object now.
    Done {
        size: u64,
        checksum: Option<Checksum>,
    },
    Failed(Error),
}

/// One line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestLine {
    pub shard: String,
    pub samples: u64,
    pub files: u64,
    /// Of the files.
    pub bytes: u64,
    /// Of the shard as an object.
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
}

//! What is known of one object beside its bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;

/// Metadata of an object as a node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectMeta {
    /// Bytes.
    pub size: u64,
    /// `1`, `2`, … for native buckets; the cloud's own text (version id, generation) otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// The cloud's ETag without quotes, when there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etag: String,
    /// Last access, unix nanoseconds.
    #[serde(default)]
    pub atime_ns: u64,
    /// Last modification, unix nanoseconds.
    #[serde(default)]
    pub mtime_ns: u64,
    /// User's custom metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, String>,
    /// Whether the bytes are in the cluster now (false: only the cloud has them).
    #[serde(default)]
    pub present: bool,
}

/// One row of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    pub name: String,
    #[serde(flatten)]
    pub meta: ObjectMeta,
    #[serde(default, skip_serializing_if = "RowKind::is_object")]
    pub kind: RowKind,
}

/// What a row of a listing stands for, where shards are listed with their members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    #[default]
    Object,
    /// An object whose members follow.
    Shard,
    /// A member, named `SHARD/MEMBER`.
    Member,
}

impl RowKind {
    fn is_object(&self) -> bool {
        *self == Self::Object
    }
}

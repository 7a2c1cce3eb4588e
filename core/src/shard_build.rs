//! Messages between targets while a job's shards are built.
//!
//! A shard is packed from whole objects, or from members of other shards. It becomes an object
//! immediately, or it is put aside and published when its job finds that all shards are good.

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::error::Error;
use crate::name::{Bucket, ObjectName};
use crate::shard::Stat;

/// `POST /internal/v1/shard/build` on a shard's owner: pack these objects, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildRequest {
    /// Unique; later requests refer to it.
    pub id: String,
    /// The job that the shard is built for.
    #[serde(default)]
    pub job: String,
    pub source: Bucket,
    pub destination: Bucket,
    pub shard: ObjectName,
    /// Extension, which determines the format.
    pub ext: String,
    pub members: Vec<BuildMember>,
    /// Time and mode of each member that comes from a shard; a member without them gets those of an
    /// object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stats: Vec<Stat>,
    /// Whether the members come from shards, where they have the same names.
    #[serde(default)]
    pub from_shards: bool,
    /// Whether the shard stays invisible until it is published.
    #[serde(default)]
    pub aside: bool,
}

/// `POST /internal/v1/shard/hold`: whether the shards put aside for a job are still wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldRequest {
    pub job: String,
    pub keep: bool,
}

/// `POST /internal/v1/shard/unpack` on a shard's owner: a job will read its members in random
/// order. The unpacked shard is kept like a shard put aside, by [`HoldRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnpackRequest {
    pub job: String,
    pub bucket: Bucket,
    pub shard: ObjectName,
}

/// One file: the object, its name in the shard, and the size that was listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildMember(pub ObjectName, pub String, pub u64);

/// The progress of a shard.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BuildStatus {
    /// Files packed so far.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<BuildOutcome>,
}

/// How it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildOutcome {
    /// It is an object now, or complete and put aside.
    Done {
        size: u64,
        checksum: Option<Checksum>,
    },
    Failed(Error),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_times_and_modes_is_that_of_a_shard_of_objects() {
        let text = r#"{"id":"1","source":{"name":"in"},"destination":{"name":"out"},"#;
        let text = format!(r#"{text}"shard":"s.tar","ext":".tar","members":[["o","m",3]]}}"#);
        let mut request: BuildRequest = serde_json::from_str(&text).unwrap();
        assert!(request.stats.is_empty() && !request.from_shards);
        assert!(!serde_json::to_string(&request).unwrap().contains("stats"));
        request.stats = vec![Stat::new(7, 0o600)];
        let text = serde_json::to_string(&request).unwrap();
        assert!(text.contains(r#""stats":[[7,384]]"#), "{text}");
        let back: BuildRequest = serde_json::from_str(&text).unwrap();
        assert_eq!((back.stats, back.members), (request.stats, request.members));
    }
}

//! What targets say to each other while a job's shards are built.
//!
//! A shard is packed from whole objects, or from members of other shards. It becomes an object at
//! once, or it is put aside and does so when its job says that all of them are good.

use serde::{Deserialize, Serialize};

use crate::archive::Stat;
use crate::checksum::Checksum;
use crate::error::Error;
use crate::name::{Bucket, ObjectName};

/// `POST /internal/v1/shard/build` on a shard's owner: pack these objects, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildRequest {
    /// Unique; asks, waits and stops name it.
    pub id: String,
    /// The job that it is for.
    #[serde(default)]
    pub job: String,
    pub source: Bucket,
    pub destination: Bucket,
    pub shard: ObjectName,
    /// Says the format.
    pub ext: String,
    pub members: Vec<BuildMember>,
    /// Time and mode of each, when they come out of shards; a member without one is written as
    /// objects are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stats: Vec<Stat>,
    /// The members come out of shards, where they have the same names.
    #[serde(default)]
    pub from_shards: bool,
    /// Nobody sees the shard before it is published.
    #[serde(default)]
    pub aside: bool,
}

/// `POST /internal/v1/shard/hold`: what lies aside for a job is still wanted, or is not any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldRequest {
    pub job: String,
    pub keep: bool,
}

/// `POST /internal/v1/shard/unpack` on a shard's owner: a job will read its members in an order that
/// jumps. It is kept as what lies aside is, by [`HoldRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnpackRequest {
    pub job: String,
    pub bucket: Bucket,
    pub shard: ObjectName,
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
    /// It is an object now, or lies aside in full.
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

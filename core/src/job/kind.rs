//! Kinds of jobs, and their names.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Kinds of jobs: those that run here, and those that AIStore clients request by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Fetches objects of a backend into the cluster.
    Prefetch,
    /// Drops copies; their backend keeps the objects.
    Evict,
    Delete,
    /// Packs objects into shards; runs on one target.
    Ishard,
    /// Verifies stored data against its checksums.
    Scrub,
    CopyObjects,
    CopyBucket,
    TransformObjects,
    TransformBucket,
    TransformInline,
    MoveBucket,
    EvictBucket,
    /// Writes objects into one shard.
    Archive,
    GetBatch,
    BlobDownload,
    /// Fetches from URLs.
    Download,
    /// Imports files of the node's own file system.
    Promote,
    /// Evicts by the cache's policy.
    Lru,
    Cleanup,
    Rebalance,
    Resilver,
    Election,
    Summary,
    ShardSummary,
    IndexShard,
    Rechunk,
    MakeCopies,
    PutCopies,
    /// Writes the objects of a native bucket to a cloud's bucket.
    WriteBack,
    EcEncode,
    EcGet,
    EcPut,
    EcRespond,
    List,
    /// Writes the records of shards into others, in another order; runs on one target.
    Dsort,
    Inventory,
    LoadMetadata,
}

/// The names of a kind.
struct Names {
    ours: &'static str,
    v1: &'static str,
    shown: &'static str,
    idles: bool,
}

const fn ends(ours: &'static str, v1: &'static str, shown: &'static str) -> Names {
    Names { ours, v1, shown, idles: false }
}

const fn idles(ours: &'static str, v1: &'static str, shown: &'static str) -> Names {
    Names { ours, v1, shown, idles: true }
}

impl JobKind {
    pub const ALL: [Self; 37] = [
        Self::Prefetch,
        Self::Evict,
        Self::Delete,
        Self::Ishard,
        Self::Scrub,
        Self::CopyObjects,
        Self::CopyBucket,
        Self::TransformObjects,
        Self::TransformBucket,
        Self::TransformInline,
        Self::MoveBucket,
        Self::EvictBucket,
        Self::Archive,
        Self::GetBatch,
        Self::BlobDownload,
        Self::Download,
        Self::Promote,
        Self::Lru,
        Self::Cleanup,
        Self::Rebalance,
        Self::Resilver,
        Self::Election,
        Self::Summary,
        Self::ShardSummary,
        Self::IndexShard,
        Self::Rechunk,
        Self::MakeCopies,
        Self::PutCopies,
        Self::WriteBack,
        Self::EcEncode,
        Self::EcGet,
        Self::EcPut,
        Self::EcRespond,
        Self::List,
        Self::Dsort,
        Self::Inventory,
        Self::LoadMetadata,
    ];

    fn names(self) -> Names {
        match self {
            Self::Prefetch => ends("prefetch", "prefetch-listrange", "prefetch-objects"),
            Self::Evict => ends("evict", "evict-listrange", "evict-objects"),
            Self::Delete => ends("delete", "delete-listrange", "delete-objects"),
            Self::Ishard => ends("ishard", "ishard", "ishard"),
            Self::Scrub => ends("scrub", "scrub", "scrub"),
            Self::CopyObjects => idles("copy-objects", "copy-listrange", "copy-objects"),
            Self::CopyBucket => ends("copy-bucket", "copy-bck", "copy-bucket"),
            Self::TransformObjects => idles("transform-objects", "etl-listrange", "etl-objects"),
            Self::TransformBucket => ends("transform-bucket", "etl-bck", "etl-bucket"),
            Self::TransformInline => ends("transform-inline", "etl-inline", "etl-inline"),
            Self::MoveBucket => ends("move-bucket", "move-bck", "rename-bucket"),
            Self::EvictBucket => ends("evict-bucket", "evict-remote-bck", "evict-remote-bucket"),
            Self::Archive => idles("archive", "archive", "archive"),
            Self::GetBatch => idles("get-batch", "get-batch", "get-batch"),
            Self::BlobDownload => ends("blob-download", "blob-download", "blob-download"),
            Self::Download => idles("download", "download", "download"),
            Self::Promote => ends("promote", "promote", "promote-files"),
            Self::Lru => ends("lru", "lru", "lru-eviction"),
            Self::Cleanup => ends("cleanup", "cleanup-store", "cleanup"),
            Self::Rebalance => ends("rebalance", "rebalance", "rebalance"),
            Self::Resilver => ends("resilver", "resilver", "resilver"),
            Self::Election => ends("election", "election", "elect-primary"),
            Self::Summary => ends("summary", "summary-bck", "summary"),
            Self::ShardSummary => ends("shard-summary", "summary-shard", "shard-summary"),
            Self::IndexShard => ends("index-shard", "index-shard", "shard-index"),
            Self::Rechunk => ends("rechunk", "rechunk", "rechunk"),
            Self::MakeCopies => ends("make-copies", "make-n-copies", "mirror"),
            Self::PutCopies => idles("put-copies", "put-copies", "put-copies"),
            Self::WriteBack => ends("write-back", "write-back", "write-back"),
            Self::EcEncode => ends("ec-encode", "ec-encode", "ec-bucket"),
            Self::EcGet => idles("ec-get", "ec-get", "ec-get"),
            Self::EcPut => idles("ec-put", "ec-put", "ec-put"),
            Self::EcRespond => idles("ec-respond", "ec-resp", "ec-resp"),
            Self::List => idles("list", "list", "list"),
            Self::Dsort => ends("dsort", "dsort", "dsort"),
            Self::Inventory => ends("inventory", "create-inventory", "create-inventory"),
            Self::LoadMetadata => ends("load-metadata", "load-lom-cache", "warm-up-metadata"),
        }
    }

    /// Forebay's name of the kind.
    pub fn as_str(self) -> &'static str {
        self.names().ours
    }

    /// The kind's name in AIStore v1.
    pub fn v1_kind(self) -> &'static str {
        self.names().v1
    }

    /// The name that AIStore's tools show and accept for the kind.
    pub fn v1_display(self) -> &'static str {
        self.names().shown
    }

    /// Prefix of the ids of such jobs.
    pub fn id_prefix(self) -> &'static str {
        match self {
            Self::CopyObjects | Self::TransformObjects => "tco-",
            Self::GetBatch => "gbt-",
            Self::Ishard => "ishard-",
            Self::Dsort => "srt-",
            Self::WriteBack => "wrb-",
            _ => "job-",
        }
    }

    /// Whether a target resumes its part of such a job after a restart.
    pub fn resumes(self) -> bool {
        matches!(self, Self::Prefetch | Self::WriteBack)
    }

    /// Whether a training run starts many such jobs each second.
    pub fn is_frequent(self) -> bool {
        matches!(self, Self::GetBatch | Self::List)
    }

    /// Whether AIStore keeps a finished job of this kind for more work, so that clients wait until
    /// it is idle and not for its end.
    pub fn idles(self) -> bool {
        self.names().idles
    }
}

impl FromStr for JobKind {
    type Err = Error;
    /// Accepts Forebay's name, the v1 kind, and the v1 display name.
    fn from_str(s: &str) -> Result<Self> {
        let is = |k: &Self| {
            let names = k.names();
            [names.ours, names.v1, names.shown].contains(&s)
        };
        Self::ALL
            .into_iter()
            .find(is)
            .ok_or_else(|| Error::invalid(format!("unknown job kind \"{s}\"")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_means_one_kind() {
        for kind in JobKind::ALL {
            for name in [kind.as_str(), kind.v1_kind(), kind.v1_display()] {
                assert_eq!(name.parse::<JobKind>().unwrap(), kind, "{name}");
            }
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.as_str()));
        }
        assert!("".parse::<JobKind>().is_err() && "nope".parse::<JobKind>().is_err());
    }

    #[test]
    fn clients_wait_for_these_kinds_to_idle() {
        let idle: BTreeSet<&str> =
            JobKind::ALL.into_iter().filter(|k| k.idles()).map(JobKind::v1_kind).collect();
        let known = [
            "archive",
            "copy-listrange",
            "download",
            "ec-get",
            "ec-put",
            "ec-resp",
            "etl-listrange",
            "get-batch",
            "list",
            "put-copies",
        ];
        assert_eq!(idle, known.into_iter().collect());
    }
}

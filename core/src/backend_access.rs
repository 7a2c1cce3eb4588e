//! What the targets may do with what stands behind a bucket, and as whom: `forebay doctor URI`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketInfo;
use crate::error::Error;

/// What a gateway asks of a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessRequest {
    pub info: Arc<BucketInfo>,
    /// Only objects whose names begin so are looked at.
    #[serde(default)]
    pub prefix: String,
}

/// As whom a target calls a cloud. Nothing in it is a secret: names of variables, files, accounts and
/// access keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudIdentity {
    /// For people.
    pub credential: String,
    /// Where calls go: a URL without what proves anything, a region of Amazon's, or a folder.
    pub endpoint: String,
    /// The project that Google counts calls for, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The storage account of Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The region that requests to S3 are signed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// Whether something may be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Access {
    /// It was done.
    Ok {
        found: String,
    },
    Fail {
        error: Error,
    },
    /// It was not tried, for this reason.
    Unknown {
        why: String,
    },
}

impl Access {
    pub fn ok(found: impl Into<String>) -> Self {
        Self::Ok { found: found.into() }
    }

    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }

    pub fn error(&self) -> Option<&Error> {
        match self {
            Self::Fail { error } => Some(error),
            Self::Ok { .. } | Self::Unknown { .. } => None,
        }
    }
}

/// What one target may do with a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendAccess {
    pub identity: CloudIdentity,
    pub list: Access,
    pub get: Access,
    /// Found out without writing anything, or unknown.
    pub put: Access,
    /// The object that was read; empty where there is none.
    #[serde(default)]
    pub example: String,
}

impl BackendAccess {
    /// Whether objects can be read. A credential that may not write is good enough for a cache.
    pub fn is_good(&self) -> bool {
        self.list.error().is_none() && self.get.error().is_none()
    }
}

/// What a target answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetAccess {
    /// The id of the target; empty where the cluster as a whole was asked.
    pub target: String,
    #[serde(flatten)]
    pub access: BackendAccess,
}

/// What the targets of a cluster may do with a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketAccess {
    /// The bucket is the cluster's own: no cloud is called.
    pub native: bool,
    pub targets: Vec<TargetAccess>,
    /// Targets that did not answer.
    pub away: Vec<String>,
}

impl BucketAccess {
    /// Whether every target can read objects.
    pub fn is_good(&self) -> bool {
        let all = self.targets.iter().all(|target| target.access.is_good());
        all && !self.targets.is_empty() && self.away.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn target(get: Access) -> TargetAccess {
        let access = BackendAccess {
            identity: CloudIdentity::default(),
            list: Access::ok("a"),
            get,
            put: Access::unknown("not tried"),
            example: String::new(),
        };
        TargetAccess { target: "target-01".into(), access }
    }

    #[test]
    fn a_bucket_is_good_if_every_target_answers_and_can_read_it() {
        let of = |targets: Vec<TargetAccess>, away: &[&str]| BucketAccess {
            native: false,
            targets,
            away: away.iter().map(|id| (*id).to_owned()).collect(),
        };
        let good = || target(Access::ok("a byte"));
        let bad = || target(Access::Fail { error: Error::invalid("no") });
        assert!(of(vec![good(), good()], &[]).is_good());
        assert!(!of(vec![good(), bad()], &[]).is_good());
        assert!(!of(vec![good()], &["target-02"]).is_good());
        assert!(!of(vec![], &[]).is_good());
    }

    #[test]
    fn it_travels_as_json_with_the_result_as_a_word() {
        let text = serde_json::to_value(target(Access::ok("a byte"))).unwrap();
        assert_eq!(text["get"], serde_json::json!({ "result": "ok", "found": "a byte" }));
        assert_eq!(text["put"]["result"], "unknown");
        assert_eq!(
            serde_json::from_value::<TargetAccess>(text).unwrap(),
            target(Access::ok("a byte"))
        );
    }
}

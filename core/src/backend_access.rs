//! The credential and access that each target has to a bucket's backend: `forebay doctor URI`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketInfo;
use crate::error::Error;

/// A gateway's request to a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessRequest {
    pub info: Arc<BucketInfo>,
    /// Only objects whose names begin with this are used.
    #[serde(default)]
    pub prefix: String,
}

/// The identity with which a target calls a cloud. It contains no secret: only names of variables,
/// files, accounts and access keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudIdentity {
    /// Description for people.
    pub credential: String,
    /// The endpoint: a URL without credentials, an Amazon region, or a folder.
    pub endpoint: String,
    /// The project that Google bills for calls, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Name of the account in the configuration of the targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// The storage account of Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The region that requests to S3 are signed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// The result of trying one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Access {
    /// It succeeded.
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

/// The access of one target to a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendAccess {
    pub identity: CloudIdentity,
    pub list: Access,
    pub get: Access,
    /// Checked without writing anything, or unknown.
    pub put: Access,
    /// The object that was read; empty if there is none.
    #[serde(default)]
    pub example: String,
}

impl BackendAccess {
    /// Whether objects can be read. A read-only credential is sufficient for a cache.
    pub fn is_good(&self) -> bool {
        self.list.error().is_none() && self.get.error().is_none()
    }
}

/// The answer of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetAccess {
    /// The id of the target; empty if the whole cluster was asked.
    pub target: String,
    #[serde(flatten)]
    pub access: BackendAccess,
}

/// The access of a cluster's targets to a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketAccess {
    /// The bucket is native: no cloud is called.
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

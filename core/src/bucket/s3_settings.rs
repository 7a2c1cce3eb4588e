//! Settings of a bucket that only S3 has: versions, tags, CORS, owner, access to others.
//!
//! The state, the log of commands and the metadata of objects store these types, so the names of
//! their fields and variants never change. XML and headers are the concern of the S3 front.

use serde::{Deserialize, Serialize};

use super::acl::Acl;
use super::is_default;

/// Whether a bucket keeps versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Versioning {
    /// It never did.
    #[default]
    Unset,
    Enabled,
    Suspended,
}

/// A tag of a bucket or an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    pub key: String,
    pub value: String,
}

/// One CORS rule: which browser requests may access a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorsRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub allowed_methods: Vec<String>,
    pub allowed_origins: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_headers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expose_headers: Vec<String>,
    /// Seconds that a browser may cache an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_s: Option<u32>,
}

/// Settings of a bucket that only S3 has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct S3Settings {
    #[serde(skip_serializing_if = "is_default")]
    pub versioning: Versioning,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cors: Vec<CorsRule>,
    /// The user that created the bucket by S3; absent: it belongs to all key holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The access granted to users other than the owner.
    #[serde(skip_serializing_if = "is_default")]
    pub acl: Acl,
    /// The bucket's policy, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

impl S3Settings {
    pub fn is_default(&self) -> bool {
        is_default(self)
    }
}

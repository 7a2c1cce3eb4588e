//! The records of the section of users in the cluster's state.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::right::Rights;

/// A sealed or hashed secret: text that only a node with the cluster's secret can use. Never
/// printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Opaque(String);

impl Opaque {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opaque(…)")
    }
}

/// A user, by name in the section. Also a user of another issuer, who has no password here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Argon2id hash of the password; empty: the user cannot log in with a password.
    #[serde(default, skip_serializing_if = "Opaque::is_empty")]
    pub password: Opaque,
    /// Names of roles that hold everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Roles on some buckets or prefixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<RoleBinding>,
    /// Unix nanoseconds.
    #[serde(default)]
    pub created_ns: u64,
    /// Tokens that were issued at an earlier unix second are invalid.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub valid_from_s: u64,
    /// Grants of an earlier epoch are invalid.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub valid_from_epoch: u64,
}

/// A role on the buckets that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleBinding {
    pub role: String,
    /// As in [`Binding::buckets`](super::Binding::buckets).
    pub buckets: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// A role that an administrator defined, by name in the section. Its form is that of AIStore's
/// roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleDefinition {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Everything is allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterRights>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<BucketRights>,
}

/// Rights on a whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRights {
    /// Id of the cluster; empty: this one.
    pub cluster: String,
    pub rights: Rights,
}

/// Rights on one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketRights {
    /// Id of the cluster; empty: this one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Provider as in URIs, such as `ais`.
    pub provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub rights: Rights,
}

/// A key of the S3 API, by access key in the section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3KeyRecord {
    pub user: String,
    /// The secret key, sealed.
    pub secret: Opaque,
    #[serde(default)]
    pub created_ns: u64,
}

/// A key pair that signs tokens. The newest one signs, all of them verify.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKeyRecord {
    /// Id of the key in the header of tokens.
    pub id: String,
    /// The Ed25519 public key, base64url without padding.
    pub public: String,
    /// The private key (PKCS #8), sealed.
    pub private: Opaque,
    #[serde(default)]
    pub created_ns: u64,
}

/// A cluster that was registered for AIStore's tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterEntry {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub alias: String,
    #[serde(default)]
    pub urls: Vec<String>,
}

/// Quotas of users and buckets. Reserved: this version reads and keeps the section, and has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Version of the section; 0: not in use.
    #[serde(deserialize_with = "super::section::supported_version")]
    pub version: u32,
}

impl Quotas {
    pub fn is_untouched(&self) -> bool {
        self.version == 0
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

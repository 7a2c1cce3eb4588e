//! Messages of the native API under `/api/v1/auth`.

use serde::{Deserialize, Serialize};

use super::decision::Access;
use super::records::RoleBinding;
use super::right::{Right, Rights};
use super::section::AccessState;

/// `POST /api/v1/auth/login`.
#[derive(Clone, Serialize, Deserialize)]
pub struct LoginRequest {
    pub user: String,
    pub password: String,
    /// Seconds; absent: the configured lifetime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

/// `POST /api/v1/auth/tokens`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenRequest {
    /// Empty: the sender.
    pub user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

/// A new token.
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenReply {
    pub token: String,
    pub user: String,
    /// Id of the token.
    pub id: String,
    /// Unix seconds.
    pub expires_s: u64,
}

/// `DELETE /api/v1/auth/tokens`: one token, or all of a user.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RevokeRequest {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
}

/// `POST /api/v1/auth/users` and `PUT /api/v1/auth/users/{name}`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UserRequest {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
}

/// A user, without the hash of the password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    pub name: String,
    pub roles: Vec<String>,
    pub bindings: Vec<RoleBinding>,
    pub has_password: bool,
    /// Access keys.
    pub keys: Vec<String>,
    pub created_ns: u64,
}

impl UserInfo {
    pub fn of(state: &AccessState, name: &str) -> Option<Self> {
        let user = state.users.get(name)?;
        let keys = state.keys.iter().filter(|(_, key)| key.user == name);
        Some(Self {
            name: name.to_owned(),
            roles: user.roles.clone(),
            bindings: user.bindings.clone(),
            has_password: !user.password.is_empty(),
            keys: keys.map(|(access, _)| access.clone()).collect(),
            created_ns: user.created_ns,
        })
    }
}

/// A role: those of every cluster, and those that an administrator defined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoleInfo {
    pub name: String,
    pub description: String,
    /// Names of rights on the whole cluster, or where the role is bound.
    pub rights: Vec<String>,
    /// Buckets of the role's own, as `provider://name`.
    pub buckets: Vec<String>,
    pub is_builtin: bool,
}

/// A key of the S3 API, without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyInfo {
    pub access: String,
    pub user: String,
    pub created_ns: u64,
}

/// `POST /api/v1/auth/keys`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyRequest {
    /// Empty: the sender.
    pub user: String,
}

/// A new key; the secret cannot be read again.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeyReply {
    pub access: String,
    pub secret: String,
    pub user: String,
}

/// `GET /api/v1/auth/whoami`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmI {
    /// Absent: the request names no user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether the cluster has no users, so that everything is allowed to everybody.
    pub is_open: bool,
    /// Names of rights that hold everywhere.
    pub rights: Vec<String>,
    pub bindings: Vec<BindingInfo>,
}

/// Rights on some buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingInfo {
    pub buckets: String,
    pub prefix: String,
    pub rights: Vec<String>,
}

/// `GET /api/v1/auth/can-i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanIReply {
    pub allowed: bool,
}

/// The names of the rights of a set.
pub fn right_names(rights: Rights) -> Vec<String> {
    let has = Right::ALL.into_iter().filter(|right| rights.has(*right));
    has.map(|right| right.name().to_owned()).collect()
}

impl WhoAmI {
    pub fn of(access: &Access) -> Self {
        let Access::User(user) = access else {
            return Self { is_open: *access == Access::Open, ..Self::default() };
        };
        let binding = |b: &super::Binding| BindingInfo {
            buckets: b.buckets.clone(),
            prefix: b.prefix.clone(),
            rights: right_names(b.rights),
        };
        Self {
            user: Some(user.name.clone()),
            is_open: false,
            rights: right_names(user.everywhere),
            bindings: user.bindings.iter().map(binding).collect(),
        }
    }
}

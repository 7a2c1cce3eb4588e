//! The changes of the section of users, in the form in which the Raft log stores them.

use serde::{Deserialize, Serialize};

use super::join_token::JoinTokenRecord;
use super::records::{
    ClusterEntry, Opaque, RoleBinding, RoleDefinition, S3KeyRecord, SigningKeyRecord, User,
};

/// A change of users, roles, keys or tokens, as logged. Append only: stored logs contain these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum AccessChange {
    AddUser {
        name: String,
        user: Box<User>,
    },
    /// Changes what is given. A new password makes earlier tokens of the user invalid.
    SetUser {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<Opaque>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        roles: Option<Vec<String>>,
    },
    /// Deletes the user with all keys.
    DeleteUser {
        name: String,
    },
    /// Gives a role on some buckets.
    Bind {
        user: String,
        binding: RoleBinding,
    },
    Unbind {
        user: String,
        binding: RoleBinding,
    },
    AddRole {
        name: String,
        role: Box<RoleDefinition>,
    },
    SetRole {
        name: String,
        role: Box<RoleDefinition>,
    },
    /// Deletes the role, and takes it from all users.
    DeleteRole {
        name: String,
    },
    AddKey {
        access: String,
        key: S3KeyRecord,
    },
    DeleteKey {
        access: String,
    },
    AddSigningKey {
        key: SigningKeyRecord,
    },
    RevokeToken {
        /// Id of the token.
        id: String,
        /// Unix seconds at which the token expires anyway.
        expires_s: u64,
    },
    /// Makes all tokens invalid that the user has now.
    RevokeUser {
        name: String,
    },
    AddCluster {
        id: String,
        entry: ClusterEntry,
    },
    SetCluster {
        id: String,
        entry: ClusterEntry,
    },
    DeleteCluster {
        id: String,
    },
    AddJoinToken {
        id: String,
        token: JoinTokenRecord,
    },
    DeleteJoinToken {
        id: String,
    },
}

impl AccessChange {
    /// The change and the name of the changed item, for the audit log. Has no secrets.
    pub fn summary(&self) -> (&'static str, &str, String) {
        let none = String::new();
        let bound = |b: &RoleBinding| format!("role={}, on={}{}", b.role, b.buckets, b.prefix);
        match self {
            Self::AddUser { name, user } => {
                ("user added", name, format!("roles={}", user.roles.join(" ")))
            }
            Self::SetUser { name, password, roles } => {
                let mut detail = Vec::new();
                if let Some(roles) = roles {
                    detail.push(format!("roles={}", roles.join(" ")));
                }
                if password.is_some() {
                    detail.push("password changed".to_owned());
                }
                ("user changed", name, detail.join(", "))
            }
            Self::DeleteUser { name } => ("user removed", name, none),
            Self::Bind { user, binding } => ("role bound", user, bound(binding)),
            Self::Unbind { user, binding } => ("role unbound", user, bound(binding)),
            Self::AddRole { name, role } => ("role added", name, format!("admin={}", role.admin)),
            Self::SetRole { name, role } => ("role changed", name, format!("admin={}", role.admin)),
            Self::DeleteRole { name } => ("role removed", name, none),
            Self::AddKey { access, key } => ("key added", access, format!("user={}", key.user)),
            Self::DeleteKey { access } => ("key removed", access, none),
            Self::AddSigningKey { key } => ("signing key added", &key.id, none),
            Self::RevokeToken { id, .. } => ("token revoked", id, none),
            Self::RevokeUser { name } => ("tokens of a user revoked", name, none),
            Self::AddCluster { id, entry } | Self::SetCluster { id, entry } => {
                ("cluster registered", id, format!("alias={}", entry.alias))
            }
            Self::DeleteCluster { id } => ("cluster unregistered", id, none),
            Self::AddJoinToken { id, token } => {
                ("join token added", id, format!("uses={}, node={}", token.uses, token.node))
            }
            Self::DeleteJoinToken { id } => ("join token removed", id, none),
        }
    }
}

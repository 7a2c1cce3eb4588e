//! The section of users, roles, keys and revoked tokens in the cluster's state.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::AccessChange;
use super::claims::is_foreign_token;
use super::join_token::{JoinTokenRecord, no_join_token};
use super::records::{ClusterEntry, RoleDefinition, S3KeyRecord, SigningKeyRecord, User};
use super::role::Role;
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;

/// Version of the section that this program writes, and the newest that it reads.
pub const SECTION_VERSION: u32 = 1;
/// Signing keys that verify tokens; adding another drops the oldest.
const MAX_SIGNING_KEYS: usize = 4;

/// Users, roles, keys and revoked tokens. Secrets in it are sealed or hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessState {
    /// Version of the section; 0: not in use.
    #[serde(deserialize_with = "supported_version")]
    pub version: u32,
    /// Version of the cluster's state that last changed this section.
    pub epoch: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, User>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleDefinition>,
    /// By access key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, S3KeyRecord>,
    /// The oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signing_keys: Vec<SigningKeyRecord>,
    /// Unix seconds until which a revoked token would be valid, by the id of the token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revoked: BTreeMap<String, u64>,
    /// Clusters that AIStore's tools registered, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clusters: BTreeMap<String, ClusterEntry>,
    /// By id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub join_tokens: BTreeMap<String, JoinTokenRecord>,
}

/// Refuses a section of a later version, of which this program could miss a restriction.
pub(super) fn supported_version<'de, D: Deserializer<'de>>(input: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(input)?;
    if version > SECTION_VERSION {
        return Err(D::Error::custom(format!(
            "a section of version {version}; this program reads {SECTION_VERSION}"
        )));
    }
    Ok(version)
}

impl AccessState {
    /// Whether no command has changed the section: it is absent in the stored state.
    pub fn is_untouched(&self) -> bool {
        self.version == 0
    }

    /// Whether requests need a user.
    pub fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Whether the role exists, as a role of every cluster or as a defined one.
    pub fn has_role(&self, name: &str) -> bool {
        Role::of_name(name).is_some() || self.roles.contains_key(name)
    }

    /// Whether the token with this id was revoked.
    pub fn is_revoked(&self, token: &str) -> bool {
        self.revoked.contains_key(token)
    }

    /// Whether a user and a token that a gateway accepted at `epoch` of this section are still valid. A
    /// foreign token may have a user that is not in the section.
    pub fn is_kept(&self, user: &str, token: &str, epoch: u64) -> bool {
        let is_of_user = match self.users.get(user) {
            Some(user) => epoch >= user.valid_from_epoch,
            None => is_foreign_token(token),
        };
        is_of_user && !self.is_revoked(token)
    }

    /// Applies a change logged at `index`. A refused change leaves the section as it was.
    pub fn apply(&mut self, index: u64, change: AccessChange, now_ns: u64) -> Result<()> {
        let had_admin = self.has_admin();
        let mut next = self.clone();
        next.change(change, index, now_ns)?;
        if (had_admin || next.has_users()) && !next.has_admin() {
            let text = "the cluster would have users, and none with the role admin";
            return Err(Error::new(ErrorCode::Conflict, text)
                .hint("give the role admin to another user first"));
        }
        (next.version, next.epoch) = (SECTION_VERSION, index);
        *self = next;
        Ok(())
    }

    /// The join token with this id, if the node may join by it now.
    pub fn check_join_token(&self, id: &str, node: &NodeId, now_s: u64) -> Result<()> {
        let token = self.join_tokens.get(id).filter(|token| token.admits(node, now_s));
        token.map(drop).ok_or_else(no_join_token)
    }

    /// Counts a join of the node by the token, which ends with its last use.
    pub(crate) fn use_join_token(&mut self, id: &str, node: &NodeId, now_s: u64) -> Result<()> {
        let token = self.join_tokens.get_mut(id).filter(|token| token.admits(node, now_s));
        let token = token.ok_or_else(no_join_token)?;
        token.uses -= 1;
        if token.uses == 0 {
            self.join_tokens.remove(id);
        }
        Ok(())
    }

    fn has_admin(&self) -> bool {
        self.users.values().any(|user| user.roles.iter().any(|role| self.is_admin_role(role)))
    }

    fn is_admin_role(&self, name: &str) -> bool {
        name == Role::Admin.name() || self.roles.get(name).is_some_and(|role| role.admin)
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut User> {
        self.users.get_mut(name).ok_or_else(|| not_found("user", name))
    }

    fn check_roles<'a>(&self, roles: impl IntoIterator<Item = &'a String>) -> Result<()> {
        match roles.into_iter().find(|role| !self.has_role(role)) {
            Some(role) => Err(not_found("role", role)),
            None => Ok(()),
        }
    }

    fn change(&mut self, change: AccessChange, index: u64, now_ns: u64) -> Result<()> {
        let now_s = now_ns / 1_000_000_000;
        match change {
            AccessChange::AddUser { name, user } => {
                self.check_roles(&user.roles)?;
                self.check_roles(user.bindings.iter().map(|b| &b.role))?;
                let user = User { created_ns: now_ns, ..*user };
                add(&mut self.users, "user", name, user)?;
            }
            AccessChange::SetUser { name, password, roles } => {
                self.check_roles(roles.iter().flatten())?;
                let user = self.user_mut(&name)?;
                if let Some(password) = password {
                    user.password = password;
                    (user.valid_from_s, user.valid_from_epoch) = (now_s, index);
                }
                user.roles = roles.unwrap_or_else(|| std::mem::take(&mut user.roles));
            }
            AccessChange::DeleteUser { name } => {
                self.users.remove(&name).ok_or_else(|| not_found("user", &name))?;
                self.keys.retain(|_, key| key.user != name);
            }
            AccessChange::Bind { user, binding } => {
                self.check_roles([&binding.role])?;
                let user = self.user_mut(&user)?;
                if !user.bindings.contains(&binding) {
                    user.bindings.push(binding);
                }
            }
            AccessChange::Unbind { user: name, binding } => {
                let user = self.user_mut(&name)?;
                let count = user.bindings.len();
                user.bindings.retain(|b| *b != binding);
                if user.bindings.len() == count {
                    let text = format!(
                        "user {name} has no binding of role {} to {}{}",
                        binding.role, binding.buckets, binding.prefix
                    );
                    return Err(Error::new(ErrorCode::AccountNotFound, text));
                }
            }
            AccessChange::AddRole { name, role } => {
                if Role::of_name(&name).is_some() {
                    return Err(exists("role", &name));
                }
                add(&mut self.roles, "role", name, *role)?;
            }
            AccessChange::SetRole { name, role } => {
                let known = self.roles.get_mut(&name).ok_or_else(|| not_found("role", &name))?;
                *known = *role;
            }
            AccessChange::DeleteRole { name } => {
                self.roles.remove(&name).ok_or_else(|| not_found("role", &name))?;
                for user in self.users.values_mut() {
                    user.roles.retain(|role| *role != name);
                    user.bindings.retain(|binding| binding.role != name);
                }
            }
            AccessChange::AddKey { access, key } => {
                self.user_mut(&key.user)?;
                let key = S3KeyRecord { created_ns: now_ns, ..key };
                add(&mut self.keys, "key", access, key)?;
            }
            AccessChange::DeleteKey { access } => {
                self.keys.remove(&access).ok_or_else(|| not_found("key", &access))?;
            }
            AccessChange::AddSigningKey { key } => {
                if self.signing_keys.len() >= MAX_SIGNING_KEYS {
                    self.signing_keys.remove(0);
                }
                self.signing_keys.push(SigningKeyRecord { created_ns: now_ns, ..key });
            }
            AccessChange::RevokeToken { id, expires_s } => {
                self.revoked.retain(|_, expiry| *expiry >= now_s);
                self.revoked.insert(id, expires_s);
            }
            AccessChange::RevokeUser { name } => {
                // Of the current second, too: a token has only the second of its issue.
                let user = self.user_mut(&name)?;
                (user.valid_from_s, user.valid_from_epoch) = (now_s + 1, index);
            }
            AccessChange::AddCluster { id, entry } => {
                add(&mut self.clusters, "cluster", id, entry)?;
            }
            AccessChange::SetCluster { id, entry } => {
                let known = self.clusters.get_mut(&id).ok_or_else(|| not_found("cluster", &id))?;
                *known = entry;
            }
            AccessChange::DeleteCluster { id } => {
                self.clusters.remove(&id).ok_or_else(|| not_found("cluster", &id))?;
            }
            AccessChange::AddJoinToken { id, token } => {
                self.join_tokens.retain(|_, known| !known.has_expired(now_s));
                let token = JoinTokenRecord { created_ns: now_ns, ..token };
                add(&mut self.join_tokens, "join token", id, token)?;
            }
            AccessChange::DeleteJoinToken { id } => {
                self.join_tokens.remove(&id).ok_or_else(|| not_found("join token", &id))?;
            }
        }
        Ok(())
    }
}

fn add<T>(map: &mut BTreeMap<String, T>, kind: &str, name: String, value: T) -> Result<()> {
    if map.contains_key(&name) {
        return Err(exists(kind, &name));
    }
    map.insert(name, value);
    Ok(())
}

// AIStore's SDK recognizes these errors by status and the words `user `, `role ` and `cluster `.
fn not_found(kind: &str, name: &str) -> Error {
    Error::new(ErrorCode::AccountNotFound, format!("{kind} \"{name}\" does not exist"))
}

fn exists(kind: &str, name: &str) -> Error {
    Error::new(ErrorCode::Conflict, format!("{kind} \"{name}\" already exists"))
}

#[cfg(test)]
#[path = "section/tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;

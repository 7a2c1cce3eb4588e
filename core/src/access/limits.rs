//! Size limits of the section of users: every node keeps it in memory.

use super::AccessChange;
use super::records::{RoleBinding, RoleDefinition, User};
use super::section::AccessState;
use crate::error::{Error, Result};
use crate::name::check_length;

const MAX_USERS: usize = 10_000;
const MAX_ROLES: usize = 1_000;
const MAX_KEYS: usize = 20_000;
/// Revoked tokens that have not expired yet.
const MAX_REVOKED: usize = 50_000;
const MAX_CLUSTERS: usize = 256;
/// Join tokens that have not expired yet.
const MAX_JOIN_TOKENS: usize = 256;
/// Longest name of a user; a service account of Kubernetes has up to 130.
const MAX_USER_BYTES: usize = 256;
const MAX_ROLE_BYTES: usize = 128;
const MAX_DESCRIPTION_BYTES: usize = 1024;
/// Roles and bindings of one user, and buckets of one role.
const MAX_ENTRIES: usize = 256;
const MAX_PATTERN_BYTES: usize = 256;
const MAX_PREFIX_BYTES: usize = 1024;
const MAX_SECRET_BYTES: usize = 1024;
const MAX_URL_BYTES: usize = 2048;

/// Checks the name of a new user: printable ASCII without blanks, quotes, `/`, `?`, `#`, `%` and
/// `*`.
pub fn check_user_name(name: &str) -> Result<()> {
    check_name("the name of a user", name, MAX_USER_BYTES)
}

fn check_name(what: &str, name: &str, limit: usize) -> Result<()> {
    check_length(what, name, limit)?;
    let is_allowed = |c: char| c.is_ascii_graphic() && !"\"'\\/?#%*<>".contains(c);
    if name.is_empty() || !name.chars().all(is_allowed) {
        return Err(Error::invalid(format!("{what} is \"{}\"", name.escape_debug())).hint(
            "use letters, digits and punctuation other than quotes, slashes, ?, #, %, *, < and >",
        ));
    }
    Ok(())
}

impl AccessChange {
    /// Returns an error if the change would add something that is too large or too numerous.
    /// Tokens that have expired by `now_ns`, the time of the change, do not count.
    pub fn check_limits(&self, state: &AccessState, now_ns: u64) -> Result<()> {
        let now_s = now_ns / 1_000_000_000;
        match self {
            Self::AddUser { name, user } => {
                check_user_name(name)?;
                check_user(user)?;
                check_count("users", state.users.len(), MAX_USERS)
            }
            Self::SetUser { password, roles, .. } => {
                let password = password.as_ref().map_or("", |password| password.as_str());
                check_length("the hash of a password", password, MAX_SECRET_BYTES)?;
                check_entries("the roles of a user", roles.as_ref().map_or(0, Vec::len))
            }
            Self::Bind { user, binding } => {
                check_binding(binding)?;
                let bound = state.users.get(user).map_or(0, |user| user.bindings.len());
                check_entries("the bindings of a user", bound + 1)
            }
            Self::AddRole { name, role } => {
                check_name("the name of a role", name, MAX_ROLE_BYTES)?;
                check_role(role)?;
                check_count("roles", state.roles.len(), MAX_ROLES)
            }
            Self::SetRole { role, .. } => check_role(role),
            Self::AddKey { access, key } => {
                check_name("the access key", access, MAX_ROLE_BYTES)?;
                check_length("the sealed secret key", key.secret.as_str(), MAX_SECRET_BYTES)?;
                check_count("keys", state.keys.len(), MAX_KEYS)
            }
            Self::AddSigningKey { key } => {
                check_length("the id of a signing key", &key.id, MAX_ROLE_BYTES)?;
                check_length("the public key", &key.public, MAX_SECRET_BYTES)?;
                check_length("the sealed private key", key.private.as_str(), MAX_SECRET_BYTES)
            }
            Self::RevokeToken { id, .. } => {
                check_length("the id of a token", id, MAX_USER_BYTES)?;
                let revoked = state.revoked.values().filter(|expires_s| **expires_s >= now_s);
                check_count("revoked tokens", revoked.count(), MAX_REVOKED).map_err(|e| {
                    e.hint(
                        "revoke all tokens of a user instead: `forebay auth token revoke --user`",
                    )
                })
            }
            Self::AddCluster { id, entry } | Self::SetCluster { id, entry } => {
                check_name("the id of a cluster", id, MAX_ROLE_BYTES)?;
                check_length("the alias of a cluster", &entry.alias, MAX_ROLE_BYTES)?;
                check_entries("the URLs of a cluster", entry.urls.len())?;
                for url in &entry.urls {
                    check_length("the URL of a cluster", url, MAX_URL_BYTES)?;
                }
                let known = usize::from(state.clusters.contains_key(id));
                check_count("registered clusters", state.clusters.len() - known, MAX_CLUSTERS)
            }
            Self::AddJoinToken { id, token } => {
                check_length("the id of a join token", id, MAX_ROLE_BYTES)?;
                check_length("the sealed join token", token.secret.as_str(), MAX_SECRET_BYTES)?;
                let valid = state.join_tokens.values().filter(|known| !known.has_expired(now_s));
                check_count("join tokens", valid.count(), MAX_JOIN_TOKENS)
            }
            Self::DeleteUser { .. }
            | Self::Unbind { .. }
            | Self::DeleteRole { .. }
            | Self::DeleteKey { .. }
            | Self::RevokeUser { .. }
            | Self::DeleteCluster { .. }
            | Self::DeleteJoinToken { .. } => Ok(()),
        }
    }
}

fn check_user(user: &User) -> Result<()> {
    check_length("the hash of a password", user.password.as_str(), MAX_SECRET_BYTES)?;
    check_entries("the roles of a user", user.roles.len())?;
    check_entries("the bindings of a user", user.bindings.len())?;
    user.bindings.iter().try_for_each(check_binding)
}

fn check_binding(binding: &RoleBinding) -> Result<()> {
    check_length("the pattern of buckets", &binding.buckets, MAX_PATTERN_BYTES)?;
    check_length("the prefix of a binding", &binding.prefix, MAX_PREFIX_BYTES)?;
    let whole = binding.buckets == "*" || binding.buckets.contains("://");
    if !whole {
        return Err(Error::invalid(format!(
            "the pattern of buckets \"{}\" has no provider",
            binding.buckets
        ))
        .hint("write provider://name, such as `ais://team-*`, or `*` for all buckets"));
    }
    Ok(())
}

fn check_role(role: &RoleDefinition) -> Result<()> {
    check_length("the description of a role", &role.description, MAX_DESCRIPTION_BYTES)?;
    check_entries("the clusters of a role", role.clusters.len())?;
    check_entries("the buckets of a role", role.buckets.len())?;
    for cluster in &role.clusters {
        check_length("the id of a cluster", &cluster.cluster, MAX_ROLE_BYTES)?;
    }
    for bucket in &role.buckets {
        let texts = [&bucket.cluster, &bucket.provider, &bucket.namespace, &bucket.name];
        for text in texts {
            check_length("a bucket of a role", text, MAX_PATTERN_BYTES)?;
        }
    }
    Ok(())
}

fn check_entries(what: &str, count: usize) -> Result<()> {
    if count <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} are {count}, the limit is {MAX_ENTRIES}")))
}

fn check_count(what: &str, count: usize, limit: usize) -> Result<()> {
    if count < limit {
        return Ok(());
    }
    Err(Error::invalid(format!("the cluster has {count} {what}, the limit is {limit}")))
}

//! The claims of a token, apart from its signature: whom it names, until when, and what it allows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decision::{UserAccess, unauthenticated};
use super::records::{BucketRights, ClusterRights, RoleDefinition};
use super::right::Rights;
use super::section::AccessState;
use crate::error::Result;

/// Longest lifetime of a token of this cluster, seconds.
pub const MAX_TOKEN_TTL_S: u64 = 366 * 24 * 3600;
/// Accepted difference between the clock of an issuer and of a node, seconds.
const LEEWAY_S: u64 = 60;
/// Roles that a foreign token may name; the others are ignored.
const MAX_ROLES: usize = 64;

/// The claims of a token of this cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// Id of the cluster.
    pub iss: String,
    /// Id of the cluster.
    pub aud: String,
    /// Name of the user.
    pub sub: String,
    /// Unix seconds.
    pub iat: u64,
    /// Unix seconds.
    pub exp: u64,
    /// Id of the token, for its revocation.
    pub jti: String,
    /// Epoch of the section of users when the token was issued.
    pub epoch: u64,
    /// For AIStore's tools; nodes of this cluster use the current roles of the user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// As `admin`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Value>,
    /// As `admin`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Value>,
}

/// The user of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIdentity {
    pub access: Arc<UserAccess>,
    /// Id of the token, by which it is revoked.
    pub token: String,
    /// Unix seconds until which the token is valid.
    pub expires_s: u64,
}

/// How the tokens of a foreign issuer are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerRules {
    /// Expected `iss`; empty: not checked.
    pub issuer: String,
    /// Expected among `aud`; empty: not checked.
    pub audience: String,
    /// Precedes the name of each user, so that it differs from the users of this cluster.
    pub user_prefix: String,
    pub user_claim: String,
    /// Claim with the names of roles; empty: tokens name no roles.
    pub roles_claim: String,
    /// Whether AIStore's claims `admin`, `clusters` and `buckets` count.
    pub aistore_claims: bool,
}

impl Claims {
    /// The user of a token of this cluster, whose signature is valid, with the current rights.
    pub fn identity(
        &self,
        state: &AccessState,
        cluster_id: &str,
        now_s: u64,
    ) -> Result<TokenIdentity> {
        let is_ours = !cluster_id.is_empty() && self.iss == cluster_id && self.aud == cluster_id;
        let is_current = now_s <= self.exp && self.iat <= now_s + LEEWAY_S;
        let is_lasting = self.exp.saturating_sub(self.iat) <= MAX_TOKEN_TTL_S;
        let user = state.users.get(&self.sub).ok_or_else(unauthenticated)?;
        let is_kept = self.iat >= user.valid_from_s && !state.is_revoked(&self.jti);
        if !(is_ours && is_current && is_lasting && is_kept) {
            return Err(unauthenticated());
        }
        let access = state.user_access(&self.sub, cluster_id).ok_or_else(unauthenticated)?;
        Ok(TokenIdentity { access: Arc::new(access), token: self.jti.clone(), expires_s: self.exp })
    }
}

/// The user of a foreign token, whose signature is valid. `token` is its id, by
/// [`token_text_id`].
pub fn foreign_identity(
    claims: &Value,
    token: &str,
    rules: &IssuerRules,
    state: &AccessState,
    cluster_id: &str,
    now_s: u64,
) -> Result<TokenIdentity> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    // RFC 7519 allows fractions of a second.
    let time = |name: &str| claims.get(name).and_then(Value::as_f64).map(|s| s.max(0.0) as u64);
    let is_issuer = rules.issuer.is_empty() || text("iss") == Some(&rules.issuer);
    let is_for_us = rules.audience.is_empty()
        || match claims.get("aud") {
            Some(Value::String(aud)) => *aud == rules.audience,
            Some(Value::Array(all)) => all.iter().any(|aud| aud == rules.audience.as_str()),
            _ => false,
        };
    let expires_s = time("exp").ok_or_else(unauthenticated)?;
    // A claim of another type is not the same as none.
    let starts = |name: &str| match claims.get(name) {
        None => true,
        Some(_) => time(name).is_some_and(|s| s <= now_s + LEEWAY_S),
    };
    let is_current = now_s <= expires_s.saturating_add(LEEWAY_S) && starts("nbf") && starts("iat");
    let name = text(&rules.user_claim).filter(|name| !name.is_empty());
    let name = format!("{}{}", rules.user_prefix, name.ok_or_else(unauthenticated)?);
    let known = state.users.get(&name);
    let is_kept = !state.is_revoked(token)
        && known.is_none_or(|user| time("iat").unwrap_or(0) >= user.valid_from_s);
    if !(is_issuer && is_for_us && is_current && is_kept) {
        return Err(unauthenticated());
    }
    let mut access = state.user_access(&name, cluster_id).unwrap_or_default();
    access.name = name;
    for role in roles(claims.get(&rules.roles_claim)).take(MAX_ROLES) {
        state.add_role(&mut access, role, cluster_id);
    }
    if rules.aistore_claims {
        aistore_role(claims).add_to(&mut access, cluster_id);
    }
    let expires_s = expires_s.saturating_add(LEEWAY_S);
    Ok(TokenIdentity { access: Arc::new(access), token: token.to_owned(), expires_s })
}

fn roles(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let (one, many) = match claim {
        Some(Value::String(text)) => (Some(text.as_str()), None),
        Some(Value::Array(all)) => (None, Some(all)),
        _ => (None, None),
    };
    let one = one.into_iter().flat_map(|text| text.split([' ', ',']));
    one.chain(many.into_iter().flatten().filter_map(Value::as_str))
}

/// The claims of AIStore as a role.
fn aistore_role(claims: &Value) -> RoleDefinition {
    let list = |name: &str| claims.get(name).and_then(Value::as_array).into_iter().flatten();
    let text = |value: &Value, path: &str| {
        value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let rights = |entry: &Value| Rights(text(entry, "/perm").parse().unwrap_or(0));
    RoleDefinition {
        admin: claims.get("admin").and_then(Value::as_bool).unwrap_or(false),
        clusters: list("clusters")
            .map(|entry| ClusterRights { cluster: text(entry, "/id"), rights: rights(entry) })
            .collect(),
        buckets: list("buckets")
            .map(|entry| BucketRights {
                cluster: text(entry, "/bck/namespace/uuid"),
                provider: text(entry, "/bck/provider"),
                namespace: text(entry, "/bck/namespace/name"),
                name: text(entry, "/bck/name"),
                rights: rights(entry),
            })
            .collect(),
        ..RoleDefinition::default()
    }
}

/// Prefix of the ids of foreign tokens. Ids of tokens of this cluster have no colon.
const TEXT_ID: &str = "sha256:";

/// The id by which a foreign token is revoked, from the SHA-256 of its text.
pub fn token_text_id(sha256: &[u8; 32]) -> String {
    format!("{TEXT_ID}{}", hex::encode(&sha256[..16]))
}

/// Whether this is the id of a foreign token.
pub(super) fn is_foreign_token(id: &str) -> bool {
    id.starts_with(TEXT_ID)
}

#[cfg(test)]
#[path = "claims/tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;

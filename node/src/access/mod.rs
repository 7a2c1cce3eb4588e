//! Determines the user of a request: tokens of this cluster and of other issuers, keys of the S3
//! API, and grants.

mod cache;
mod issuer;
mod jwks;
mod jws;
mod oidc;
mod password;
mod seal;
mod tokens;

use std::sync::Arc;

use forebay_core::access::{Access, TokenIdentity, unauthenticated};
use forebay_core::config::{AuthConfig, S3Config, S3Key};
use forebay_core::sign::GrantUser;
use forebay_core::state::ClusterState;
use forebay_core::{Error, Result};
use forebay_s3::auth::{Keys, SecretKey};

use self::cache::{CachedToken, TokenCache};
use self::issuer::Issuers;
pub use self::password::{hash_password, verify_password};
pub use self::seal::{Place, Sealer};
pub use self::tokens::{NewToken, new_signing_key, random_text};
use crate::clock::unix_s;
use crate::identity::Identity;
use crate::lifecycle::Lifecycle;
use crate::maps::Maps;

/// Names the first administrator where the configuration does not, as for AIStore's AuthN.
const ADMIN_VARIABLE: &str = "AIS_AUTHN_SU_NAME";
/// How long a checked grant is used without another check, seconds. It may be accepted for as long
/// after its expiry.
pub(crate) const GRANT_KEPT_S: u64 = 10;
/// Longest token that is read, bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Determines users; shared by all requests of a node.
#[derive(Debug)]
pub struct Authenticator {
    maps: Maps,
    sealer: Arc<Sealer>,
    /// Whether requests need a user even while the cluster has none.
    is_required: bool,
    /// Whether requests without a token are served as in a cluster without users.
    is_optional: bool,
    issuers: Issuers,
    tokens: TokenCache,
    grants: TokenCache,
    s3: S3Config,
}

impl Authenticator {
    /// Reads the keys of foreign issuers from their files. The keys of issuers with a URL are
    /// fetched by [`Self::follow_issuers`].
    pub fn new(auth: &AuthConfig, s3: &S3Config, me: &Identity, maps: &Maps) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            maps: maps.clone(),
            sealer: me.sealer.clone(),
            is_required: requires_users(auth),
            is_optional: auth.optional,
            issuers: Issuers::load(&auth.issuer)?,
            tokens: TokenCache::default(),
            grants: TokenCache::default(),
            s3: s3.clone(),
        }))
    }

    /// Fetches the keys of issuers with a URL until the node stops.
    pub fn follow_issuers(&self, lifecycle: &Lifecycle) {
        self.issuers.follow(lifecycle);
    }

    /// Whether requests need a user.
    pub fn is_enforced(&self, state: &ClusterState) -> bool {
        self.is_required || state.access.has_users()
    }

    /// The permissions of a request without a token.
    pub(crate) fn without_token(&self) -> Access {
        if self.is_optional { Access::Open } else { Access::Anonymous }
    }

    /// Whether requests without a token are refused.
    pub(crate) fn is_closed(&self, state: &ClusterState) -> bool {
        self.is_enforced(state) && !self.is_optional
    }

    pub fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// The user of a token. An invalid token is `Unauthenticated`, always with the same text;
    /// `Unavailable` if this node may have missed its revocation.
    pub fn token(&self, token: &str, state: &ClusterState) -> Result<Arc<TokenIdentity>> {
        self.check_lease()?;
        if token.len() > MAX_TOKEN_BYTES {
            return Err(unauthenticated());
        }
        let (hash, now_s) = (cache::hash(token.as_bytes()), unix_s());
        if let Some(known) = self.tokens.get(&hash, state.access.epoch, now_s) {
            return Ok(known);
        }
        let identity = Arc::new(self.verify(token, &hash, state, now_s)?);
        let (epoch, kept) = (state.access.epoch, identity.clone());
        self.tokens.put(hash, CachedToken { epoch, identity: kept });
        Ok(identity)
    }

    /// [`Self::token`] for the fast path: only a token that was checked already.
    pub(crate) fn known_token(
        &self,
        token: &[u8],
        state: &ClusterState,
    ) -> Option<Arc<TokenIdentity>> {
        if token.len() > MAX_TOKEN_BYTES || !self.maps.has_lease() {
            return None;
        }
        self.tokens.get(&cache::hash(token), state.access.epoch, unix_s())
    }

    /// The user of a grant, for the fast path: only a grant that [`Self::granted`] accepted a short
    /// while ago.
    pub(crate) fn known_grant(
        &self,
        grant: &[u8],
        state: &ClusterState,
    ) -> Option<Arc<TokenIdentity>> {
        if grant.len() > MAX_TOKEN_BYTES || !self.maps.has_lease() {
            return None;
        }
        self.grants.get(&cache::hash(grant), state.access.epoch, unix_s())
    }

    /// Returns an error if this node may have missed a revocation.
    pub(crate) fn check_lease(&self) -> Result<()> {
        if self.maps.has_lease() {
            return Ok(());
        }
        Err(Error::unavailable("this node may have missed that a token was revoked").retry_after(1))
    }

    /// Returns an error if this node may lack an access key that exists: it has just started, or has lost
    /// the cluster.
    pub(crate) fn check_keys(&self, state: &ClusterState) -> Result<()> {
        if state.version > 0 && self.maps.has_lease() {
            return Ok(());
        }
        Err(Error::unavailable("this node does not have the cluster's users yet").retry_after(1))
    }

    fn verify(
        &self,
        token: &str,
        hash: &[u8; 32],
        state: &ClusterState,
        now_s: u64,
    ) -> Result<TokenIdentity> {
        let parsed = jws::Jws::parse(token).ok_or_else(unauthenticated)?;
        if let Some(claims) = tokens::own_claims(&parsed, &state.access) {
            return claims.identity(&state.access, &state.cluster_id, now_s);
        }
        self.issuers.identity(&parsed, hash, state, now_s)
    }

    /// The permissions of a user of the S3 API. Users of keys in the configuration, who are unknown to the
    /// cluster, have the rights that S3's own rules give them.
    pub fn s3_user(&self, user: &str, state: &ClusterState) -> Access {
        match state.access.user_access(user, &state.cluster_id) {
            Some(access) => Access::User(Arc::new(access)),
            None if self.configured_keys(state).any(|key| key.user() == user) => Access::Open,
            None => Access::Anonymous,
        }
    }

    /// The user of an access key.
    pub fn s3_user_of(&self, access_key: &str) -> Option<String> {
        let state = self.maps.load();
        let mut configured = self.configured_keys(&state);
        if let Some(key) = configured.find(|key| key.access == access_key) {
            return Some(key.user().to_owned());
        }
        state.access.keys.get(access_key).map(|key| key.user.clone())
    }

    /// The keys in the configuration that count: published ones do not while requests need a user.
    fn configured_keys(&self, state: &ClusterState) -> impl Iterator<Item = &S3Key> {
        let is_enforced = self.is_enforced(state);
        self.s3.keys().iter().filter(move |key| !(is_enforced && key.is_published()))
    }

    /// The user that a grant names, whose text is `grant`, with the current rights. `None`: the grant
    /// was revoked with its token or user.
    pub(crate) fn granted(
        &self,
        grant: &[u8],
        named: &GrantUser,
        state: &ClusterState,
    ) -> Result<Option<Arc<TokenIdentity>>> {
        self.check_lease()?;
        let GrantUser { user, token, epoch } = named;
        if *epoch > state.access.epoch {
            let text = "this node does not yet have the users that the grant was made for";
            return Err(Error::unavailable(text).retry_after(1));
        }
        if !state.access.is_kept(user, token, *epoch) {
            return Ok(None);
        }
        let Some(access) = state.access.user_access(user, &state.cluster_id) else {
            return Ok(None);
        };
        let (access, expires_s) = (Arc::new(access), unix_s() + GRANT_KEPT_S);
        let identity = Arc::new(TokenIdentity { access, token: token.clone(), expires_s });
        let kept = CachedToken { epoch: state.access.epoch, identity: identity.clone() };
        self.grants.put(cache::hash(grant), kept);
        Ok(Some(identity))
    }

    /// Whether the user and token of a redirect are still valid. `Unavailable` if this node may have
    /// missed a revocation.
    pub(crate) fn is_kept(&self, named: &GrantUser, state: &ClusterState) -> Result<bool> {
        self.check_lease()?;
        let GrantUser { user, token, epoch } = named;
        // The gateway may have accepted them by a later state. A node with a lease soon has that state,
        // too, and clients of redirects do not try again.
        Ok(*epoch > state.access.epoch || state.access.is_kept(user, token, *epoch))
    }
}

impl Keys for Authenticator {
    fn secret(&self, access_key: &str) -> Option<SecretKey> {
        let state = self.maps.load();
        let mut configured = self.configured_keys(&state);
        if let Some(key) = configured.find(|key| key.access == access_key) {
            return Some(SecretKey::new(key.secret.clone()));
        }
        let key = state.access.keys.get(access_key)?;
        self.sealer.open_text(Place::S3Key(access_key), &key.secret).map(SecretKey::new)
    }
}

/// Name of the administrator that this configuration, or the environment, creates.
pub fn first_admin(auth: &AuthConfig) -> Option<String> {
    match auth.admin.as_str() {
        "" => std::env::var(ADMIN_VARIABLE).ok().filter(|name| !name.is_empty()),
        name => Some(name.to_owned()),
    }
}

/// Whether a node with this configuration refuses requests without a user, also before the first
/// user exists.
pub fn requires_users(auth: &AuthConfig) -> bool {
    auth.required || (!auth.optional && first_admin(auth).is_some())
}

/// The token of an `Authorization: Bearer` header.
pub fn bearer(authorization: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(authorization).ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;

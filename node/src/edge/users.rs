//! The permissions of the sender of a request, once its proofs are checked.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use forebay_core::access::{Access, TokenIdentity};
use forebay_core::request::{Caller, Principal, Protocol};
use forebay_core::sign::GrantUser;
use forebay_core::state::ClusterState;
use forebay_core::{ErrorCode, Result};
use forebay_s3::auth::{self, Identity};
use forebay_s3::{Front, RequestHead, S3Code};

use super::Edge;
use crate::access::{Authenticator, bearer};
use crate::clock::unix_s;
use crate::s3::USER;

/// Header in which S3 clients send a token, as to AIStore.
const S3_TOKEN_HEADER: &str = "x-amz-security-token";

/// Paths of users, roles, keys and tokens. Requests for them need a token also while tokens are
/// optional: a right that a stranger takes meanwhile would outlast the migration.
const ACCOUNT_PATHS: [&str; 6] =
    ["/api/v1/auth/", "/v1/users", "/v1/roles", "/v1/clusters", "/v1/tokens", "/v1/rotate-key"];

/// The permissions of a sender, and the user and token that they come from.
#[derive(Debug)]
pub(super) struct Permissions {
    pub(super) access: Access,
    user: Option<Arc<GrantUser>>,
}

impl From<Access> for Permissions {
    fn from(access: Access) -> Self {
        Self { access, user: None }
    }
}

impl Permissions {
    /// The permissions of a user that was verified by this state.
    fn of(identity: &TokenIdentity, state: &ClusterState) -> Self {
        let TokenIdentity { access, token, .. } = identity;
        let (user, token, epoch) = (access.name.clone(), token.clone(), state.access.epoch);
        let user = Some(Arc::new(GrantUser { user, token, epoch }));
        Self { access: Access::User(access.clone()), user }
    }

    /// The sender with these permissions. The user of a redirect stays.
    pub(super) fn given_to(self, sender: Principal) -> Principal {
        Principal { access: self.access, user: self.user.or(sender.user), ..sender }
    }
}

impl Edge {
    /// Whether requests need a user.
    pub(super) fn needs_user(&self, state: &ClusterState) -> bool {
        self.users.as_ref().is_some_and(|users| users.is_closed(state))
    }

    /// The permissions of the sender. A request without a valid proof of its user is `Anonymous`; the route
    /// decides what that allows. `Unavailable`: this node may have missed a revocation.
    pub(super) fn permissions(
        &self,
        protocol: Protocol,
        request: &Request,
        sender: &Principal,
        grant: Option<&[u8]>,
    ) -> Result<Permissions> {
        let Some(users) = &self.users else { return Ok(Access::Open.into()) };
        let state = self.maps.load();
        if !users.is_enforced(&state) {
            return Ok(Access::Open.into());
        }
        let headers = request.headers();
        match sender.caller {
            Caller::Node => return Ok(Access::Open.into()),
            Caller::Redirected => return redirected_access(users, sender, &state).map(Into::into),
            Caller::S3Relay => {
                if let Some(user) = headers.get(&USER).and_then(|user| user.to_str().ok()) {
                    return Ok(users.s3_user(user, &state).into());
                }
            }
            Caller::Client | Caller::Anonymous => {}
        }
        if protocol.is_s3() {
            return self.s3_access(users, &state, protocol, request);
        }
        let authorization = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        if let Some(token) = authorization.and_then(bearer) {
            if self.granted_user(token.as_bytes()) == Some(GrantUser::node()) {
                return Ok(Access::Open.into());
            }
            return of_token(users, token, &state);
        }
        let named = grant.and_then(|grant| Some((grant, self.granted_user(grant)?)));
        let Some((grant, named)) = named else {
            let path = request.uri().path();
            let is_of_accounts = ACCOUNT_PATHS.iter().any(|prefix| path.starts_with(prefix));
            let access = if is_of_accounts { Access::Anonymous } else { users.without_token() };
            return Ok(access.into());
        };
        Ok(match users.granted(grant, &named, &state)? {
            Some(identity) => Permissions::of(&identity, &state),
            None => Access::Anonymous.into(),
        })
    }

    /// [`Self::permissions`] for the fast path, with the Unix second until which they are valid in this
    /// state. `None`: only [`Self::permissions`] can decide.
    pub(super) fn quick_permissions(
        &self,
        sender: &Principal,
        grant: Option<&[u8]>,
        authorization: Option<&[u8]>,
    ) -> Option<(Permissions, u64)> {
        let Some(users) = &self.users else { return Some((Access::Open.into(), u64::MAX)) };
        let state = self.maps.load();
        if !users.is_enforced(&state) {
            return Some((Access::Open.into(), u64::MAX));
        }
        if sender.caller == Caller::Redirected {
            let access = redirected_access(users, sender, &state).ok()?;
            return Some((access.into(), u64::MAX));
        }
        let known = match (authorization.and_then(bearer), grant) {
            (Some(token), _) => users.known_token(token.as_bytes(), &state)?,
            (None, Some(grant)) => users.known_grant(grant, &state)?,
            (None, None) => return Some((users.without_token().into(), u64::MAX)),
        };
        Some((Permissions::of(&known, &state), known.expires_s))
    }

    fn granted_user(&self, grant: &[u8]) -> Option<GrantUser> {
        let grant = std::str::from_utf8(grant).ok()?;
        self.trust(&self.maps.load()).verify_user_grant(grant, unix_s())
    }

    /// The sender of an S3 request: by a token, or by its signature.
    fn s3_access(
        &self,
        users: &Authenticator,
        state: &ClusterState,
        protocol: Protocol,
        request: &Request,
    ) -> Result<Permissions> {
        if let Some(token) = s3_token(request.headers()) {
            return of_token(users, token, state);
        }
        let prefixed = Front::new("/s3", self.s3.domains.clone());
        let front = if protocol == Protocol::S3Prefixed { &prefixed } else { &self.s3 };
        let head = RequestHead {
            method: request.method(),
            path: request.uri().path(),
            query: request.uri().query().unwrap_or(""),
            headers: request.headers(),
        };
        match auth::authenticate(&head, front, users, unix_s()).map(|caller| caller.identity) {
            Ok(Identity::Key(key)) => {
                users.check_lease()?;
                let user = users.s3_user_of(&key);
                let access = user.map_or(Access::Anonymous, |user| users.s3_user(&user, state));
                Ok(access.into())
            }
            Err(e) if e.code == S3Code::InvalidAccessKeyId => {
                users.check_keys(state)?;
                Ok(Access::Anonymous.into())
            }
            // The S3 front checks the signature again and names the error.
            Ok(Identity::Anonymous) | Err(_) => Ok(Access::Anonymous.into()),
        }
    }
}

/// The permissions of a redirected request. The gateway that signed the redirect authorized this very
/// request; only the token of its user may have been revoked since.
fn redirected_access(
    users: &Authenticator,
    sender: &Principal,
    state: &ClusterState,
) -> Result<Access> {
    let is_kept = match &sender.user {
        Some(user) => users.is_kept(user, state)?,
        None => true,
    };
    Ok(if is_kept { Access::Open } else { Access::Anonymous })
}

fn of_token(users: &Authenticator, token: &str, state: &ClusterState) -> Result<Permissions> {
    match users.token(token, state) {
        Ok(identity) => Ok(Permissions::of(&identity, state)),
        Err(e) if e.code == ErrorCode::Unauthenticated => Ok(Access::Anonymous.into()),
        Err(e) => Err(e),
    }
}

/// The token of an S3 request. A session token of AWS is no token of three parts.
pub(crate) fn s3_token(headers: &HeaderMap) -> Option<&str> {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let own = || headers.get(S3_TOKEN_HEADER).and_then(|value| value.to_str().ok());
    sent.or_else(own).filter(|token| token.split('.').count() == 3)
}

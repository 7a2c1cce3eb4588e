//! Users, roles, keys and tokens: the changes behind AIStore's AuthN API and the native one.

mod bootstrap;

use std::sync::{Arc, Mutex};

use forebay_core::access::{
    AccessChange, Claims, JoinTokenRecord, JoinTokenReply, JoinTokenRequest, LoginLimiter,
    MAX_TOKEN_TTL_S, Right, Role, S3KeyRecord, Scope, unauthenticated,
};
use forebay_core::audit::Reason;
use forebay_core::config::AuthConfig;
use forebay_core::locks::MutexExt;
use forebay_core::request::RequestContext;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::access::{
    Authenticator, NewToken, Place, new_signing_key, random_text, verify_password,
};
use forebay_node::audit::Event;
use forebay_node::clock::{unix_ns, unix_s};
use forebay_node::maps::Maps;
use forebay_node::sender;
use forebay_v1::authn::RoleMessage;
use serde_json::to_value;
use tokio::sync::Semaphore;

use crate::changes::Changes;

/// Logins whose password is hashed at once; further ones wait.
const PARALLEL_HASHES: usize = 2;
/// Begins the text of a join token, so that people and scanners of secrets recognize it.
const JOIN_TOKEN_PREFIX: &str = "fbj-";
/// AIStore's SDK recognizes a failed login by these words.
const BAD_LOGIN: &str = "invalid credentials: user or password is wrong";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Accounts {
    maps: Maps,
    changes: Changes,
    users: Arc<Authenticator>,
    config: Arc<AuthConfig>,
    limiter: Arc<Mutex<LoginLimiter>>,
    hashes: Arc<Semaphore>,
    /// Held while a signing key is made, so that two requests do not make two.
    making_key: Arc<tokio::sync::Mutex<()>>,
}

impl Accounts {
    pub(crate) fn new(
        maps: Maps,
        changes: Changes,
        users: Arc<Authenticator>,
        config: AuthConfig,
    ) -> Self {
        Self {
            maps,
            changes,
            users,
            config: Arc::new(config),
            limiter: Arc::default(),
            hashes: Arc::new(Semaphore::new(PARALLEL_HASHES)),
            making_key: Arc::default(),
        }
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.maps.load()
    }

    pub(crate) fn users(&self) -> &Authenticator {
        &self.users
    }

    /// Returns an error unless the sender is an administrator, or the cluster is open.
    pub(crate) fn require_admin(&self, about: &RequestContext) -> Result<()> {
        about.access().require(&[Right::Admin], Scope::Cluster)
    }

    pub(crate) async fn change(&self, change: AccessChange) -> Result<()> {
        let command = Command::Access { change: Box::new(change), now_ns: unix_ns() };
        self.changes.commit(command).await.map(drop)
    }

    /// Runs the hash of a password beside the threads of requests.
    pub(crate) async fn hashed<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let failed = || Error::internal("hashing a password failed");
        let _permit = self.hashes.acquire().await.map_err(|_| failed())?;
        tokio::task::spawn_blocking(work).await.map_err(|_| failed())
    }

    /// Checks a password and issues a token. One answer for an unknown user and a wrong password,
    /// after the same work.
    pub(crate) async fn login(
        &self,
        name: &str,
        password: String,
        ttl_s: Option<u64>,
    ) -> Result<NewToken> {
        // Of the client, or of the node that forwarded the request.
        let address = sender::origin().from;
        let wait_s = self.limiter.locked().wait_s(name, &address, unix_s());
        if wait_s > 0 {
            let text = "too many failed logins";
            return Err(Error::new(ErrorCode::TooManyRequests, text).retry_after(wait_s as u32));
        }
        // Counted before the work, so that parallel attempts count too.
        self.limiter.locked().failed(name, &address, unix_s());
        let state = self.state();
        let known = state.access.users.get(name).map(|user| user.password.clone());
        let is_right = self.hashed(move || verify_password(&password, known.as_ref())).await?;
        if !is_right {
            let e = Error::new(ErrorCode::Unauthenticated, BAD_LOGIN);
            self.record_login(name, Some(&e));
            return Err(e);
        }
        self.limiter.locked().succeeded(name, &address);
        self.record_login(name, None);
        self.issue(name, ttl_s).await
    }

    fn record_login(&self, name: &str, error: Option<&Error>) {
        // Names of users that do not exist may be passwords that were typed into the wrong field.
        let known = self.state().access.users.contains_key(name);
        sender::record(Event {
            event: "login",
            subject: if known { name } else { "unknown user" },
            detail: "",
            refused: error.map(Reason::from),
            map_version: None,
        });
    }

    /// Issues a token for a user of the cluster. `ttl_s`: `None` for the configured lifetime; it is
    /// limited to [`MAX_TOKEN_TTL_S`].
    pub(crate) async fn issue(&self, name: &str, ttl_s: Option<u64>) -> Result<NewToken> {
        self.ensure_signing_key().await?;
        let state = self.state();
        let access = &state.access;
        let user = access.users.get(name).ok_or_else(|| no_user(name))?;
        let now = unix_s();
        let ttl_s = ttl_s.unwrap_or(self.config.token_ttl_s.into()).clamp(1, MAX_TOKEN_TTL_S);
        let roles =
            user.roles.iter().filter_map(|role| RoleMessage::of(access, role, &state.cluster_id));
        let mut claims = Claims {
            iss: state.cluster_id.clone(),
            aud: state.cluster_id.clone(),
            sub: name.to_owned(),
            // Tokens of the second of a revocation begin after it.
            iat: now.max(user.valid_from_s),
            exp: now + ttl_s,
            jti: random_text(16),
            epoch: access.epoch,
            ..Claims::default()
        };
        for role in roles {
            claims.admin |= role.admin;
            claims.clusters.extend(role.clusters.iter().filter_map(|c| to_value(c).ok()));
            claims.buckets.extend(role.buckets.iter().filter_map(|b| to_value(b).ok()));
        }
        NewToken::sign(claims, access, self.users.sealer())
    }

    async fn ensure_signing_key(&self) -> Result<()> {
        let _turn = self.making_key.lock().await;
        if self.state().access.signing_keys.is_empty() {
            return self.rotate_signing_key().await;
        }
        Ok(())
    }

    /// Adds a key pair, which signs from now on. Tokens of the last few keys stay valid.
    pub(crate) async fn rotate_signing_key(&self) -> Result<()> {
        let key = new_signing_key(self.users.sealer())?;
        self.change(AccessChange::AddSigningKey { key }).await
    }

    /// Revokes a token, given as its text. Everybody who has a token may revoke it; a text that is
    /// no valid token is an error.
    pub(crate) async fn revoke(&self, token: &str) -> Result<()> {
        let identity = self.users.token(token, &self.state())?;
        let (id, expires_s) = (identity.token.clone(), identity.expires_s);
        self.change(AccessChange::RevokeToken { id, expires_s }).await
    }

    /// Makes a token by which targets may join that have no secret of the cluster.
    pub(crate) async fn create_join_token(
        &self,
        asked: &JoinTokenRequest,
    ) -> Result<JoinTokenReply> {
        let (ttl_s, uses) = asked.checked()?;
        if !self.state().node_keys.are_required() {
            let text = "this cluster does not have the keys of all nodes";
            return Err(Error::new(ErrorCode::Conflict, text).hint(
                "a join token needs users: add one, start all nodes, and try again; \
                 without users, a target joins by cluster.secret_file",
            ));
        }
        let id = random_text(9);
        let token = format!("{JOIN_TOKEN_PREFIX}{id}-{}", random_text(32));
        let secret = self.users.sealer().seal(Place::JoinToken(&id), token.as_bytes())?;
        let (expires_s, node) = (unix_s() + ttl_s, asked.node.clone());
        let record = JoinTokenRecord { secret, node, uses, expires_s, created_ns: 0 };
        self.change(AccessChange::AddJoinToken { id: id.clone(), token: record }).await?;
        Ok(JoinTokenReply { id, token, expires_s })
    }

    /// Makes a key of the S3 API. Returns the access key and the secret key, which cannot be read
    /// again.
    pub(crate) async fn create_key(&self, user: &str) -> Result<(String, String)> {
        let access = format!("FB{}", random_text(15).to_ascii_uppercase());
        let secret = random_text(30);
        let sealed = self.users.sealer().seal(Place::S3Key(&access), secret.as_bytes())?;
        let key = S3KeyRecord { user: user.to_owned(), secret: sealed, created_ns: 0 };
        self.change(AccessChange::AddKey { access: access.clone(), key }).await?;
        Ok((access, secret))
    }

    /// Names of all roles: those of every cluster first.
    pub(crate) fn role_names(&self) -> Vec<String> {
        let builtin = Role::ALL.into_iter().map(|role| role.name().to_owned());
        builtin.chain(self.state().access.roles.keys().cloned()).collect()
    }

    /// The name of the user of a request; an error for requests without one.
    pub(crate) fn user_of<'a>(&self, about: &'a RequestContext) -> Result<&'a str> {
        about.access().user().ok_or_else(unauthenticated)
    }
}

pub(crate) fn no_user(name: &str) -> Error {
    Error::new(ErrorCode::AccountNotFound, format!("user \"{name}\" does not exist"))
}

/// The error for a role that does not exist.
pub(crate) fn no_role(name: &str) -> Error {
    Error::new(ErrorCode::AccountNotFound, format!("role \"{name}\" does not exist"))
}

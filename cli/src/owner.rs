//! The user that started a cluster with `dev` or `serve`: the token and the keys of the S3 API that
//! this user's clients need while the cluster has users.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_client::tls::TlsClient;
use forebay_core::access::{RevokeRequest, Role, TokenReply, TokenRequest, UserInfo, UserRequest};
use forebay_core::config::{AuthConfig, S3Config, S3Key};
use forebay_core::{Error, ErrorCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::node::{Stopped, exit};
use crate::probe::OwnNode;
use crate::{home, probe};

/// Name of the administrator of `serve --private`.
pub(crate) const OWNER: &str = "owner";
/// Lifetime of a token, seconds. Each start makes another one.
const TOKEN_TTL_S: u64 = 366 * 24 * 3600;
/// Letters of a secret key.
const SECRET_KEY_LETTERS: usize = 40;
/// Pause after a failed try, for example because the gateway has no leader yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of all requests together.
const WITHIN: Duration = Duration::from_secs(30);
/// Variable with the name of the first administrator, as in AIStore.
const ADMIN_VARIABLE: &str = "AIS_AUTHN_SU_NAME";

/// A user with a token.
#[derive(Debug)]
pub(crate) struct Owner {
    user: String,
    token: String,
    token_file: PathBuf,
}

/// The first administrator that the settings or the environment name.
pub(crate) fn first_admin(auth: &AuthConfig) -> Option<String> {
    let variable = || std::env::var(ADMIN_VARIABLE).ok().filter(|name| !name.is_empty());
    if auth.admin.is_empty() { variable() } else { Some(auth.admin.clone()) }
}

/// Adds keys of the S3 API with new secrets, unless the settings mention keys: those of the two users of
/// trial clusters, and one of the administrator.
pub(crate) fn add_private_keys(s3: &mut S3Config, admin: Option<&str>) {
    if s3.keys.is_some() {
        return;
    }
    s3.with_trial_keys();
    let mut keys = s3.keys().to_vec();
    keys.extend(admin.map(key_of));
    for key in &mut keys {
        key.secret = home::random_word(SECRET_KEY_LETTERS);
    }
    s3.keys = Some(keys);
}

/// A new key of the S3 API for this user.
pub(crate) fn key_of(user: &str) -> S3Key {
    S3Key {
        access: format!("FB{}", home::random_word(18).to_ascii_uppercase()),
        secret: home::random_word(SECRET_KEY_LETTERS),
        user: Some(user.to_owned()),
    }
}

/// The keys that work: published ones do not in a cluster with users.
pub(crate) fn usable_keys(s3: &S3Config, has_users: bool) -> Vec<&S3Key> {
    s3.keys().iter().filter(|key| !(has_users && key.is_published())).collect()
}

/// Path of the file with the token.
fn token_file(dir: &Path) -> PathBuf {
    dir.join("token")
}

/// Removes the token of an earlier start.
pub(crate) fn remove_token(dir: &Path) -> Result<(), Stopped> {
    home::remove(&token_file(dir))
}

/// A gateway, as the command that runs its cluster.
struct Gateway<'a> {
    tls: &'a TlsClient,
    url: &'a str,
    /// Of [`probe::proofs`].
    proofs: Vec<String>,
}

impl Gateway<'_> {
    async fn call(&self, line: &str, message: &impl Serialize) -> io::Result<(u16, Vec<u8>)> {
        let body = serde_json::to_vec(message)?;
        let answer = probe::send_proven(self.tls, self.url, line, &self.proofs, &body).await?;
        Ok((answer.status, answer.body))
    }

    async fn users(&self) -> io::Result<Vec<UserInfo>> {
        let line = "GET /api/v1/auth/users";
        let answer = probe::send_proven(self.tls, self.url, line, &self.proofs, b"").await?;
        match answer.status {
            200 => Ok(serde_json::from_slice(&answer.body)?),
            status => Err(refused(line, status, &answer.body)),
        }
    }

    async fn add_owner(&self) -> io::Result<()> {
        let line = "POST /api/v1/auth/users";
        let roles = Some(vec![Role::Admin.name().to_owned()]);
        let owner = UserRequest { name: OWNER.to_owned(), password: None, roles };
        match self.call(line, &owner).await? {
            (200, _) => Ok(()),
            (status, body) => Err(refused(line, status, &body)),
        }
    }

    /// Makes the earlier tokens of a user invalid: a program that had the port of this server while it
    /// did not run may have got one.
    async fn revoke(&self, user: &str) -> io::Result<()> {
        let line = "DELETE /api/v1/auth/tokens";
        let message = RevokeRequest { token: String::new(), user: user.to_owned() };
        match self.call(line, &message).await? {
            (200, _) => Ok(()),
            (status, body) => Err(refused(line, status, &body)),
        }
    }

    async fn token(&self, user: &str) -> io::Result<String> {
        let line = "POST /api/v1/auth/tokens";
        let message = TokenRequest { user: user.to_owned(), ttl_s: Some(TOKEN_TTL_S) };
        match self.call(line, &message).await? {
            (200, body) => Ok(serde_json::from_slice::<TokenReply>(&body)?.token),
            (status, body) => Err(refused(line, status, &body)),
        }
    }

    async fn private_token(&self) -> io::Result<(String, String)> {
        if self.users().await?.iter().any(|user| user.name == OWNER) {
            self.revoke(OWNER).await?;
        } else {
            self.add_owner().await?;
        }
        Ok((OWNER.to_owned(), self.token(OWNER).await?))
    }

    /// A token of an administrator; `None` while the cluster has no users and expects none.
    async fn admin_token(&self, expected: Option<&str>) -> io::Result<Option<(String, String)>> {
        let users = self.users().await?;
        let is_admin = |user: &&UserInfo| user.roles.iter().any(|r| r == Role::Admin.name());
        let named = users.iter().find(|user| Some(user.name.as_str()) == expected);
        match named.or_else(|| users.iter().find(is_admin)) {
            Some(user) => Ok(Some((user.name.clone(), self.token(&user.name).await?))),
            None if expected.is_some() && users.is_empty() => {
                Err(io::Error::other("the first administrator does not exist yet"))
            }
            None => Ok(None),
        }
    }
}

fn refused(line: &str, status: u16, body: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(&body[..body.len().min(500)]);
    io::Error::other(format!("{line}: status {status}: {text}"))
}

impl Owner {
    /// Makes the administrator of `serve --private` and a token, and writes the token into `dir`.
    pub(crate) async fn of_private(
        tls: &TlsClient,
        gateway: &str,
        own: OwnNode<'_>,
        dir: &Path,
    ) -> Result<Self, Stopped> {
        let gateway = gateway_of(tls, gateway, own)?;
        let (user, token) = retried(|| gateway.private_token()).await?;
        Self::keep(user, token, dir)
    }

    /// A token of an administrator of this cluster, which it writes into `dir`. `None`: the cluster has
    /// no users. With `expected`, it waits for the first one.
    pub(crate) async fn of_cluster(
        tls: &TlsClient,
        gateway: &str,
        own: OwnNode<'_>,
        dir: &Path,
        expected: Option<&str>,
    ) -> Result<Option<Self>, Stopped> {
        let gateway = gateway_of(tls, gateway, own)?;
        let found = retried(|| gateway.admin_token(expected)).await?;
        found.map(|(user, token)| Self::keep(user, token, dir)).transpose()
    }

    fn keep(user: String, token: String, dir: &Path) -> Result<Self, Stopped> {
        let token_file = token_file(dir);
        home::write(&token_file, format!("{token}\n").as_bytes(), 0o600)?;
        Ok(Self { user, token, token_file })
    }

    /// The shell command by which clients find the token, with its line end.
    pub(crate) fn export(&self) -> String {
        format!("  export FOREBAY_TOKEN_FILE={}\n", self.token_file.display())
    }

    /// Adds the user and the token to a description of the cluster.
    pub(crate) fn describe(&self, description: &mut Value) {
        description["user"] = json!(self.user);
        description["token"] = json!(self.token);
        description["token_file"] = json!(self.token_file);
    }
}

fn gateway_of<'a>(
    tls: &'a TlsClient,
    url: &'a str,
    own: OwnNode<'_>,
) -> Result<Gateway<'a>, Stopped> {
    let proofs = probe::proofs(own);
    if proofs.is_empty() {
        let text = format!("cannot read the cluster's secret in {}", own.secret.display());
        return Err(Stopped::new(exit::FAILED, Error::internal(text)));
    }
    Ok(Gateway { tls, url, proofs })
}

/// Tries until it succeeds or the time has passed.
async fn retried<T, F: Future<Output = io::Result<T>>>(
    attempt: impl Fn() -> F,
) -> Result<T, Stopped> {
    let end = tokio::time::Instant::now() + WITHIN;
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(e) if tokio::time::Instant::now() >= end => {
                let text = format!("no token for the user that started the cluster: {e}");
                return Err(Stopped::new(exit::FAILED, Error::new(ErrorCode::Unavailable, text)));
            }
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_with_users_has_no_published_keys() {
        let mut s3 = S3Config::default();
        add_private_keys(&mut s3, Some("root"));
        assert!(!s3.has_published_key());
        let users: Vec<_> = s3.keys().iter().map(S3Key::user).collect();
        assert_eq!(users, ["forebay", "forebay2", "root"]);
        let mut own = S3Config { keys: Some(Vec::new()), ..S3Config::default() };
        add_private_keys(&mut own, None);
        assert!(own.keys().is_empty(), "keys of the settings stay");
    }
}

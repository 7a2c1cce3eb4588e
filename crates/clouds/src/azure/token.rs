//! Tokens of Entra ID, kept for as long as they last.
//!
//! Microsoft's crate requests a new token with every request once the old one has less than five
//! minutes left, holds all other requests meanwhile, and waits without a timeout. Here a token is
//! renewed in the background, so the token service may be unreachable until the last token expires.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::Result;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::time::OffsetDateTime;
use forebay_core::locks::MutexExt;
use tokio::time::{Instant, timeout};

use crate::place::first_line;

/// Longest wait for a token.
const ANSWER: Duration = Duration::from_secs(10);
/// Pause after a failed attempt to renew.
const PAUSE: Duration = Duration::from_secs(1);
/// A token is renewed this long before it expires, or after half its lifetime where that is
/// shorter.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// A token that expires sooner may be rejected when it arrives.
const TOO_SHORT: Duration = Duration::from_secs(2);

/// An identity whose tokens, all of one scope, are kept. See the module.
#[derive(Debug)]
pub(super) struct Kept(Arc<Keeper>);

#[derive(Debug)]
struct Keeper {
    identity: Arc<dyn TokenCredential>,
    state: Mutex<State>,
    /// Held by the caller that requests a token, while there is none.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<AccessToken>,
    /// From when on a new token is requested.
    renew_at: Option<Instant>,
}

impl Kept {
    pub(super) fn new(identity: Arc<dyn TokenCredential>) -> Self {
        let (state, turn) = Default::default();
        Self(Arc::new(Keeper { identity, state, turn }))
    }
}

#[async_trait]
impl TokenCredential for Kept {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> Result<AccessToken> {
        if let Some(token) = self.0.usable(scopes) {
            return Ok(token);
        }
        let _turn = self.0.turn.lock().await;
        match self.0.usable(scopes) {
            Some(token) => Ok(token),
            None => self.0.ask(scopes).await,
        }
    }
}

impl Keeper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// The token, if it is still valid. Starts a renewal in the background when one is due.
    fn usable(self: &Arc<Self>, scopes: &[&str]) -> Option<AccessToken> {
        let mut state = self.state();
        let token = state.token.clone().filter(|token| left(token) > TOO_SHORT)?;
        if state.renew_at.is_some_and(|at| at <= Instant::now()) {
            state.renew_at = Some(Instant::now() + ANSWER + PAUSE);
            let (keeper, scopes) = (Arc::clone(self), owned(scopes));
            tokio::spawn(async move {
                let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
                if let Err(error) = keeper.ask(&scopes).await {
                    tracing::warn!(%error, "a token of Entra ID cannot be renewed yet");
                    keeper.state().renew_at = Some(Instant::now() + PAUSE);
                }
            });
        }
        Some(token)
    }

    async fn ask(&self, scopes: &[&str]) -> Result<AccessToken> {
        let token = match timeout(ANSWER, self.identity.get_token(scopes, None)).await {
            Ok(Ok(token)) => token,
            Ok(Err(e)) if is_final(&e) => return Err(e),
            Ok(Err(e)) => return Err(transient(first_line(&e.to_string()))),
            Err(_) => return Err(transient("no token came in time".into())),
        };
        let life = left(&token);
        let mut state = self.state();
        state.renew_at = Some(Instant::now() + life - RENEW_BEFORE.min(life / 2));
        state.token = Some(token.clone());
        Ok(token)
    }
}

fn owned(scopes: &[&str]) -> Vec<String> {
    scopes.iter().map(|scope| (*scope).to_owned()).collect()
}

fn left(token: &AccessToken) -> Duration {
    (token.expires_on - OffsetDateTime::now_utc()).try_into().unwrap_or_default()
}

/// Whether a retry would bring the same response: the server rejected the request.
fn is_final(e: &Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(e);
    while let Some(e) = cause {
        match e.downcast_ref::<Error>().map(Error::kind) {
            Some(ErrorKind::HttpResponse { status, .. }) => {
                let status = u16::from(*status);
                // With 410 a machine's metadata service reports that it is being updated.
                return (400..500).contains(&status) && !matches!(status, 408 | 410 | 429);
            }
            Some(ErrorKind::Connection | ErrorKind::Io) => return false,
            _ => cause = e.source(),
        }
    }
    true
}

/// A failure that may be over in a moment.
#[derive(Debug)]
struct TransientFailure(String);

impl fmt::Display for TransientFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for TransientFailure {}

fn transient(why: String) -> Error {
    Error::with_error(ErrorKind::Credential, TransientFailure(why.clone()), why)
}

/// Whether a failure to get a token may be over in a moment.
pub(super) fn is_transient(e: &Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(e);
    while let Some(e) = cause {
        if e.is::<TransientFailure>() {
            return true;
        }
        cause = e.source();
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A test server that issues tokens with this lifetime in seconds, or rejects with a status.
    #[derive(Debug, Default)]
    struct Identity {
        life: u32,
        refuses: AtomicU32,
        asked: AtomicU32,
    }

    #[async_trait]
    impl TokenCredential for Identity {
        async fn get_token(
            &self,
            _: &[&str],
            _: Option<TokenRequestOptions<'_>>,
        ) -> Result<AccessToken> {
            let asked = self.asked.fetch_add(1, Ordering::SeqCst);
            match self.refuses.load(Ordering::SeqCst) {
                0 => {
                    let life = Duration::from_secs(self.life.into());
                    Ok(AccessToken::new(format!("token {asked}"), OffsetDateTime::now_utc() + life))
                }
                status => Err(Error::with_error(
                    ErrorKind::Credential,
                    ErrorKind::HttpResponse {
                        status: u16::try_from(status).unwrap().into(),
                        error_code: None,
                        raw_response: None,
                    }
                    .into_error(),
                    "refused",
                )),
            }
        }
    }

    fn kept(life: u32) -> (Arc<Identity>, Kept) {
        let identity = Arc::new(Identity { life, ..Identity::default() });
        (Arc::clone(&identity), Kept::new(identity))
    }

    #[tokio::test]
    async fn a_token_is_asked_for_once_however_short_it_lives() {
        let (identity, kept) = kept(60);
        for _ in 0..100 {
            kept.get_token(&["scope"], None).await.unwrap();
        }
        assert_eq!(identity.asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_old_token_serves_while_another_cannot_be_had() {
        let (identity, kept) = kept(5);
        let first = kept.get_token(&["scope"], None).await.unwrap();
        identity.refuses.store(429, Ordering::SeqCst);
        kept.0.state().renew_at = Some(Instant::now());
        for _ in 0..10 {
            assert_eq!(kept.get_token(&["scope"], None).await.unwrap().token, first.token);
            tokio::task::yield_now().await;
        }
        assert_eq!(identity.asked.load(Ordering::SeqCst), 2, "not with every request");
        identity.refuses.store(0, Ordering::SeqCst);
        kept.0.state().renew_at = Some(Instant::now());
        while kept.get_token(&["scope"], None).await.unwrap().token == first.token {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn transient_failures_are_distinguished_from_final_ones() {
        for (status, expected) in
            [(429, true), (500, true), (410, true), (400, false), (403, false)]
        {
            let (identity, kept) = kept(60);
            identity.refuses.store(status, Ordering::SeqCst);
            let error = kept.get_token(&["scope"], None).await.unwrap_err();
            assert_eq!(is_transient(&error), expected, "{status}");
        }
    }
}

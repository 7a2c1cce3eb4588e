//! Fetches the public keys of an issuer: OpenID Connect discovery, then its set of keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use forebay_core::config::IssuerConfig;
use forebay_core::locks::RwLockExt;
use forebay_core::{Error, Result, shown_url};
use reqwest::redirect;
use serde::Deserialize;
use tokio::sync::Notify;

use super::jwks;
use super::jws::{Algorithm, VerifyKey};
use crate::clock::unix_s;

/// Keys are fetched again after this time.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);
/// After a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);
/// Shortest time between two fetches because of unknown keys.
const MIN_INTERVAL_S: u64 = 10;
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer of an issuer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Where the keys of an issuer are.
#[derive(Debug)]
pub(super) struct Source {
    name: String,
    url: String,
    /// File with the token that authenticates to the issuer; read at each fetch.
    token_file: String,
    algorithms: Vec<Algorithm>,
    client: reqwest::Client,
    wake: Notify,
    /// Unix seconds of the last fetch that a token caused.
    requested_s: AtomicU64,
}

#[derive(Deserialize)]
struct Discovery {
    jwks_uri: String,
}

impl Source {
    pub(super) fn new(config: &IssuerConfig, algorithms: Vec<Algorithm>) -> Result<Self> {
        let invalid =
            |what: String| Error::invalid(format!("auth.issuer \"{}\": {what}", config.name));
        crate::tls::choose_provider();
        // An issuer is named by the operator; its answers do not lead elsewhere by redirects.
        let mut client =
            reqwest::Client::builder().timeout(FETCH_TIMEOUT).redirect(redirect::Policy::none());
        if !config.ca_file.is_empty() {
            let path = &config.ca_file;
            let pem = std::fs::read(path).map_err(|e| invalid(format!("{path}: {e}")))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|e| invalid(format!("{path} has no certificates: {e}")))?;
            client = client.tls_certs_only(roots);
        }
        let client = client.build().map_err(|e| invalid(format!("no HTTP client: {e}")))?;
        Ok(Self {
            name: config.name.clone(),
            url: config.url.trim_end_matches('/').to_owned(),
            token_file: config.token_file.clone(),
            algorithms,
            client,
            wake: Notify::new(),
            requested_s: AtomicU64::new(0),
        })
    }

    /// Requests a fetch because of a token with an unknown key. Returns whether one begins: it does
    /// at most every [`MIN_INTERVAL_S`].
    pub(super) fn request_refresh(&self) -> bool {
        let (now, last) = (unix_s(), self.requested_s.load(Ordering::Relaxed));
        if now.saturating_sub(last) < MIN_INTERVAL_S {
            return false;
        }
        let swapped =
            self.requested_s.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        if swapped.is_ok() {
            self.wake.notify_one();
        }
        swapped.is_ok()
    }

    async fn fetch(&self) -> Result<Vec<VerifyKey>> {
        let path = format!("{}/.well-known/openid-configuration", self.url);
        let shown = shown_url(&path);
        let discovery: Discovery = serde_json::from_slice(&self.get(&path).await?)
            .map_err(|e| Error::invalid(format!("{shown} is unreadable: {e}")))?;
        // The keys come from the scheme that the operator chose, never from a weaker one.
        if self.url.starts_with("https://") && !discovery.jwks_uri.starts_with("https://") {
            return Err(Error::invalid(format!("{shown} names keys without TLS")));
        }
        let keys = self.get(&discovery.jwks_uri).await?;
        jwks::keys(&keys, &self.algorithms, &shown_url(&discovery.jwks_uri))
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>> {
        let shown = shown_url(url);
        let failed = |e: &dyn std::fmt::Display| Error::unavailable(format!("GET {shown}: {e}"));
        let mut request = self.client.get(url);
        if !self.token_file.is_empty() {
            let token = tokio::fs::read_to_string(&self.token_file)
                .await
                .map_err(|e| failed(&format!("{}: {e}", self.token_file)))?;
            request = request.bearer_auth(token.trim());
        }
        let mut answer = request.send().await.map_err(|e| failed(&e.without_url()))?;
        if !answer.status().is_success() {
            return Err(failed(&answer.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|e| failed(&e.without_url()))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err(failed(&"the answer is too large"));
            }
        }
        Ok(bytes)
    }
}

/// Keeps `keys` those of the issuer. Earlier keys are kept while the issuer does not answer.
pub(super) async fn follow(source: Arc<Source>, keys: Arc<RwLock<Vec<VerifyKey>>>) {
    loop {
        let pause = match source.fetch().await {
            Ok(fetched) => {
                if fetched.is_empty() {
                    tracing::warn!(issuer = source.name, "the issuer has no usable keys");
                }
                *keys.write_locked() = fetched;
                REFRESH_INTERVAL
            }
            Err(e) => {
                tracing::warn!(issuer = source.name, error = %e, "cannot fetch the issuer's keys");
                RETRY_INTERVAL
            }
        };
        let _ = tokio::time::timeout(pause, source.wake.notified()).await;
    }
}

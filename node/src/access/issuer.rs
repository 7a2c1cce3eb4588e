//! Issuers of tokens other than this cluster.

use std::path::Path;
use std::sync::{Arc, RwLock};

use forebay_core::access::{
    IssuerRules, TokenIdentity, foreign_identity, token_text_id, unauthenticated,
};
use forebay_core::config::IssuerConfig;
use forebay_core::locks::RwLockExt;
use forebay_core::state::ClusterState;
use forebay_core::{Error, Result};
use serde_json::Value;

use super::jwks;
use super::jws::{Algorithm, Jws, KeyBytes, KeyKind, VerifyKey, pem_key};
use super::oidc::{self, Source};
use crate::lifecycle::Lifecycle;
use crate::secret_file;

/// Shortest shared secret, bytes.
const MIN_SECRET_BYTES: usize = 16;

/// All foreign issuers of the configuration.
#[derive(Debug, Default)]
pub(super) struct Issuers(Vec<Issuer>);

#[derive(Debug)]
struct Issuer {
    name: String,
    rules: IssuerRules,
    keys: Arc<RwLock<Vec<VerifyKey>>>,
    /// Where the keys are fetched from, if not from a file.
    source: Option<Arc<Source>>,
}

impl Issuers {
    pub(super) fn load(configs: &[IssuerConfig]) -> Result<Self> {
        configs.iter().map(Issuer::load).collect::<Result<_>>().map(Self)
    }

    pub(super) fn follow(&self, lifecycle: &Lifecycle) {
        for issuer in &self.0 {
            if let Some(source) = &issuer.source {
                let (source, keys) = (source.clone(), issuer.keys.clone());
                let stop = lifecycle.token();
                lifecycle.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = oidc::follow(source, keys) => {}
                    }
                });
            }
        }
    }

    /// The user of a token of one of the issuers; `hash` is that of its text.
    pub(super) fn identity(
        &self,
        token: &Jws<'_>,
        hash: &[u8; 32],
        state: &ClusterState,
        now_s: u64,
    ) -> Result<TokenIdentity> {
        let claims: Value = token.claims().ok_or_else(unauthenticated)?;
        // A token is checked with the keys of its issuer only.
        let sent = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        let mut issuers =
            self.0.iter().filter(|i| i.rules.issuer.is_empty() || i.rules.issuer == sent);
        let verified = issuers.find(|issuer| issuer.verifies(token));
        let issuer = match verified {
            Some(issuer) => issuer,
            None => return Err(self.unknown_key(token, sent)),
        };
        let (id, access) = (token_text_id(hash), &state.access);
        foreign_identity(&claims, &id, &issuer.rules, access, &state.cluster_id, now_s)
    }

    /// The error for a token that no key verifies. If its issuer has a URL, and the key is unknown,
    /// the keys are fetched once more, and the client is asked to try again.
    fn unknown_key(&self, token: &Jws<'_>, sent: &str) -> Error {
        let fetches = self
            .0
            .iter()
            .filter(|i| i.rules.issuer == sent && !i.knows(token))
            .any(|i| i.source.as_ref().is_some_and(|source| source.request_refresh()));
        if fetches {
            return Error::unavailable("the keys of the token's issuer are being fetched")
                .retry_after(1);
        }
        unauthenticated()
    }
}

impl Issuer {
    fn load(config: &IssuerConfig) -> Result<Self> {
        let name = config.name.clone();
        let at = |what: &str| format!("auth.issuer \"{name}\": {what}");
        let mut algorithms = Vec::new();
        for text in &config.algorithms {
            algorithms.push(Algorithm::of_name(text).ok_or_else(|| {
                Error::invalid(at(&format!("the algorithm {text} is unknown")))
                    .hint(format!("the known ones are {}", Algorithm::names()))
            })?);
        }
        let has_secret = !config.secret_file.is_empty();
        let is_secret = |a: &Algorithm| a.kind() == KeyKind::Secret;
        if algorithms.iter().any(|a| is_secret(a) != has_secret) {
            let text = "HS algorithms need secret_file, and a secret verifies no others";
            return Err(Error::invalid(at(text)));
        }
        let read = |path: &str| {
            std::fs::read(path).map_err(|e| Error::invalid(at(&format!("cannot read {path}: {e}"))))
        };
        let mut keys = Vec::new();
        if has_secret {
            let secret = secret_file::read(
                &format!("auth.issuer \"{name}\": secret_file"),
                Path::new(&config.secret_file),
            )?;
            let secret = secret.trim_ascii().to_vec();
            if secret.len() < MIN_SECRET_BYTES {
                let text = format!("the secret is shorter than {MIN_SECRET_BYTES} characters");
                return Err(Error::invalid(at(&text)));
            }
            let bytes = KeyBytes::Secret(secret);
            keys.push(VerifyKey { id: None, algorithms: algorithms.clone(), bytes });
        } else if !config.key_file.is_empty() {
            let text = String::from_utf8_lossy(&read(&config.key_file)?).into_owned();
            let bytes = KeyBytes::Public(pem_key(&text, &config.key_file)?);
            keys.push(VerifyKey { id: None, algorithms: algorithms.clone(), bytes });
        } else if !config.jwks_file.is_empty() {
            keys = jwks::keys(&read(&config.jwks_file)?, &algorithms, &config.jwks_file)?;
        }
        let source = if keys.is_empty() && !config.url.is_empty() {
            Some(Arc::new(Source::new(config, algorithms)?))
        } else {
            None
        };
        let rules = IssuerRules {
            issuer: config.issuer().to_owned(),
            audience: config.audience.clone(),
            user_prefix: format!("{name}:"),
            user_claim: config.user_claim.clone(),
            roles_claim: config.roles_claim.clone(),
            aistore_claims: config.aistore_claims,
        };
        Ok(Self { name, rules, keys: Arc::new(RwLock::new(keys)), source })
    }

    /// Whether a key that the token may be signed with has the property `f`.
    fn has_key(&self, token: &Jws<'_>, f: impl Fn(&VerifyKey) -> bool) -> bool {
        let keys = self.keys.read_locked();
        let fits = |key: &&VerifyKey| match (&key.id, &token.key) {
            (Some(id), Some(sent)) => id == sent,
            (Some(_), None) | (None, _) => true,
        };
        keys.iter().filter(fits).any(f)
    }

    fn verifies(&self, token: &Jws<'_>) -> bool {
        let is_verified = self.has_key(token, |key| key.verifies(token));
        if !is_verified {
            tracing::debug!(issuer = self.name, "no key of the issuer verifies a token");
        }
        is_verified
    }

    fn knows(&self, token: &Jws<'_>) -> bool {
        self.has_key(token, |_| true)
    }
}

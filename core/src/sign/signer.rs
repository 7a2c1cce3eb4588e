//! How a node signs, and its record of the proof formats that other nodes read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use super::claims::{GRANT, NOTHING};
use super::{
    ANY, Claims, ClusterSecret, GRANT_TTL_S, GrantUser, NODE_AUTH_TTL_S, Purpose, REDIRECT_EXPIRY,
    REDIRECT_PROOF, REDIRECT_TTL_S, UNSIGNED_BODY, redirect_target,
};
use crate::error::Result;
use crate::locks::RwLockExt;
use crate::name::NodeId;
use crate::v1::query::decode_path;

/// A node that reads only the first format is asked again after this time: it may have been
/// upgraded.
const FORMAT_CHECK_S: u64 = 10;

/// Signs for a node: has the cluster's secret, its own id, a counter of its proofs, and the formats
/// that other nodes read. Cheap to clone; clones share the mutable state.
#[derive(Clone, Debug)]
pub struct Signer {
    secret: ClusterSecret,
    sender: NodeId,
    nonces: Arc<AtomicU64>,
    /// By base URL.
    formats: Arc<RwLock<HashMap<String, ProofFormat>>>,
}

/// The format of proofs that a node reads.
#[derive(Clone, Copy, Debug)]
struct ProofFormat {
    is_first: bool,
    noted_s: u64,
}

impl Signer {
    /// `first_nonce` is a random number, so that a node that restarts does not repeat its nonces.
    pub fn new(secret: ClusterSecret, sender: NodeId, first_nonce: u64) -> Self {
        let nonces = Arc::new(AtomicU64::new(first_nonce));
        Self { secret, sender, nonces, formats: Arc::default() }
    }

    fn format(&self, url: &str) -> Option<ProofFormat> {
        self.formats.read_locked().get(url).copied()
    }

    fn reads_first_only(&self, url: &str) -> bool {
        self.format(url).is_some_and(|format| format.is_first)
    }

    /// Whether the node at `url` should be asked for its format. Until then, it gets proofs of this
    /// version's format.
    pub fn should_ask_format(&self, url: &str, now: u64) -> bool {
        self.format(url).is_none_or(|format| {
            format.is_first && now.saturating_sub(format.noted_s) >= FORMAT_CHECK_S
        })
    }

    /// Records whether the node at `url` reads only the first format.
    pub fn note_format(&self, url: &str, is_first: bool, now: u64) {
        let mut formats = self.formats.write_locked();
        formats.insert(url.to_owned(), ProofFormat { is_first, noted_s: now });
    }

    /// Drops the recorded format of the node at `url`, which rejected a proof: it has to be asked
    /// again.
    pub fn forget_format(&self, url: &str) {
        self.formats.write_locked().remove(url);
    }

    /// A proof of the first format for a call to a node that reads no other.
    fn first_call(&self, method: &str, target: &str, now: u64) -> String {
        let expiry = now + NODE_AUTH_TTL_S;
        format!("{expiry}.{}", self.secret.prove_first("node", &[method, target], expiry))
    }

    pub fn secret(&self) -> &ClusterSecret {
        &self.secret
    }

    fn nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }

    /// Completes these claims as this node's, for the next `ttl` seconds.
    fn own<'a>(&'a self, claims: Claims<'a>, ttl: u64, now: u64) -> Claims<'a> {
        let (sender, nonce) = (self.sender.as_str(), self.nonce());
        Claims { sender, nonce, expiry: now + ttl, ..claims }
    }

    /// Value of [`NODE_AUTH_HEADER`] for a request of this node to `receiver`; `body` as in [`Claims`].
    pub fn node_call(
        &self,
        method: &str,
        target: &str,
        body: &str,
        receiver: &str,
        now: u64,
    ) -> String {
        if self.reads_first_only(receiver) {
            return self.first_call(method, target, now);
        }
        let purpose = Purpose::NodeCall;
        let claims = Claims { purpose, method, target, body, receiver, ..NOTHING };
        self.secret.prove(&self.own(claims, NODE_AUTH_TTL_S, now))
    }

    /// Value of [`NODE_AUTH_HEADER`] for an S3 request that this node forwards to `receiver`;
    /// `subject` by [`relay_subject`].
    pub fn s3_relay(
        &self,
        method: &str,
        target: &str,
        subject: &str,
        receiver: &str,
        now: u64,
    ) -> String {
        if self.reads_first_only(receiver) {
            return self.first_call(method, target, now);
        }
        let (purpose, body) = (Purpose::S3Relay, UNSIGNED_BODY);
        let claims = Claims { purpose, method, target, subject, body, receiver, ..NOTHING };
        self.secret.prove(&self.own(claims, NODE_AUTH_TTL_S, now))
    }

    /// Query to append to a redirect of `method path?query` to the node at `receiver`.
    pub fn redirect(
        &self,
        method: &str,
        path: &str,
        query: &str,
        receiver: &str,
        now: u64,
    ) -> Result<String> {
        if self.reads_first_only(receiver) {
            let (expiry, path) = (now + REDIRECT_TTL_S, decode_path(path)?);
            let proof = self.secret.prove_first("redirect", &[method, &path], expiry);
            return Ok(format!("{REDIRECT_EXPIRY}={expiry}&{REDIRECT_PROOF}={proof}"));
        }
        let (purpose, body) = (Purpose::Redirect, UNSIGNED_BODY);
        let target = redirect_target(path, query)?;
        let claims = Claims { purpose, method, target: &target, body, receiver, ..NOTHING };
        // The receiver's URL precedes the proof in the redirect already.
        let proof = self.secret.written(&self.own(claims, REDIRECT_TTL_S, now), ANY);
        Ok(format!("{REDIRECT_PROOF}={proof}"))
    }

    /// A grant for the client of a user.
    pub fn user_grant(&self, user: &GrantUser, now: u64) -> String {
        let subject = user.subject();
        let claims = Claims { subject: &subject, ..GRANT };
        user.text(&self.secret.prove(&self.own(claims, GRANT_TTL_S, now)))
    }

    /// A grant for Forebay's clients, in a format that all known nodes can read.
    pub fn grant(&self, now: u64) -> String {
        let formats = self.formats.read_locked();
        if formats.values().any(|format| format.is_first) {
            let expiry = now + GRANT_TTL_S;
            return format!("{expiry}.{}", self.secret.prove_first("grant", &[], expiry));
        }
        drop(formats);
        self.secret.grant(self.sender.as_str(), self.nonce(), now)
    }
}

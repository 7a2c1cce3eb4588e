//! How a node signs: with what, and which format of proofs other nodes read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use super::claims::{GRANT, MadeWith, NOTHING};
use super::{
    ANY, Claims, ClusterSecret, GRANT_TTL_S, GrantUser, NODE_AUTH_TTL_S, NodeKey, PublicKey,
    Purpose, REDIRECT_EXPIRY, REDIRECT_PROOF, REDIRECT_TTL_S, UNSIGNED_BODY, is_before_keys,
    redirect_target,
};
use crate::error::Result;
use crate::locks::RwLockExt;
use crate::name::NodeId;
use crate::state::ClusterState;
use crate::url::decode_path;

/// A node that reads only the first format is asked again after this time: it may have been
/// upgraded.
const FORMAT_CHECK_S: u64 = 10;

/// Signs for a node: has the cluster's secret, the node's own key and id, a counter of its proofs, and
/// the keys and formats of other nodes. Cheap to clone; clones share the mutable state.
#[derive(Clone, Debug)]
pub struct Signer {
    /// `None` for a target that joins by a token.
    secret: Option<ClusterSecret>,
    join: Arc<RwLock<JoinProof>>,
    key: Option<NodeKey>,
    /// Whether all members have keys, this node's among them.
    has_keys: Arc<AtomicBool>,
    /// The keys of the other nodes, by base URL.
    peers: Arc<RwLock<HashMap<String, PublicKey>>>,
    sender: NodeId,
    nonces: Arc<AtomicU64>,
    /// By base URL.
    formats: Arc<RwLock<HashMap<String, ProofFormat>>>,
}

/// How a node without the cluster's secret proves that it may join.
#[derive(Debug, Default)]
struct JoinProof {
    token: Option<ClusterSecret>,
    /// By its key, which the cluster has recorded at an earlier join.
    is_by_key: bool,
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
        Self::with(Some(secret), sender, first_nonce)
    }

    /// For a target that has no secret of the cluster: it joins by a token, or by the key that the
    /// cluster has recorded.
    pub fn without_secret(sender: NodeId, first_nonce: u64) -> Self {
        Self::with(None, sender, first_nonce)
    }

    fn with(secret: Option<ClusterSecret>, sender: NodeId, first_nonce: u64) -> Self {
        let nonces = Arc::new(AtomicU64::new(first_nonce));
        let (join, has_keys, peers, formats) = Default::default();
        Self { secret, join, key: None, has_keys, peers, sender, nonces, formats }
    }

    /// The proof of the next join of a node without the secret: its key if `is_by_key` or if there
    /// is no token, otherwise the token.
    pub fn join_with(&self, token: Option<ClusterSecret>, is_by_key: bool) {
        *self.join.write_locked() = JoinProof { token, is_by_key };
    }

    /// Signs with this key as soon as all members of the cluster have keys.
    #[must_use]
    pub fn with_key(self, key: NodeKey) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Signs with its key without a state: the cluster's state has this key.
    #[must_use]
    pub fn as_member(self) -> Self {
        self.has_keys.store(self.key.is_some(), Ordering::Release);
        self
    }

    /// Signs for the members of this state, also with a key that it does not have.
    #[cfg(test)]
    pub(super) fn peers_for_tests(&self, state: &ClusterState) {
        self.has_keys.store(true, Ordering::Release);
        *self.peers.write_locked() = peers(state, &self.sender);
    }

    /// The node's own key.
    pub fn key(&self) -> Option<&NodeKey> {
        self.key.as_ref()
    }

    /// The public half of [`Self::key`], for the cluster's state.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key.as_ref().map(|key| key.public().clone())
    }

    /// Signs for the members of this state from now on.
    pub fn follow(&self, state: &ClusterState) {
        let keys = &state.node_keys;
        let ours = keys.keys.get(&self.sender).map(|ours| &ours.key);
        let has_keys = keys.are_required() && ours.is_some() && ours == self.public_key().as_ref();
        if has_keys {
            *self.peers.write_locked() = peers(state, &self.sender);
        }
        self.has_keys.store(has_keys, Ordering::Release);
    }

    /// The node's own key, if others verify proofs with it.
    fn used_key(&self) -> Option<&NodeKey> {
        self.key.as_ref().filter(|_| self.has_keys.load(Ordering::Acquire))
    }

    /// A proof of these claims, with another text in place of the receiver, that every node of the
    /// cluster can verify, or the receiver alone.
    fn proof(&self, claims: &Claims<'_>, receiver: &str) -> String {
        let key = match (self.used_key(), &self.secret) {
            (Some(key), _) => key,
            (None, Some(secret)) => return secret.written(claims, receiver),
            // Not a member yet.
            (None, None) => return self.own_proof(claims, receiver),
        };
        let peer = self.peers.read_locked().get(claims.receiver).cloned();
        match peer.and_then(|peer| key.pair_key(&peer, claims.expiry)) {
            Some(pair) => {
                let tag = ClusterSecret::of_key(&pair).tag(claims);
                claims.written(MadeWith::PairKey, receiver, &tag)
            }
            None => self.own_proof(claims, receiver),
        }
    }

    /// A proof with this node's own key; empty, which proves nothing, if it has none.
    fn own_proof(&self, claims: &Claims<'_>, receiver: &str) -> String {
        let sign = |key: &NodeKey| {
            claims.written(MadeWith::OwnKey, receiver, &key.sign(&claims.message()))
        };
        self.key.as_ref().map(sign).unwrap_or_default()
    }

    /// The proof of a request to or from a node whose key the other one may not have.
    fn early_proof(&self, claims: &Claims<'_>) -> String {
        if let Some(secret) = &self.secret {
            return secret.prove(claims);
        }
        let join = self.join.read_locked();
        match &join.token {
            Some(token) if !join.is_by_key => token.prove(claims),
            _ => self.own_proof(claims, claims.receiver),
        }
    }

    fn format(&self, url: &str) -> Option<ProofFormat> {
        self.formats.read_locked().get(url).copied()
    }

    /// The secret for proofs of the first format, if the node at `url` reads no other.
    fn first_secret(&self, url: &str) -> Option<&ClusterSecret> {
        let is_first =
            self.used_key().is_none() && self.format(url).is_some_and(|format| format.is_first);
        self.secret.as_ref().filter(|_| is_first)
    }

    /// Whether the node at `url` should be asked for its format. Until then, it gets proofs of this
    /// version's format.
    pub fn should_ask_format(&self, url: &str, now: u64) -> bool {
        // Every node that has a key reads proofs that are made with keys.
        let may_be_first = self.used_key().is_none() && self.secret.is_some();
        may_be_first
            && self.format(url).is_none_or(|format| {
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

    /// The cluster's secret; `None` for a target that joins by a token.
    pub fn secret(&self) -> Option<&ClusterSecret> {
        self.secret.as_ref()
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
        if let Some(secret) = self.first_secret(receiver) {
            return first_call(secret, method, target, now);
        }
        let purpose = Purpose::NodeCall;
        let claims = Claims { purpose, method, target, body, receiver, ..NOTHING };
        let claims = self.own(claims, NODE_AUTH_TTL_S, now);
        match is_before_keys(target) {
            true => self.early_proof(&claims),
            false => self.proof(&claims, receiver),
        }
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
        if let Some(secret) = self.first_secret(receiver) {
            return first_call(secret, method, target, now);
        }
        let (purpose, body) = (Purpose::S3Relay, UNSIGNED_BODY);
        let claims = Claims { purpose, method, target, subject, body, receiver, ..NOTHING };
        self.proof(&self.own(claims, NODE_AUTH_TTL_S, now), receiver)
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
        if let Some(secret) = self.first_secret(receiver) {
            let (expiry, path) = (now + REDIRECT_TTL_S, decode_path(path)?);
            let proof = secret.prove_first("redirect", &[method, &path], expiry);
            return Ok(format!("{REDIRECT_EXPIRY}={expiry}&{REDIRECT_PROOF}={proof}"));
        }
        let (purpose, body) = (Purpose::Redirect, UNSIGNED_BODY);
        let target = redirect_target(path, query)?;
        let claims = Claims { purpose, method, target: &target, body, receiver, ..NOTHING };
        // The receiver's URL precedes the proof in the redirect already.
        let proof = self.proof(&self.own(claims, REDIRECT_TTL_S, now), ANY);
        Ok(format!("{REDIRECT_PROOF}={proof}"))
    }

    /// A grant for the client of a user.
    pub fn user_grant(&self, user: &GrantUser, now: u64) -> String {
        let subject = user.subject();
        let claims = Claims { subject: &subject, ..GRANT };
        user.text(&self.proof(&self.own(claims, GRANT_TTL_S, now), ANY))
    }

    /// A grant for Forebay's clients, in a format that all known nodes can read.
    pub fn grant(&self, now: u64) -> String {
        let formats = self.formats.read_locked();
        let secret = self.secret.as_ref().filter(|_| self.used_key().is_none());
        if let Some(secret) = secret
            && formats.values().any(|format| format.is_first)
        {
            let expiry = now + GRANT_TTL_S;
            return format!("{expiry}.{}", secret.prove_first("grant", &[], expiry));
        }
        drop(formats);
        self.proof(&self.own(GRANT, GRANT_TTL_S, now), ANY)
    }
}

/// A proof of the first format for a call to a node that reads no other.
fn first_call(secret: &ClusterSecret, method: &str, target: &str, now: u64) -> String {
    let expiry = now + NODE_AUTH_TTL_S;
    format!("{expiry}.{}", secret.prove_first("node", &[method, target], expiry))
}

/// The keys of the nodes other than `me`, by base URL.
fn peers(state: &ClusterState, me: &NodeId) -> HashMap<String, PublicKey> {
    let key = |id: &NodeId| state.node_keys.keys.get(id).map(|record| record.key.clone());
    let others = state.nodes.values().filter(|node| node.id != *me);
    others.filter_map(|node| Some((node.url.clone(), key(&node.id)?))).collect()
}

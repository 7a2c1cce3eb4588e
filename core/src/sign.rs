//! Proofs between nodes and for clients, with an expiry.
//!
//! Everything that nodes sign has one format, [`Claims`]. A proof is valid for one purpose only:
//! the relay of an S3 request never counts as a call of a node. Times are unix seconds, passed in.
//!
//! A proof is made with the sender's own key, with a key that only sender and receiver have
//! ([`NodeKey`]), or with the secret of the cluster, which then proves no more than that: [`Signer`]
//! chooses, and [`Trust`] decides what counts. A target may have a join token instead of the secret.

mod claims;
mod grant_user;
mod node_key;
mod proven;
mod signer;
#[cfg(test)]
mod tests;
mod trust;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

#[cfg(test)]
use self::claims::GRANT;
pub use self::claims::{
    ANY, BodyHasher, Claims, FORMAT, MadeWith, NO_BODY, Proof, Purpose, UNSIGNED_BODY, body_hash,
    redirect_target, relay_subject,
};
pub use self::grant_user::GrantUser;
pub use self::node_key::{NodeKey, PAIR_KEY_S, PublicKey, SEED_BYTES};
pub use self::signer::Signer;
pub use self::trust::Trust;
use crate::error::{Error, ErrorCode, Result};

/// Header by which a node proves that it belongs to the cluster.
pub const NODE_AUTH_HEADER: &str = "forebay-auth";
/// Header in which a client sends the grant that came with its map.
pub const GRANT_HEADER: &str = "forebay-grant";
/// Query key of a signed redirect: its proof.
pub const REDIRECT_PROOF: &str = "fbs";
/// Query key of the expiry in a redirect of the first format.
pub const REDIRECT_EXPIRY: &str = "fbx";
/// How long a redirect may be followed, seconds.
pub const REDIRECT_TTL_S: u64 = 30;
/// Lifetime of a client's grant, seconds.
pub const GRANT_TTL_S: u64 = 3600;
/// Lifetime of a node's proof of one request, seconds (clocks of nodes may differ by this much).
pub const NODE_AUTH_TTL_S: u64 = 300;

/// Path at which a node joins.
pub const JOIN_PATH: &str = "/internal/v1/join";
/// Path at which a node reports the id of its process as a JSON number.
pub const INSTANCE_PATH: &str = "/internal/v1/instance";
/// [`INSTANCE_PATH`], asked with the key that sender and receiver agree on.
pub const INSTANCE_BY_KEY: &str = "/internal/v1/instance?by=key";
const RAFT_PATHS: &str = "/internal/v1/raft/";

/// Whether requests for this target are proven by the cluster's secret: the sender or the receiver
/// may not have the other one's key yet.
fn is_before_keys(target: &str) -> bool {
    is_join(target) || target == INSTANCE_PATH || target.starts_with(RAFT_PATHS)
}

/// Whether this is the target, with or without a query, of a join.
pub fn is_join(target: &str) -> bool {
    target.split('?').next() == Some(JOIN_PATH)
}

/// Path at which a node reports which format of proofs it reads; nodes of the first version do not
/// serve it.
pub const PROOF_FORMAT_PATH: &str = "/internal/v1/proof-format";

/// Whether a proof of a client is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    Yes,
    /// It was made by the cluster for this very request, by node `signer` at `signed_s`
    /// by that node's clock, and has expired by the clock of the reader.
    Late {
        signer: &'a str,
        signed_s: u64,
    },
    No,
}

/// The time of signing of a proof with a lifetime of `ttl_s`.
fn signed_s(expiry: u64, ttl_s: u64) -> u64 {
    expiry.saturating_sub(ttl_s)
}

/// The cluster's secret. Never printed.
#[derive(Clone)]
pub struct ClusterSecret(Vec<u8>);

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterSecret(…)")
    }
}

impl ClusterSecret {
    /// Reads the text of a secret file; surrounding white space is not part of it.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() < 16 {
            return Err(Error::invalid("the cluster secret is shorter than 16 characters"));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    /// A key of 32 bytes for this purpose, by HKDF with SHA-256.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let hmac = |key: &[u8], texts: [&[u8]; 3]| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key length");
            texts.iter().for_each(|text| mac.update(text));
            mac.finalize().into_bytes()
        };
        let extracted = hmac(b"forebay-keys-1", [&self.0, b"", b""]);
        hmac(&extracted, [purpose.as_bytes(), &[1], b""]).into()
    }

    fn hmac(&self) -> Hmac<Sha256> {
        // A key of any length is a valid HMAC key.
        Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key length")
    }

    /// The code over all claims.
    fn mac(&self, claims: &Claims<'_>) -> Hmac<Sha256> {
        let mut mac = self.hmac();
        mac.update(b"forebay-proof-2");
        claims.feed(|bytes| mac.update(bytes));
        mac
    }

    /// A proof of these claims. It contains sender, receiver, nonce, expiry and body; the rest is
    /// the request itself.
    pub fn prove(&self, claims: &Claims<'_>) -> String {
        self.written(claims, claims.receiver)
    }

    /// [`Self::prove`], with another text in place of the receiver.
    fn written(&self, claims: &Claims<'_>, receiver: &str) -> String {
        claims.written(MadeWith::ClusterSecret, receiver, &self.tag(claims))
    }

    fn tag(&self, claims: &Claims<'_>) -> String {
        hex::encode(self.mac(claims).finalize().into_bytes())
    }

    /// Whether the proof was made with this secret for these claims, with sender, receiver, nonce,
    /// expiry and body taken from the proof. Does not check the time.
    pub fn verify(&self, proof: &Proof<'_>, claims: &Claims<'_>) -> bool {
        let is_ours = proof.made_with == MadeWith::ClusterSecret;
        is_ours && self.has_tag(&proof.completing(claims), proof.tag)
    }

    /// A key of one pair of nodes, used like the secret of a cluster.
    fn of_key(key: &[u8; 32]) -> Self {
        Self(key.to_vec())
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn has_tag(&self, claims: &Claims<'_>, tag: &str) -> bool {
        hex::decode(tag).is_ok_and(|tag| self.mac(claims).verify_slice(&tag).is_ok())
    }

    /// A grant for direct access to targets, valid for [`GRANT_TTL_S`].
    #[cfg(test)]
    fn grant(&self, sender: &str, nonce: u64, now: u64) -> String {
        self.prove(&Claims { sender, nonce, expiry: now + GRANT_TTL_S, ..GRANT })
    }

    fn mac_first(&self, purpose: &str, parts: &[&str], expiry: u64) -> Hmac<Sha256> {
        let mut mac = self.hmac();
        mac.update(purpose.as_bytes());
        for part in parts {
            mac.update(b"\n");
            mac.update(part.as_bytes());
        }
        mac.update(b"\n");
        mac.update(expiry.to_string().as_bytes());
        mac
    }

    /// Checks a proof of the first format. Its lifetime may be at most that of such a proof, plus
    /// the same time for the difference of two clocks.
    fn check_first(
        &self,
        purpose: &str,
        parts: &[&str],
        expiry: &str,
        tag: &str,
        now: u64,
        ttl: u64,
    ) -> bool {
        let Ok(expiry) = expiry.parse::<u64>() else { return false };
        let Ok(tag) = hex::decode(tag) else { return false };
        let in_time = now <= expiry && expiry <= now + ttl + NODE_AUTH_TTL_S;
        in_time && self.mac_first(purpose, parts, expiry).verify_slice(&tag).is_ok()
    }

    fn prove_first(&self, purpose: &str, parts: &[&str], expiry: u64) -> String {
        hex::encode(self.mac_first(purpose, parts, expiry).finalize().into_bytes())
    }
}

/// The error for a request that only nodes may send.
pub fn not_a_node() -> Error {
    Error::new(ErrorCode::AccessDenied, "not signed by a node of this cluster")
        .hint("nodes of one cluster need the same secret file, their keys in the cluster's state, and clocks within 5 minutes")
}

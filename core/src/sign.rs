//! Proofs between nodes and for clients: HMAC-SHA-256 with the cluster's secret, with an expiry.
//!
//! Everything that nodes sign has one format, [`Claims`]. A proof is valid for one purpose only:
//! the relay of an S3 request never counts as a call of a node. Times are unix seconds, passed in.

mod claims;
mod grant_user;
mod signer;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub use self::claims::{
    ANY, BodyHasher, Claims, FORMAT, NO_BODY, Proof, Purpose, UNSIGNED_BODY, body_hash,
    redirect_target, relay_subject,
};
use self::claims::{GRANT, NOTHING, SEPARATOR, is_same};
pub use self::grant_user::GrantUser;
pub use self::signer::Signer;
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

/// Path at which a node reports which format of proofs it reads; nodes of the first version do not
/// serve it.
pub const PROOF_FORMAT_PATH: &str = "/internal/v1/proof-format";

/// Whether a proof of a client is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    Yes,
    /// It was made with the cluster's secret for this very request, by node `signer` at `signed_s`
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

/// A grant, and the secret that it was made with.
struct Proven {
    secret: Vec<u8>,
    grant: String,
}

thread_local! {
    /// The last grant that was valid, apart from its expiry.
    static PROVEN: RefCell<Option<Proven>> = const { RefCell::new(None) };
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

    /// The code over all claims, each preceded by its length: different claims never have the same
    /// bytes.
    fn mac(&self, claims: &Claims<'_>) -> Hmac<Sha256> {
        let mut mac = self.hmac();
        mac.update(b"forebay-proof-2");
        let texts = [
            claims.purpose.as_str(),
            claims.method,
            claims.target,
            claims.subject,
            claims.body,
            claims.sender,
            claims.receiver,
        ];
        for text in texts {
            mac.update(&(text.len() as u64).to_le_bytes());
            mac.update(text.as_bytes());
        }
        mac.update(&claims.nonce.to_le_bytes());
        mac.update(&claims.expiry.to_le_bytes());
        mac
    }

    /// A proof of these claims. It contains sender, receiver, nonce, expiry and body; the rest is
    /// the request itself.
    pub fn prove(&self, claims: &Claims<'_>) -> String {
        self.written(claims, claims.receiver)
    }

    /// [`Self::prove`], with another text in place of the receiver.
    fn written(&self, claims: &Claims<'_>, receiver: &str) -> String {
        let Claims { sender, nonce, expiry, body, .. } = claims;
        let tag = hex::encode(self.mac(claims).finalize().into_bytes());
        let s = SEPARATOR;
        format!("{FORMAT}{s}{sender}{s}{receiver}{s}{nonce:x}{s}{expiry}{s}{body}{s}{tag}")
    }

    /// Whether the redirect proof `text` allows `method path?query` at the node `me`.
    pub fn verify_redirect<'a>(
        &self,
        method: &str,
        path: &str,
        query: &str,
        text: &'a str,
        me: &str,
        now: u64,
    ) -> Held<'a> {
        let (Some(sent), Ok(target)) = (Proof::parse(text), redirect_target(path, query)) else {
            return Held::No;
        };
        let proof = Proof { receiver: me, ..sent };
        let (purpose, body) = (Purpose::Redirect, UNSIGNED_BODY);
        let claims = Claims { purpose, method, target: &target, body, ..NOTHING };
        match self.verify(&proof, &claims) {
            true if now <= sent.expiry => Held::Yes,
            true => {
                Held::Late { signer: sent.sender, signed_s: signed_s(sent.expiry, REDIRECT_TTL_S) }
            }
            false => Held::No,
        }
    }

    /// Whether the proof was made with this secret for these claims, with sender, receiver, nonce,
    /// expiry and body taken from the proof. Does not check the time.
    pub fn verify(&self, proof: &Proof<'_>, claims: &Claims<'_>) -> bool {
        let Proof { sender, receiver, nonce, expiry, body, tag } = *proof;
        let claims = Claims { sender, receiver, nonce, expiry, body, ..*claims };
        hex::decode(tag).is_ok_and(|tag| self.mac(&claims).verify_slice(&tag).is_ok())
    }

    /// A grant for direct access to targets, valid for [`GRANT_TTL_S`].
    pub fn grant(&self, sender: &str, nonce: u64, now: u64) -> String {
        self.prove(&Claims { sender, nonce, expiry: now + GRANT_TTL_S, ..GRANT })
    }

    /// Whether a grant is valid, also one of the first format, which a client may have from a
    /// gateway of an earlier version.
    pub fn verify_grant<'a>(&self, grant: &'a str, now: u64) -> Held<'a> {
        let proof = Proof::parse(grant);
        let first = || grant.split_once('.').and_then(|(expiry, _)| expiry.parse().ok());
        let expiry = proof.as_ref().map(|proof| proof.expiry).or_else(first);
        let Some(expiry) = expiry else { return Held::No };
        if now > expiry {
            return match proof {
                Some(proof) if self.verify(&proof, &GRANT) => {
                    let signed_s = signed_s(expiry, GRANT_TTL_S);
                    Held::Late { signer: proof.sender, signed_s }
                }
                _ => Held::No,
            };
        }
        // A client sends the same grant for an hour, with every request.
        PROVEN.with_borrow_mut(|proven| {
            let is_known = |known: &Proven| known.secret == self.0 && is_same(&known.grant, grant);
            if proven.as_ref().is_some_and(is_known) {
                return Held::Yes;
            }
            let holds = match proof {
                Some(proof) => self.verify(&proof, &GRANT),
                None => grant.split_once('.').is_some_and(|(expiry, tag)| {
                    self.check_first("grant", &[], expiry, tag, now, GRANT_TTL_S)
                }),
            };
            if holds {
                *proven = Some(Proven { secret: self.0.clone(), grant: grant.to_owned() });
                return Held::Yes;
            }
            Held::No
        })
    }

    /// The user of a grant that is bound to one; `None` for other texts and expired grants.
    pub fn verify_user_grant(&self, grant: &str, now: u64) -> Option<GrantUser> {
        let (user, proof) = GrantUser::parse(grant)?;
        let proof = Proof::parse(proof).filter(|proof| now <= proof.expiry)?;
        let subject = user.subject();
        self.verify(&proof, &Claims { subject: &subject, ..GRANT }).then_some(user)
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

    /// Whether a gateway of an earlier version made this redirect: it covers method and path only.
    pub fn verify_first_redirect(
        &self,
        method: &str,
        path: &str,
        expiry: &str,
        tag: &str,
        now: u64,
    ) -> bool {
        self.check_first("redirect", &[method, path], expiry, tag, now, REDIRECT_TTL_S)
    }

    /// Whether a node of an earlier version sent this request: its proof covers method, path and
    /// query only. Nodes of this version make no such proofs.
    pub fn verify_first_node(
        &self,
        method: &str,
        path_and_query: &str,
        value: &str,
        now: u64,
    ) -> bool {
        value.split_once('.').is_some_and(|(expiry, tag)| {
            self.check_first("node", &[method, path_and_query], expiry, tag, now, NODE_AUTH_TTL_S)
        })
    }
}

/// The error for a request that only nodes may send.
pub fn not_a_node() -> Error {
    Error::new(ErrorCode::AccessDenied, "not signed by a node of this cluster")
        .hint("nodes of one cluster need the same secret file and clocks within 5 minutes")
}

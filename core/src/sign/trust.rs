//! Which proofs count at a node: by keys of nodes in the cluster's state, or by the cluster's secret.

use super::claims::{GRANT, MadeWith, NOTHING};
use super::proven::is_proven;
use super::{
    Claims, ClusterSecret, GRANT_TTL_S, GrantUser, Held, NODE_AUTH_TTL_S, Proof, Purpose,
    REDIRECT_TTL_S, Signer, UNSIGNED_BODY, is_before_keys, redirect_target, signed_s,
};
use crate::state::{NO_NODE_KEYS, NodeKeyRecord, NodeKeys, Role};

/// Verifies proofs at one node.
///
/// Once all members of the cluster have keys, the cluster's secret proves nothing but what is needed
/// before two nodes have each other's key.
#[derive(Clone, Copy)]
pub struct Trust<'a> {
    /// `None` at a target that joined by a token.
    secret: Option<&'a ClusterSecret>,
    me: Option<&'a Signer>,
    keys: &'a NodeKeys,
}

impl<'a> Trust<'a> {
    /// By the keys of nodes that this node, `me`, has in its state.
    pub fn new(me: &'a Signer, keys: &'a NodeKeys) -> Self {
        Self { secret: me.secret(), me: Some(me), keys }
    }

    /// Accepts what the cluster's secret proves: no node has a key.
    pub fn by_secret(secret: &'a ClusterSecret) -> Self {
        Self { secret: Some(secret), me: None, keys: &NO_NODE_KEYS }
    }

    /// The sender of this proof or grant, if it was made with a key that is not in this node's state:
    /// the sender may be a new member.
    pub fn unknown_sender<'b>(&self, text: &'b str) -> Option<&'b str> {
        let proof = Proof::parse(text).or_else(|| Proof::parse(GrantUser::parse(text)?.1))?;
        let is_unknown =
            proof.made_with != MadeWith::ClusterSecret && self.keys.get(proof.sender).is_none();
        is_unknown.then_some(proof.sender)
    }

    /// The sender of this grant, if another key than the one in this node's state made it: the sender had
    /// that key before, or has it since.
    pub fn sender_with_other_key<'b>(&self, grant: &'b str) -> Option<&'b str> {
        let (subject, proof) = match GrantUser::parse(grant) {
            Some((user, proof)) => (user.subject(), proof),
            None => ("*".to_owned(), grant),
        };
        let proof = Proof::parse(proof)?;
        let is_other = proof.made_with == MadeWith::OwnKey
            && self.keys.get(proof.sender).is_some_and(|sender| sender.role == Role::Gateway)
            && !self.is_granted(&proof, grant, &subject);
        is_other.then_some(proof.sender)
    }

    /// Whether the proof was made for these claims, with sender, receiver, nonce, expiry and body
    /// taken from the proof. Does not check the time.
    pub fn verify(&self, proof: &Proof<'_>, claims: &Claims<'_>) -> bool {
        match proof.made_with {
            MadeWith::ClusterSecret => {
                let signed = signed_s(proof.expiry, lifetime_s(claims.purpose));
                let is_early = claims.purpose == Purpose::NodeCall && is_before_keys(claims.target);
                (is_early || self.keys.take_secret(signed))
                    && self.secret.is_some_and(|secret| secret.verify(proof, claims))
            }
            MadeWith::OwnKey => self.keys.get(proof.sender).is_some_and(|sender| {
                sender.key.verify(&proof.completing(claims).message(), proof.tag)
            }),
            MadeWith::PairKey => {
                let pair = || {
                    let sender = self.keys.get(proof.sender)?;
                    self.me?.key()?.pair_key(&sender.key, proof.expiry)
                };
                pair().is_some_and(|key| {
                    ClusterSecret::of_key(&key).has_tag(&proof.completing(claims), proof.tag)
                })
            }
        }
    }

    /// Whether the redirect proof `text` allows `method path?query` at the node `receiver`.
    pub fn verify_redirect<'b>(
        &self,
        method: &str,
        path: &str,
        query: &str,
        text: &'b str,
        receiver: &str,
        now: u64,
    ) -> Held<'b> {
        let (Some(sent), Ok(target)) = (Proof::parse(text), redirect_target(path, query)) else {
            return Held::No;
        };
        let proof = Proof { receiver, ..sent };
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

    /// Whether a grant is valid, also one of the first format, which a client may have from a
    /// gateway of an earlier version.
    pub fn verify_grant<'b>(&self, grant: &'b str, now: u64) -> Held<'b> {
        let proof = Proof::parse(grant);
        let Some(proof) = proof else {
            return if self.is_first_grant(grant, now) { Held::Yes } else { Held::No };
        };
        match self.is_granted(&proof, grant, "*") {
            true if now <= proof.expiry => Held::Yes,
            true => {
                Held::Late { signer: proof.sender, signed_s: signed_s(proof.expiry, GRANT_TTL_S) }
            }
            false => Held::No,
        }
    }

    /// The user of a grant that is bound to one; `None` for other texts and expired grants.
    pub fn verify_user_grant(&self, grant: &str, now: u64) -> Option<GrantUser> {
        let (user, proof) = GrantUser::parse(grant)?;
        let proof = Proof::parse(proof).filter(|proof| now <= proof.expiry)?;
        self.is_granted(&proof, grant, &user.subject()).then_some(user)
    }

    /// Whether a gateway made this grant; a target may make one only for itself.
    fn is_granted(&self, proof: &Proof<'_>, grant: &str, subject: &str) -> bool {
        let claims = Claims { subject, ..GRANT };
        let signed = signed_s(proof.expiry, GRANT_TTL_S);
        let key = match proof.made_with {
            MadeWith::ClusterSecret if self.keys.take_secret(signed) => match self.secret {
                Some(secret) => secret.bytes(),
                None => return false,
            },
            MadeWith::OwnKey => match self.keys.get(proof.sender) {
                Some(NodeKeyRecord { role, key })
                    if *role == Role::Gateway || subject == GrantUser::node().subject() =>
                {
                    key.as_str().as_bytes()
                }
                _ => return false,
            },
            _ => return false,
        };
        is_proven(key, grant, || self.verify(proof, &claims))
    }

    fn is_first_grant(&self, grant: &str, now: u64) -> bool {
        self.is_first(grant, GRANT_TTL_S, |secret, expiry, tag| {
            secret.check_first("grant", &[], expiry, tag, now, GRANT_TTL_S)
        })
    }

    /// Whether a proof `expiry.tag` of the first format counts.
    fn is_first(
        &self,
        text: &str,
        ttl_s: u64,
        check: impl FnOnce(&ClusterSecret, &str, &str) -> bool,
    ) -> bool {
        let (Some(secret), Some((expiry, tag))) = (self.secret, text.split_once('.')) else {
            return false;
        };
        let signed = expiry.parse().map(|expiry| signed_s(expiry, ttl_s));
        signed.is_ok_and(|signed| self.keys.take_secret(signed)) && check(secret, expiry, tag)
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
        self.is_first(&format!("{expiry}.{tag}"), REDIRECT_TTL_S, |secret, expiry, tag| {
            secret.check_first("redirect", &[method, path], expiry, tag, now, REDIRECT_TTL_S)
        })
    }

    /// Whether a node of an earlier version sent this request: its proof covers method, path and
    /// query only. Nodes of this version make no such proofs.
    pub fn verify_first_node(&self, method: &str, target: &str, value: &str, now: u64) -> bool {
        self.is_first(value, NODE_AUTH_TTL_S, |secret, expiry, tag| {
            secret.check_first("node", &[method, target], expiry, tag, now, NODE_AUTH_TTL_S)
        })
    }
}

/// The lifetime of proofs for this purpose, seconds.
fn lifetime_s(purpose: Purpose) -> u64 {
    match purpose {
        Purpose::Redirect => REDIRECT_TTL_S,
        Purpose::Grant => GRANT_TTL_S,
        Purpose::NodeCall | Purpose::S3Relay => NODE_AUTH_TTL_S,
    }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;

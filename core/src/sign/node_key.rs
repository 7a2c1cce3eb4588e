//! The key pairs of a node, and the public half that the cluster's state records.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock};

use aws_lc_rs::agreement::{self, PrivateKey, X25519};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{self, ED25519, Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::error::{Error, Result};
use crate::locks::RwLockExt;

/// Bytes of the seed that both key pairs of a node are made from.
pub const SEED_BYTES: usize = 32;
/// Bytes of each public key.
const PUBLIC_BYTES: usize = 32;
/// Seconds for which the key of two nodes for proofs between them is valid.
pub const PAIR_KEY_S: u64 = 3600;
/// Other nodes whose agreed keys are kept; if there are more, all are agreed again.
const MAX_PEERS: usize = 8192;

/// The public half of a node's keys, which verifies its proofs: its Ed25519 key, then its X25519 key,
/// 64 bytes in base64url.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicKey(String);

impl PublicKey {
    /// Returns an error unless the text has the form of a public key.
    pub fn check(&self) -> Result<()> {
        match self.halves() {
            Some(_) => Ok(()),
            None => Err(Error::invalid("the node's public key is unreadable")
                .hint("start the node with the version of forebay that the gateways have")),
        }
    }

    fn halves(&self) -> Option<([u8; PUBLIC_BYTES], [u8; PUBLIC_BYTES])> {
        let bytes = URL_SAFE_NO_PAD.decode(&self.0).ok()?;
        let (signing, exchange) = bytes.split_at_checked(PUBLIC_BYTES)?;
        Some((signing.try_into().ok()?, exchange.try_into().ok()?))
    }

    /// Whether the owner of this key signed the message.
    pub fn verify(&self, message: &[u8], signature: &str) -> bool {
        let (Some((key, _)), Ok(signature)) = (self.halves(), URL_SAFE_NO_PAD.decode(signature))
        else {
            return false;
        };
        signature::UnparsedPublicKey::new(&ED25519, key).verify(message, &signature).is_ok()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The private keys of a node: one signs, the other one agrees with another node on a key that only
/// these two nodes have. Never printed. Cheap to clone.
#[derive(Clone)]
pub struct NodeKey(Arc<Inner>);

struct Inner {
    signing: Ed25519KeyPair,
    exchange: PrivateKey,
    public: PublicKey,
    /// Keys that were agreed with other nodes, by their public key.
    agreed: RwLock<HashMap<PublicKey, Agreed>>,
}

/// The secret of two nodes, and the last key for proofs that was derived from it.
#[derive(Clone, Copy)]
struct Agreed {
    secret: [u8; 32],
    /// Number of the [`PAIR_KEY_S`] for which the key is valid.
    period: u64,
    pair_key: [u8; 32],
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(…)")
    }
}

fn hmac(key: &[u8], texts: &[&[u8]]) -> [u8; 32] {
    // A key of any length is a valid HMAC key.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key length");
    texts.iter().for_each(|text| mac.update(text));
    mac.finalize().into_bytes().into()
}

impl NodeKey {
    /// Makes the key pairs of this seed, which must be random and secret.
    pub fn of_seed(seed: &[u8; SEED_BYTES]) -> Result<Self> {
        let failed = || Error::internal("the keys of the node cannot be made");
        let signing = Ed25519KeyPair::from_seed_unchecked(&hmac(seed, &[b"forebay-node-sign"]))
            .map_err(|_| failed())?;
        let exchange =
            PrivateKey::from_private_key(&X25519, &hmac(seed, &[b"forebay-node-exchange"]))
                .map_err(|_| failed())?;
        let mut public = signing.public_key().as_ref().to_vec();
        public.extend_from_slice(exchange.compute_public_key().map_err(|_| failed())?.as_ref());
        let public = PublicKey(URL_SAFE_NO_PAD.encode(public));
        Ok(Self(Arc::new(Inner { signing, exchange, public, agreed: RwLock::default() })))
    }

    pub fn public(&self) -> &PublicKey {
        &self.0.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.0.signing.sign(message))
    }

    /// The key for proofs between this node and another one that expire at `expiry`, unix seconds.
    /// Another one follows every [`PAIR_KEY_S`]. `None`: the public key is unusable.
    pub(super) fn pair_key(&self, other: &PublicKey, expiry: u64) -> Option<[u8; 32]> {
        let period = expiry / PAIR_KEY_S;
        let known = self.0.agreed.read_locked().get(other).copied();
        if let Some(known) = known.filter(|known| known.period == period) {
            return Some(known.pair_key);
        }
        let secret = known.map_or_else(|| self.agree(other), |known| Some(known.secret))?;
        let pair_key = hmac(&secret, &[&period.to_le_bytes()]);
        let mut all = self.0.agreed.write_locked();
        if all.len() >= MAX_PEERS && !all.contains_key(other) {
            all.clear();
        }
        all.insert(other.clone(), Agreed { secret, period, pair_key });
        Some(pair_key)
    }

    /// A key for what one of the two nodes encrypts for the other one. `None`: the public key is
    /// unusable.
    pub fn encryption_key(&self, other: &PublicKey) -> Option<[u8; 32]> {
        Some(hmac(&self.agree(other)?, &[b"forebay-encrypt-1"]))
    }

    /// Agrees on a secret with the node that has this public key.
    fn agree(&self, other: &PublicKey) -> Option<[u8; 32]> {
        let (_, exchange) = other.halves()?;
        let theirs = agreement::UnparsedPublicKey::new(&X25519, exchange);
        let mut publics = [self.0.public.as_str(), other.as_str()];
        publics.sort_unstable();
        let texts = [publics[0].as_bytes(), publics[1].as_bytes()];
        agreement::agree(&self.0.exchange, theirs, Unspecified, |shared| {
            Ok(hmac(b"forebay-pair-1", &[shared, texts[0], texts[1]]))
        })
        .ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(seed: u8) -> NodeKey {
        NodeKey::of_seed(&[seed; SEED_BYTES]).unwrap()
    }

    #[test]
    fn a_signature_counts_for_its_message_and_its_key() {
        let (ours, other) = (key(1), key(2));
        let signature = ours.sign(b"a");
        assert!(ours.public().verify(b"a", &signature));
        assert!(!ours.public().verify(b"b", &signature));
        assert!(!other.public().verify(b"a", &signature));
        assert!(!ours.public().verify(b"a", "AAAA"));
        assert_eq!(key(1).public(), ours.public());
        assert!(ours.public().check().is_ok());
        assert!(PublicKey("AAAA".into()).check().is_err());
        assert!(!format!("{ours:?}").contains(ours.public().as_str()));
    }

    #[test]
    fn two_nodes_agree_on_a_key_of_the_hour_that_others_do_not_have() {
        let (a, b, c) = (key(1), key(2), key(3));
        let agreed = a.pair_key(b.public(), 100).unwrap();
        assert_eq!(b.pair_key(a.public(), 100).unwrap(), agreed);
        assert_eq!(a.pair_key(b.public(), 101).unwrap(), agreed, "from the cache");
        assert_ne!(a.pair_key(b.public(), 100 + PAIR_KEY_S).unwrap(), agreed);
        assert_eq!(a.pair_key(b.public(), 100).unwrap(), agreed, "the earlier hour again");
        assert_ne!(a.pair_key(c.public(), 100).unwrap(), agreed);
        assert_ne!(c.pair_key(b.public(), 100).unwrap(), agreed);
        assert_eq!(a.pair_key(&PublicKey("x".into()), 100), None);
    }

    /// Prints the cost of a proof: `cargo test -p forebay-core --lib cost_of -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn cost_of_signatures_and_pair_keys() {
        let (a, b) = (key(1), key(2));
        let message = [7; 300];
        let n = 5_000;
        let time = |what: &str, run: &dyn Fn()| {
            let from = std::time::Instant::now();
            (0..n).for_each(|_| run());
            println!("{what}: {:.1} us", from.elapsed().as_secs_f64() * 1e6 / f64::from(n));
        };
        let signature = a.sign(&message);
        time("sign", &|| drop(std::hint::black_box(a.sign(&message))));
        time("verify", &|| assert!(a.public().verify(&message, &signature)));
        time("pair key", &|| assert!(a.pair_key(b.public(), 100).is_some()));
        time("mac", &|| assert_ne!(hmac(&[1; 32], &[&message]), [0; 32]));
    }
}

//! Tokens of this cluster: key pairs, issue, and verification.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::access::{AccessState, Claims, SigningKeyRecord};
use forebay_core::{Error, Result};
use serde_json::json;

use super::jws::{Algorithm, Jws, KeyBytes, VerifyKey};
use super::seal::{Place, Sealer};

/// A token and its claims.
#[derive(Clone)]
pub struct NewToken {
    pub text: String,
    pub claims: Claims,
}

/// Random characters for ids and secrets: `bytes` bytes as base64url without `-` and `_`.
pub fn random_text(bytes: usize) -> String {
    let mut raw = vec![0u8; bytes];
    rand::fill(raw.as_mut_slice());
    // Replaced characters cost a fraction of a bit each.
    URL_SAFE_NO_PAD.encode(raw).replace(['-', '_'], "x")
}

/// A new key pair that signs tokens.
pub fn new_signing_key(sealer: &Sealer) -> Result<SigningKeyRecord> {
    let failed = || Error::internal("a key pair cannot be made");
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| failed())?;
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).map_err(|_| failed())?;
    let id = random_text(9);
    let private = sealer.seal(Place::SigningKey(&id), document.as_ref())?;
    let public = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    Ok(SigningKeyRecord { id, public, private, created_ns: 0 })
}

impl NewToken {
    /// Signs claims with the newest key of the cluster.
    pub fn sign(claims: Claims, state: &AccessState, sealer: &Sealer) -> Result<Self> {
        let key = state.signing_keys.last();
        let key = key.ok_or_else(|| Error::internal("the cluster has no key to sign tokens"))?;
        let private = sealer.open(Place::SigningKey(&key.id), &key.private).ok_or_else(|| {
            Error::internal("the key that signs tokens cannot be decrypted")
                .hint("all nodes need the secret file that the cluster had when it was made")
        })?;
        let pair = Ed25519KeyPair::from_pkcs8(&private)
            .map_err(|_| Error::internal("the key that signs tokens is damaged"))?;
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": key.id});
        let payload = serde_json::to_vec(&claims)
            .map_err(|e| Error::internal(format!("claims do not serialize: {e}")))?;
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(payload)
        );
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
        Ok(Self { text: format!("{signed}.{signature}"), claims })
    }
}

/// The claims of a token that a key of this cluster signed; `None` for every other token.
pub(super) fn own_claims(token: &Jws<'_>, state: &AccessState) -> Option<Claims> {
    let id = token.key.as_deref()?;
    let key = state.signing_keys.iter().find(|key| key.id == id)?;
    let bytes = KeyBytes::Public(URL_SAFE_NO_PAD.decode(&key.public).ok()?);
    let key = VerifyKey { id: Some(id.to_owned()), algorithms: vec![Algorithm::EdDsa], bytes };
    if key.verifies(token) { token.claims() } else { None }
}

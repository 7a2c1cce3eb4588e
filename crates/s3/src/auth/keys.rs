//! Secrets, and the keys that are derived from them.

use std::collections::BTreeMap;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A secret access key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(String);

impl SecretKey {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

/// Looks up secrets.
pub trait Keys {
    /// The secret of an access key; `None` if the key does not exist.
    fn secret(&self, access_key: &str) -> Option<SecretKey>;
}

impl Keys for BTreeMap<String, SecretKey> {
    fn secret(&self, access_key: &str) -> Option<SecretKey> {
        self.get(access_key).cloned()
    }
}

/// The key that SigV4 derives for one day, region and service. Never printed.
#[derive(Clone)]
pub struct SigningKey([u8; 32]);

impl SigningKey {
    pub fn derive(secret: &SecretKey, day: &str, region: &str, service: &str) -> Self {
        let first = [b"AWS4", secret.as_bytes()].concat();
        let mut key = hmac(&first, day.as_bytes());
        for part in [region, service, "aws4_request"] {
            key = hmac(&key, part.as_bytes());
        }
        Self(key)
    }

    /// The signature of a text, as lower-case hexadecimal.
    pub fn sign(&self, text: &str) -> String {
        hex::encode(hmac(&self.0, text.as_bytes()))
    }

    /// Whether `signature` belongs to the text, compared in constant time.
    pub fn verify(&self, text: &str, signature: &str) -> bool {
        let Ok(signature) = hex::decode(signature) else { return false };
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key length");
        mac.update(text.as_bytes());
        mac.verify_slice(&signature).is_ok()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

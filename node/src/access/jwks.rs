//! Sets of public keys (RFC 7517).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::{Error, Result};
use serde::Deserialize;

use super::jws::{Algorithm, KeyBytes, KeyKind, VerifyKey};

/// Keys of one set; more are ignored.
const MAX_KEYS: usize = 64;

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

/// The keys of a set that may verify tokens with one of `allowed`. Keys of other kinds, also
/// secrets, are ignored.
pub(super) fn keys(json: &[u8], allowed: &[Algorithm], place: &str) -> Result<Vec<VerifyKey>> {
    let set: KeySet = serde_json::from_slice(json)
        .map_err(|e| Error::invalid(format!("{place} is no set of keys (JWKS): {e}")))?;
    let parsed = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    Ok(parsed.filter_map(|key| key.verify_key(allowed)).take(MAX_KEYS).collect())
}

impl Jwk {
    fn verify_key(self, allowed: &[Algorithm]) -> Option<VerifyKey> {
        if self.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let (kind, bytes) = match (self.kty.as_str(), self.crv.as_str()) {
            ("RSA", _) => {
                let (n, e) = (decode(&self.n)?, decode(&self.e)?);
                (KeyKind::Rsa, KeyBytes::RsaParts { n, e })
            }
            ("EC", "P-256") => (KeyKind::P256, self.point()?),
            ("EC", "P-384") => (KeyKind::P384, self.point()?),
            ("OKP", "Ed25519") => (KeyKind::Ed25519, KeyBytes::Public(decode(&self.x)?)),
            _ => return None,
        };
        let mut algorithms = Algorithm::of_kind(kind);
        algorithms.retain(|algorithm| allowed.contains(algorithm));
        if let Some(name) = &self.alg {
            let only = Algorithm::of_name(name);
            algorithms.retain(|algorithm| Some(*algorithm) == only);
        }
        (!algorithms.is_empty()).then_some(VerifyKey { id: self.kid, algorithms, bytes })
    }

    /// An uncompressed point.
    fn point(&self) -> Option<KeyBytes> {
        let mut point = vec![4];
        point.extend(decode(&self.x)?);
        point.extend(decode(&self.y)?);
        Some(KeyBytes::Public(point))
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| !bytes.is_empty())
}

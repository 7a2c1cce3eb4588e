//! Encrypts secrets of the cluster's state with a key that only nodes of the cluster have.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::access::Opaque;
use forebay_core::sign::ClusterSecret;
use forebay_core::{Error, Result};

/// Precedes a sealed secret of this form: AES-256-GCM with the key of the cluster's secret.
const FORM: &str = "1.";

/// Seals and opens secrets. Each one is bound to its place, so that it cannot be moved to another.
pub struct Sealer(RandomizedNonceKey);

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(…)")
    }
}

/// The place of the secret of an access key.
pub fn s3_key(access: &str) -> String {
    format!("s3-key {access}")
}

/// The place of a private key that signs tokens.
pub(super) fn signing_key(id: &str) -> String {
    format!("signing-key {id}")
}

impl Sealer {
    pub fn new(secret: &ClusterSecret) -> Self {
        let key = secret.derive("state-secrets");
        Self(RandomizedNonceKey::new(&AES_256_GCM, &key).expect("the key has 32 bytes"))
    }

    pub fn seal(&self, place: &str, secret: &[u8]) -> Result<Opaque> {
        let mut sealed = secret.to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(place.as_bytes()), &mut sealed)
            .map_err(|_| Error::internal("a secret cannot be encrypted"))?;
        let mut bytes = nonce.as_ref().to_vec();
        bytes.append(&mut sealed);
        Ok(Opaque::new(format!("{FORM}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// `None`: the secret was sealed with another cluster's secret, for another place, or altered.
    pub fn open(&self, place: &str, sealed: &Opaque) -> Option<Vec<u8>> {
        let text = sealed.as_str().strip_prefix(FORM)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.0.open_in_place(nonce, Aad::from(place.as_bytes()), &mut sealed).ok()?;
        Some(opened.to_vec())
    }

    /// [`Self::open`] for a text.
    pub fn open_text(&self, place: &str, sealed: &Opaque) -> Option<String> {
        self.open(place, sealed).and_then(|bytes| String::from_utf8(bytes).ok())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sealer(secret: &str) -> Sealer {
        Sealer::new(&ClusterSecret::new(secret).unwrap())
    }

    #[test]
    fn a_sealed_secret_opens_with_the_same_cluster_secret_at_its_place_alone() {
        let ours = sealer("0123456789abcdef");
        let sealed = ours.seal("here", b"planted").unwrap();
        assert!(!sealed.as_str().contains("planted"));
        assert_eq!(ours.open_text("here", &sealed).unwrap(), "planted");
        assert_eq!(ours.open("there", &sealed), None);
        assert_eq!(sealer("another-secret-of-16").open("here", &sealed), None);
        assert_ne!(ours.seal("here", b"planted").unwrap(), sealed, "a nonce of its own");
        let altered = format!("{}A", &sealed.as_str()[..sealed.as_str().len() - 1]);
        let altered = if altered == sealed.as_str() { altered + "B" } else { altered };
        assert_eq!(ours.open("here", &Opaque::new(altered)), None);
        assert_eq!(ours.open("here", &Opaque::new("planted")), None);
        assert!(!format!("{ours:?}").contains("0123"));
    }
}

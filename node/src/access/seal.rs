//! Encrypts secrets of the cluster's state with keys that only nodes of the cluster have.
//!
//! Secrets of S3 keys have a key of their own, because every target checks S3 signatures. A target
//! without the cluster's secret gets that key when it joins, and can open nothing else.

use std::sync::OnceLock;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::access::Opaque;
use forebay_core::sign::{ClusterSecret, NodeKey};
use forebay_core::state::{NodeKeys, Role};
use forebay_core::{Error, ErrorCode, Result};

/// Precedes a sealed secret of this form: AES-256-GCM, with a key of the cluster's secret.
const FORM: &str = "1.";
/// Binds the key of S3 secrets to its way from a gateway to a target.
const HANDED_OVER: &[u8] = b"s3-secrets";

/// The place of a sealed secret in the state. A secret cannot be moved to another place.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// The secret of this access key.
    S3Key(&'a str),
    /// The private key, with this id, that signs tokens.
    SigningKey(&'a str),
    /// The text of the join token with this id.
    JoinToken(&'a str),
}

impl Place<'_> {
    fn text(self) -> String {
        match self {
            Self::S3Key(access) => format!("s3-key {access}"),
            Self::SigningKey(id) => format!("signing-key {id}"),
            Self::JoinToken(id) => format!("join-token {id}"),
        }
    }
}

/// Seals and opens secrets.
#[derive(Default)]
pub struct Sealer {
    /// For [`Place::S3Key`].
    s3: OnceLock<[u8; 32]>,
    /// For all other places; `None` without the cluster's secret.
    state: Option<[u8; 32]>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(…)")
    }
}

impl Sealer {
    /// `None`: the node has no secret of the cluster, and opens nothing before [`Self::take_s3_key`].
    pub fn new(secret: Option<&ClusterSecret>) -> Self {
        let Some(secret) = secret else { return Self::default() };
        let state = Some(secret.derive("state-secrets"));
        Self { s3: OnceLock::from(secret.derive("s3-secrets")), state }
    }

    fn key(&self, place: Place<'_>) -> Option<&[u8; 32]> {
        match place {
            Place::S3Key(_) => self.s3.get(),
            _ => self.state.as_ref(),
        }
    }

    /// Returns an error at a node that lacks the key for this place.
    pub fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Opaque> {
        let failed = || Error::internal("a secret cannot be encrypted");
        let key = self.key(place).ok_or_else(failed)?;
        let sealed = encrypt(key, place.text().as_bytes(), secret).ok_or_else(failed)?;
        Ok(Opaque::new(format!("{FORM}{sealed}")))
    }

    /// `None`: the secret was sealed with another cluster's secret, for another place, or altered,
    /// or this node lacks the key.
    pub fn open(&self, place: Place<'_>, sealed: &Opaque) -> Option<Vec<u8>> {
        let text = sealed.as_str().strip_prefix(FORM)?;
        decrypt(self.key(place)?, place.text().as_bytes(), text)
    }

    /// [`Self::open`] for a text.
    pub fn open_text(&self, place: Place<'_>, sealed: &Opaque) -> Option<String> {
        self.open(place, sealed).and_then(|bytes| String::from_utf8(bytes).ok())
    }

    /// The key of S3 secrets for the node with the public key `receiver`, encrypted by the node `me`:
    /// its public key, a dot, and the encrypted key.
    pub fn s3_key_for(
        &self,
        me: &NodeKey,
        receiver: &forebay_core::sign::PublicKey,
    ) -> Option<String> {
        let sealed = encrypt(&me.encryption_key(receiver)?, HANDED_OVER, self.s3.get()?)?;
        Some(format!("{}.{sealed}", me.public().as_str()))
    }

    /// Opens S3 secrets from now on with the key that [`Self::s3_key_for`] made for the node `me`.
    /// Returns an error unless a gateway of the cluster made it.
    pub fn take_s3_key(&self, text: &str, me: &NodeKey, keys: &NodeKeys) -> Result<()> {
        let opened = || {
            let (sender, sealed) = text.split_once('.')?;
            let mut gateways = keys.keys.values().filter(|known| known.role == Role::Gateway);
            let sender = gateways.find(|known| known.key.as_str() == sender)?;
            let key = decrypt(&me.encryption_key(&sender.key)?, HANDED_OVER, sealed)?;
            <[u8; 32]>::try_from(key).ok()
        };
        let key = opened().ok_or_else(|| {
            let text = "no gateway of the cluster made the key for S3 secrets of this node";
            Error::new(ErrorCode::AccessDenied, text)
        })?;
        // The key follows from the cluster's secret, so a second one is the same.
        let _ = self.s3.set(key);
        Ok(())
    }
}

/// Nonce and encrypted text, base64url.
fn encrypt(key: &[u8; 32], place: &[u8], plain: &[u8]) -> Option<String> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).ok()?;
    let mut sealed = plain.to_vec();
    let nonce = key.seal_in_place_append_tag(Aad::from(place), &mut sealed).ok()?;
    let mut bytes = nonce.as_ref().to_vec();
    bytes.append(&mut sealed);
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

fn decrypt(key: &[u8; 32], place: &[u8], text: &str) -> Option<Vec<u8>> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).ok()?;
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
    let mut sealed = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let opened = key.open_in_place(nonce, Aad::from(place), &mut sealed).ok()?;
    Some(opened.to_vec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::NodeId;
    use forebay_core::state::NodeKeyRecord;

    use super::*;

    fn sealer(secret: &str) -> Sealer {
        Sealer::new(Some(&ClusterSecret::new(secret).unwrap()))
    }

    #[test]
    fn a_sealed_secret_opens_with_the_same_cluster_secret_at_its_place_alone() {
        let ours = sealer("0123456789abcdef");
        for place in [Place::S3Key("here"), Place::SigningKey("here"), Place::JoinToken("here")] {
            let sealed = ours.seal(place, b"planted").unwrap();
            assert!(!sealed.as_str().contains("planted"));
            assert_eq!(ours.open_text(place, &sealed).unwrap(), "planted");
            let others = [Place::S3Key("a"), Place::SigningKey("a"), Place::JoinToken("a")];
            assert!(others.iter().all(|other| ours.open(*other, &sealed).is_none()));
            assert_eq!(sealer("another-secret-of-16").open(place, &sealed), None);
            assert_ne!(ours.seal(place, b"planted").unwrap(), sealed, "a nonce of its own");
            let altered = format!("{}A", &sealed.as_str()[..sealed.as_str().len() - 1]);
            let altered = if altered == sealed.as_str() { altered + "B" } else { altered };
            assert_eq!(ours.open(place, &Opaque::new(altered)), None);
            assert_eq!(ours.open(place, &Opaque::new("planted")), None);
        }
        assert!(!format!("{ours:?}").contains("0123"));
    }

    #[test]
    fn a_target_without_the_cluster_secret_opens_s3_secrets_and_nothing_else() {
        let key = |seed: u8| NodeKey::of_seed(&[seed; 32]).unwrap();
        let (gateway, target, stranger) = (key(1), key(2), key(3));
        let mut known = NodeKeys::default();
        for (id, role, key) in
            [("gateway-1", Role::Gateway, &gateway), ("target-01", Role::Target, &target)]
        {
            let record = NodeKeyRecord { role, key: key.public().clone() };
            known.keys.insert(NodeId::new(id).unwrap(), record);
        }
        let (theirs, ours) = (sealer("0123456789abcdef"), Sealer::new(None));
        let secret = theirs.seal(Place::S3Key("AK"), b"planted").unwrap();
        let private = theirs.seal(Place::SigningKey("k"), b"planted").unwrap();
        assert_eq!(ours.open(Place::S3Key("AK"), &secret), None);
        for maker in [&target, &stranger] {
            let forged = theirs.s3_key_for(maker, target.public()).unwrap();
            assert!(ours.take_s3_key(&forged, &target, &known).is_err(), "no gateway made it");
        }
        let given = theirs.s3_key_for(&gateway, target.public()).unwrap();
        assert!(Sealer::new(None).take_s3_key(&given, &stranger, &known).is_err());
        ours.take_s3_key(&given, &target, &known).unwrap();
        assert_eq!(ours.open_text(Place::S3Key("AK"), &secret).unwrap(), "planted");
        assert_eq!(ours.open(Place::SigningKey("k"), &private), None);
        assert!(ours.seal(Place::SigningKey("k"), b"forged").is_err());
    }
}

//! JSON Web Signatures in the compact form (RFC 7515), and the algorithms that are accepted.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::{Error, Result};
use serde_json::Value;

/// A signature algorithm of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// The kind of key that an algorithm needs. A key of one kind never verifies another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Secret,
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Algorithm {
    const ALL: [(&'static str, Self); 12] = [
        ("HS256", Self::Hs256),
        ("HS384", Self::Hs384),
        ("HS512", Self::Hs512),
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// Reads the name in a header or in the configuration; names are case-sensitive, and `none` is
    /// none of them.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, algorithm)| algorithm)
    }

    pub(super) fn names() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }

    pub(super) fn kind(self) -> KeyKind {
        match self {
            Self::Hs256 | Self::Hs384 | Self::Hs512 => KeyKind::Secret,
            Self::Rs256 | Self::Rs384 | Self::Rs512 => KeyKind::Rsa,
            Self::Ps256 | Self::Ps384 | Self::Ps512 => KeyKind::Rsa,
            Self::Es256 => KeyKind::P256,
            Self::Es384 => KeyKind::P384,
            Self::EdDsa => KeyKind::Ed25519,
        }
    }

    /// The algorithms of this kind of key.
    pub(super) fn of_kind(kind: KeyKind) -> Vec<Self> {
        let all = Self::ALL.into_iter().map(|(_, algorithm)| algorithm);
        all.filter(|algorithm| algorithm.kind() == kind).collect()
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            _ => return None,
        })
    }

    fn verification(self) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::EdDsa => &ED25519,
            other => other.rsa()?,
        })
    }

    fn hmac(self) -> Option<hmac::Algorithm> {
        Some(match self {
            Self::Hs256 => hmac::HMAC_SHA256,
            Self::Hs384 => hmac::HMAC_SHA384,
            Self::Hs512 => hmac::HMAC_SHA512,
            _ => return None,
        })
    }
}

/// The bytes of a key that verifies tokens.
#[derive(Clone)]
pub(super) enum KeyBytes {
    Secret(Vec<u8>),
    /// In the form of the algorithm, or as SubjectPublicKeyInfo.
    Public(Vec<u8>),
    RsaParts {
        n: Vec<u8>,
        e: Vec<u8>,
    },
}

/// A key with the algorithms that it may be used for. Never printed.
#[derive(Clone)]
pub(super) struct VerifyKey {
    /// The `kid` of the key; `None` for a key without one, which verifies every token.
    pub(super) id: Option<String>,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) bytes: KeyBytes,
}

impl std::fmt::Debug for VerifyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl VerifyKey {
    /// Whether the key made the signature of the token with an algorithm that is allowed for it.
    pub(super) fn verifies(&self, token: &Jws<'_>) -> bool {
        let algorithm = token.algorithm;
        if !self.algorithms.contains(&algorithm) {
            return false;
        }
        let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        match &self.bytes {
            KeyBytes::Secret(secret) => algorithm.hmac().is_some_and(|kind| {
                hmac::verify(&hmac::Key::new(kind, secret), message, signature).is_ok()
            }),
            KeyBytes::RsaParts { n, e } => algorithm.rsa().is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }),
            KeyBytes::Public(key) => algorithm.verification().is_some_and(|algorithm| {
                UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
            }),
        }
    }
}

/// A token whose signature was not checked yet.
pub(super) struct Jws<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key: Option<String>,
    /// Header and payload as sent.
    signed: &'a str,
    signature: Vec<u8>,
    payload: Vec<u8>,
}

impl<'a> Jws<'a> {
    /// `None`: it is no token, its algorithm is unknown, or its header has critical extensions, of
    /// which none are known. Keys in the header (`jwk`, `jku`, `x5u`, `x5c`) are ignored.
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header.get("crit").is_some() || header.get("b64").is_some() {
            return None;
        }
        let algorithm = Algorithm::of_name(header.get("alg")?.as_str()?)?;
        let key = match header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str()?.to_owned()),
        };
        let (signature, payload) = (decode(signature)?, decode(payload)?);
        Some(Self { algorithm, key, signed, signature, payload })
    }

    /// The claims. They must not be trusted before a key verified the token.
    pub(super) fn claims<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.payload).ok()
    }
}

fn decode(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

/// The bytes of a public key in PEM form (`PUBLIC KEY` or `RSA PUBLIC KEY`).
pub(super) fn pem_key(text: &str, place: &str) -> Result<Vec<u8>> {
    let invalid = |why: &str| Error::invalid(format!("{place} has no usable public key: {why}"));
    let labels = ["PUBLIC KEY", "RSA PUBLIC KEY"];
    let between = labels.iter().find_map(|label| {
        let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
        rest.split_once(&format!("-----END {label}-----")).map(|(body, _)| body)
    });
    let body = between.ok_or_else(|| invalid("it is not in PEM form"))?;
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let standard = base64::engine::general_purpose::STANDARD;
    standard.decode(body).map_err(|_| invalid("its base64 is damaged"))
}

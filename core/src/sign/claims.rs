//! The content of a node's proof, and its text form.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{REDIRECT_EXPIRY, REDIRECT_PROOF};
use crate::error::Result;
use crate::url::{decode_path, encode_path, encode_query, query_pairs};

/// Prefix of a proof of this format; proofs of the first format begin with their expiry.
pub const FORMAT: &str = "2";
/// Prefix of a proof that is signed with the sender's own key.
pub(super) const SIGNED: &str = "3";
/// Prefix of a proof with a key that only its sender and its receiver have.
pub(super) const PAIRED: &str = "4";
/// Separates the fields of a proof. Node ids, numbers and hashes do not contain it.
pub(super) const SEPARATOR: char = '~';
/// A field of a proof that is not bound to one value.
pub const ANY: &str = "*";
/// Body of a request whose proof does not cover it, because the body is streamed.
pub const UNSIGNED_BODY: &str = "-";
/// Body of a request without one.
pub const NO_BODY: &str = "0";

/// The permitted use of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client may repeat its request at another node.
    Redirect,
    /// A client may send requests to targets.
    Grant,
    /// A node sends a request on its own behalf.
    NodeCall,
    /// A node forwards another sender's S3 request.
    S3Relay,
}

impl Purpose {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::Grant => "grant",
            Self::NodeCall => "node",
            Self::S3Relay => "s3-relay",
        }
    }
}

/// Everything that a proof covers.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'a> {
    pub purpose: Purpose,
    pub method: &'a str,
    /// Path and query as sent; for a redirect in the form of [`redirect_target`].
    pub target: &'a str,
    /// The sender's principal; empty: the sender itself.
    pub subject: &'a str,
    /// [`body_hash`], [`UNSIGNED_BODY`] or [`NO_BODY`].
    pub body: &'a str,
    /// Id of the node that signs.
    pub sender: &'a str,
    /// Base URL of the node that the request is sent to.
    pub receiver: &'a str,
    /// Unique among the proofs of one sender.
    pub nonce: u64,
    /// Unix seconds after which the proof is invalid.
    pub expiry: u64,
}

/// The kind of key of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeWith {
    ClusterSecret,
    /// The sender's own key; every node of the cluster can verify it.
    OwnKey,
    /// A key that sender and receiver have.
    PairKey,
}

impl MadeWith {
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::ClusterSecret => FORMAT,
            Self::OwnKey => SIGNED,
            Self::PairKey => PAIRED,
        }
    }

    fn of(prefix: &str) -> Option<Self> {
        [Self::ClusterSecret, Self::OwnKey, Self::PairKey]
            .into_iter()
            .find(|m| m.prefix() == prefix)
    }
}

/// A proof as received. It must not be trusted before [`Trust::verify`](super::Trust::verify)
/// succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof<'a> {
    pub made_with: MadeWith,
    pub sender: &'a str,
    pub receiver: &'a str,
    pub nonce: u64,
    pub expiry: u64,
    pub body: &'a str,
    pub(super) tag: &'a str,
}

impl<'a> Proof<'a> {
    /// These claims with sender, receiver, nonce, expiry and body of the proof.
    pub(super) fn completing<'b>(&self, claims: &Claims<'b>) -> Claims<'b>
    where
        'a: 'b,
    {
        let Self { sender, receiver, nonce, expiry, body, .. } = *self;
        Claims { sender, receiver, nonce, expiry, body, ..*claims }
    }

    /// Parses the output of [`ClusterSecret::prove`]; `None` for any other text.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (format, rest) = text.split_once(SEPARATOR)?;
        let (sender, rest) = rest.split_once(SEPARATOR)?;
        // A URL may contain the separator, so it is parsed last, as the middle part.
        let mut fields = rest.rsplitn(5, SEPARATOR);
        let (tag, body) = (fields.next()?, fields.next()?);
        let expiry = fields.next()?.parse().ok()?;
        let nonce = u64::from_str_radix(fields.next()?, 16).ok()?;
        let receiver = fields.next()?;
        let made_with = MadeWith::of(format)?;
        Some(Self { made_with, sender, receiver, nonce, expiry, body, tag })
    }
}

impl Claims<'_> {
    /// All claims, each preceded by its length: different claims never have the same bytes.
    pub(super) fn feed(&self, mut update: impl FnMut(&[u8])) {
        let texts = [
            self.purpose.as_str(),
            self.method,
            self.target,
            self.subject,
            self.body,
            self.sender,
            self.receiver,
        ];
        for text in texts {
            update(&(text.len() as u64).to_le_bytes());
            update(text.as_bytes());
        }
        update(&self.nonce.to_le_bytes());
        update(&self.expiry.to_le_bytes());
    }

    /// The message that a node signs with its own key.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut message = b"forebay-proof-3".to_vec();
        self.feed(|bytes| message.extend_from_slice(bytes));
        message
    }

    /// The proof with this tag, and another text in place of the receiver.
    pub(super) fn written(&self, made_with: MadeWith, receiver: &str, tag: &str) -> String {
        let Claims { sender, nonce, expiry, body, .. } = self;
        let (prefix, s) = (made_with.prefix(), SEPARATOR);
        format!("{prefix}{s}{sender}{s}{receiver}{s}{nonce:x}{s}{expiry}{s}{body}{s}{tag}")
    }
}

/// Empty claims, as a base for others.
pub(super) const NOTHING: Claims<'static> = Claims {
    purpose: Purpose::NodeCall,
    method: "",
    target: "",
    subject: "",
    body: NO_BODY,
    sender: "",
    receiver: "",
    nonce: 0,
    expiry: 0,
};

/// The claims of every grant, except for sender, nonce and expiry.
pub(super) const GRANT: Claims<'static> = Claims {
    purpose: Purpose::Grant,
    method: ANY,
    target: ANY,
    subject: ANY,
    body: ANY,
    sender: "",
    receiver: ANY,
    nonce: 0,
    expiry: 0,
};

/// The subject of a forwarded S3 request: the user, if the sender has authenticated it already, and
/// the address that the request came from.
pub fn relay_subject(user: Option<&str>, peer: &str) -> String {
    match user {
        Some(user) => format!("{peer} {user}"),
        None => peer.to_owned(),
    }
}

/// Whether two texts are equal, compared in constant time; their lengths are no secret.
fn is_same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// The hash of a body in memory, for [`Claims::body`].
pub fn body_hash(body: &[u8]) -> String {
    if body.is_empty() { NO_BODY.to_owned() } else { hex::encode(Sha256::digest(body)) }
}

/// Computes the hash of a body that arrives in chunks.
#[derive(Clone, Default)]
pub struct BodyHasher {
    sha: Sha256,
    is_empty: bool,
}

impl BodyHasher {
    pub fn new() -> Self {
        Self { sha: Sha256::new(), is_empty: true }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.is_empty &= bytes.is_empty();
        self.sha.update(bytes);
    }

    /// Whether the chunks make up the body with this [`body_hash`].
    pub fn is(&self, hash: &str) -> bool {
        if self.is_empty {
            return hash == NO_BODY;
        }
        is_same(&hex::encode(self.sha.clone().finalize()), hash)
    }
}

/// Path and query of a redirect for [`Claims::target`]: decoded and written again in key order, so
/// that a client may encode them differently. The proof itself is omitted.
pub fn redirect_target(path: &str, query: &str) -> Result<String> {
    let mut pairs = query_pairs(Some(query));
    pairs.retain(|(key, _)| !matches!(key.as_str(), REDIRECT_PROOF | REDIRECT_EXPIRY));
    // Stable: of several values of one key the first one counts. A client may repeat a pair.
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    pairs.dedup();
    let mut target = encode_path(&decode_path(path)?);
    for (key, value) in pairs {
        target.push('&');
        target.push_str(&encode_query(&key));
        target.push('=');
        target.push_str(&encode_query(&value));
    }
    Ok(target)
}

//! Who sent a request, proved by its signature.
//!
//! [`authenticate`] takes what came as it came; a path with a prefix is signed with the prefix.

mod canonical;
mod header;
mod keys;
mod policy;
mod presigned;
mod presigned_v2;

pub use keys::{Keys, SecretKey, SigningKey};
pub use policy::{FormFields, PostPolicy, authenticate_form};

use super::chunked::{ChunkSigner, Framing};
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::request::{Front, RequestHead};

/// How far a client's clock may be from ours, seconds.
pub const MAX_SKEW_S: u64 = 15 * 60;

/// Who a request is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody signed it.
    Anonymous,
    /// The owner of this access key did.
    Key(String),
}

/// What the signature says of the body.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Nothing.
    Unsigned,
    /// Its SHA-256, which the reader must compare (`XAmzContentSHA256Mismatch`).
    Sha256([u8; 32]),
    /// It is `aws-chunked`; [`super::chunked::Decoder`] reads it and checks its signatures.
    Chunked(Framing),
}

/// An authenticated request.
#[derive(Clone, Debug)]
pub struct Caller {
    pub identity: Identity,
    pub payload: Payload,
}

/// Checks the signature of a request. `now` is in unix seconds.
///
/// A request with no signature is anonymous: whether that is enough is for the bucket to say. A
/// signature of a kind that is not served, or that does not hold, is an error.
pub fn authenticate(
    head: &RequestHead<'_>,
    front: &Front,
    keys: &impl Keys,
    now: u64,
) -> S3Result<Caller> {
    if let Some(text) = head.header("authorization").filter(|t| !t.is_empty()) {
        return header::verify(head, text, keys, now);
    }
    if head.headers.contains_key("authorization") {
        return Err(S3Code::AccessDenied.into());
    }
    if presigned::is_presigned(head.query) {
        return presigned::verify(head, keys, now);
    }
    if presigned_v2::is_presigned(head.query) {
        return presigned_v2::verify(head, front, keys, now);
    }
    let payload = match head.header("x-amz-content-sha256") {
        None => Payload::Unsigned,
        Some(text) => payload_of(text, None)?,
    };
    Ok(Caller { identity: Identity::Anonymous, payload })
}

/// A request where signatures do not count: a cluster without keys, or one that another node has
/// checked. Its identity is anonymous; the body is unwrapped, and its hash checked if it has one.
pub fn open(head: &RequestHead<'_>) -> S3Result<Caller> {
    let payload = match head.header("x-amz-content-sha256") {
        None => Payload::Unsigned,
        Some(text) if text.starts_with("STREAMING-") => Payload::Chunked(Framing::Open),
        Some(text) => payload_of(text, None)?,
    };
    Ok(Caller { identity: Identity::Anonymous, payload })
}

/// What `x-amz-content-sha256` says; `signer` is there for signed chunks.
fn payload_of(text: &str, signer: Option<ChunkSigner>) -> S3Result<Payload> {
    let signer = || {
        signer.ok_or_else(|| {
            S3Error::new(S3Code::AccessDenied, "signed chunks need a signed request")
        })
    };
    Ok(match text {
        "UNSIGNED-PAYLOAD" => Payload::Unsigned,
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Payload::Chunked(Framing::UnsignedTrailer),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Payload::Chunked(Framing::Signed(signer()?)),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => {
            Payload::Chunked(Framing::SignedTrailer(signer()?))
        }
        text if text.starts_with("STREAMING-") => return Err(S3Error::not_implemented(text)),
        text => {
            let mut hash = [0; 32];
            hex::decode_to_slice(text, &mut hash).map_err(|_| {
                S3Error::argument(
                    "x-amz-content-sha256",
                    text,
                    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, \
                     STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
                     STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.",
                )
            })?;
            Payload::Sha256(hash)
        }
    })
}

#[cfg(test)]
#[path = "auth/tests.rs"]
mod tests;

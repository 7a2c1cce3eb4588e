//! Authenticates the sender of a request by its signature.
//!
//! [`authenticate`] takes the request unmodified; a path with a prefix is signed with the prefix.

mod canonical;
mod header;
mod keys;
mod policy;
mod presign;
mod presigned;
mod presigned_v2;

pub use keys::{Keys, SecretKey, SigningKey};
pub use policy::{FormFields, PostPolicy, authenticate_form};
pub use presign::Presign;

use super::chunked::{ChunkSigner, Framing};
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::request::{Front, RequestHead};

/// Maximum difference between a client's clock and this node's, seconds.
pub const MAX_SKEW_S: u64 = 15 * 60;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The request is not signed.
    Anonymous,
    /// The owner of this access key signed it.
    Key(String),
}

/// How the signature covers the body.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Not at all.
    Unsigned,
    /// By its SHA-256, which the reader must compare (`XAmzContentSHA256Mismatch`).
    Sha256([u8; 32]),
    /// As `aws-chunked`; [`super::chunked::Decoder`] reads it and checks its signatures.
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
/// A request without a signature is anonymous: the bucket decides whether that is sufficient. An
/// unsupported or invalid signature is an error.
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

/// Whether [`authenticate`] checks a signature of this request. If it returns false, the request is
/// anonymous.
pub fn is_signed(head: &RequestHead<'_>) -> bool {
    head.headers.contains_key("authorization")
        || presigned::is_presigned(head.query)
        || presigned_v2::is_presigned(head.query)
}

/// Parses a request whose signature is not checked: in a cluster without keys, or after another
/// node checked it. Its identity is anonymous; the body is unwrapped, and its hash checked if it
/// has one.
pub fn open(head: &RequestHead<'_>) -> S3Result<Caller> {
    let payload = match head.header("x-amz-content-sha256") {
        None => Payload::Unsigned,
        Some(text) if text.starts_with("STREAMING-") => Payload::Chunked(Framing::Open),
        Some(text) => payload_of(text, None)?,
    };
    Ok(Caller { identity: Identity::Anonymous, payload })
}

/// Parses `x-amz-content-sha256`; `signer` is given for signed chunks.
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

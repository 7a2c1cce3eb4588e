//! SigV4 in the query: URLs with a limited lifetime.

use forebay_core::date::format_iso;

use super::canonical::{ALGORITHM, Credential, Signed, UNSIGNED, request_time};
use super::{Caller, Identity, Keys, MAX_SKEW_S, Payload, SigningKey, payload_of};
use crate::error::{S3Error, S3Result};
use crate::error_code::S3Code;
use crate::query::Query;
use crate::request::RequestHead;

/// Maximum lifetime of a URL, seconds.
const MAX_EXPIRES_S: i64 = 7 * 24 * 3600;
/// Parameter with the signature itself.
pub(super) const SIGNATURE: &str = "X-Amz-Signature";

pub(super) fn is_presigned(query: &str) -> bool {
    query.split('&').any(|pair| {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        matches!(name, "X-Amz-Algorithm" | "X-Amz-Credential" | SIGNATURE)
    })
}

fn malformed(message: &'static str) -> S3Error {
    S3Error::new(S3Code::AuthorizationQueryParametersError, message)
}

pub(super) fn verify(head: &RequestHead<'_>, keys: &impl Keys, now: u64) -> S3Result<Caller> {
    let query = Query::parse(head.query)?;
    let field = |name: &str| {
        query.filled(name).ok_or_else(|| {
            malformed(
                "Query-string authentication version 4 requires the X-Amz-Algorithm, \
                 X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and \
                 X-Amz-Expires parameters.",
            )
        })
    };
    if field("X-Amz-Algorithm")? != ALGORITHM {
        return Err(malformed("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    let credential = Credential::parse(field("X-Amz-Credential")?).ok_or_else(|| {
        malformed(
            "Error parsing the X-Amz-Credential parameter; the Credential is mal-formed; \
             expecting \"<YOUR-AKID>/YYYYMMDD/REGION/s3/aws4_request\".",
        )
    })?;
    let signature = field(SIGNATURE)?;
    let headers: Vec<&str> = field("X-Amz-SignedHeaders")?.split(';').collect();
    let (at, time) = request_time(field("X-Amz-Date")?).ok_or_else(|| {
        malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
    })?;
    if !time.starts_with(credential.day) {
        return Err(malformed("Invalid credential date: it is not the same as X-Amz-Date"));
    }
    let expires_s: i64 = field("X-Amz-Expires")?
        .parse()
        .map_err(|_| malformed("X-Amz-Expires should be a number"))?;
    let secret = keys.secret(credential.access_key).ok_or_else(|| {
        S3Error::from(S3Code::InvalidAccessKeyId).detail("AWSAccessKeyId", credential.access_key)
    })?;
    check_time(at, expires_s, now)?;
    let key = SigningKey::derive(&secret, credential.day, credential.region, credential.service);
    let payload = query
        .filled("X-Amz-Content-Sha256")
        .or_else(|| head.header("x-amz-content-sha256"))
        .unwrap_or(UNSIGNED);
    let access_key = credential.access_key.to_owned();
    let signed =
        Signed { credential, time: &time, headers, payload, without: Some(SIGNATURE), signature };
    signed.verify(head, &key)?;
    let payload = match payload {
        UNSIGNED => Payload::Unsigned,
        // A URL is signed before the body exists, so its chunks cannot be signed.
        text => payload_of(text, None)?,
    };
    Ok(Caller { identity: Identity::Key(access_key), payload })
}

/// Checks that the URL is valid now. A URL that can never be valid counts as expired.
fn check_time(at: u64, expires_s: i64, now: u64) -> S3Result<()> {
    if at > now + MAX_SKEW_S {
        return Err(S3Error::new(S3Code::AccessDenied, "Request is not valid yet"));
    }
    if expires_s > MAX_EXPIRES_S {
        return Err(S3Error::new(
            S3Code::AccessDenied,
            "X-Amz-Expires must be less than a week (in seconds); that is, the given \
             X-Amz-Expires must be less than 604800 seconds",
        ));
    }
    let until = at.saturating_add(expires_s.max(0) as u64);
    if expires_s < 1 || now > until {
        return Err(S3Error::new(S3Code::AccessDenied, "Request has expired")
            .detail("X-Amz-Expires", expires_s.to_string())
            .detail("Expires", format_iso(until.saturating_mul(1_000_000_000)))
            .detail("ServerTime", format_iso(now * 1_000_000_000)));
    }
    Ok(())
}

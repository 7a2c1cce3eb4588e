//! SigV2 in the query: the default of boto3 for presigned URLs.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_core::date::format_iso;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::{Caller, Identity, Keys, Payload, SecretKey};
use crate::error::{S3Error, S3Result};
use crate::error_code::S3Code;
use crate::query::Query;
use crate::request::{Front, RequestHead};

/// Query parameters that the signature covers: all that select another operation, and headers of
/// answers.
const SIGNED_PARAMETERS: [&str; 38] = [
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "defaultObjectAcl",
    "delete",
    "encryption",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "policyStatus",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

pub(super) fn is_presigned(query: &str) -> bool {
    query.split('&').any(|pair| pair.starts_with("AWSAccessKeyId="))
}

pub(super) fn verify(
    head: &RequestHead<'_>,
    front: &Front,
    keys: &impl Keys,
    now: u64,
) -> S3Result<Caller> {
    let query = Query::parse(head.query)?;
    let (Some(access_key), Some(signature), Some(expires)) =
        (query.filled("AWSAccessKeyId"), query.filled("Signature"), query.filled("Expires"))
    else {
        return Err(S3Error::new(
            S3Code::AccessDenied,
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId \
             parameters",
        ));
    };
    let secret = keys.secret(access_key).ok_or_else(|| {
        S3Error::from(S3Code::InvalidAccessKeyId).detail("AWSAccessKeyId", access_key)
    })?;
    let Ok(until) = expires.parse::<i64>() else {
        return Err(S3Error::new(
            S3Code::AccessDenied,
            format!("Invalid date (should be seconds since epoch): {expires}"),
        ));
    };
    if until < 0 || now > until as u64 {
        return Err(S3Error::new(S3Code::AccessDenied, "Request has expired")
            .detail("Expires", expires)
            .detail("ServerTime", format_iso(now * 1_000_000_000)));
    }
    let mut shown = String::new();
    for path in paths(head, front) {
        let text = string_to_sign(head, &query, &path, expires);
        if verify_text(&secret, &text, signature) {
            let identity = Identity::Key(access_key.to_owned());
            return Ok(Caller { identity, payload: Payload::Unsigned });
        }
        shown = text;
    }
    Err(S3Error::from(S3Code::SignatureDoesNotMatch)
        .detail("AWSAccessKeyId", access_key)
        .detail("StringToSign", shown)
        .detail("SignatureProvided", signature))
}

/// Whether `signature` (base64) is SigV2's of the text, compared in constant time.
pub(super) fn verify_text(secret: &SecretKey, text: &str, signature: &str) -> bool {
    let Ok(signature) = BASE64.decode(signature.trim()) else { return false };
    let mut mac =
        Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("HMAC takes any key length");
    mac.update(text.as_bytes());
    mac.verify_slice(&signature).is_ok()
}

/// The paths that the client may have signed: always with the bucket, and without the prefix for
/// clients that build it from bucket and key alone.
fn paths(head: &RequestHead<'_>, front: &Front) -> Vec<String> {
    let stripped = front.strip(head.path).unwrap_or(head.path);
    let mut paths = match head.header("host").and_then(|h| front.host_bucket(h)) {
        Some(bucket) => vec![format!("/{bucket}{stripped}")],
        None => vec![head.path.to_owned()],
    };
    if stripped != head.path {
        paths.push(stripped.to_owned());
    }
    paths
}

fn string_to_sign(head: &RequestHead<'_>, query: &Query, path: &str, expires: &str) -> String {
    // Values signed as headers are in the query, and may also be sent as headers.
    let either = |name: &str| head.header(name).or_else(|| query.get(name)).unwrap_or("").trim();
    let mut text = format!(
        "{}\n{}\n{}\n{expires}\n",
        head.method,
        either("content-md5"),
        either("content-type")
    );
    let mut amz: BTreeMap<String, String> = query
        .iter()
        .map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned()))
        .filter(|(n, _)| n.starts_with("x-amz-"))
        .collect();
    for name in head.headers.keys().filter(|n| n.as_str().starts_with("x-amz-")) {
        let values: Vec<_> = head
            .headers
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).trim().to_owned())
            .collect();
        amz.insert(name.as_str().to_owned(), values.join(","));
    }
    for (name, value) in amz {
        text.push_str(&format!("{name}:{value}\n"));
    }
    text.push_str(path);
    let mut signed: Vec<(&str, Option<String>)> =
        raw_parameters(head.query).filter(|(n, _)| SIGNED_PARAMETERS.contains(n)).collect();
    signed.sort_by_key(|(name, _)| *name);
    for (at, (name, value)) in signed.iter().enumerate() {
        text.push(if at == 0 { '?' } else { '&' });
        text.push_str(name);
        if let Some(value) = value {
            text.push('=');
            text.push_str(value);
        }
    }
    text
}

/// Parameters with their decoded values; `None` where there is no `=`.
fn raw_parameters(query: &str) -> impl Iterator<Item = (&str, Option<String>)> {
    let decode = |v: &str| percent_encoding::percent_decode_str(v).decode_utf8_lossy().into_owned();
    query.split('&').map(move |pair| match pair.split_once('=') {
        Some((name, value)) => (name, Some(decode(value))),
        None => (pair, None),
    })
}

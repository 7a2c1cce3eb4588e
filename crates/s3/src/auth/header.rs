//! SigV4 in the `Authorization` header.

use super::canonical::{ALGORITHM, Credential, Signed, request_time};
use super::{Caller, ChunkSigner, Identity, Keys, MAX_SKEW_S, SigningKey, payload_of};
use crate::error::{S3Error, S3Result};
use crate::error_code::S3Code;
use crate::request::RequestHead;

/// The parts of `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`.
struct Authorization<'a> {
    credential: Credential<'a>,
    headers: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    fn parse(text: &'a str) -> S3Result<Self> {
        let text = text.trim();
        let (scheme, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match scheme {
            ALGORITHM => {}
            "AWS" if rest.contains(':') => {
                return Err(S3Error::new(
                    S3Code::InvalidRequest,
                    "The authorization mechanism you have provided is not supported. Please use \
                     AWS4-HMAC-SHA256.",
                ));
            }
            "AWS4-ECDSA-P256-SHA256" => return Err(S3Error::not_implemented(scheme)),
            _ => {
                return Err(S3Error::new(
                    S3Code::InvalidArgument,
                    "Unsupported Authorization Type",
                )
                .detail("ArgumentName", "Authorization"));
            }
        }
        let field = |name: &str| {
            let fields = rest.split(',').map(str::trim);
            fields.filter_map(|f| f.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
        };
        let missing = |name: &str| {
            S3Error::new(
                S3Code::AuthorizationHeaderMalformed,
                format!(
                    "The authorization header is malformed; the authorization header requires \
                     three components: Credential, SignedHeaders, and Signature ({name} is not \
                     valid)."
                ),
            )
        };
        let credential = field("Credential").and_then(Credential::parse);
        let headers = field("SignedHeaders").filter(|h| !h.is_empty());
        Ok(Self {
            credential: credential.ok_or_else(|| missing("Credential"))?,
            headers: headers.ok_or_else(|| missing("SignedHeaders"))?.split(';').collect(),
            signature: field("Signature").ok_or_else(|| missing("Signature"))?,
        })
    }
}

pub(super) fn verify(
    head: &RequestHead<'_>,
    text: &str,
    keys: &impl Keys,
    now: u64,
) -> S3Result<Caller> {
    let given = Authorization::parse(text)?;
    let time = head.header("x-amz-date").or_else(|| head.header("date")).and_then(request_time);
    let Some((at, time)) = time else {
        return Err(S3Error::new(
            S3Code::AccessDenied,
            "AWS authentication requires a valid Date or x-amz-date header",
        ));
    };
    let credential = given.credential;
    if !time.starts_with(credential.day) {
        return Err(S3Error::new(
            S3Code::AuthorizationHeaderMalformed,
            format!(
                "The authorization header is malformed; Invalid credential date \"{}\". This \
                 date is not the same as X-Amz-Date: \"{}\".",
                credential.day,
                &time[..8]
            ),
        ));
    }
    let Some(payload) = head.header("x-amz-content-sha256") else {
        return Err(S3Error::new(
            S3Code::InvalidRequest,
            "Missing required header for this request: x-amz-content-sha256",
        ));
    };
    let secret = keys.secret(credential.access_key).ok_or_else(|| {
        S3Error::from(S3Code::InvalidAccessKeyId).detail("AWSAccessKeyId", credential.access_key)
    })?;
    if at.abs_diff(now) > MAX_SKEW_S {
        return Err(S3Error::from(S3Code::RequestTimeTooSkewed)
            .detail("RequestTime", time)
            .detail("ServerTime", forebay_core::date::format_amz(now))
            .detail("MaxAllowedSkewMilliseconds", (MAX_SKEW_S * 1000).to_string()));
    }
    let key = SigningKey::derive(&secret, credential.day, credential.region, credential.service);
    let signed = Signed {
        credential,
        time: &time,
        headers: given.headers,
        payload,
        without: None,
        signature: given.signature,
    };
    signed.verify(head, &key)?;
    let access_key = signed.credential.access_key.to_owned();
    let signer = ChunkSigner {
        key,
        scope: signed.credential.scope.to_owned(),
        previous: given.signature.to_owned(),
        time,
    };
    let payload = payload_of(payload, Some(signer))?;
    Ok(Caller { identity: Identity::Key(access_key), payload })
}

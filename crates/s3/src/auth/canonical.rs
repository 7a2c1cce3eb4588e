//! Canonical requests of SigV4, and the comparison of signatures made over them.

use std::borrow::Cow;

use forebay_core::date::{format_amz, parse_amz, parse_http};
use http::HeaderMap;
use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};

use super::keys::SigningKey;
use crate::encode::{encode_path, encode_query};
use crate::error::{S3Error, S3Result};
use crate::error_code::S3Code;
use crate::request::RequestHead;

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Maximum headers that one signature covers.
const MAX_SIGNED_HEADERS: usize = 256;
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// `KEY/20130524/us-east-1/s3/aws4_request`, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credential<'a> {
    pub(super) access_key: &'a str,
    pub(super) day: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    /// Everything except the access key.
    pub(super) scope: &'a str,
}

impl<'a> Credential<'a> {
    /// `None` for any other form. An access key may contain slashes.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.rsplitn(5, '/');
        let (end, service, region, day) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let access_key = parts.next()?;
        let ok = end == "aws4_request"
            && service == "s3"
            && !access_key.is_empty()
            && !region.is_empty()
            && day.len() == 8
            && day.bytes().all(|b| b.is_ascii_digit());
        ok.then(|| Self { access_key, day, region, service, scope: &text[access_key.len() + 1..] })
    }
}

/// Parses a request's time, which may also be an HTTP date; returns unix seconds and SigV4's form.
pub(super) fn request_time(text: &str) -> Option<(u64, String)> {
    match parse_amz(text) {
        Some(at) => Some((at, text.to_owned())),
        None => parse_http(text).map(|at| (at, format_amz(at))),
    }
}

/// The signed values that are not part of the request itself.
pub(super) struct Signed<'a> {
    pub(super) credential: Credential<'a>,
    /// `20130524T000000Z`.
    pub(super) time: &'a str,
    /// Lower-case names in the given order.
    pub(super) headers: Vec<&'a str>,
    /// Hash of the body, or the word used instead.
    pub(super) payload: &'a str,
    /// Query parameter that contains the signature itself.
    pub(super) without: Option<&'a str>,
    pub(super) signature: &'a str,
}

impl Signed<'_> {
    /// Checks that `key` makes this signature over this request.
    ///
    /// Clients sign the path that they send, or its normal form if the two differ: both name the
    /// same object.
    pub(super) fn verify(&self, head: &RequestHead<'_>, key: &SigningKey) -> S3Result<()> {
        check_headers(head, &self.headers)?;
        let normal = encode_decoded_path(head.path);
        let (canonical, text) = self.text(head, &normal);
        if key.verify(&text, self.signature) {
            return Ok(());
        }
        if normal != head.path && key.verify(&self.text(head, head.path).1, self.signature) {
            return Ok(());
        }
        Err(S3Error::from(S3Code::SignatureDoesNotMatch)
            .detail("AWSAccessKeyId", self.credential.access_key)
            .detail("StringToSign", text)
            .detail("SignatureProvided", self.signature)
            .detail("CanonicalRequest", String::from_utf8_lossy(&canonical)))
    }

    /// The canonical request and the string to sign.
    pub(super) fn text(&self, head: &RequestHead<'_>, path: &str) -> (Vec<u8>, String) {
        let mut canonical = Vec::with_capacity(512);
        canonical.extend_from_slice(head.method.as_str().as_bytes());
        canonical.push(b'\n');
        canonical.extend_from_slice(path.as_bytes());
        canonical.push(b'\n');
        canonical.extend_from_slice(canonical_query(head.query, self.without).as_bytes());
        canonical.push(b'\n');
        for name in &self.headers {
            canonical.extend_from_slice(name.as_bytes());
            canonical.push(b':');
            push_value(&mut canonical, head.headers, name);
            canonical.push(b'\n');
        }
        canonical.push(b'\n');
        canonical.extend_from_slice(self.headers.join(";").as_bytes());
        canonical.push(b'\n');
        canonical.extend_from_slice(self.payload.as_bytes());
        let hash = hex::encode(Sha256::digest(&canonical));
        let text = format!("{ALGORITHM}\n{}\n{}\n{hash}", self.time, self.credential.scope);
        (canonical, text)
    }
}

/// Checks that `host` and all of AWS's own headers are signed; otherwise a third party could add
/// them.
fn check_headers(head: &RequestHead<'_>, signed: &[&str]) -> S3Result<()> {
    // If one long header could be named repeatedly, the text would have no bound.
    let mut sorted = signed.to_vec();
    sorted.sort_unstable();
    if signed.len() > MAX_SIGNED_HEADERS || sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(S3Error::new(
            S3Code::InvalidRequest,
            format!("SignedHeaders names a header twice, or more than {MAX_SIGNED_HEADERS}"),
        ));
    }
    let unsigned: Vec<&str> = head
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        // The canonical request itself contains the hash of the body.
        .filter(|n| *n == "host" || n.starts_with("x-amz-") && *n != "x-amz-content-sha256")
        .filter(|n| !signed.contains(n))
        .collect();
    if unsigned.is_empty() {
        return Ok(());
    }
    Err(S3Error::new(
        S3Code::AccessDenied,
        "There were headers present in the request which were not signed",
    )
    .detail("HeadersNotSigned", unsigned.join(", ")))
}

/// All values of a header, joined by commas, runs of white space as one space.
fn push_value(out: &mut Vec<u8>, headers: &HeaderMap, name: &str) {
    for (at, value) in headers.get_all(name).iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let words = value.as_bytes().split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        for (at, word) in words.enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(word);
        }
    }
}

/// The path, decoded once and encoded as AWS does.
fn encode_decoded_path(raw: &str) -> String {
    let decoded: Cow<'_, [u8]> = percent_decode(raw.as_bytes()).into();
    encode_path(&decoded).into_owned()
}

/// Parameters sorted by encoded name, then by value, without the one named.
pub(super) fn canonical_query(raw: &str, without: Option<&str>) -> String {
    let encode = |text: &str| {
        let spaced = text.replace('+', " ");
        let decoded: Cow<'_, [u8]> = percent_decode(spaced.as_bytes()).into();
        encode_query(&decoded).into_owned()
    };
    let mut pairs: Vec<(String, String)> = raw
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|p| p.split_once('=').unwrap_or((p, "")))
        .map(|(name, value)| (encode(name), encode(value)))
        .filter(|(name, _)| Some(name.as_str()) != without)
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs.into_iter().map(|(n, v)| format!("{n}={v}")).collect();
    pairs.join("&")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_sorted_and_encoded_once() {
        assert_eq!(canonical_query("b=2&a=x+y%2F&a&c=%7e", None), "a=&a=x%20y%2F&b=2&c=~");
        assert_eq!(canonical_query("X-Amz-Signature=1&acl", Some("X-Amz-Signature")), "acl=");
    }

    #[test]
    fn paths_have_one_form() {
        for raw in ["/b/a%20b+c", "/b/a b%2bc", "/b/%61%20b%2Bc"] {
            assert_eq!(encode_decoded_path(raw), "/b/a%20b%2Bc");
        }
    }

    #[test]
    fn credentials_are_taken_apart_from_the_end() {
        let c = Credential::parse("A/B/20130524/us-east-1/s3/aws4_request").unwrap();
        assert_eq!((c.access_key, c.region), ("A/B", "us-east-1"));
        assert_eq!(c.scope, "20130524/us-east-1/s3/aws4_request");
        for bad in [
            "",
            "A/20130524/us-east-1/s3",
            "/20130524/r/s3/aws4_request",
            "A/2013/r/s3/aws4_request",
            "A/20130524/r/ec2/aws4_request",
        ] {
            assert_eq!(Credential::parse(bad), None, "{bad}");
        }
    }
}

//! Signatures: the examples of AWS's documents, signatures of real clients, and invalid ones.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::*;

pub(super) const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
pub(super) const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// 2013-05-24T00:00:00Z, the day of all of AWS's examples.
pub(super) const NOW: u64 = 1_369_353_600;

pub(super) fn keys() -> BTreeMap<String, SecretKey> {
    BTreeMap::from([(KEY.to_owned(), SecretKey::new(SECRET))])
}

struct Sent {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
}

impl Sent {
    fn new(method: Method, target: &str, headers: &[(&str, &str)]) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        Self { method, path: path.to_owned(), query: query.to_owned(), headers: map }
    }

    fn head(&self) -> RequestHead<'_> {
        RequestHead {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            headers: &self.headers,
        }
    }

    fn check_at(&self, now: u64) -> S3Result<Caller> {
        let front = Front::new("/s3", vec!["s3.amazonaws.com".to_owned()]);
        authenticate(&self.head(), &front, &keys(), now)
    }

    fn code(&self) -> S3Code {
        self.check_at(NOW).unwrap_err().code
    }
}

/// A request of AWS's examples: signed on their day, with their key.
fn example(
    method: Method,
    target: &str,
    more: &[(&str, &str)],
    hash: &str,
    signed: &str,
    sig: &str,
) -> Sent {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders={signed},Signature={sig}"
    );
    let mut headers = vec![
        ("host", "examplebucket.s3.amazonaws.com"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-content-sha256", hash),
        ("authorization", &authorization),
    ];
    if more.iter().any(|(name, _)| *name == "host") {
        headers.remove(0);
    }
    headers.extend_from_slice(more);
    Sent::new(method, target, &headers)
}

fn get_object() -> Sent {
    example(
        Method::GET,
        "/test.txt",
        &[("range", "bytes=0-9")],
        EMPTY,
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    )
}

#[test]
fn the_signed_requests_of_the_documents_are_accepted() {
    let signed = "host;x-amz-content-sha256;x-amz-date";
    let examples = [
        get_object(),
        example(
            Method::PUT,
            "/test$file.text",
            &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        example(
            Method::GET,
            "/?lifecycle",
            &[],
            EMPTY,
            signed,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        example(
            Method::GET,
            "/?max-keys=2&prefix=J",
            &[],
            EMPTY,
            signed,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ];
    for sent in examples {
        let caller = sent.check_at(NOW).unwrap();
        assert_eq!(caller.identity, Identity::Key(KEY.to_owned()));
        assert!(matches!(caller.payload, Payload::Sha256(_)));
    }
}

#[test]
fn whatever_is_changed_after_signing_is_noticed() {
    let change = |f: fn(&mut Sent)| {
        let mut sent = get_object();
        f(&mut sent);
        sent.code()
    };
    assert_eq!(change(|s| s.path = "/test2.txt".into()), S3Code::SignatureDoesNotMatch);
    assert_eq!(change(|s| s.query = "acl".into()), S3Code::SignatureDoesNotMatch);
    assert_eq!(change(|s| s.method = Method::DELETE), S3Code::SignatureDoesNotMatch);
    assert_eq!(
        change(|s| {
            s.headers.insert("range", HeaderValue::from_static("bytes=0-10"));
        }),
        S3Code::SignatureDoesNotMatch
    );
    assert_eq!(
        change(|s| {
            s.headers.insert("x-amz-content-sha256", HeaderValue::from_static("UNSIGNED-PAYLOAD"));
        }),
        S3Code::SignatureDoesNotMatch
    );
    assert_eq!(
        change(|s| {
            s.headers.insert("x-amz-acl", HeaderValue::from_static("public-read"));
        }),
        S3Code::AccessDenied
    );
}

#[test]
fn a_signature_holds_for_fifteen_minutes_around_its_time() {
    let sent = get_object();
    for now in [NOW - MAX_SKEW_S, NOW + MAX_SKEW_S] {
        assert!(sent.check_at(now).is_ok());
    }
    for now in [NOW - MAX_SKEW_S - 1, NOW + MAX_SKEW_S + 1] {
        assert_eq!(sent.check_at(now).unwrap_err().code, S3Code::RequestTimeTooSkewed);
    }
}

#[test]
fn a_header_that_is_no_sigv4_is_refused_by_what_it_is() {
    let with = |text: &str| {
        let mut sent = get_object();
        sent.headers.insert("authorization", HeaderValue::from_str(text).unwrap());
        sent.code()
    };
    assert_eq!(with(""), S3Code::AccessDenied);
    assert_eq!(with("AWS HAHAHA"), S3Code::InvalidArgument);
    assert_eq!(with("Bearer x"), S3Code::InvalidArgument);
    assert_eq!(with("AWS AKID:FWeDfwojDSdS2Ztmpfeubhd9isU="), S3Code::InvalidRequest);
    assert_eq!(with("AWS4-HMAC-SHA256 "), S3Code::AuthorizationHeaderMalformed);
    assert_eq!(with("AWS4-HMAC-SHA256 Credential=a"), S3Code::AuthorizationHeaderMalformed);
    let unknown = "AWS4-HMAC-SHA256 Credential=WHO/20130524/us-east-1/s3/aws4_request, \
                   SignedHeaders=host, Signature=00";
    assert_eq!(with(unknown), S3Code::InvalidAccessKeyId);
    let yesterday = unknown.replace("WHO", KEY).replace("20130524", "20130523");
    assert_eq!(with(&yesterday), S3Code::AuthorizationHeaderMalformed);
    let mut no_date = get_object();
    no_date.headers.remove("x-amz-date");
    assert_eq!(no_date.code(), S3Code::AccessDenied);
    let mut no_hash = get_object();
    no_hash.headers.remove("x-amz-content-sha256");
    assert_eq!(no_hash.code(), S3Code::InvalidRequest);
}

const PRESIGNED: &str = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
    &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
    &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
    &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

fn presigned(target: &str) -> Sent {
    Sent::new(Method::GET, target, &[("host", "examplebucket.s3.amazonaws.com")])
}

#[test]
fn the_presigned_url_of_the_documents_holds_for_a_day() {
    let sent = presigned(PRESIGNED);
    for now in [NOW, NOW + 86_400] {
        let caller = sent.check_at(now).unwrap();
        assert_eq!(caller.identity, Identity::Key(KEY.to_owned()));
        assert!(matches!(caller.payload, Payload::Unsigned));
    }
    assert_eq!(sent.check_at(NOW + 86_401).unwrap_err().code, S3Code::AccessDenied);
    assert_eq!(sent.check_at(NOW - MAX_SKEW_S - 1).unwrap_err().code, S3Code::AccessDenied);
}

#[test]
fn a_url_that_is_signed_here_has_the_signature_of_the_documents() {
    let presign = Presign {
        method: Method::GET,
        endpoint: "https://examplebucket.s3.amazonaws.com",
        path: "/test.txt",
        now_s: NOW,
        expires_s: 86_400,
        region: "us-east-1",
    };
    let url = presign.url(KEY, &SecretKey::new(SECRET)).unwrap();
    let signature = |url: &str| url.split("X-Amz-Signature=").nth(1).unwrap()[..64].to_owned();
    assert_eq!(signature(&url), signature(PRESIGNED));
}

#[test]
fn a_presigned_url_that_was_changed_or_never_holds_is_refused() {
    let change = |from: &str, to: &str| presigned(&PRESIGNED.replace(from, to)).code();
    assert_eq!(change("/test.txt", "/other.txt"), S3Code::SignatureDoesNotMatch);
    assert_eq!(change("=86400", "=86401"), S3Code::SignatureDoesNotMatch);
    assert_eq!(change("=86400", "=604801"), S3Code::AccessDenied);
    assert_eq!(change("=86400", "=0"), S3Code::AccessDenied);
    assert_eq!(change("=86400", "=-7"), S3Code::AccessDenied);
    assert_eq!(change("=86400", "=soon"), S3Code::AuthorizationQueryParametersError);
    assert_eq!(change("&X-Amz-Expires=86400", ""), S3Code::AuthorizationQueryParametersError);
    assert_eq!(change("-SHA256", "-SHA1"), S3Code::AuthorizationQueryParametersError);
    assert_eq!(change("AKIA", "BKIA"), S3Code::InvalidAccessKeyId);
    assert_eq!(change("test.txt?", "test.txt?versionId=1&"), S3Code::SignatureDoesNotMatch);
}

#[test]
fn the_sigv2_url_of_the_documents_is_accepted_until_it_expires() {
    let target = format!(
        "/photos/puppy.jpg?AWSAccessKeyId={KEY}&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D\
         &Expires=1175139620"
    );
    let host = [("host", "johnsmith.s3.amazonaws.com")];
    let sent = Sent::new(Method::GET, &target, &host);
    assert!(sent.check_at(1_175_139_620).is_ok());
    assert_eq!(sent.check_at(1_175_139_621).unwrap_err().code, S3Code::AccessDenied);
    let other = Sent::new(Method::GET, &target.replace("puppy", "kitten"), &host);
    let e = other.check_at(1_175_139_620).unwrap_err();
    assert_eq!(e.code, S3Code::SignatureDoesNotMatch);
    for operation in ["acl", "tagging", "policyStatus", "uploadId=u", "versionId=1"] {
        let other = Sent::new(Method::GET, &format!("{target}&{operation}"), &host);
        assert!(other.check_at(1_175_139_620).is_err(), "{operation} makes another request of it");
    }
    let other = Sent::new(Method::DELETE, &target, &host);
    assert!(other.check_at(1_175_139_620).is_err());
}

/// Requests of boto3 1.44 to an endpoint with the prefix `/s3`.
#[test]
fn requests_of_boto3_below_a_prefix_are_accepted() {
    let host = ("host", "127.0.0.1:8080");
    let day = ("x-amz-date", "20130524T000000Z");
    let signed = |headers: &str, signature: &str| {
        format!(
            "AWS4-HMAC-SHA256 Credential={KEY}/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders={headers}, Signature={signature}"
        )
    };
    let list = signed(
        "host;x-amz-content-sha256;x-amz-date",
        "8093367237c627a18b5f4dc9ae2b59d96ffd78e6a245b59c6a7b8a88a9d4da34",
    );
    let put = signed(
        "content-type;host;x-amz-checksum-crc32;x-amz-content-sha256;x-amz-date;x-amz-meta-k;\
         x-amz-sdk-checksum-algorithm",
        "0398b82f18d820503c66a084bfd1ddbf2eb9f0fa8cb18e551db9f180de971756",
    );
    let sent = [
        Sent::new(
            Method::GET,
            "/s3/b?list-type=2&prefix=a%20b%2F%C3%BC%2B&delimiter=%2F&start-after=x%26y%3Dz\
             &encoding-type=url",
            &[host, day, ("x-amz-content-sha256", EMPTY), ("authorization", &list)],
        ),
        Sent::new(
            Method::PUT,
            "/s3/b/a%20b/%C3%BC%2B~%2A.txt",
            &[
                host,
                day,
                ("content-type", "text/plain"),
                ("x-amz-checksum-crc32", "NhCmhg=="),
                (
                    "x-amz-content-sha256",
                    "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
                ),
                ("x-amz-meta-k", "v  w"),
                ("x-amz-sdk-checksum-algorithm", "CRC32"),
                ("expect", "100-continue"),
                ("authorization", &put),
            ],
        ),
        Sent::new(
            Method::PUT,
            "/s3/b/a%20b/%C3%BC%2B~.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=\
             AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=\
             20130524T000000Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host%3Bx-amz-acl%3B\
             x-amz-meta-a&X-Amz-Signature=\
             73b3cbc9bb3d46e984c1ce9ec3f344a089b9ed74a28a65c2fe0f965dfdb148a4",
            &[host, ("x-amz-acl", "private"), ("x-amz-meta-a", "x  y")],
        ),
        // SigV2 signs the path without the prefix, and headers in the query.
        Sent::new(
            Method::GET,
            "/s3/b/a%20b/%C3%BC%2B.txt?versionId=v%201&response-content-type=text%2Fplain\
             &AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=jNwleTZqqYVFV1vBn69QlLY4%2ByU%3D\
             &Expires=1369357200",
            &[host],
        ),
        Sent::new(
            Method::PUT,
            "/s3/b/k?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=\
             A6ibplKrfsHXXAbO2V4j6QML5D4%3D&content-type=text%2Fplain&x-amz-meta-a=1\
             &x-amz-acl=private&Expires=1369357200",
            &[host],
        ),
    ];
    for sent in sent {
        let shown = format!("{} {}", sent.method, sent.path);
        assert!(sent.check_at(NOW).is_ok(), "{shown}: {:?}", sent.check_at(NOW));
    }
}

#[test]
fn unsigned_requests_are_from_nobody() {
    let sent = Sent::new(Method::GET, "/s3/b/k?versionId=1", &[("host", "x")]);
    assert_eq!(sent.check_at(NOW).unwrap().identity, Identity::Anonymous);
    let chunked = [("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")];
    assert_eq!(Sent::new(Method::PUT, "/s3/b/k", &chunked).code(), S3Code::AccessDenied);
    let unsigned = [("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")];
    let caller = Sent::new(Method::PUT, "/s3/b/k", &unsigned).check_at(NOW).unwrap();
    assert!(matches!(caller.payload, Payload::Chunked(Framing::UnsignedTrailer)));
}

#[test]
fn a_cluster_without_keys_takes_whatever_clients_sign() {
    let payload = |hash: &str| {
        let headers = [("authorization", "AWS4-HMAC-SHA256 x"), ("x-amz-content-sha256", hash)];
        super::open(&Sent::new(Method::PUT, "/s3/b/k", &headers).head()).map(|c| c.payload)
    };
    let chunked = payload("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER").unwrap();
    assert!(matches!(chunked, Payload::Chunked(Framing::Open)));
    assert!(matches!(payload(EMPTY).unwrap(), Payload::Sha256(_)));
    assert!(matches!(payload("UNSIGNED-PAYLOAD").unwrap(), Payload::Unsigned));
    assert!(payload("x").is_err());
}

#[test]
fn secrets_are_not_in_debug_output() {
    let derived = SigningKey::derive(&SecretKey::new(SECRET), "20130524", "us-east-1", "s3");
    assert!(!format!("{:?} {derived:?}", keys()).contains("wJalr"));
}

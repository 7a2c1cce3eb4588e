//! Forms: signatures of both versions, and the limits of policies.

use hmac::{Hmac, KeyInit, Mac};

use super::super::tests::{KEY, NOW, SECRET, keys};
use super::*;
use crate::auth::SecretKey;

const GOOD: &str = r#"{"expiration": "2013-05-25T00:00:00Z", "conditions": [{"bucket": "b"},
    ["starts-with", "$key", "foo"], {"acl": "private"},
    ["StArTs-WiTh", "$CoNtEnT-TyPe", "text/"], ["content-length-range", 1, "1024"]]}"#;

/// A form with this policy, signed as of version 2, with further fields.
fn form(policy: &str, more: &[(&str, &str)]) -> FormFields {
    let policy = BASE64.encode(policy);
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(policy.as_bytes());
    let signature = BASE64.encode(mac.finalize().into_bytes());
    let fields = [
        ("policy", policy.as_str()),
        ("signature", &signature),
        ("awsaccesskeyid", KEY),
        ("key", "foo.txt"),
        ("acl", "private"),
        ("content-type", "text/plain"),
    ];
    fields.iter().chain(more).map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

fn code(fields: &FormFields) -> S3Code {
    authenticate_form("b", fields, &keys(), NOW).unwrap_err().code
}

#[test]
fn a_form_that_its_policy_allows_is_accepted() {
    let fields = form(GOOD, &[("x-ignore-me", "1"), ("x-amz-checksum-crc32", "AAAAAA==")]);
    let (identity, policy) = authenticate_form("b", &fields, &keys(), NOW).unwrap();
    assert_eq!(identity, Identity::Key(KEY.to_owned()));
    assert_eq!(policy.length, Some((1, 1024)));
    assert_eq!(policy.check_length(0).unwrap_err().code, S3Code::EntityTooSmall);
    assert_eq!(policy.check_length(1025).unwrap_err().code, S3Code::EntityTooLarge);
    assert!(policy.check_length(1024).is_ok());
    let none = FormFields::from([("key".to_owned(), "k".to_owned())]);
    assert_eq!(authenticate_form("b", &none, &keys(), NOW).unwrap().0, Identity::Anonymous);
}

#[test]
fn a_form_that_its_policy_does_not_allow_is_denied() {
    assert_eq!(code(&form(GOOD, &[("key", "bar")])), S3Code::AccessDenied);
    assert_eq!(code(&form(GOOD, &[("acl", "public-read")])), S3Code::AccessDenied);
    assert_eq!(code(&form(GOOD, &[("x-amz-meta-a", "1")])), S3Code::AccessDenied);
    let other = authenticate_form("other", &form(GOOD, &[]), &keys(), NOW);
    assert_eq!(other.unwrap_err().code, S3Code::AccessDenied);
    let without_bucket = GOOD.replace(r#"{"bucket": "b"},"#, "");
    assert_eq!(code(&form(&without_bucket, &[])), S3Code::AccessDenied);
    let late = authenticate_form("b", &form(GOOD, &[]), &keys(), NOW + 86_401);
    assert_eq!(late.unwrap_err().code, S3Code::AccessDenied);
}

#[test]
fn a_denial_names_the_condition_as_aws_writes_it() {
    let message = |fields| authenticate_form("b", &fields, &keys(), NOW).unwrap_err().message;
    let text = message(form(GOOD, &[("acl", "public-read")]));
    assert!(text.ends_with(r#"Policy Condition failed: ["eq", "$acl", "private"]"#), "{text}");
    let text = message(form(GOOD, &[("key", "bar")]));
    assert!(text.ends_with(r#"failed: ["starts-with", "$key", "foo"]"#), "{text}");
}

#[test]
fn a_policy_that_cannot_be_read_is_invalid() {
    for (from, to) in [
        ("expiration", "EXPIRATION"),
        ("conditions", "CONDITIONS"),
        ("2013-05-25T00:00:00Z", "2013-05-25 00:00:00+00:00"),
        (r#"{"bucket": "b"}"#, "{ }"),
        (r#"1, "1024""#, "0"),
        (r#"1, "1024""#, "-1, 0"),
        ("$key", "key"),
        ("starts-with", "ends-with"),
        ("]}", "]"),
    ] {
        let policy = GOOD.replace(from, to);
        assert_eq!(code(&form(&policy, &[])), S3Code::InvalidPolicyDocument, "{to}");
    }
}

#[test]
fn a_form_needs_the_signature_of_a_known_key() {
    assert_eq!(code(&form(GOOD, &[("signature", "AAAA")])), S3Code::SignatureDoesNotMatch);
    assert_eq!(code(&form(GOOD, &[("awsaccesskeyid", "WHO")])), S3Code::InvalidAccessKeyId);
    for missing in ["signature", "awsaccesskeyid"] {
        let mut fields = form(GOOD, &[]);
        fields.remove(missing);
        assert_eq!(code(&fields), S3Code::InvalidArgument, "{missing}");
    }
}

#[test]
fn a_form_signed_by_version_4_is_accepted() {
    let credential = format!("{KEY}/20130524/us-east-1/s3/aws4_request");
    let extra = r#", ["starts-with", "$x-amz-credential", ""], {"x-amz-date": "20130524T000000Z"},
        {"x-amz-algorithm": "AWS4-HMAC-SHA256"}]}"#;
    let policy = GOOD.replace("]}", extra);
    let derived = SigningKey::derive(&SecretKey::new(SECRET), "20130524", "us-east-1", "s3");
    let mut fields = form(
        &policy,
        &[
            ("x-amz-credential", &credential),
            ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-signature", &derived.sign(&BASE64.encode(&policy))),
        ],
    );
    fields.remove("signature");
    fields.remove("awsaccesskeyid");
    assert!(authenticate_form("b", &fields, &keys(), NOW).is_ok());
    fields.insert("x-amz-signature".to_owned(), "00".to_owned());
    assert_eq!(code(&fields), S3Code::SignatureDoesNotMatch);
}

//! Policies: permissions, and policies that are refused when put.

use proptest::prelude::*;

use super::*;
use crate::operation::UploadId;

/// A policy of one statement with these further fields.
fn policy(fields: &str) -> S3Result<BucketPolicy> {
    BucketPolicy::parse(&format!(
        r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Principal": "*",
        {fields}}}]}}"#
    ))
}

const READ: &str = r#""Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/public/*""#;

fn none(_: &str) -> Option<String> {
    None
}

fn ask<'a>(action: &'a str, key: &'a str) -> Asked<'a> {
    Asked { user: None, action, bucket: "b", key, value: &none }
}

#[test]
fn a_statement_is_about_its_actions_and_resources() {
    let p = policy(READ).unwrap();
    assert_eq!(p.decide(&ask("s3:GetObject", "public/a/b")), Decision::Allow);
    assert_eq!(p.decide(&ask("s3:GetObject", "private/a")), Decision::Silent);
    assert_eq!(p.decide(&ask("s3:GetObject", "")), Decision::Silent);
    assert_eq!(p.decide(&ask("s3:PutObject", "public/a")), Decision::Silent);
    let other = Asked { bucket: "c", ..ask("s3:GetObject", "public/a") };
    assert_eq!(p.decide(&other), Decision::Silent);
    assert!(p.is_public());
    let list = policy(r#""Action": ["s3:List*"], "NotResource": "arn:aws:s3:::other*""#).unwrap();
    assert_eq!(list.decide(&ask("s3:ListBucket", "")), Decision::Allow);
    let not = policy(r#""NotAction": "s3:put*", "Resource": ["arn:aws:s3:::*"]"#).unwrap();
    assert_eq!(not.decide(&ask("s3:GetObject", "x")), Decision::Allow);
    assert_eq!(not.decide(&ask("s3:PutObject", "x")), Decision::Silent);
}

#[test]
fn a_denial_outweighs_every_allowance() {
    let p = BucketPolicy::parse(
        r#"{"Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "s3:*",
             "Resource": "arn:aws:s3:::b/*"},
            {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject",
             "Resource": "arn:aws:s3:::b/*",
             "Condition": {"StringLike": {"s3:x-amz-acl": "public*"}}}]}"#,
    )
    .unwrap();
    let with = |acl: Option<&str>| {
        let acl = acl.map(str::to_owned);
        let value = move |key: &str| acl.clone().filter(|_| key == "s3:x-amz-acl");
        p.decide(&Asked { value: &value, ..ask("s3:PutObject", "k") })
    };
    assert_eq!(with(None), Decision::Allow);
    assert_eq!(with(Some("private")), Decision::Allow);
    assert_eq!(with(Some("public-read")), Decision::Deny);
}

#[test]
fn principals_are_everybody_or_named_users() {
    let p = BucketPolicy::parse(&format!(
        r#"{{"Statement": {{"Effect": "Allow",
        "Principal": {{"AWS": ["alice", "arn:aws:iam:::user/bob"]}}, {READ}}}}}"#
    ))
    .unwrap();
    let by = |key| p.decide(&Asked { user: key, ..ask("s3:GetObject", "public/x") });
    assert_eq!(by(Some("alice")), Decision::Allow);
    assert_eq!(by(Some("bob")), Decision::Allow);
    assert_eq!(by(Some("eve")), Decision::Silent);
    assert_eq!(by(None), Decision::Silent);
    assert!(!p.is_public());
}

#[test]
fn conditions_compare_what_the_request_has() {
    let holds = |condition: &str, wanted_key: &'static str, value: Option<&str>| {
        let p = policy(&format!(r#"{READ}, "Condition": {condition}"#)).unwrap();
        let value = value.map(str::to_owned);
        let lookup = move |key: &str| value.clone().filter(|_| key == wanted_key);
        p.decide(&Asked { value: &lookup, ..ask("s3:GetObject", "public/x") }) == Decision::Allow
    };
    let net = r#"{"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "::1"]}}"#;
    assert!(holds(net, "aws:sourceip", Some("10.1.2.3")));
    assert!(holds(net, "aws:sourceip", Some("::ffff:10.1.2.3")));
    assert!(holds(net, "aws:sourceip", Some("::1")));
    assert!(!holds(net, "aws:sourceip", Some("11.1.2.3")));
    assert!(!holds(net, "aws:sourceip", None));
    let all = r#"{"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}"#;
    assert!(holds(all, "aws:sourceip", Some("11.1.2.3")));
    let referer = r#"{"StringLikeIfExists": {"aws:Referer": "http://x/*"}}"#;
    assert!(holds(referer, "aws:referer", Some("http://x/y")));
    assert!(!holds(referer, "aws:referer", Some("http://y/")));
    assert!(holds(referer, "aws:referer", None));
    let tag = r#"{"StringEquals": {"s3:ExistingObjectTag/Security": "public"}}"#;
    assert!(holds(tag, "s3:existingobjecttag/Security", Some("public")));
    assert!(!holds(tag, "s3:existingobjecttag/Security", Some("Public")));
    assert!(!holds(tag, "s3:existingobjecttag/Security", None));
    let no_tls = r#"{"Bool": {"aws:SecureTransport": false}}"#;
    assert!(holds(no_tls, "aws:securetransport", Some("false")));
    let absent = r#"{"Null": {"s3:x-amz-acl": "true"}}"#;
    assert!(holds(absent, "s3:x-amz-acl", None) && !holds(absent, "s3:x-amz-acl", Some("x")));
    let few = r#"{"NumericLessThanEquals": {"s3:max-keys": "10"}}"#;
    assert!(holds(few, "s3:max-keys", Some("10")) && !holds(few, "s3:max-keys", Some("11")));
    let not = r#"{"StringNotEquals": {"s3:prefix": "a"}}"#;
    assert!(holds(not, "s3:prefix", None) && !holds(not, "s3:prefix", Some("a")));
}

#[test]
fn a_policy_for_some_networks_is_not_public() {
    let with = |net: &str| {
        let condition =
            format!(r#"{READ}, "Condition": {{"IpAddress": {{"aws:SourceIp": "{net}"}}}}"#);
        policy(&condition).unwrap().is_public()
    };
    assert!(!with("10.0.0.0/32") && with("0.0.0.0/0"));
}

#[test]
fn what_cannot_be_kept_is_refused_by_name() {
    let e = policy(&format!(r#"{READ}, "NotPrincipal": "*""#)).unwrap_err();
    assert!(e.code == S3Code::MalformedPolicy && e.message.contains("NotPrincipal"), "{e}");
    for bad in [
        r#""Resource": "arn:aws:s3:::b""#,
        r#""Action": "ec2:Run", "Resource": "arn:aws:s3:::b""#,
        r#""Action": "s3:GetObject", "Resource": "b""#,
        r#""Action": [], "Resource": "arn:aws:s3:::b""#,
        r#""Action": "s3:*", "Resource": "arn:aws:s3:::b", "Condition": []"#,
        r#""Action": "s3:*", "Resource": "arn:aws:s3:::b", "Condition": {"DateLike": {}, "X": 1}"#,
        r#""Action": "s3:*", "Resource": "arn:aws:s3:::b", "Condition": {"Bool": {"aws:x": 1}}"#,
        r#""Action": "s3:*", "Resource": "arn:aws:s3:::b", "Condition": {"IpAddress":
            {"aws:SourceIp": "10.0.0.0/33"}}"#,
    ] {
        assert_eq!(policy(bad).unwrap_err().code, S3Code::MalformedPolicy, "{bad}");
    }
    for bad in ["", "[]", "{}", "{", r#"{"Statement": 1}"#, &" ".repeat(MAX_POLICY + 1)] {
        assert!(BucketPolicy::parse(bad).is_err(), "{bad:.20}");
    }
}

#[test]
fn operations_need_the_actions_of_aws() {
    let plain = ObjectVersion::default();
    let of_version = ObjectVersion { version_id: Some("1".into()) };
    assert_eq!(action(&Operation::DeleteObject(plain)), "s3:DeleteObject");
    assert_eq!(action(&Operation::DeleteObject(of_version)), "s3:DeleteObjectVersion");
    let complete = Operation::CompleteMultipartUpload(UploadId { upload_id: "u".into() });
    assert_eq!(action(&complete), "s3:PutObject");
}

proptest! {
    #[test]
    fn patterns_match_as_if_tried_one_by_one(pattern in "[ab*?]{0,6}", text in "[ab]{0,6}") {
        fn slow(p: &[u8], t: &[u8]) -> bool {
            match (p.first(), t.first()) {
                (None, None) => true,
                (Some(b'*'), _) => slow(&p[1..], t) || (!t.is_empty() && slow(p, &t[1..])),
                (Some(a), Some(b)) => (a == b || *a == b'?') && slow(&p[1..], &t[1..]),
                _ => false,
            }
        }
        prop_assert_eq!(matches(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}") {
        let _ = BucketPolicy::parse(&text);
    }
}

//! Determining the operation of a request: by path, host, query and headers.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn parse_with(method: &str, target: &str, headers: &[(&str, &str)]) -> S3Result<Request> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.insert(name, HeaderValue::from_str(value).unwrap());
    }
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let front = Front::new("/s3", vec!["s3.example.com".to_owned()]);
    Request::parse(&RequestHead { method: &method, path, query, headers: &map }, &front)
}

fn parse(method: &str, target: &str) -> S3Result<Request> {
    parse_with(method, target, &[("host", "localhost:8080")])
}

fn name(method: &str, target: &str) -> &'static str {
    parse(method, target).unwrap().operation.name()
}

#[test]
fn every_operation_is_known_by_method_and_query() {
    for (method, target, wanted) in [
        ("GET", "/s3", "ListBuckets"),
        ("GET", "/s3/", "ListBuckets"),
        ("PUT", "/s3/b", "CreateBucket"),
        ("PUT", "/s3/b/", "CreateBucket"),
        ("HEAD", "/s3/b", "HeadBucket"),
        ("DELETE", "/s3/b", "DeleteBucket"),
        ("GET", "/s3/b", "ListObjects"),
        ("GET", "/s3/b/?list-type=2", "ListObjectsV2"),
        ("GET", "/s3/b?versions", "ListObjectVersions"),
        ("GET", "/s3/b?uploads=", "ListMultipartUploads"),
        ("GET", "/s3/b?location", "GetBucketLocation"),
        ("GET", "/s3/b?versioning", "GetBucketVersioning"),
        ("PUT", "/s3/b?versioning", "PutBucketVersioning"),
        ("GET", "/s3/b?cors", "GetBucketCors"),
        ("PUT", "/s3/b?tagging", "PutBucketTagging"),
        ("DELETE", "/s3/b?policy", "DeleteBucketPolicy"),
        ("GET", "/s3/b?policyStatus", "GetBucketPolicyStatus"),
        ("GET", "/s3/b?acl", "GetBucketAcl"),
        ("POST", "/s3/b?delete", "DeleteObjects"),
        ("POST", "/s3/b", "PostObject"),
        ("GET", "/s3/b?lifecycle", "GetBucketLifecycleConfiguration"),
        ("PUT", "/s3/b?encryption", "PutBucketEncryption"),
        ("GET", "/s3/b/k", "GetObject"),
        ("HEAD", "/s3/b/k?partNumber=1", "HeadObject"),
        ("PUT", "/s3/b/k", "PutObject"),
        ("DELETE", "/s3/b/k?versionId=null", "DeleteObject"),
        ("GET", "/s3/b/k?attributes", "GetObjectAttributes"),
        ("GET", "/s3/b/k?tagging", "GetObjectTagging"),
        ("PUT", "/s3/b/k?tagging", "PutObjectTagging"),
        ("DELETE", "/s3/b/k?tagging", "DeleteObjectTagging"),
        ("PUT", "/s3/b/k?acl", "PutObjectAcl"),
        ("POST", "/s3/b/k?uploads", "CreateMultipartUpload"),
        ("PUT", "/s3/b/k?partNumber=1&uploadId=u", "UploadPart"),
        ("GET", "/s3/b/k?uploadId=u", "ListParts"),
        ("POST", "/s3/b/k?uploadId=u", "CompleteMultipartUpload"),
        ("DELETE", "/s3/b/k?uploadId=u", "AbortMultipartUpload"),
        ("POST", "/s3/b/k?select&select-type=2", "SelectObjectContent"),
        ("GET", "/s3/b/k?retention", "GetObjectRetention"),
        ("OPTIONS", "/s3/b/k", "Preflight"),
    ] {
        assert_eq!(name(method, target), wanted, "{method} {target}");
    }
    for (method, target) in
        [("PUT", "/s3"), ("POST", "/s3/b/k"), ("PATCH", "/s3/b/k"), ("POST", "/s3/")]
    {
        assert_eq!(parse(method, target).unwrap_err().code, S3Code::MethodNotAllowed);
    }
}

#[test]
fn a_copy_is_a_put_that_names_a_source() {
    let source = [("x-amz-copy-source", "src/a%20b?versionId=7")];
    let copy = parse_with("PUT", "/s3/b/k", &source).unwrap().operation;
    let Operation::CopyObject(from) = copy else { panic!("{copy:?}") };
    assert_eq!((from.bucket.as_str(), from.key.as_str()), ("src", "a b"));
    let part = [source[0], ("x-amz-copy-source-range", "bytes=1-5")];
    let copy = parse_with("PUT", "/s3/b/k?uploadId=u&partNumber=2", &part).unwrap().operation;
    let Operation::UploadPartCopy(part, from) = copy else { panic!("{copy:?}") };
    assert_eq!(part, UploadPart { upload_id: "u".into(), part_number: 2 });
    assert!(from.range.is_some());
}

#[test]
fn a_key_is_what_is_behind_the_bucket_whatever_it_looks_like() {
    for (path, key) in [
        ("/s3/b/a/../b", "a/../b"),
        ("/s3/b//a//b/", "/a//b/"),
        ("/s3/b/./x", "./x"),
        ("/s3/b/%2e%2E%2f+%20%C3%BC", "../+ ü"),
        ("/s3/b/s3/b", "s3/b"),
    ] {
        let request = parse("GET", path).unwrap();
        assert_eq!((request.bucket.as_str(), request.key.as_str()), ("b", key), "{path}");
    }
    let long = format!("/s3/b/{}", "%41".repeat(1024));
    assert_eq!(parse("GET", &long).unwrap().key.len(), 1024);
    assert_eq!(parse("GET", &format!("{long}A")).unwrap_err().code, S3Code::KeyTooLongError);
    assert_eq!(parse("GET", "/s3/b/%ff").unwrap_err().code, S3Code::InvalidURI);
    assert_eq!(parse("GET", "/s3/b/%00").unwrap_err().code, S3Code::InvalidArgument);
    assert_eq!(parse("GET", "/s3//k").unwrap_err().code, S3Code::InvalidBucketName);
    assert_eq!(parse("GET", "/s3x/b").unwrap_err().code, S3Code::InvalidURI);
}

#[test]
fn a_host_below_our_domain_is_a_bucket() {
    let at = |host: &str, target: &str| {
        let r = parse_with("GET", target, &[("host", host)]).unwrap();
        (r.bucket, r.key, r.operation.name())
    };
    let (b, k) = ("b.c".to_owned(), "x/y".to_owned());
    assert_eq!(at("B.c.s3.Example.com:8080", "/s3/x/y"), (b.clone(), k, "GetObject"));
    assert_eq!(at("b.c.s3.example.com", "/s3/?list-type=2"), (b, String::new(), "ListObjectsV2"));
    assert_eq!(at("s3.example.com", "/s3/b").0, "b");
    assert_eq!(at("xs3.example.com", "/s3/b").0, "b");
}

#[test]
fn texts_of_listings_longer_than_a_key_are_refused_by_their_name() {
    let long = "a".repeat(70_000);
    for (name, query) in [
        ("prefix", "list-type=2&prefix="),
        ("start-after", "list-type=2&start-after="),
        ("marker", "marker="),
        ("key-marker", "versions&key-marker="),
        ("key-marker", "uploads&key-marker="),
    ] {
        let e = parse("GET", &format!("/s3/b?{query}{long}")).unwrap_err();
        assert_eq!(e.code, S3Code::InvalidArgument, "{query}");
        assert!(e.message.contains(&format!("{name} has 70000 bytes")), "{}", e.message);
        assert!(e.message.contains("1024"), "{}", e.message);
    }
    let token = super::super::token::encode(&long);
    assert!(super::super::token::decode(&token).is_err());
}

#[test]
fn parameters_of_listings_are_read_and_bounded() {
    let target = "/s3/b?list-type=2&prefix=a%2F&delimiter=%2F&max-keys=5000&encoding-type=url\
                  &start-after=x&fetch-owner=true&continuation-token=t";
    let Operation::ListObjectsV2(list) = parse("GET", target).unwrap().operation else { panic!() };
    assert_eq!((list.scope.prefix.as_str(), list.scope.delimiter.as_deref()), ("a/", Some("/")));
    assert!(list.scope.encode && list.fetch_owner && list.scope.max == 1000);
    assert_eq!(
        (list.start_after.as_deref(), list.continuation_token.as_deref()),
        (Some("x"), Some("t"))
    );
    let empty = "/s3/b?delimiter=&max-keys=&marker=&prefix=";
    let Operation::ListObjects(list) = parse("GET", empty).unwrap().operation else { panic!() };
    assert_eq!((list.scope.delimiter, list.scope.max), (None, 1000));
    for bad in ["max-keys=blah", "max-keys=-1", "encoding-type=x", "versions&version-id-marker=1"] {
        let e = parse("GET", &format!("/s3/b?{bad}")).unwrap_err();
        assert_eq!(e.code, S3Code::InvalidArgument, "{bad}");
    }
    assert!(parse("GET", "/s3?max-buckets=0").is_err());
}

#[test]
fn numbers_of_parts_and_ids_are_checked() {
    for bad in [
        "partNumber=0&uploadId=u",
        "partNumber=10001&uploadId=u",
        "partNumber=x&uploadId=u",
        "partNumber=1",
        "uploadId=u",
        "partNumber=1&uploadId=",
    ] {
        let e = parse("PUT", &format!("/s3/b/k?{bad}")).unwrap_err();
        assert_eq!(e.code, S3Code::InvalidArgument, "{bad}");
    }
    assert!(parse("GET", "/s3/b/k?versionId=").is_err());
    let target = "/s3/b/k?response-content-type=foo%2Fbar&response-expires=123";
    let Operation::GetObject(get) = parse("GET", target).unwrap().operation else { panic!() };
    let wanted = vec![("content-type", "foo/bar".to_owned()), ("expires", "123".to_owned())];
    assert_eq!(get.overrides, wanted);
}

#[test]
fn a_header_from_the_query_cannot_begin_another_header() {
    for value in ["a%0D%0Ax-planted:1", "a%0Ax-planted:1", "a%0Dx", "a%00", "%1B"] {
        for (parameter, _) in OVERRIDES {
            let e = parse("GET", &format!("/s3/b/k?{parameter}={value}")).unwrap_err();
            assert_eq!(e.code, S3Code::InvalidArgument, "{parameter} {value}");
        }
    }
    assert!(
        parse("GET", "/s3/b/k?response-content-disposition=a%3B%20filename%3D%22%C3%A4%22").is_ok()
    );
}

proptest! {
    #[test]
    fn any_key_survives_its_path(key in "\\PC{1,40}") {
        let path = format!("/s3/b/{}", crate::encode::encode_key(&key));
        prop_assert_eq!(parse("GET", &path).unwrap().key, key);
    }

    #[test]
    fn no_target_makes_it_panic(path in "/s3[/%a-f0-9+.]{0,20}", query in "[a-zA-Z=&%0-9-]{0,30}") {
        for method in ["GET", "PUT", "POST", "DELETE", "HEAD"] {
            let _ = parse(method, &format!("{path}?{query}"));
        }
    }
}

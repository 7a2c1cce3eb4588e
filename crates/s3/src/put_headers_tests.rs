//! Headers of writes: stored ones, and refused ones.

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

fn code(pairs: &[(&'static str, &str)]) -> S3Code {
    PutHeaders::parse(&headers(pairs)).unwrap_err().code
}

#[test]
fn content_headers_and_user_metadata_are_kept_as_given() {
    let given = headers(&[
        ("content-type", "text/plain"),
        ("content-encoding", "aws-chunked, deflate,gzip"),
        ("expires", "tomorrow"),
        ("x-amz-meta-a", "1"),
        ("x-amz-meta-a", "2"),
        ("x-amz-meta-name", "grün"),
        ("x-amz-meta-empty", ""),
        ("content-length", "5"),
    ]);
    let kept = ObjectHeaders::parse(&given).unwrap();
    let pairs: BTreeMap<String, &str> = kept.pairs().collect();
    let wanted = [
        ("content-encoding", "deflate, gzip"),
        ("content-type", "text/plain"),
        ("expires", "tomorrow"),
        ("x-amz-meta-a", "1,2"),
        ("x-amz-meta-empty", ""),
        ("x-amz-meta-name", "grün"),
    ];
    assert_eq!(pairs, wanted.into_iter().map(|(n, v)| (n.to_owned(), v)).collect());
    let stored = serde_json::to_string(&kept).unwrap();
    assert_eq!(serde_json::from_str::<ObjectHeaders>(&stored).unwrap(), kept);
}

#[test]
fn how_bytes_travel_is_not_what_they_are() {
    let only = ObjectHeaders::parse(&headers(&[("content-encoding", "aws-chunked")])).unwrap();
    assert!(only.content.is_empty());
    let pairs: Vec<_> = only.pairs().collect();
    assert_eq!(pairs, [("content-type".to_owned(), DEFAULT_CONTENT_TYPE)]);
}

#[test]
fn checks_of_the_body_are_read_from_headers() {
    let checks = |pairs: &[(&'static str, &str)]| BodyChecks::parse(&headers(pairs));
    let code = |pairs: &[(&'static str, &str)]| checks(pairs).unwrap_err().code;
    let md5 = checks(&[("content-md5", "rL0Y20xC+Fzt72VPzMSk2A==")]).unwrap().md5.unwrap();
    assert_eq!(hex::encode(md5), "acbd18db4c42f85cedef654fccc4a4d8");
    for bad in ["", "YWJyYWNhZGFicmE=", "AWS HAHAHA"] {
        assert_eq!(code(&[("content-md5", bad)]), S3Code::InvalidDigest, "{bad}");
    }
    let crc = ("x-amz-checksum-crc32", "NhCmhg==");
    assert_eq!(checks(&[crc]).unwrap().algorithm(), Some(ChecksumAlgorithm::Crc32));
    assert_eq!(code(&[("x-amz-checksum-crc32", "bad")]), S3Code::BadDigest);
    let sha1 = ("x-amz-checksum-sha1", "9/w8HYCOBHMq32eZZczDTKeuNEE=");
    assert_eq!(code(&[crc, sha1]), S3Code::InvalidRequest);
    let trailer = checks(&[("x-amz-trailer", "X-Amz-Checksum-CRC64NVME")]).unwrap();
    assert_eq!(trailer.trailer, Some(ChecksumAlgorithm::Crc64Nvme));
    assert_eq!(code(&[("x-amz-trailer", "x-other")]), S3Code::InvalidRequest);
    assert_eq!(code(&[crc, ("x-amz-trailer", "x-amz-checksum-crc32")]), S3Code::InvalidRequest);
}

#[test]
fn what_would_be_a_lie_if_it_were_ignored_is_refused() {
    assert_eq!(code(&[("x-amz-server-side-encryption", "AES256")]), S3Code::NotImplemented);
    assert_eq!(code(&[("x-amz-object-lock-mode", "GOVERNANCE")]), S3Code::NotImplemented);
    assert_eq!(code(&[("x-amz-storage-class", "NEVER")]), S3Code::InvalidStorageClass);
    assert_eq!(code(&[("x-amz-metadata-directive", "MOVE")]), S3Code::InvalidArgument);
    assert_eq!(code(&[("x-amz-checksum-algorithm", "MD4")]), S3Code::InvalidRequest);
    assert_eq!(code(&[("x-amz-meta-big", &"x".repeat(3000))]), S3Code::MetadataTooLarge);
    assert_eq!(code(&[("x-amz-tagging", "a=1&a=2")]), S3Code::InvalidTag);
}

#[test]
fn a_put_is_understood_as_a_whole() {
    let put = PutHeaders::parse(&headers(&[
        ("x-amz-tagging", "a%20b=c+d&e="),
        ("x-amz-metadata-directive", "REPLACE"),
        ("if-none-match", "*"),
        ("x-amz-checksum-algorithm", "CRC32"),
        ("x-amz-checksum-type", "FULL_OBJECT"),
        ("x-amz-storage-class", "STANDARD_IA"),
    ]))
    .unwrap();
    let tags: Vec<_> = put.tags.iter().map(|t| (t.key.as_str(), t.value.as_str())).collect();
    assert_eq!(tags, [("a b", "c d"), ("e", "")]);
    assert_eq!(put.metadata_directive, Directive::Replace);
    assert_eq!(put.checksum_type, Some(ChecksumType::FullObject));
    assert!(!put.conditions.is_empty());
    assert_eq!(decoded_length(&headers(&[("x-amz-decoded-content-length", "7")])), Ok(Some(7)));
    assert!(decoded_length(&headers(&[("x-amz-decoded-content-length", "-7")])).is_err());
}

#[test]
fn a_completed_upload_must_be_what_the_client_says() {
    let said = |pairs: &[(&'static str, &str)]| CompleteHeaders::parse(&headers(pairs)).unwrap();
    let computed = S3Checksum {
        algorithm: ChecksumAlgorithm::Sha256,
        kind: ChecksumType::Composite,
        value: "Ok6Cs5b96ux6+MWQkJO7UBT5sKPBeXBLwvj/hK89smg=-1".to_owned(),
    };
    let right = said(&[
        ("x-amz-checksum-sha256", "Ok6Cs5b96ux6+MWQkJO7UBT5sKPBeXBLwvj/hK89smg=-1"),
        ("x-amz-mp-object-size", "1024"),
        ("x-amz-checksum-type", "COMPOSITE"),
    ]);
    assert!(right.check_checksum(&computed).is_ok() && right.check_size(1024).is_ok());
    assert_eq!(right.check_size(1).unwrap_err().code, S3Code::InvalidRequest);
    let full = S3Checksum { kind: ChecksumType::FullObject, ..computed.clone() };
    assert_eq!(right.check_checksum(&full).unwrap_err().code, S3Code::InvalidRequest);
    let sum = "Ok6Cs5b96ux6+MWQkJO7UBT5sKPBeXBLwvj/hK89smg=";
    let uncounted = said(&[("x-amz-checksum-sha256", sum)]);
    assert!(uncounted.check_checksum(&computed).is_ok(), "as minio-go says it");
    assert!(uncounted.check_checksum(&full).is_err());
    for wrong in ["bad", "Ok6Cs5b96ux6+MWQkJO7UBT5sKPBeXBLwvj/hK89smg=-2", ""] {
        let e = said(&[("x-amz-checksum-sha256", wrong)]).check_checksum(&computed).unwrap_err();
        assert_eq!(e.code, S3Code::BadDigest, "{wrong}");
    }
    let none = CompleteHeaders::default();
    assert!(none.check_checksum(&computed).is_ok() && none.check_size(0).is_ok());
}

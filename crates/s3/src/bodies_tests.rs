//! Bodies of requests as SDKs send them, and those that are refused.

use proptest::prelude::*;

use super::*;

const NS: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

#[test]
fn parts_of_an_upload_must_be_in_ascending_order() {
    let body =
        |parts: &str| format!("<CompleteMultipartUpload {NS}>{parts}</CompleteMultipartUpload>");
    let part = |n: &str, more: &str| {
        format!("<Part><ETag>&quot;abc&quot;</ETag>{more}<PartNumber>{n}</PartNumber></Part>")
    };
    let sum = "<ChecksumCRC32>NhCmhg==</ChecksumCRC32>";
    let parts = complete_upload(body(&(part("1", sum) + &part("10000", ""))).as_bytes()).unwrap();
    assert_eq!((parts[0].number, parts[0].etag.as_str()), (1, "abc"));
    assert_eq!(parts[0].checksum.as_ref().unwrap().value, "NhCmhg==");
    assert_eq!((parts[1].number, &parts[1].checksum), (10_000, &None));
    let twice = complete_upload(body(&(part("1", "") + &part("1", sum))).as_bytes()).unwrap_err();
    assert_eq!(twice.code, S3Code::InvalidPartOrder);
    let again = part("1", "").replace("abc", "def");
    let resent = complete_upload(body(&(part("1", "") + &again)).as_bytes()).unwrap();
    assert_eq!(resent.len(), 1);
    assert_eq!(resent[0].etag, "def", "what was named last counts");
    for (parts, code) in [
        (String::new(), S3Code::MalformedXML),
        (part("x", ""), S3Code::MalformedXML),
        ("<Part><PartNumber>1</PartNumber></Part>".to_owned(), S3Code::MalformedXML),
        (part("0", ""), S3Code::InvalidArgument),
        (part("10001", ""), S3Code::InvalidArgument),
        (part("2", "") + &part("1", ""), S3Code::InvalidPartOrder),
    ] {
        assert_eq!(complete_upload(body(&parts).as_bytes()).unwrap_err().code, code, "{parts}");
    }
}

#[test]
fn objects_to_delete_have_keys_versions_and_conditions() {
    let body = format!(
        "<Delete {NS}><Object><Key> a&amp;b </Key><VersionId>v</VersionId></Object><Object>\
         <Key>c</Key><ETag>\"e\"</ETag><LastModifiedTime>Fri, 24 May 2013 00:00:00 GMT\
         </LastModifiedTime><Size>7</Size></Object><Quiet>true</Quiet></Delete>"
    );
    let wanted = delete_objects(body.as_bytes()).unwrap();
    assert!(wanted.quiet);
    assert_eq!(wanted.objects[0].key, " a&b ", "white space is part of a key");
    assert_eq!(wanted.objects[0].version_id.as_deref(), Some("v"));
    let c = &wanted.objects[1];
    assert_eq!((c.if_etag.as_deref(), c.if_size), (Some("e"), Some(7)));
    assert_eq!(c.if_modified_s, Some(1_369_353_600));
    let many = "<Object><Key>k</Key></Object>".repeat(1001);
    for bad in [
        "",
        "<Object/>",
        "<Object><Key/></Object>",
        &many,
        "<Object><Key>k</Key><Size>x</Size></Object>",
    ] {
        let body = format!("<Delete>{bad}</Delete>");
        assert_eq!(delete_objects(body.as_bytes()).unwrap_err().code, S3Code::MalformedXML);
    }
}

#[test]
fn tags_are_few_and_short_and_not_twice() {
    let body = |tags: &[(&str, &str)]| {
        let tags: String = tags
            .iter()
            .map(|(k, v)| format!("<Tag><Key>{k}</Key><Value>{v}</Value></Tag>"))
            .collect();
        format!("<Tagging {NS}><TagSet>{tags}</TagSet></Tagging>").into_bytes()
    };
    assert_eq!(tagging(&body(&[("a", ""), ("b", "c d")]), 10).unwrap().len(), 2);
    assert!(tagging(&body(&[]), 10).unwrap().is_empty());
    let names: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "x")).collect();
    let long = "x".repeat(257);
    for bad in [
        &many[..],
        &[("a", "1"), ("a", "2")],
        &[("", "1")],
        &[(&long[..129], "1")],
        &[("a", &long)],
    ] {
        assert_eq!(tagging(&body(bad), 10).unwrap_err().code, S3Code::InvalidTag);
    }
    assert!(tagging(&body(&[("ключ", &"я".repeat(256))]), 10).is_ok(), "characters, not bytes");
    assert_eq!(tagging(b"<Tagging/>", 10).unwrap_err().code, S3Code::MalformedXML);
}

#[test]
fn settings_of_a_bucket_are_read() {
    let status = |s: &str| {
        let body = format!("<VersioningConfiguration {NS}>{s}</VersioningConfiguration>");
        versioning(body.as_bytes()).map_err(|e| e.code)
    };
    assert_eq!(status("<Status>Enabled</Status>"), Ok(Versioning::Enabled));
    assert_eq!(status("<Status>Suspended</Status>"), Ok(Versioning::Suspended));
    let illegal = Err(S3Code::IllegalVersioningConfigurationException);
    assert_eq!(status("<Status>Off</Status>"), illegal);
    assert_eq!(status(""), illegal);
    assert_eq!(status("<MfaDelete>Enabled</MfaDelete>"), Err(S3Code::NotImplemented));
    assert_eq!(create_bucket(b""), Ok(None));
    let region = format!(
        "<CreateBucketConfiguration {NS}><LocationConstraint>eu</LocationConstraint>\
         </CreateBucketConfiguration>"
    );
    assert_eq!(create_bucket(region.as_bytes()), Ok(Some("eu".to_owned())));
    assert!(create_bucket(b"eu").is_err());
}

#[test]
fn cors_rules_are_read_and_checked() {
    let body =
        |rule: &str| format!("<CORSConfiguration><CORSRule>{rule}</CORSRule></CORSConfiguration>");
    let read = |rule: &str| cors(body(rule).as_bytes()).map_err(|e| e.code);
    let good = "<AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>\
                <AllowedOrigin>*.x</AllowedOrigin><MaxAgeSeconds>60</MaxAgeSeconds>";
    let rules = read(good).unwrap();
    assert_eq!(rules[0].allowed_methods, ["GET", "PUT"]);
    assert_eq!(rules[0].max_age_s, Some(60));
    let written = crate::answers::cors(&rules);
    assert_eq!(cors(written.as_bytes()).unwrap(), rules, "what is stored is what is answered");
    assert_eq!(read(""), Err(S3Code::MalformedXML));
    assert_eq!(read(&good.replace("GET", "PATCH")), Err(S3Code::InvalidRequest));
    assert_eq!(read(&good.replace("*.x", "*.*")), Err(S3Code::InvalidRequest));
    assert!(cors(b"<CORSConfiguration/>").is_err());
}

#[test]
fn checksums_of_uploads_have_the_types_that_aws_allows() {
    use ChecksumAlgorithm as A;
    use ChecksumType as T;
    assert_eq!(upload_checksum(None, None), Ok(None));
    assert_eq!(upload_checksum(Some(A::Sha1), None), Ok(Some((A::Sha1, T::Composite))));
    let nvme = Some((A::Crc64Nvme, T::FullObject));
    assert_eq!(upload_checksum(Some(A::Crc64Nvme), None), Ok(nvme));
    for (algorithm, kind) in [
        (None, T::FullObject),
        (Some(A::Sha256), T::FullObject),
        (Some(A::Crc64Nvme), T::Composite),
    ] {
        let e = upload_checksum(algorithm, Some(kind)).unwrap_err();
        assert_eq!(e.code, S3Code::InvalidRequest);
    }
}

#[test]
fn attributes_are_asked_for_by_name() {
    let wanted = WantedAttributes::parse(["ETag, ObjectSize", "Checksum"]).unwrap();
    assert!(wanted.etag && wanted.size && wanted.checksum && !wanted.parts);
    assert!(WantedAttributes::parse([]).is_err());
    assert!(WantedAttributes::parse(["ETag,Colour"]).is_err());
}

proptest! {
    #[test]
    fn no_body_makes_them_panic(
        text in "(</?(Delete|Object|Key|Tagging|TagSet|Tag|Part|ETag|PartNumber)>|[0-9a&;]){0,20}",
    ) {
        let body = text.as_bytes();
        let _ = (complete_upload(body), delete_objects(body), tagging(body, 10), cors(body));
    }
}

//! Golden XML of listings: what SDKs parse.
#![allow(clippy::unwrap_used)]

use super::*;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const NS: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
const AT: u64 = 1_369_353_600_000_000_000;

fn owner() -> Owner {
    Owner { id: "me".to_owned(), display_name: "Me".to_owned() }
}

fn scope(delimiter: Option<&str>, encode: bool) -> ListScope {
    let delimiter = delimiter.map(str::to_owned);
    ListScope { prefix: "a b/".to_owned(), delimiter, encode, max: 2 }
}

fn listed(key: &str) -> ListedObject {
    ListedObject {
        key: key.to_owned(),
        mtime_ns: AT,
        etag: "e1".to_owned(),
        size: 3,
        checksum: Some((ChecksumAlgorithm::Crc32, ChecksumType::FullObject)),
        owner: None,
    }
}

fn page() -> ObjectPage {
    ObjectPage {
        objects: vec![listed("a b/x&y")],
        common_prefixes: vec!["a b/z/".to_owned()],
        truncated: true,
        last: "a b/z/".to_owned(),
    }
}

const CONTENTS: &str = "<Contents><Key>KEY</Key><LastModified>2013-05-24T00:00:00.000Z\
    </LastModified><ETag>&quot;e1&quot;</ETag><ChecksumAlgorithm>CRC32</ChecksumAlgorithm>\
    <ChecksumType>FULL_OBJECT</ChecksumType><Size>3</Size>OWNER\
    <StorageClass>STANDARD</StorageClass></Contents>";
const OWNER: &str = "<Owner><ID>me</ID><DisplayName>Me</DisplayName></Owner>";

#[test]
fn the_first_version_of_a_listing_has_markers_and_owners() {
    let asked = ListObjects { scope: scope(Some("/"), true), marker: "a".to_owned() };
    let contents = CONTENTS.replace("KEY", "a%20b/x%26y").replace("OWNER", OWNER);
    assert_eq!(
        page().to_xml_v1("b", &asked, &owner()).unwrap(),
        format!(
            "{HEAD}<ListBucketResult {NS}><Name>b</Name><Prefix>a b/</Prefix><Marker>a</Marker>\
             <NextMarker>a%20b/z/</NextMarker><MaxKeys>2</MaxKeys><Delimiter>/</Delimiter>\
             <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>{contents}\
             <CommonPrefixes><Prefix>a%20b/z/</Prefix></CommonPrefixes></ListBucketResult>"
        )
    );
    let plain = ListObjects { scope: scope(None, false), marker: String::new() };
    let text = page().to_xml_v1("b", &plain, &owner()).unwrap();
    assert!(!text.contains("NextMarker"), "the last key says it");
    assert!(text.contains("<Key>a b/x&amp;y</Key>"));
}

#[test]
fn the_second_version_has_tokens_and_counts() {
    let asked = ListObjectsV2 {
        scope: scope(None, false),
        continuation_token: Some("t0".to_owned()),
        start_after: Some("a".to_owned()),
        fetch_owner: false,
    };
    let contents = CONTENTS.replace("KEY", "a b/x&amp;y").replace("OWNER", "");
    assert_eq!(
        page().to_xml_v2("b", &asked, &owner(), Some("t1")).unwrap(),
        format!(
            "{HEAD}<ListBucketResult {NS}><Name>b</Name><Prefix>a b/</Prefix>\
             <ContinuationToken>t0</ContinuationToken>\
             <NextContinuationToken>t1</NextContinuationToken><StartAfter>a</StartAfter>\
             <KeyCount>2</KeyCount><MaxKeys>2</MaxKeys><IsTruncated>true</IsTruncated>{contents}\
             <CommonPrefixes><Prefix>a b/z/</Prefix></CommonPrefixes></ListBucketResult>"
        )
    );
    let with_owner = ListObjectsV2 { fetch_owner: true, ..asked };
    assert!(page().to_xml_v2("b", &with_owner, &owner(), None).unwrap().contains(OWNER));
}

#[test]
fn versions_and_delete_markers_are_listed_in_order() {
    let marker = ListedVersion {
        object: ListedObject { key: "k".to_owned(), mtime_ns: AT, ..ListedObject::default() },
        version_id: "2".to_owned(),
        latest: true,
        delete_marker: true,
    };
    let version = ListedVersion {
        object: ListedObject { checksum: None, ..listed("k") },
        version_id: "null".to_owned(),
        latest: false,
        delete_marker: false,
    };
    let page = VersionPage { versions: vec![marker, version], ..VersionPage::default() };
    let asked = ListObjectVersions {
        scope: ListScope { prefix: String::new(), ..scope(None, false) },
        key_marker: String::new(),
        version_id_marker: None,
    };
    assert_eq!(
        page.to_xml("b", &asked, &owner()).unwrap(),
        format!(
            "{HEAD}<ListVersionsResult {NS}><Name>b</Name><Prefix></Prefix><KeyMarker></KeyMarker>\
             <VersionIdMarker></VersionIdMarker><MaxKeys>2</MaxKeys><IsTruncated>false\
             </IsTruncated><DeleteMarker><Key>k</Key><VersionId>2</VersionId><IsLatest>true\
             </IsLatest><LastModified>2013-05-24T00:00:00.000Z</LastModified>{OWNER}\
             </DeleteMarker><Version><Key>k</Key><VersionId>null</VersionId><IsLatest>false\
             </IsLatest><LastModified>2013-05-24T00:00:00.000Z</LastModified>\
             <ETag>&quot;e1&quot;</ETag><Size>3</Size><StorageClass>STANDARD</StorageClass>{OWNER}\
             </Version></ListVersionsResult>"
        )
    );
}

#[test]
fn parts_and_uploads_in_progress_are_listed() {
    let part = ListedPart {
        number: 3,
        mtime_ns: AT,
        etag: "e".to_owned(),
        size: 5,
        checksum: Some(S3Checksum {
            algorithm: ChecksumAlgorithm::Sha1,
            kind: ChecksumType::FullObject,
            value: "v".to_owned(),
        }),
    };
    let page = PartPage { parts: vec![part], truncated: true, checksum: None };
    let asked =
        ListParts { upload_id: "u".to_owned(), max_parts: 1, part_number_marker: 2, encode: false };
    let initiator = OWNER.replace("Owner>", "Initiator>");
    assert_eq!(
        page.to_xml("b", "k", &asked, &owner()).unwrap(),
        format!(
            "{HEAD}<ListPartsResult {NS}><Bucket>b</Bucket><Key>k</Key><UploadId>u</UploadId>\
             {initiator}{OWNER}<StorageClass>STANDARD</StorageClass><PartNumberMarker>2\
             </PartNumberMarker><NextPartNumberMarker>3</NextPartNumberMarker><MaxParts>1</MaxParts>\
             <IsTruncated>true</IsTruncated><Part><PartNumber>3</PartNumber>\
             <LastModified>2013-05-24T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>\
             <Size>5</Size><ChecksumSHA1>v</ChecksumSHA1></Part></ListPartsResult>"
        )
    );
    let upload = ListedUpload {
        key: "k".to_owned(),
        upload_id: "u".to_owned(),
        initiated_ns: AT,
        checksum: None,
        owner: None,
    };
    let page = UploadPage { uploads: vec![upload], ..UploadPage::default() };
    let asked = ListMultipartUploads {
        scope: scope(None, false),
        key_marker: String::new(),
        upload_id_marker: None,
    };
    let text = page.to_xml("b", &asked, &owner()).unwrap();
    assert!(text.contains("<Upload><Key>k</Key><UploadId>u</UploadId>"), "{text}");
    assert!(text.contains("<MaxUploads>2</MaxUploads><IsTruncated>false</IsTruncated>"), "{text}");
}

#[test]
fn buckets_are_listed_with_their_owner() {
    let list = BucketList {
        owner: owner(),
        buckets: vec![("b".to_owned(), AT)],
        prefix: String::new(),
        continuation_token: None,
    };
    assert_eq!(
        list.to_xml().unwrap(),
        format!(
            "{HEAD}<ListAllMyBucketsResult {NS}>{OWNER}<Buckets><Bucket><Name>b</Name>\
             <CreationDate>2013-05-24T00:00:00.000Z</CreationDate></Bucket></Buckets>\
             </ListAllMyBucketsResult>"
        )
    );
}

#[test]
fn a_listing_with_a_key_that_xml_cannot_hold_is_encoded_or_refused() {
    let page = ObjectPage { objects: vec![listed("a\u{1}")], ..ObjectPage::default() };
    let v1 = |encode| {
        let scope = ListScope { prefix: "a\u{1}".to_owned(), ..scope(None, encode) };
        page.to_xml_v1("b", &ListObjects { scope, marker: String::new() }, &owner())
    };
    let text = v1(true).unwrap();
    assert!(text.contains("<Prefix>a%01</Prefix>") && text.contains("<Key>a%01</Key>"), "{text}");
    let e = v1(false).unwrap_err();
    assert_eq!(e.detail_of("ArgumentName"), Some("encoding-type"));
    assert!(e.message.contains("encoding-type=url"), "{e}");
    let asked = |encode| ListParts {
        upload_id: "u".to_owned(),
        max_parts: 1,
        part_number_marker: 0,
        encode,
    };
    let parts = PartPage::default();
    let text = parts.to_xml("b", "a\u{1}", &asked(true), &owner()).unwrap();
    assert!(text.contains("<Key>a%01</Key><EncodingType>url</EncodingType>"), "{text}");
    assert!(parts.to_xml("b", "a\u{1}", &asked(false), &owner()).is_err());
}

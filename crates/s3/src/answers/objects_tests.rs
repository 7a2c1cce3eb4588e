//! Golden XML of answers about objects.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::acl::canned;
use crate::checksum::{ChecksumAlgorithm, ChecksumType};
use crate::error_code::S3Code;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const NS: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

fn checksum() -> S3Checksum {
    S3Checksum {
        algorithm: ChecksumAlgorithm::Crc64Nvme,
        kind: ChecksumType::FullObject,
        value: "v".to_owned(),
    }
}

#[test]
fn uploads_and_copies_are_answered_with_tags_and_checksums() {
    assert_eq!(
        upload_created("b", "k", "u", false),
        format!(
            "{HEAD}<InitiateMultipartUploadResult {NS}><Bucket>b</Bucket><Key>k</Key>\
             <UploadId>u</UploadId></InitiateMultipartUploadResult>"
        )
    );
    let sum = checksum();
    let done = UploadCompleted {
        location: "http://h/b/k",
        bucket: "b",
        key: "k",
        etag: "e-1",
        checksum: Some(&sum),
        encode: false,
    };
    assert_eq!(
        done.to_xml(),
        format!(
            "{HEAD}<CompleteMultipartUploadResult {NS}><Location>http://h/b/k</Location>\
             <Bucket>b</Bucket><Key>k</Key><ETag>&quot;e-1&quot;</ETag>\
             <ChecksumCRC64NVME>v</ChecksumCRC64NVME><ChecksumType>FULL_OBJECT</ChecksumType>\
             </CompleteMultipartUploadResult>"
        )
    );
    assert_eq!(
        part_copied("e", 0, None),
        format!(
            "{HEAD}<CopyPartResult {NS}><LastModified>1970-01-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;e&quot;</ETag></CopyPartResult>"
        )
    );
}

#[test]
fn a_quiet_deletion_tells_failures_only() {
    let rows = [
        Deleted {
            key: "a".to_owned(),
            version_id: None,
            outcome: Ok(DeleteOutcome {
                delete_marker: true,
                marker_version_id: Some("7".to_owned()),
            }),
        },
        Deleted {
            key: "b".to_owned(),
            version_id: Some("1".to_owned()),
            outcome: Err(S3Error::new(S3Code::AccessDenied, "no")),
        },
    ];
    let error = "<Error><Key>b</Key><VersionId>1</VersionId><Code>AccessDenied</Code>\
                 <Message>no</Message></Error>";
    assert_eq!(
        objects_deleted(&rows, true, false),
        format!("{HEAD}<DeleteResult {NS}>{error}</DeleteResult>")
    );
    assert_eq!(
        objects_deleted(&rows, false, false),
        format!(
            "{HEAD}<DeleteResult {NS}><Deleted><Key>a</Key><DeleteMarker>true</DeleteMarker>\
             <DeleteMarkerVersionId>7</DeleteMarkerVersionId></Deleted>{error}</DeleteResult>"
        )
    );
}

#[test]
fn attributes_are_those_that_were_asked_for() {
    let some = ObjectAttributes {
        etag: Some("e".to_owned()),
        parts: Some(AttributeParts {
            total: 2,
            marker: 0,
            max: 1000,
            truncated: false,
            parts: vec![(1, 5, Some(checksum())), (2, 1, None)],
        }),
        size: Some(6),
        ..ObjectAttributes::default()
    };
    assert_eq!(
        some.to_xml(),
        format!(
            "{HEAD}<GetObjectAttributesResponse {NS}><ETag>e</ETag><ObjectParts>\
             <PartsCount>2</PartsCount><PartNumberMarker>0</PartNumberMarker>\
             <NextPartNumberMarker>2</NextPartNumberMarker><MaxParts>1000</MaxParts>\
             <IsTruncated>false</IsTruncated><Part><PartNumber>1</PartNumber><Size>5</Size>\
             <ChecksumCRC64NVME>v</ChecksumCRC64NVME></Part><Part><PartNumber>2</PartNumber>\
             <Size>1</Size></Part></ObjectParts><ObjectSize>6</ObjectSize>\
             </GetObjectAttributesResponse>"
        )
    );
}

#[test]
fn an_acl_says_who_may_do_what() {
    let owner = Owner { id: "me".to_owned(), display_name: "Me".to_owned() };
    let private = acl(&owner, &Acl::private());
    assert_eq!(private.matches("<Grant>").count(), 1);
    assert!(private.contains("xsi:type=\"CanonicalUser\"><ID>me</ID>"), "{private}");
    let public = acl(&owner, &canned("public-read-write").unwrap());
    assert_eq!(public.matches("groups/global/AllUsers").count(), 2);
    assert!(public.contains("<Permission>WRITE</Permission>"), "{public}");
}

#[test]
fn tags_and_forms_are_answered() {
    let tags = [Tag { key: "a".to_owned(), value: "<1>".to_owned() }];
    assert_eq!(
        tagging(&tags),
        format!(
            "{HEAD}<Tagging {NS}><TagSet><Tag><Key>a</Key><Value>&lt;1&gt;</Value></Tag></TagSet>\
             </Tagging>"
        )
    );
    assert!(form_posted("l", "b", "k", "e").contains("<PostResponse><Location>l</Location>"));
}

#[test]
fn keys_that_xml_cannot_hold_are_encoded_or_left_out() {
    let text = upload_created("b", "a\u{1}", "u", true);
    assert!(text.contains("<Key>a%01</Key><EncodingType>url</EncodingType>"), "{text}");
    let text = upload_created("b", "a\u{1}", "u", false);
    assert!(text.contains("<Bucket>b</Bucket><UploadId>u</UploadId>"), "{text}");
    let text = form_posted("http://h/b/a%01", "b", "a\u{1}", "e");
    assert!(!text.contains("<Key>"), "{text}");
    let outcome = Err(S3Error::new(S3Code::AccessDenied, "no"));
    let rows = [Deleted { key: "a\u{1}".to_owned(), version_id: None, outcome }];
    let text = objects_deleted(&rows, true, true);
    assert!(text.contains("<EncodingType>url</EncodingType><Error><Key>a%01</Key>"), "{text}");
    let text = objects_deleted(&rows, true, false);
    let wanted = "<Error><Code>AccessDenied</Code><Message>a%01: no</Message></Error>";
    assert!(text.contains(wanted), "{text}");
}

//! Answers with lists: buckets, objects, versions, uploads, parts. A name that XML cannot represent
//! is an error, unless names are percent-encoded.

use forebay_core::date::format_iso;

use super::{Owner, quoted};
use crate::checksum::{ChecksumAlgorithm, ChecksumType, S3Checksum};
use crate::encode::encode_if;
use crate::error::{S3Error, S3Result};
use crate::operation::{ListMultipartUploads, ListParts};
use crate::operation::{ListObjectVersions, ListObjects, ListObjectsV2, ListScope};
use crate::xml::{XmlWriter, fits_xml};

const STORAGE_CLASS: &str = "STANDARD";

/// Answer to `ListBuckets`.
#[derive(Clone, Debug)]
pub struct BucketList {
    pub owner: Owner,
    /// Name and creation time, in order of names.
    pub buckets: Vec<(String, u64)>,
    pub prefix: String,
    pub continuation_token: Option<String>,
}

impl BucketList {
    pub fn to_xml(&self) -> S3Result<String> {
        let mut w = XmlWriter::document();
        w.open_root("ListAllMyBucketsResult");
        self.owner.write(&mut w, "Owner");
        w.open("Buckets");
        for (name, created_ns) in &self.buckets {
            w.open("Bucket");
            w.text("Name", name);
            w.text("CreationDate", &format_iso(*created_ns));
            w.close("Bucket");
        }
        w.close("Buckets");
        if !self.prefix.is_empty() {
            w.text("Prefix", &self.prefix);
        }
        w.optional("ContinuationToken", self.continuation_token.as_deref());
        w.close("ListAllMyBucketsResult");
        w.finish_exact().map_err(S3Error::from)
    }
}

/// One object of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub mtime_ns: u64,
    pub etag: String,
    /// Bytes.
    pub size: u64,
    pub checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
    /// Set if it differs from the bucket's.
    pub owner: Option<Owner>,
}

impl ListedObject {
    fn write(&self, w: &mut XmlWriter, encode: bool, owner: Option<&Owner>) {
        w.open("Contents");
        w.text("Key", &encode_if(encode, &self.key));
        w.text("LastModified", &format_iso(self.mtime_ns));
        w.text("ETag", &quoted(&self.etag));
        if let Some((algorithm, kind)) = self.checksum {
            w.text("ChecksumAlgorithm", algorithm.as_str());
            w.text("ChecksumType", kind.as_str());
        }
        w.number("Size", self.size);
        if let Some(owner) = owner {
            self.owner.as_ref().unwrap_or(owner).write(w, "Owner");
        }
        w.text("StorageClass", STORAGE_CLASS);
        w.close("Contents");
    }
}

/// Objects and common prefixes of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// In order of keys.
    pub objects: Vec<ListedObject>,
    /// In order.
    pub common_prefixes: Vec<String>,
    /// Whether more rows follow.
    pub truncated: bool,
    /// The last key or common prefix of the page; the next page starts after it.
    pub last: String,
}

impl ObjectPage {
    fn write_rows(&self, w: &mut XmlWriter, encode: bool, owner: Option<&Owner>) {
        for object in &self.objects {
            object.write(w, encode, owner);
        }
        write_prefixes(w, &self.common_prefixes, encode);
    }

    /// Answer to `ListObjects`; `owner` is the bucket's, used for objects without their own.
    pub fn to_xml_v1(&self, bucket: &str, asked: &ListObjects, owner: &Owner) -> S3Result<String> {
        let scope = &asked.scope;
        let mut w = XmlWriter::document();
        w.open_root("ListBucketResult");
        w.text("Name", bucket);
        // Not encoded, if XML can represent it: botocore does not decode this field.
        let encode = scope.encode && !fits_xml(&scope.prefix);
        w.text("Prefix", &encode_if(encode, &scope.prefix));
        w.text("Marker", &encode_if(scope.encode, &asked.marker));
        // Only with a delimiter: otherwise the last key serves as the marker.
        if self.truncated && scope.delimiter.is_some() {
            w.text("NextMarker", &encode_if(scope.encode, &self.last));
        }
        write_scope(&mut w, scope, "MaxKeys");
        w.flag("IsTruncated", self.truncated);
        self.write_rows(&mut w, scope.encode, Some(owner));
        w.close("ListBucketResult");
        w.finish_exact().map_err(S3Error::from)
    }

    /// Answer to `ListObjectsV2`; `next` is the token of the next page, if there is one.
    pub fn to_xml_v2(
        &self,
        bucket: &str,
        asked: &ListObjectsV2,
        owner: &Owner,
        next: Option<&str>,
    ) -> S3Result<String> {
        let scope = &asked.scope;
        let mut w = XmlWriter::document();
        w.open_root("ListBucketResult");
        w.text("Name", bucket);
        w.text("Prefix", &encode_if(scope.encode, &scope.prefix));
        w.optional("ContinuationToken", asked.continuation_token.as_deref());
        w.optional("NextContinuationToken", next);
        if let Some(after) = &asked.start_after {
            w.text("StartAfter", &encode_if(scope.encode, after));
        }
        w.number("KeyCount", (self.objects.len() + self.common_prefixes.len()) as u64);
        write_scope(&mut w, scope, "MaxKeys");
        w.flag("IsTruncated", self.truncated);
        self.write_rows(&mut w, scope.encode, asked.fetch_owner.then_some(owner));
        w.close("ListBucketResult");
        w.finish_exact().map_err(S3Error::from)
    }
}

/// One version of an object, or a delete marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    pub object: ListedObject,
    /// `null` for objects written before versioning.
    pub version_id: String,
    pub latest: bool,
    pub delete_marker: bool,
}

/// One page of versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionPage {
    pub versions: Vec<ListedVersion>,
    pub common_prefixes: Vec<String>,
    pub truncated: bool,
    pub next_key_marker: String,
    pub next_version_id_marker: String,
}

impl VersionPage {
    pub fn to_xml(
        &self,
        bucket: &str,
        asked: &ListObjectVersions,
        owner: &Owner,
    ) -> S3Result<String> {
        let scope = &asked.scope;
        let mut w = XmlWriter::document();
        w.open_root("ListVersionsResult");
        w.text("Name", bucket);
        w.text("Prefix", &encode_if(scope.encode, &scope.prefix));
        w.text("KeyMarker", &encode_if(scope.encode, &asked.key_marker));
        w.text("VersionIdMarker", asked.version_id_marker.as_deref().unwrap_or_default());
        if self.truncated {
            w.text("NextKeyMarker", &encode_if(scope.encode, &self.next_key_marker));
            if !self.next_version_id_marker.is_empty() {
                w.text("NextVersionIdMarker", &self.next_version_id_marker);
            }
        }
        write_scope(&mut w, scope, "MaxKeys");
        w.flag("IsTruncated", self.truncated);
        for v in &self.versions {
            let element = if v.delete_marker { "DeleteMarker" } else { "Version" };
            w.open(element);
            w.text("Key", &encode_if(scope.encode, &v.object.key));
            w.text("VersionId", &v.version_id);
            w.flag("IsLatest", v.latest);
            w.text("LastModified", &format_iso(v.object.mtime_ns));
            if !v.delete_marker {
                w.text("ETag", &quoted(&v.object.etag));
                if let Some((algorithm, kind)) = v.object.checksum {
                    w.text("ChecksumAlgorithm", algorithm.as_str());
                    w.text("ChecksumType", kind.as_str());
                }
                w.number("Size", v.object.size);
                w.text("StorageClass", STORAGE_CLASS);
            }
            v.object.owner.as_ref().unwrap_or(owner).write(&mut w, "Owner");
            w.close(element);
        }
        write_prefixes(&mut w, &self.common_prefixes, scope.encode);
        w.close("ListVersionsResult");
        w.finish_exact().map_err(S3Error::from)
    }
}

/// One upload in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedUpload {
    pub key: String,
    pub upload_id: String,
    pub initiated_ns: u64,
    pub checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
    /// Set if it differs from the bucket's.
    pub owner: Option<Owner>,
}

/// One page of uploads in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadPage {
    pub uploads: Vec<ListedUpload>,
    pub common_prefixes: Vec<String>,
    pub truncated: bool,
    pub next_key_marker: String,
    pub next_upload_id_marker: String,
}

impl UploadPage {
    pub fn to_xml(
        &self,
        bucket: &str,
        asked: &ListMultipartUploads,
        owner: &Owner,
    ) -> S3Result<String> {
        let scope = &asked.scope;
        let mut w = XmlWriter::document();
        w.open_root("ListMultipartUploadsResult");
        w.text("Bucket", bucket);
        w.text("KeyMarker", &encode_if(scope.encode, &asked.key_marker));
        w.text("UploadIdMarker", asked.upload_id_marker.as_deref().unwrap_or_default());
        if self.truncated {
            w.text("NextKeyMarker", &encode_if(scope.encode, &self.next_key_marker));
            w.text("NextUploadIdMarker", &self.next_upload_id_marker);
        }
        w.text("Prefix", &encode_if(scope.encode, &scope.prefix));
        write_scope(&mut w, scope, "MaxUploads");
        w.flag("IsTruncated", self.truncated);
        for upload in &self.uploads {
            w.open("Upload");
            w.text("Key", &encode_if(scope.encode, &upload.key));
            w.text("UploadId", &upload.upload_id);
            let owner = upload.owner.as_ref().unwrap_or(owner);
            owner.write(&mut w, "Initiator");
            owner.write(&mut w, "Owner");
            w.text("StorageClass", STORAGE_CLASS);
            w.text("Initiated", &format_iso(upload.initiated_ns));
            if let Some((algorithm, kind)) = upload.checksum {
                w.text("ChecksumAlgorithm", algorithm.as_str());
                w.text("ChecksumType", kind.as_str());
            }
            w.close("Upload");
        }
        write_prefixes(&mut w, &self.common_prefixes, scope.encode);
        w.close("ListMultipartUploadsResult");
        w.finish_exact().map_err(S3Error::from)
    }
}

/// One part of an upload in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPart {
    pub number: u32,
    pub mtime_ns: u64,
    pub etag: String,
    /// Bytes.
    pub size: u64,
    pub checksum: Option<S3Checksum>,
}

/// One page of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartPage {
    pub parts: Vec<ListedPart>,
    pub truncated: bool,
    pub checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
}

impl PartPage {
    pub fn to_xml(
        &self,
        bucket: &str,
        key: &str,
        asked: &ListParts,
        owner: &Owner,
    ) -> S3Result<String> {
        let mut w = XmlWriter::document();
        w.open_root("ListPartsResult");
        w.text("Bucket", bucket);
        w.text("Key", &encode_if(asked.encode, key));
        if asked.encode {
            w.text("EncodingType", "url");
        }
        w.text("UploadId", &asked.upload_id);
        owner.write(&mut w, "Initiator");
        owner.write(&mut w, "Owner");
        w.text("StorageClass", STORAGE_CLASS);
        if let Some((algorithm, kind)) = self.checksum {
            w.text("ChecksumAlgorithm", algorithm.as_str());
            w.text("ChecksumType", kind.as_str());
        }
        w.number("PartNumberMarker", asked.part_number_marker.into());
        let last = self.parts.last().map_or(asked.part_number_marker, |p| p.number);
        w.number("NextPartNumberMarker", last.into());
        w.number("MaxParts", asked.max_parts.into());
        w.flag("IsTruncated", self.truncated);
        for part in &self.parts {
            w.open("Part");
            w.number("PartNumber", part.number.into());
            w.text("LastModified", &format_iso(part.mtime_ns));
            w.text("ETag", &quoted(&part.etag));
            w.number("Size", part.size);
            if let Some(checksum) = &part.checksum {
                w.text(checksum.algorithm.element(), &checksum.value);
            }
            w.close("Part");
        }
        w.close("ListPartsResult");
        w.finish_exact().map_err(S3Error::from)
    }
}

fn write_scope(w: &mut XmlWriter, scope: &ListScope, max: &str) {
    w.number(max, scope.max.into());
    if let Some(delimiter) = &scope.delimiter {
        w.text("Delimiter", &encode_if(scope.encode, delimiter));
    }
    if scope.encode {
        w.text("EncodingType", "url");
    }
}

fn write_prefixes(w: &mut XmlWriter, prefixes: &[String], encode: bool) {
    for prefix in prefixes {
        w.open("CommonPrefixes");
        w.text("Prefix", &encode_if(encode, prefix));
        w.close("CommonPrefixes");
    }
}

#[cfg(test)]
#[path = "listings_tests.rs"]
mod tests;

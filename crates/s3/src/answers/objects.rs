//! Answers about objects: uploads, copies, deletions, attributes.

use forebay_core::bucket::{Acl, Grantee, Permission, Tag};
use forebay_core::date::format_iso;

use super::{Owner, quoted};
use crate::acl::{EVERYBODY, HOLDERS, permission_name};
use crate::checksum::S3Checksum;
use crate::encode::{encode_if, encode_key};
use crate::error::S3Error;
use crate::xml::{XmlWriter, fits_xml};

/// Answer to `CreateMultipartUpload`.
pub fn upload_created(bucket: &str, key: &str, upload_id: &str, encode: bool) -> String {
    let mut w = XmlWriter::document();
    w.open_root("InitiateMultipartUploadResult");
    w.text("Bucket", bucket);
    write_own_key(&mut w, key, encode);
    w.text("UploadId", upload_id);
    w.close("InitiateMultipartUploadResult");
    w.finish()
}

/// Answer to `CompleteMultipartUpload`.
#[derive(Clone, Debug)]
pub struct UploadCompleted<'a> {
    pub location: &'a str,
    pub bucket: &'a str,
    pub key: &'a str,
    pub etag: &'a str,
    pub checksum: Option<&'a S3Checksum>,
    /// The key is percent-encoded (`encoding-type=url`).
    pub encode: bool,
}

impl UploadCompleted<'_> {
    pub fn to_xml(&self) -> String {
        let mut w = XmlWriter::document();
        w.open_root("CompleteMultipartUploadResult");
        w.text("Location", self.location);
        w.text("Bucket", self.bucket);
        write_own_key(&mut w, self.key, self.encode);
        w.text("ETag", &quoted(self.etag));
        write_checksum(&mut w, self.checksum, true);
        w.close("CompleteMultipartUploadResult");
        w.finish()
    }
}

/// Writes the key of the request's own object. A key that XML cannot represent is omitted, as the
/// client has it.
fn write_own_key(w: &mut XmlWriter, key: &str, encode: bool) {
    if encode || fits_xml(key) {
        w.text("Key", &encode_if(encode, key));
    }
    if encode {
        w.text("EncodingType", "url");
    }
}

/// Answer to `CopyObject`.
pub fn object_copied(etag: &str, mtime_ns: u64, checksum: Option<&S3Checksum>) -> String {
    copied("CopyObjectResult", etag, mtime_ns, checksum, true)
}

/// Answer to `UploadPartCopy`.
pub fn part_copied(etag: &str, mtime_ns: u64, checksum: Option<&S3Checksum>) -> String {
    copied("CopyPartResult", etag, mtime_ns, checksum, false)
}

fn copied(
    root: &str,
    etag: &str,
    mtime_ns: u64,
    checksum: Option<&S3Checksum>,
    kind: bool,
) -> String {
    let mut w = XmlWriter::document();
    w.open_root(root);
    w.text("LastModified", &format_iso(mtime_ns));
    w.text("ETag", &quoted(etag));
    write_checksum(&mut w, checksum, kind);
    w.close(root);
    w.finish()
}

fn write_checksum(w: &mut XmlWriter, checksum: Option<&S3Checksum>, kind: bool) {
    if let Some(c) = checksum {
        w.text(c.algorithm.element(), &c.value);
        if kind {
            w.text("ChecksumType", c.kind.as_str());
        }
    }
}

/// The result for one object of a `DeleteObjects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub key: String,
    /// As requested.
    pub version_id: Option<String>,
    pub outcome: Result<DeleteOutcome, S3Error>,
}

/// A successful deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOutcome {
    /// Whether a delete marker was created or removed.
    pub delete_marker: bool,
    /// Version of that marker.
    pub marker_version_id: Option<String>,
}

/// Answer to `DeleteObjects`; a quiet one lists only failures. A key that failed and that XML
/// cannot represent is percent-encoded in the message.
pub fn objects_deleted(rows: &[Deleted], quiet: bool, encode: bool) -> String {
    let mut w = XmlWriter::document();
    w.open_root("DeleteResult");
    if encode {
        w.text("EncodingType", "url");
    }
    for row in rows {
        let key = (encode || fits_xml(&row.key)).then(|| encode_if(encode, &row.key));
        match &row.outcome {
            Ok(_) if quiet => {}
            Ok(done) => {
                w.open("Deleted");
                w.optional("Key", key.as_deref());
                w.optional("VersionId", row.version_id.as_deref());
                if done.delete_marker {
                    w.flag("DeleteMarker", true);
                    w.optional("DeleteMarkerVersionId", done.marker_version_id.as_deref());
                }
                w.close("Deleted");
            }
            Err(e) => {
                w.open("Error");
                w.optional("Key", key.as_deref());
                w.optional("VersionId", row.version_id.as_deref());
                w.text("Code", e.code.as_str());
                match key {
                    Some(_) => w.text("Message", &e.message),
                    None => w.text("Message", &format!("{}: {}", encode_key(&row.key), e.message)),
                }
                w.close("Error");
            }
        }
    }
    w.close("DeleteResult");
    w.finish()
}

/// Tags of a bucket or an object.
pub fn tagging(tags: &[Tag]) -> String {
    let mut w = XmlWriter::document();
    w.open_root("Tagging");
    w.open("TagSet");
    for tag in tags {
        w.open("Tag");
        w.text("Key", &tag.key);
        w.text("Value", &tag.value);
        w.close("Tag");
    }
    w.close("TagSet");
    w.close("Tagging");
    w.finish()
}

/// Answer to `GetObjectAttributes`: contains only the requested attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectAttributes {
    pub etag: Option<String>,
    pub checksum: Option<S3Checksum>,
    pub parts: Option<AttributeParts>,
    pub storage_class: bool,
    /// Bytes.
    pub size: Option<u64>,
}

/// Parts of an object from a multipart upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeParts {
    /// Total number of parts of the object, not of this page.
    pub total: u32,
    pub marker: u32,
    pub max: u32,
    pub truncated: bool,
    /// Number, bytes, checksum.
    pub parts: Vec<(u32, u64, Option<S3Checksum>)>,
}

impl ObjectAttributes {
    pub fn to_xml(&self) -> String {
        let mut w = XmlWriter::document();
        w.open_root("GetObjectAttributesResponse");
        // Unlike in other answers, AWS writes this one without quotes.
        w.optional("ETag", self.etag.as_deref());
        if let Some(checksum) = &self.checksum {
            w.open("Checksum");
            write_checksum(&mut w, Some(checksum), true);
            w.close("Checksum");
        }
        if let Some(p) = &self.parts {
            w.open("ObjectParts");
            w.number("PartsCount", p.total.into());
            w.number("PartNumberMarker", p.marker.into());
            let next = p.parts.last().map_or(p.marker, |(number, ..)| *number);
            w.number("NextPartNumberMarker", next.into());
            w.number("MaxParts", p.max.into());
            w.flag("IsTruncated", p.truncated);
            for (number, size, checksum) in &p.parts {
                w.open("Part");
                w.number("PartNumber", (*number).into());
                w.number("Size", *size);
                write_checksum(&mut w, checksum.as_ref(), false);
                w.close("Part");
            }
            w.close("ObjectParts");
        }
        if self.storage_class {
            w.text("StorageClass", "STANDARD");
        }
        if let Some(size) = self.size {
            w.number("ObjectSize", size);
        }
        w.close("GetObjectAttributesResponse");
        w.finish()
    }
}

/// Answer to a form upload with `success_action_status` 201.
pub fn form_posted(location: &str, bucket: &str, key: &str, etag: &str) -> String {
    let mut w = XmlWriter::document();
    w.open("PostResponse");
    w.text("Location", location);
    w.text("Bucket", bucket);
    write_own_key(&mut w, key, false);
    w.text("ETag", &quoted(etag));
    w.close("PostResponse");
    w.finish()
}

/// Answer to `GetBucketAcl` and `GetObjectAcl`: the owner's full control, and the grants to others.
pub fn acl(owner: &Owner, acl: &Acl) -> String {
    let mut w = XmlWriter::document();
    w.open_root("AccessControlPolicy");
    owner.write(&mut w, "Owner");
    w.open("AccessControlList");
    let user = |id: &str, name: &str| {
        ("CanonicalUser", vec![("ID", id.to_owned()), ("DisplayName", name.to_owned())])
    };
    let group = |uri: &str| ("Group", vec![("URI", uri.to_owned())]);
    write_grant(&mut w, user(&owner.id, &owner.display_name), Permission::FullControl);
    for grant in acl.grants() {
        let to = match &grant.to {
            Grantee::User(id) => user(id, id),
            Grantee::Everybody => group(EVERYBODY),
            Grantee::Holders => group(HOLDERS),
        };
        write_grant(&mut w, to, grant.may);
    }
    w.close("AccessControlList");
    w.close("AccessControlPolicy");
    w.finish()
}

fn write_grant(
    w: &mut XmlWriter,
    (kind, elements): (&str, Vec<(&'static str, String)>),
    may: Permission,
) {
    const XSI: &str = "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=";
    w.open("Grant");
    w.open_with("Grantee", &format!("{XSI}\"{kind}\""));
    for (name, text) in elements {
        w.text(name, &text);
    }
    w.close("Grantee");
    w.text("Permission", permission_name(may));
    w.close("Grant");
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;

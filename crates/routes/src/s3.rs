//! The operations of S3. A user with keys is allowed what these rights or the bucket's policy,
//! access lists and ownership allow; an explicit denial of a policy overrides both.

use forebay_core::access::{Right, Scope};
use forebay_core::name::Bucket;
use forebay_s3::{Operation, Request};

use super::{By, Case, Need, On, Rule, ServedBy, Verb, Who, need};

pub static TABLE: &[&Rule] = &[
    &SERVICE,
    &BUCKET_GET,
    &BUCKET_HEAD,
    &BUCKET_PUT,
    &BUCKET_POST,
    &BUCKET_DELETE,
    &OBJECT_GET,
    &OBJECT_HEAD,
    &OBJECT_PUT,
    &OBJECT_POST,
    &OBJECT_DELETE,
    &PREFLIGHT,
];

const BUCKET: &[&str] = &["/s3/{bucket}"];
const OBJECT: &[&str] = &["/s3/{bucket}/{*key}"];

const HEAD_BUCKET: &[Need] = &[need(&[Right::HeadBucket], On::Bucket)];
const PATCH_BUCKET: &[Need] = &[need(&[Right::PatchBucket], On::Bucket)];
const SET_ACL: &[Need] = &[need(&[Right::SetBucketAcl], On::Bucket)];
const LIST: &[Need] = &[need(&[Right::ListObjects], On::Selected)];
const READ: &[Need] = &[need(&[Right::GetObject], On::Object)];
const LOOK: &[Need] = &[need(&[Right::HeadObject], On::Object)];
const WRITE: &[Need] = &[need(&[Right::PutObject], On::Object)];
const UPDATE: &[Need] = &[need(&[Right::UpdateObject], On::Object)];
const COPY: &[Need] =
    &[need(&[Right::PutObject], On::Object), need(&[Right::GetObject], On::Source)];
const OBJECT_ACL: &[Need] = &[need(&[Right::SetBucketAcl], On::Object)];
const DELETE: &[Need] = &[need(&[Right::DeleteObject], On::Object)];

/// An operation that a parameter of the query selects.
const fn by_query(key: &'static str, operation: &'static str, needs: &'static [Need]) -> Case {
    Case::new(By::Query(key), operation, needs).types("Xml", "Xml")
}

pub static SERVICE: Rule =
    Rule::new(Verb::Get, &["/s3"], "ListBuckets", "The buckets that the user sees")
        .types("", "Xml");

pub static BUCKET_GET: Rule =
    Rule::new(Verb::Get, BUCKET, "ListObjects", "Lists objects, or shows a setting of the bucket")
        .needs(LIST)
        .types("", "Xml")
        .cases(&[
            by_query("list-type", "ListObjectsV2", LIST),
            by_query("versions", "ListObjectVersions", LIST),
            by_query("uploads", "ListMultipartUploads", LIST),
            by_query("location", "GetBucketLocation", HEAD_BUCKET),
            by_query("versioning", "GetBucketVersioning", HEAD_BUCKET),
            by_query("cors", "GetBucketCors", PATCH_BUCKET),
            by_query("tagging", "GetBucketTagging", PATCH_BUCKET),
            by_query("policy", "GetBucketPolicy", PATCH_BUCKET),
            by_query("policyStatus", "GetBucketPolicyStatus", PATCH_BUCKET),
            by_query("acl", "GetBucketAcl", PATCH_BUCKET),
        ]);

pub static BUCKET_HEAD: Rule =
    Rule::new(Verb::Head, BUCKET, "HeadBucket", "Whether the bucket exists").needs(HEAD_BUCKET);

pub static BUCKET_PUT: Rule =
    Rule::new(Verb::Put, BUCKET, "CreateBucket", "Creates a bucket, or changes a setting of it")
        .needs(&[need(&[Right::CreateBucket], On::Bucket)])
        .types("Xml", "")
        .cases(&[
            by_query("versioning", "PutBucketVersioning", PATCH_BUCKET),
            by_query("cors", "PutBucketCors", PATCH_BUCKET),
            by_query("tagging", "PutBucketTagging", PATCH_BUCKET),
            by_query("policy", "PutBucketPolicy", SET_ACL),
            by_query("acl", "PutBucketAcl", SET_ACL),
        ]);

pub static BUCKET_POST: Rule =
    Rule::new(Verb::Post, BUCKET, "PostObject", "Writes an object from a form")
        .needs(&[need(&[Right::PutObject], On::Destination)])
        .types("Form", "Xml")
        .cases(&[by_query("delete", "DeleteObjects", &[need(&[Right::DeleteObject], On::Entry)])]);

pub static BUCKET_DELETE: Rule =
    Rule::new(Verb::Delete, BUCKET, "DeleteBucket", "Deletes a bucket, or a setting of it")
        .needs(&[need(&[Right::DestroyBucket], On::Bucket)])
        .cases(&[
            by_query("cors", "DeleteBucketCors", PATCH_BUCKET),
            by_query("tagging", "DeleteBucketTagging", PATCH_BUCKET),
            by_query("policy", "DeleteBucketPolicy", SET_ACL),
        ]);

pub static OBJECT_GET: Rule =
    Rule::new(Verb::Get, OBJECT, "GetObject", "Reads an object, or a property of it")
        .on(ServedBy::Both)
        .needs(READ)
        .types("", "Bytes")
        .cases(&[
            by_query("attributes", "GetObjectAttributes", LOOK),
            by_query("tagging", "GetObjectTagging", LOOK),
            by_query("acl", "GetObjectAcl", LOOK),
            by_query("uploadId", "ListParts", WRITE),
        ]);

pub static OBJECT_HEAD: Rule =
    Rule::new(Verb::Head, OBJECT, "HeadObject", "The properties of an object")
        .on(ServedBy::Both)
        .needs(LOOK);

pub static OBJECT_PUT: Rule =
    Rule::new(Verb::Put, OBJECT, "PutObject", "Writes an object, or a property of it")
        .on(ServedBy::Both)
        .needs(WRITE)
        .types("Bytes", "")
        .cases(&[
            Case::new(By::Header("x-amz-copy-source"), "CopyObject", COPY).types("", "Xml"),
            by_query("partNumber", "UploadPart", WRITE),
            by_query("partNumber", "UploadPartCopy", COPY),
            by_query("tagging", "PutObjectTagging", UPDATE),
            by_query("acl", "PutObjectAcl", OBJECT_ACL),
        ]);

pub static OBJECT_POST: Rule =
    Rule::new(Verb::Post, OBJECT, "", "Starts or completes an upload in parts")
        .on(ServedBy::Both)
        .cases(&[
            by_query("uploads", "CreateMultipartUpload", WRITE),
            by_query("uploadId", "CompleteMultipartUpload", WRITE),
        ]);

pub static OBJECT_DELETE: Rule =
    Rule::new(Verb::Delete, OBJECT, "DeleteObject", "Deletes an object, or a property of it")
        .on(ServedBy::Both)
        .needs(DELETE)
        .cases(&[
            by_query("uploadId", "AbortMultipartUpload", WRITE),
            by_query("tagging", "DeleteObjectTagging", UPDATE),
        ]);

/// A browser sends it without a signature; it shows whether other pages may use the bucket.
pub static PREFLIGHT: Rule =
    Rule::new(Verb::Options, OBJECT, "Preflight", "Rules of a bucket for browsers (CORS)")
        .on(ServedBy::Both)
        .who(Who::Anyone);

/// The rights of an operation on the bucket or object of its path; of an operation that the table
/// does not have, those of an administrator.
pub fn rights(operation: &Operation) -> &'static [Right] {
    const ADMIN: &[Right] = &[Right::Admin];
    let row = TABLE.iter().flat_map(|rule| rule.rows()).find(|r| r.operation() == operation.name());
    row.and_then(|row| row.needs().first()).map_or(ADMIN, |need| need.any_of)
}

/// The scope of an operation; of a listing, the keys with its prefix.
pub fn scope<'a>(bucket: &'a Bucket, request: &'a Request) -> Scope<'a> {
    use Operation as O;
    match &request.operation {
        O::ListObjects(asked) => Scope::Prefix(bucket, &asked.scope.prefix),
        O::ListObjectsV2(asked) => Scope::Prefix(bucket, &asked.scope.prefix),
        O::ListObjectVersions(asked) => Scope::Prefix(bucket, &asked.scope.prefix),
        O::ListMultipartUploads(asked) => Scope::Prefix(bucket, &asked.scope.prefix),
        _ if request.key.is_empty() => Scope::Bucket(bucket),
        _ => Scope::Object(bucket, &request.key),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_of_s3_has_one_row() {
        let rows: Vec<_> = TABLE.iter().flat_map(|rule| rule.rows()).collect();
        let names: BTreeSet<_> = rows.iter().map(|row| row.operation()).collect();
        assert_eq!(names, Operation::SERVED.iter().copied().collect());
        assert_eq!(names.len(), rows.len());
    }
}

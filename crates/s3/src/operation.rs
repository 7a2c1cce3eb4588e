//! The operations of S3 as data: the operation of a request, with its parameters.

use super::copy_source::CopySource;

/// One request's operation. Headers and bodies are parsed by separate types
/// ([`super::put_headers`], [`super::read_headers`], [`super::bodies`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    ListBuckets(ListBuckets),

    CreateBucket,
    HeadBucket,
    DeleteBucket,
    GetBucketLocation,
    ListObjects(ListObjects),
    ListObjectsV2(ListObjectsV2),
    ListObjectVersions(ListObjectVersions),
    ListMultipartUploads(ListMultipartUploads),
    DeleteObjects,
    /// A browser's form upload.
    PostObject,
    GetBucketVersioning,
    PutBucketVersioning,
    GetBucketCors,
    PutBucketCors,
    DeleteBucketCors,
    GetBucketTagging,
    PutBucketTagging,
    DeleteBucketTagging,
    GetBucketPolicy,
    PutBucketPolicy,
    DeleteBucketPolicy,
    GetBucketPolicyStatus,
    GetBucketAcl,
    PutBucketAcl,

    GetObject(GetObject),
    HeadObject(GetObject),
    PutObject,
    CopyObject(CopySource),
    DeleteObject(ObjectVersion),
    GetObjectAttributes(ObjectVersion),
    GetObjectTagging(ObjectVersion),
    PutObjectTagging(ObjectVersion),
    DeleteObjectTagging(ObjectVersion),
    GetObjectAcl(ObjectVersion),
    PutObjectAcl(ObjectVersion),
    CreateMultipartUpload,
    UploadPart(UploadPart),
    UploadPartCopy(UploadPart, CopySource),
    CompleteMultipartUpload(UploadId),
    AbortMultipartUpload(UploadId),
    ListParts(ListParts),

    /// `OPTIONS`: a browser's CORS preflight.
    Preflight,

    /// A known but unsupported operation; answered `NotImplemented` with this name.
    Unsupported(&'static str),
}

macro_rules! names {
    ($($name:ident)*) => {
        impl Operation {
            /// The names of all operations that are served.
            pub const SERVED: &[&str] = &[$(stringify!($name)),*];

            /// Its name in AWS; used in metrics, logs and policies.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => stringify!($name),)*
                    Self::Unsupported(name) => name,
                }
            }
        }
    };
}

names! {
    ListBuckets
    CreateBucket
    HeadBucket
    DeleteBucket
    GetBucketLocation
    ListObjects
    ListObjectsV2
    ListObjectVersions
    ListMultipartUploads
    DeleteObjects
    PostObject
    GetBucketVersioning
    PutBucketVersioning
    GetBucketCors
    PutBucketCors
    DeleteBucketCors
    GetBucketTagging
    PutBucketTagging
    DeleteBucketTagging
    GetBucketPolicy
    PutBucketPolicy
    DeleteBucketPolicy
    GetBucketPolicyStatus
    GetBucketAcl
    PutBucketAcl
    GetObject
    HeadObject
    PutObject
    CopyObject
    DeleteObject
    GetObjectAttributes
    GetObjectTagging
    PutObjectTagging
    DeleteObjectTagging
    GetObjectAcl
    PutObjectAcl
    CreateMultipartUpload
    UploadPart
    UploadPartCopy
    CompleteMultipartUpload
    AbortMultipartUpload
    ListParts
    Preflight
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListBuckets {
    pub prefix: String,
    /// Maximum number; all if absent.
    pub max_buckets: Option<u32>,
    /// The token of an earlier page.
    pub continuation_token: Option<String>,
}

/// The parameters of every listing of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListScope {
    pub prefix: String,
    /// Never empty.
    pub delimiter: Option<String>,
    /// Whether names in the answer are percent-encoded (`encoding-type=url`).
    pub encode: bool,
    /// 0 to 1,000.
    pub max: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObjects {
    pub scope: ListScope,
    /// Empty when absent.
    pub marker: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObjectsV2 {
    pub scope: ListScope,
    /// The token as the client sent it; parsed by [`super::token`].
    pub continuation_token: Option<String>,
    pub start_after: Option<String>,
    pub fetch_owner: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObjectVersions {
    pub scope: ListScope,
    /// Empty when absent.
    pub key_marker: String,
    /// Only with a key marker.
    pub version_id_marker: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListMultipartUploads {
    pub scope: ListScope,
    /// Empty when absent.
    pub key_marker: String,
    /// Only with a key marker.
    pub upload_id_marker: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListParts {
    pub upload_id: String,
    /// 0 to 1,000.
    pub max_parts: u32,
    /// Parts after this one.
    pub part_number_marker: u32,
    pub encode: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetObject {
    /// `null` is a separate version.
    pub version_id: Option<String>,
    /// 1 to 10,000.
    pub part_number: Option<u32>,
    /// Headers that replace the stored ones in the answer (`response-content-type=…`), lower case.
    pub overrides: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    pub version_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPart {
    pub upload_id: String,
    /// 1 to 10,000.
    pub part_number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadId {
    pub upload_id: String,
}

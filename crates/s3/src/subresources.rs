//! Known but unsupported operations, so that the answer can name them.

use http::Method;

use super::query::Query;

/// The subject of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Service,
    Bucket,
    Object,
}

/// A sub-resource (a query parameter) of buckets or objects, and its operations by method.
struct Absent {
    level: Level,
    parameter: &'static str,
    get: Option<&'static str>,
    put: Option<&'static str>,
    delete: Option<&'static str>,
    post: Option<&'static str>,
}

const fn bucket(
    parameter: &'static str,
    get: Option<&'static str>,
    put: Option<&'static str>,
    delete: Option<&'static str>,
) -> Absent {
    Absent { level: Level::Bucket, parameter, get, put, delete, post: None }
}

const fn object(
    parameter: &'static str,
    get: Option<&'static str>,
    put: Option<&'static str>,
    post: Option<&'static str>,
) -> Absent {
    Absent { level: Level::Object, parameter, get, put, delete: None, post }
}

const ABSENT: &[Absent] = &[
    bucket(
        "accelerate",
        Some("GetBucketAccelerateConfiguration"),
        Some("PutBucketAccelerateConfiguration"),
        None,
    ),
    bucket(
        "analytics",
        Some("GetBucketAnalyticsConfiguration"),
        Some("PutBucketAnalyticsConfiguration"),
        Some("DeleteBucketAnalyticsConfiguration"),
    ),
    bucket(
        "encryption",
        Some("GetBucketEncryption"),
        Some("PutBucketEncryption"),
        Some("DeleteBucketEncryption"),
    ),
    bucket(
        "intelligent-tiering",
        Some("GetBucketIntelligentTieringConfiguration"),
        Some("PutBucketIntelligentTieringConfiguration"),
        Some("DeleteBucketIntelligentTieringConfiguration"),
    ),
    bucket(
        "inventory",
        Some("GetBucketInventoryConfiguration"),
        Some("PutBucketInventoryConfiguration"),
        Some("DeleteBucketInventoryConfiguration"),
    ),
    bucket(
        "lifecycle",
        Some("GetBucketLifecycleConfiguration"),
        Some("PutBucketLifecycleConfiguration"),
        Some("DeleteBucketLifecycle"),
    ),
    bucket("logging", Some("GetBucketLogging"), Some("PutBucketLogging"), None),
    bucket(
        "metrics",
        Some("GetBucketMetricsConfiguration"),
        Some("PutBucketMetricsConfiguration"),
        Some("DeleteBucketMetricsConfiguration"),
    ),
    bucket(
        "notification",
        Some("GetBucketNotificationConfiguration"),
        Some("PutBucketNotificationConfiguration"),
        None,
    ),
    bucket(
        "object-lock",
        Some("GetObjectLockConfiguration"),
        Some("PutObjectLockConfiguration"),
        None,
    ),
    bucket(
        "ownershipControls",
        Some("GetBucketOwnershipControls"),
        Some("PutBucketOwnershipControls"),
        Some("DeleteBucketOwnershipControls"),
    ),
    bucket(
        "publicAccessBlock",
        Some("GetPublicAccessBlock"),
        Some("PutPublicAccessBlock"),
        Some("DeletePublicAccessBlock"),
    ),
    bucket(
        "replication",
        Some("GetBucketReplication"),
        Some("PutBucketReplication"),
        Some("DeleteBucketReplication"),
    ),
    bucket(
        "requestPayment",
        Some("GetBucketRequestPayment"),
        Some("PutBucketRequestPayment"),
        None,
    ),
    bucket("session", Some("CreateSession"), None, None),
    bucket(
        "website",
        Some("GetBucketWebsite"),
        Some("PutBucketWebsite"),
        Some("DeleteBucketWebsite"),
    ),
    object("legal-hold", Some("GetObjectLegalHold"), Some("PutObjectLegalHold"), None),
    object("renameObject", None, Some("RenameObject"), None),
    object("restore", None, None, Some("RestoreObject")),
    object("retention", Some("GetObjectRetention"), Some("PutObjectRetention"), None),
    object("select", None, None, Some("SelectObjectContent")),
    object("torrent", Some("GetObjectTorrent"), None, None),
];

/// The name of the operation that the query requests, if it is an unsupported one.
pub(super) fn unsupported(level: Level, method: &Method, query: &Query) -> Option<&'static str> {
    ABSENT.iter().filter(|a| a.level == level && query.has(a.parameter)).find_map(|a| match *method
    {
        Method::GET => a.get,
        Method::PUT => a.put,
        Method::DELETE => a.delete,
        Method::POST => a.post,
        _ => None,
    })
}

/// Names of all known but unsupported operations, for documents and their test.
pub fn not_served() -> impl Iterator<Item = &'static str> {
    ABSENT.iter().flat_map(|a| [a.get, a.put, a.delete, a.post]).flatten()
}

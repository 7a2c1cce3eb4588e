//! Backends of buckets: one trait, one folder or file per kind of backend, decorators over the
//! trait, and the registry that combines them.
//!
//! A new kind is one module and one line in `registry`; it gets retries, limits and metrics without
//! further work. Nothing here depends on the store or HTTP.

mod accepted_endpoints;
mod access;
mod account;
mod accounts;
mod adaptive;
pub mod azure;
mod bounded;
mod checks;
pub mod composed;
pub mod egress;
pub mod faulty;
pub mod folder;
pub mod gcs;
mod journal;
mod ledger;
pub mod limit;
pub mod metered;
pub mod origin;
mod place;
pub mod registry;
pub mod remote;
pub mod retry;
pub mod s3;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
#[allow(unreachable_pub)] // It is public in `forebay-tests`, which this crate must not depend on.
mod skip;
mod source;
#[cfg(test)]
mod suite;
pub mod sweep;
pub mod timed;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::error::{Error, Result};
use forebay_core::object::{SYSTEM_PREFIX, is_system_key, remote_etag};
use forebay_core::size::ByteRange;
use forebay_node::clock::unix_ns;
use futures::stream::{self, BoxStream, StreamExt};
use md5::{Digest, Md5};

pub use account::{CredentialFile, NamedAccount};
pub use accounts::{AccountSettings, AllAccounts};
pub use azure::{AzureCredentials, AzureSettings};
pub use composed::Announced;
pub use composed::MAX_COMPOSED_OBJECTS as COMPOSED;
pub use faulty::{Fault, Faulty};
pub use gcs::GcsSettings;
pub use journal::Journal;
pub use origin::OriginSettings;
pub use registry::{BackendSettings, Backends, Room};
pub use remote::RemoteSettings;
pub use retry::RetryPolicy;
pub use s3::{S3Credentials, S3Settings};

/// Bytes of an object as they arrive. Dropping it ends the transfer.
pub type BodyStream = BoxStream<'static, Result<Bytes>>;

/// Metadata of one object at a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteMeta {
    /// Bytes of the whole object.
    pub size: u64,
    /// Changes whenever the content does; opaque, compared only for equality.
    pub version: String,
    /// Without quotes; empty where the backend has none.
    pub etag: String,
    /// MD5 of the content in lower-case hexadecimal, if the backend guarantees it.
    pub md5: Option<String>,
    /// Last modification, unix nanoseconds; approximate after a put; 0 if the backend has none.
    pub mtime_ns: u64,
    /// Content type, if the backend has one.
    pub content_type: Option<String>,
    /// Those of [`CONTENT_HEADERS`] that the backend has.
    pub headers: ContentHeaders,
    /// User's custom metadata; folders keep none.
    pub custom: BTreeMap<String, String>,
}

/// Key of the custom metadata with the content type, as the S3 and native APIs store it.
const CONTENT_TYPE: &str = "s3:content-type";

/// Headers that describe how to read or show content, beside its type. Backends store them with an
/// object unchanged.
pub const CONTENT_HEADERS: [&str; 4] =
    ["content-encoding", "content-language", "content-disposition", "cache-control"];

/// Values by the names of [`CONTENT_HEADERS`].
pub type ContentHeaders = BTreeMap<&'static str, String>;

/// The headers that have a value. The coding `identity` is none (RFC 9110 §12.5.3): Google's crate
/// reports it of every object without a coding.
pub fn content_headers(value: impl Fn(&str) -> Option<String>) -> ContentHeaders {
    let has_value = |text: &String| !text.is_empty() && !text.eq_ignore_ascii_case("identity");
    let given = |name: &'static str| Some((name, value(name).filter(has_value)?));
    CONTENT_HEADERS.into_iter().filter_map(given).collect()
}

/// Key of the custom metadata for one of [`CONTENT_HEADERS`], as the S3 and native APIs store it.
fn kept_as(name: &str) -> String {
    format!("{SYSTEM_PREFIX}{name}")
}

impl RemoteMeta {
    /// Adds the metadata that the cluster stored, as returned by [`Self::kept_custom`].
    #[must_use]
    pub fn with_kept_custom(mut self, mut custom: BTreeMap<String, String>) -> Self {
        self.content_type = custom.remove(CONTENT_TYPE);
        self.headers = content_headers(|name| custom.get(&kept_as(name)).cloned());
        CONTENT_HEADERS.iter().for_each(|name| drop(custom.remove(&kept_as(name))));
        self.custom = custom;
        self
    }

    /// Whether this is the version of these recorded values. If the backend gives no version, size
    /// and time decide; without a time it counts as another version.
    pub fn is_version(&self, version: &str, size: u64, mtime_ns: u64) -> bool {
        if self.has_version() || !version.is_empty() {
            return self.version == version;
        }
        self.size == size && self.mtime_ns == mtime_ns && mtime_ns != 0
    }

    /// Whether the backend distinguishes versions. Size and time alone may miss a change.
    pub fn has_version(&self) -> bool {
        !self.version.is_empty()
    }

    /// The ETag for clients, the same for cold and cached objects: the backend's own, or one
    /// derived from the version.
    pub fn shown_etag(&self) -> String {
        remote_etag(&self.etag, &self.version, self.size)
    }

    /// The modification time for clients.
    pub fn shown_mtime_ns(&self) -> u64 {
        if self.mtime_ns == 0 { unix_ns() } else { self.mtime_ns }
    }

    /// The fields that the cluster stores as custom metadata.
    pub fn kept_custom(&self) -> BTreeMap<String, String> {
        let mut custom = self.custom.clone();
        custom.extend(self.content_type.clone().map(|kind| (CONTENT_TYPE.to_owned(), kind)));
        custom.extend(self.headers.iter().map(|(name, value)| (kept_as(name), value.clone())));
        custom
    }
}

/// An object being read: its metadata, the returned byte range, and the bytes.
pub struct RemoteObject {
    pub meta: RemoteMeta,
    /// The range of `stream`: the requested range, cut at the object's end.
    pub range: ByteRange,
    pub stream: BodyStream,
}

/// One row of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEntry {
    pub name: String,
    pub size: u64,
    /// As [`RemoteMeta::version`]; the ETag if listings have no versions (S3).
    pub version: String,
    pub etag: String,
    pub mtime_ns: u64,
}

/// An object at one version, with its checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub name: String,
    pub meta: RemoteMeta,
    /// CRC-32C of the content.
    pub crc32c: u32,
}

/// Part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemotePage {
    /// In ascending byte order of names.
    pub entries: Vec<RemoteEntry>,
    /// Whether names follow after the last entry; never true for a page without entries.
    pub more: bool,
    /// Continues the listing from here faster than the last name does.
    pub token: Option<String>,
    /// The token belongs to a listing that the backend makes of all names behind its start. A
    /// listing with another start makes the backend walk again.
    pub walked: bool,
}

/// The start of a page.
#[derive(Clone, Copy, Debug)]
pub struct After<'a> {
    /// The page has names after this one.
    pub name: &'a str,
    /// [`RemotePage::token`] of the page that ended with this name. The following page may be as
    /// old as that page.
    pub token: Option<&'a str>,
}

impl<'a> From<&'a str> for After<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, token: None }
    }
}

/// Opens a source's bytes `range`; called once per attempt and per part, at any offset.
pub type OpenBody = Arc<dyn Fn(ByteRange) -> BodyStream + Send + Sync>;

/// Called with the number of bytes that a backend has stored.
pub type Acknowledged = Arc<dyn Fn(u64) + Send + Sync>;

/// The content of a put. It can be read again, so that a put can be retried.
#[derive(Clone)]
pub struct PutBody {
    pub size: u64,
    pub open: OpenBody,
    /// MD5 in hexadecimal when known; a backend that can check it does so.
    pub md5: Option<String>,
    pub content_type: Option<String>,
    pub headers: ContentHeaders,
    pub custom: BTreeMap<String, String>,
    /// Called for each part that the backend has stored. Parts are then sent with their MD5 if the
    /// backend checks it.
    pub acknowledged: Option<Acknowledged>,
}

impl PutBody {
    /// Takes the entries of custom metadata that the backend stores too, and returns the rest:
    /// entries that only the APIs of the cluster use.
    pub fn take_custom(&mut self, custom: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let (own, users): (BTreeMap<_, _>, _) =
            custom.into_iter().partition(|(key, _)| is_system_key(key));
        self.content_type = own.get(CONTENT_TYPE).cloned();
        self.headers = content_headers(|name| own.get(&kept_as(name)).cloned());
        self.custom = users;
        own
    }

    pub fn new(size: u64, open: OpenBody) -> Self {
        Self {
            size,
            open,
            md5: None,
            content_type: None,
            headers: ContentHeaders::new(),
            custom: BTreeMap::new(),
            acknowledged: None,
        }
    }

    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::new(
            bytes.len() as u64,
            Arc::new(move |range| {
                let part = bytes.slice(range.start as usize..range.end as usize);
                stream::iter((!part.is_empty()).then_some(Ok(part))).boxed()
            }),
        )
    }

    /// The value of one of [`CONTENT_HEADERS`].
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).cloned()
    }

    /// The MD5 of `range`, if each part is to be checked: the range is read once more for that.
    pub(crate) async fn part_md5(&self, range: ByteRange) -> Result<Option<Vec<u8>>> {
        if self.acknowledged.is_none() {
            return Ok(None);
        }
        let mut md5 = Md5::new();
        let mut bytes = self.read(range);
        while let Some(chunk) = bytes.next().await.transpose()? {
            md5.update(&chunk);
        }
        Ok(Some(md5.finalize().to_vec()))
    }

    /// Reports that the backend has stored this many more bytes.
    pub(crate) fn acknowledge(&self, bytes: u64) {
        if let Some(acknowledged) = &self.acknowledged {
            acknowledged(bytes);
        }
    }

    /// The bytes of `range`; the stream fails if the source has fewer or more.
    pub(crate) fn read(&self, range: ByteRange) -> BodyStream {
        let state = (Some((self.open)(range)), 0u64);
        stream::try_unfold(state, move |(body, seen)| async move {
            let Some(mut body) = body else { return Ok(None) };
            match body.next().await.transpose()? {
                Some(chunk) => {
                    let seen = seen + chunk.len() as u64;
                    if seen > range.len() {
                        return Err(source_length(range.len(), "more"));
                    }
                    Ok(Some((chunk, (Some(body), seen))))
                }
                None if seen < range.len() => Err(source_length(range.len(), "fewer")),
                None => Ok(None),
            }
        })
        .boxed()
    }
}

fn source_length(announced: u64, compared: &str) -> Error {
    Error::internal(format!("the source has {compared} than the {announced} bytes announced"))
}

/// A bucket of another storage system.
///
/// Failures are [`Error`]s that name the bucket: `RemoteBucketNotFound`, `ObjectNotFound`,
/// `AccessDenied`, transient ones (`Unavailable`, `TooManyRequests`, `Timeout`). Every future may
/// be dropped midway; a dropped put leaves the old object or the new one.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Succeeds if the bucket exists and may be used.
    async fn head_bucket(&self) -> Result<()>;

    /// The region that requests are signed for; `None` for clouds without regions.
    fn region(&self) -> Option<String> {
        None
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta>;

    /// Reads the object or `range` of it (not empty). `ObjectChanged` if its version differs from
    /// `if_version`, `RangeNotSatisfiable` if the range starts at or after its end.
    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject>;

    /// Replaces the object. It is complete when this returns, and never visible in part.
    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta>;

    /// `ObjectNotFound` if there was none and the backend reports that (S3 does not).
    async fn delete(&self, name: &str) -> Result<()>;

    /// Names that start with `prefix` and come after `after`, at most `limit` of them; a page may
    /// be shorter although more follow, as [`RemotePage::more`] says.
    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage>;

    /// Up to `limit` objects from the name `from` on, including temporary ones.
    async fn describe(&self, _from: &str, _limit: usize) -> Result<Vec<Described>> {
        Err(no_compositions())
    }

    /// Makes an object of these versions of others, one after the other. `ObjectChanged` or
    /// `ObjectNotFound` if one of them no longer has that version.
    async fn compose(&self, _into: &str, _parts: &[&Described]) -> Result<RemoteMeta> {
        Err(no_compositions())
    }

    /// Fails if objects that are composed and soon deleted would cost more than the calls for them.
    async fn check_composing(&self) -> Result<()> {
        Err(no_compositions())
    }
}

fn no_compositions() -> Error {
    Error::unsupported("objects are composed in Google Cloud Storage alone")
        .hint("leave cloud.compose of this bucket off")
}

/// The calls of [`Backend`], as metrics and faults name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    HeadBucket,
    Stat,
    Get,
    Put,
    Delete,
    List,
    Compose,
}

impl Op {
    /// The name in traces.
    pub(crate) fn span_name(self) -> &'static str {
        match self {
            Self::HeadBucket => "backend head_bucket",
            Self::Stat => "backend stat",
            Self::Get => "backend get",
            Self::Put => "backend put",
            Self::Delete => "backend delete",
            Self::List => "backend list",
            Self::Compose => "backend compose",
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeadBucket => "head_bucket",
            Self::Stat => "stat",
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Compose => "compose",
        }
    }
}

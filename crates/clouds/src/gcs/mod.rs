//! Buckets of Google Cloud Storage. Google's crate writes small objects; everything else uses the
//! JSON API (reasons: docs/decisions/0006-google-cloud-storage.md).
//!
//! The crate's own retries are off: a decorator retries.

mod client;
mod compose;
mod credentials;
mod error;
mod identity;
mod list;
mod read;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_core::bill::RequestClass;
use forebay_core::bucket::BackendKind;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::name::Bucket;
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder};

use super::RemotePage;
use super::place::Place;
use super::source::kept_content_type;
use super::{After, Backend, ContentHeaders, Described, PutBody, RemoteMeta, RemoteObject};
pub use client::GcsSettings;
pub(crate) use client::{GcsClient, GcsClients};
use error::{Errors, Failure};

/// Characters that are not escaped in a path.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// See the module.
pub struct GcsBackend {
    client: Arc<GcsClient>,
    /// The bucket's name at the endpoint.
    remote: String,
    errors: Errors,
    bill: Arc<Bill>,
}

impl GcsBackend {
    /// `bucket` is the name that errors show; `remote` the one at the endpoint.
    pub(crate) fn new(client: Arc<GcsClient>, bucket: Bucket, remote: &str) -> Self {
        let place = Place::new(bucket, &client.endpoint).of_account(client.settings.named.as_ref());
        let errors = Errors { place };
        let bill = Arc::new(Bill::unseen(BackendKind::Gcs));
        Self { client, remote: remote.to_owned(), errors, bill }
    }

    /// Adds requests to this bill.
    pub(crate) fn billing(self, bill: Arc<Bill>) -> Self {
        Self { bill, ..self }
    }

    /// A request of this class, to be sent once.
    fn request(
        &self,
        class: RequestClass,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        self.bill.request(class);
        self.client.request(method, path, query)
    }

    /// The bucket as Google's crate names it.
    fn resource(&self) -> String {
        format!("projects/_/buckets/{}", self.remote)
    }
}

/// Path of an object in the JSON API.
fn object_path(bucket: &str, name: &str) -> String {
    format!("/storage/v1/b/{bucket}/o/{}", utf8_percent_encode(name, &PLAIN))
}

/// Names that Google cannot have: as the last part of a URL they would mean another one.
fn is_impossible(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// The fields of responses that are used here.
struct Facts {
    size: u64,
    generation: i64,
    /// Empty if Google has none: for composed objects.
    md5: Vec<u8>,
    content_type: Option<String>,
    headers: ContentHeaders,
    custom: BTreeMap<String, String>,
}

impl Facts {
    fn meta(self) -> RemoteMeta {
        let md5 = (!self.md5.is_empty()).then(|| hex::encode(&self.md5));
        let version = self.generation.to_string();
        RemoteMeta {
            size: self.size,
            // As in the XML API; the ETag of the JSON API changes with the metadata.
            etag: md5.clone().unwrap_or_else(|| version.clone()),
            version,
            md5,
            mtime_ns: written_ns(self.generation),
            content_type: kept_content_type(self.content_type.as_deref()),
            headers: self.headers,
            // Reads return them in headers, which are case-insensitive.
            custom: self
                .custom
                .into_iter()
                .map(|(key, value)| (key.to_ascii_lowercase(), value))
                .collect(),
        }
    }
}

/// A generation is the time of the write in microseconds, but that is not guaranteed: a number
/// outside the range of times is ignored. The crate returns no other time to readers.
fn written_ns(generation: i64) -> u64 {
    // From 2001 to 2286.
    const MICROSECONDS: std::ops::Range<i64> = 1_000_000_000_000_000..10_000_000_000_000_000;
    match MICROSECONDS.contains(&generation) {
        true => generation.unsigned_abs() * 1000,
        false => 0,
    }
}

#[async_trait]
impl Backend for GcsBackend {
    async fn head_bucket(&self) -> Result<()> {
        self.look_at_bucket().await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        if is_impossible(name) {
            return Err(self.errors.place.bucket.object_not_found(name));
        }
        self.stat_object(name).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        if is_impossible(name) {
            return Err(self.errors.place.bucket.object_not_found(name));
        }
        read::get(self, name, range, if_version).await
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        if is_impossible(name) {
            let text = format!("Google Cloud Storage has no objects named \"{name}\"");
            return Err(Error::new(ErrorCode::InvalidName, text));
        }
        write::put(self, name, body).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        if is_impossible(name) {
            return Err(self.errors.place.bucket.object_not_found(name));
        }
        self.delete_object(name).await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.list_objects(prefix, after.name, limit).await
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.describe_objects(from, limit).await
    }

    async fn compose(&self, into: &str, parts: &[&Described]) -> Result<RemoteMeta> {
        self.compose_object(into, parts).await
    }

    async fn check_composing(&self) -> Result<()> {
        self.check_bucket_for_composing().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_part_of_a_path() {
        let path = object_path("b", "a/ż x?.%2F#");
        assert_eq!(path, "/storage/v1/b/b/o/a%2F%C5%BC%20x%3F.%252F%23");
    }

    #[test]
    fn a_generation_that_is_no_time_is_not_taken_for_one() {
        assert_eq!(written_ns(1_795_260_811_270_448), 1_795_260_811_270_448_000);
        assert_eq!((written_ns(7), written_ns(-1), written_ns(i64::MAX)), (0, 0, 0));
    }
}

//! Buckets of Amazon S3 and compatible servers, by the official SDK.
//!
//! The SDK signs, parses and handles special cases. Its own retries and checksum trailers are off:
//! a decorator retries, and not every S3 server accepts trailers.

mod account;
mod client;
mod error;
mod identity;
mod region;
mod upload;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{
    BucketLocationConstraint, EncodingType, RequestPayer, ServerSideEncryption,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use forebay_core::bill::RequestClass;
use forebay_core::bucket::BackendKind;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::name::Bucket;
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;
use futures::stream::{self, StreamExt};
use percent_encoding::percent_decode_str;

use super::place::Place;
use super::source::{content_range, kept_content_type};
use super::{After, Backend, ContentHeaders, PutBody, RemoteEntry, RemoteMeta, RemoteObject};
use super::{RemotePage, content_headers};
pub(crate) use account::S3Source;
use client::CountsListing;
pub(crate) use client::{S3Client, S3Clients};
pub use client::{S3Credentials, S3Settings};
use error::{Errors, is_region};
pub(crate) use region::RegionalS3;

/// Most entries that S3 returns per listing call.
const PAGE: usize = 1000;
/// Suffix that MinIO adds to the name in its tokens.
const MINIO_MARK: &[u8] = b"[minio_cache:";
/// Rights, as named in policies of S3.
const READ: &str = "s3:GetObject";
const WRITE: &str = "s3:PutObject";
const DELETE: &str = "s3:DeleteObject";

/// See the module.
pub struct S3Backend {
    client: Arc<S3Client>,
    /// The bucket's name at the endpoint.
    remote: String,
    errors: Errors,
    bill: Arc<Bill>,
}

impl S3Backend {
    /// `bucket` is the name that errors show; `remote` the one at the endpoint.
    pub(crate) fn new(client: Arc<S3Client>, bucket: Bucket, remote: &str) -> Self {
        let place = Place::new(bucket, &client.endpoint).of_account(client.settings.named.as_ref());
        let errors = Errors::new(place, &client.region);
        let bill = Arc::new(Bill::unseen(BackendKind::S3));
        Self { client, remote: remote.to_owned(), errors, bill }
    }

    /// Adds requests to this bill.
    pub(crate) fn billing(self, bill: Arc<Bill>) -> Self {
        Self { bill, ..self }
    }

    /// The same for a bucket whose property has the region.
    pub(crate) fn in_set_region(mut self) -> Self {
        self.errors.is_set = true;
        self
    }

    /// The region of the bucket, if a call was answered that it is another one.
    pub(crate) async fn region_of_bucket(&self) -> Option<String> {
        if !self.errors.is_elsewhere() {
            return None;
        }
        if let Some(region) = self.errors.region_elsewhere() {
            return Some(region);
        }
        let sdk = self.sdk(RequestClass::B);
        let answer = sdk.get_bucket_location().bucket(&self.remote).send().await.ok()?;
        let region = match answer.location_constraint().map(BucketLocationConstraint::as_str) {
            None | Some("") => client::DEFAULT_REGION,
            // The name of Ireland in old buckets.
            Some("EU") => "eu-west-1",
            Some(region) => region,
        };
        let is_other = region != self.client.region && is_region(region);
        is_other.then(|| region.to_owned())
    }

    /// The client for one request of this class.
    fn sdk(&self, class: RequestClass) -> &Client {
        self.bill.request(class);
        &self.client.sdk
    }

    /// The payer of requests to requester-pays buckets.
    fn payer(&self) -> Option<RequestPayer> {
        self.client.settings.requester_pays.then_some(RequestPayer::Requester)
    }

    /// A HEAD that finds nothing does not show whether the object or the bucket is missing.
    async fn head_not_found(&self, error: Error) -> Error {
        match self.head_bucket().await {
            Err(e) if e.code == forebay_core::ErrorCode::RemoteBucketNotFound => e,
            _ => error,
        }
    }

    /// The metadata from the response to a HEAD, GET or PUT.
    fn meta(&self, size: u64, facts: Facts<'_>) -> RemoteMeta {
        let etag = facts.etag.unwrap_or_default().trim_matches('"').to_owned();
        let version = match facts.version_id {
            Some(id) if !id.is_empty() && id != "null" => id.to_owned(),
            _ => etag.clone(),
        };
        let own_keys = matches!(facts.encryption, None | Some(ServerSideEncryption::Aes256));
        let is_md5 = own_keys
            && etag.len() == 32
            && etag.bytes().all(|b| b.is_ascii_hexdigit())
            // Directory buckets have ETags of that form that are no MD5.
            && !self.remote.ends_with("--x-s3");
        RemoteMeta {
            size,
            version,
            md5: is_md5.then(|| etag.to_ascii_lowercase()),
            etag,
            mtime_ns: facts.modified.map_or_else(now_ns, nanoseconds),
            content_type: kept_content_type(facts.content_type),
            headers: facts.headers,
            custom: facts
                .custom
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        }
    }

    fn nonsense(&self, what: &str, name: &str) -> Error {
        self.errors.place.nonsense(what, name)
    }
}

/// The fields of SDK responses that are used here.
struct Facts<'a> {
    etag: Option<&'a str>,
    version_id: Option<&'a str>,
    encryption: Option<&'a ServerSideEncryption>,
    modified: Option<&'a DateTime>,
    content_type: Option<&'a str>,
    headers: ContentHeaders,
    custom: Option<&'a HashMap<String, String>>,
}

fn nanoseconds(time: &DateTime) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(0)
}

fn now_ns() -> u64 {
    nanoseconds(&DateTime::from(std::time::SystemTime::now()))
}

#[async_trait]
impl Backend for S3Backend {
    fn region(&self) -> Option<String> {
        Some(self.client.region.clone())
    }

    async fn head_bucket(&self) -> Result<()> {
        let sent = self.sdk(RequestClass::B).head_bucket().bucket(&self.remote).send().await;
        sent.map_err(|e| self.errors.of_bucket(e))?;
        Ok(())
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        let sent = self
            .sdk(RequestClass::B)
            .head_object()
            .bucket(&self.remote)
            .key(name)
            .set_request_payer(self.payer())
            .send()
            .await;
        let out = match sent.map_err(|e| self.errors.of_object(e, READ, name)) {
            Ok(out) => out,
            Err(e) if e.code == forebay_core::ErrorCode::ObjectNotFound => {
                return Err(self.head_not_found(e).await);
            }
            Err(e) => return Err(e),
        };
        let size = out.content_length().and_then(|n| u64::try_from(n).ok());
        let size = size.ok_or_else(|| self.nonsense("without a length", name))?;
        Ok(self.meta(
            size,
            Facts {
                etag: out.e_tag(),
                version_id: out.version_id(),
                encryption: out.server_side_encryption(),
                modified: out.last_modified(),
                content_type: out.content_type(),
                headers: content_headers(|name| {
                    let value = match name {
                        "content-encoding" => out.content_encoding(),
                        "content-language" => out.content_language(),
                        "content-disposition" => out.content_disposition(),
                        _ => out.cache_control(),
                    };
                    value.map(str::to_owned)
                }),
                custom: out.metadata(),
            },
        ))
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let header = range.map(|r| format!("bytes={}-{}", r.start, r.end.saturating_sub(1)));
        let sdk = self.sdk(RequestClass::B);
        let request = sdk.get_object().bucket(&self.remote).key(name).set_range(header);
        let request = request.set_request_payer(self.payer());
        let out = request.send().await.map_err(|e| self.errors.of_object(e, READ, name))?;
        let length = out.content_length().and_then(|n| u64::try_from(n).ok());
        let length = length.ok_or_else(|| self.nonsense("without a length", name))?;
        let (got, size) = match out.content_range() {
            Some(header) => content_range(header)
                .ok_or_else(|| self.nonsense("with an unreadable Content-Range", name))?,
            None => (ByteRange::whole(length), length),
        };
        let wanted = range.unwrap_or(ByteRange::whole(size));
        if got != (ByteRange { start: wanted.start, end: wanted.end.min(size) }) {
            return Err(self.nonsense("with other bytes than asked", name));
        }
        let meta = self.meta(
            size,
            Facts {
                etag: out.e_tag(),
                version_id: out.version_id(),
                encryption: out.server_side_encryption(),
                modified: out.last_modified(),
                content_type: out.content_type(),
                headers: content_headers(|name| {
                    let value = match name {
                        "content-encoding" => out.content_encoding(),
                        "content-language" => out.content_language(),
                        "content-disposition" => out.content_disposition(),
                        _ => out.cache_control(),
                    };
                    value.map(str::to_owned)
                }),
                custom: out.metadata(),
            },
        );
        // Compared here, not by If-Match: a version may be an id, and not every server supports
        // both.
        if if_version.is_some_and(|v| v != meta.version) {
            return Err(self.errors.place.changed(name));
        }
        let (errors, name) = (self.errors.clone(), name.to_owned());
        let stream = stream::unfold(Some(out.body), move |body| {
            let (errors, name) = (errors.clone(), name.clone());
            async move {
                let mut body = body?;
                match body.next().await? {
                    Ok(chunk) => Some((Ok(chunk), Some(body))),
                    Err(e) => Some((Err(errors.of_body(&e, &name)), None)),
                }
            }
        });
        Ok(RemoteObject { meta, range: got, stream: stream.boxed() })
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        upload::put(self, name, body).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let sent = self
            .sdk(RequestClass::Free)
            .delete_object()
            .bucket(&self.remote)
            .key(name)
            .set_request_payer(self.payer())
            .send()
            .await;
        sent.map_err(|e| self.errors.of_object(e, DELETE, name))?;
        Ok(())
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        let limit = limit.clamp(1, PAGE);
        let mut page = match self.page(prefix, after, limit).await {
            // The token is from another version of the server, or expired.
            Err(e) if after.token.is_some() && e.code == ErrorCode::InvalidArgument => {
                self.page(prefix, after.name.into(), limit).await?
            }
            page => page?,
        };
        if let (false, Some(last)) = (page.more, page.entries.get(limit - 1)) {
            // MinIO marks some full pages as the last one although names follow.
            page.more = !self.page(prefix, last.name.as_str().into(), 1).await?.entries.is_empty();
        }
        Ok(page)
    }
}

impl S3Backend {
    /// One listing call.
    async fn page(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let sent = self
            .sdk(RequestClass::A)
            .list_objects_v2()
            .bucket(&self.remote)
            .set_prefix(some(prefix))
            // MinIO reads a whole folder for a name, and continues by a token.
            .set_start_after(some(after.name).filter(|_| after.token.is_none()))
            .set_continuation_token(after.token.map(str::to_owned))
            .max_keys(limit as i32)
            // Keys may hold characters that XML cannot.
            .encoding_type(EncodingType::Url)
            .set_request_payer(self.payer())
            .customize()
            .interceptor(CountsListing(Arc::clone(&self.bill)))
            .send()
            .await;
        let out = sent.map_err(|e| self.errors.of_bucket(e))?;
        let encoded = out.encoding_type() == Some(&EncodingType::Url);
        let mut entries = Vec::with_capacity(out.contents().len());
        for object in out.contents() {
            let key = object.key().unwrap_or_default();
            let name = decoded(key, encoded).ok_or_else(|| {
                let Place { bucket, endpoint, .. } = &self.errors.place;
                Error::unsupported(format!("{endpoint} lists \"{bucket}\" with the key {key}"))
                    .hint("keys must be UTF-8")
            })?;
            let etag = object.e_tag().unwrap_or_default().trim_matches('"').to_owned();
            entries.push(RemoteEntry {
                name,
                size: object.size().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
                version: etag.clone(),
                etag,
                mtime_ns: object.last_modified().map_or(0, nanoseconds),
            });
        }
        let ascending = entries.is_sorted_by(|a, b| a.name < b.name);
        if !ascending || entries.first().is_some_and(|first| first.name.as_str() <= after.name) {
            return Err(self.errors.place.out_of_order());
        }
        let more = out.is_truncated().unwrap_or(false) && !entries.is_empty();
        let token = out.next_continuation_token().filter(|_| more).map(str::to_owned);
        let walked = token.as_deref().is_some_and(is_of_minio);
        Ok(RemotePage { entries, more, token, walked })
    }
}

/// Whether a token belongs to a listing that MinIO keeps: it is the last name and this suffix.
fn is_of_minio(token: &str) -> bool {
    let text = BASE64_STANDARD.decode(token).unwrap_or_default();
    text.ends_with(b"]") && text.windows(MINIO_MARK.len()).any(|part| part == MINIO_MARK)
}

/// A key as in listings: by the rules of HTML forms if the server applied `encoding-type=url`.
fn decoded(key: &str, encoded: bool) -> Option<String> {
    if !encoded {
        return Some(key.to_owned());
    }
    let spaced = key.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

//! Containers of Azure Blob Storage, by Microsoft's crate.
//!
//! The crate implements the requests and responses. Signing with an account's key, which it lacks,
//! is a policy of this module. Its own retries are off: a decorator retries.

mod billed;
mod client;
mod credentials;
mod error;
mod identity;
mod list;
mod sign;
mod token;
mod write;

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Etag, Request};
use azure_core::time::OffsetDateTime;
use azure_storage_blob::models::{
    BlobClientDownloadOptions, BlobClientGetPropertiesResultHeaders, BlobDownloadProperties,
};
use azure_storage_blob::{BlobClient, BlobContainerClient};
use forebay_core::bucket::BackendKind;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::name::Bucket;
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;
use futures::StreamExt;
use tokio::time::timeout;

use super::RemotePage;
use super::place::Place;
use super::source::kept_content_type;
use super::{After, Backend, CONTENT_HEADERS, ContentHeaders, PutBody, RemoteMeta, RemoteObject};
pub use client::AzureSettings;
pub(crate) use client::{AzureClient, AzureClients};
pub use credentials::AzureCredentials;
use error::{Errors, Right};
use list::Markers;

/// Larger than any blob, so that one request reads a whole blob. Whole numbers of this size are
/// exact in every language that a server may be written in.
const ONE_REQUEST: u64 = 1 << 50;

/// See the module.
pub struct AzureBackend {
    client: Arc<AzureClient>,
    container: BlobContainerClient,
    /// The container's name.
    remote: String,
    errors: Errors,
    markers: Markers,
    bill: Arc<Bill>,
}

impl AzureBackend {
    /// `bucket` is the name that errors show; `remote` the container's.
    pub(crate) fn new(client: Arc<AzureClient>, bucket: Bucket, remote: &str) -> Result<Self> {
        let place = Place::new(bucket, &client.endpoint).of_account(client.settings.named.as_ref());
        let errors = Errors { place, signed: client.signed };
        let bill = Arc::new(Bill::unseen(BackendKind::Azure));
        let container = client.container(remote, Arc::clone(&bill))?;
        Ok(Self {
            client,
            container,
            remote: remote.to_owned(),
            errors,
            markers: Markers::default(),
            bill,
        })
    }

    /// Adds requests to this bill.
    pub(crate) fn billing(self, bill: Arc<Bill>) -> Result<Self> {
        let container = self.client.container(&self.remote, Arc::clone(&bill))?;
        Ok(Self { container, bill, ..self })
    }

    fn blob(&self, name: &str) -> BlobClient {
        self.container.blob_client(name)
    }

    /// Waits for a response, with the timeout of a response.
    async fn answer<T>(
        &self,
        call: impl Future<Output = azure_core::Result<T>>,
        right: Right,
        name: Option<&str>,
    ) -> Result<T> {
        match timeout(self.client.settings.read_timeout, call).await {
            Ok(answer) => answer.map_err(|e| self.errors.of(&e, right, name)),
            Err(_) => Err(self.errors.unavailable("it did not answer in time")),
        }
    }

    fn nonsense(&self, what: &str, name: &str) -> Error {
        self.errors.place.nonsense(what, name)
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if is_impossible(name) {
            return Err(self.errors.place.bucket.object_not_found(name));
        }
        Ok(())
    }
}

/// Names that Azure cannot have: as the last part of a URL they would mean another one.
fn is_impossible(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// The fields of responses that are used here.
struct Facts {
    size: u64,
    etag: Option<Etag>,
    modified: Option<OffsetDateTime>,
    md5: Option<Vec<u8>>,
    content_type: Option<String>,
    headers: ContentHeaders,
    custom: HashMap<String, String>,
}

impl Facts {
    fn meta(self) -> RemoteMeta {
        let etag = self.etag.map(|etag| bare(&etag)).unwrap_or_default();
        RemoteMeta {
            size: self.size,
            version: etag.clone(),
            etag,
            md5: self.md5.filter(|md5| md5.len() == 16).map(hex::encode),
            mtime_ns: nanoseconds(self.modified.unwrap_or_else(OffsetDateTime::now_utc)),
            content_type: kept_content_type(self.content_type.as_deref()),
            headers: self.headers,
            // Header names are case-insensitive; the service returns the case that was sent.
            custom: self.custom.into_iter().map(|(k, v)| (k.to_ascii_lowercase(), v)).collect(),
        }
    }
}

/// Passes a request to the next policies.
async fn pass_on(
    ctx: &Context<'_>,
    request: &mut Request,
    next: &[Arc<dyn Policy>],
) -> PolicyResult {
    let Some((first, rest)) = next.split_first() else {
        let text = "nothing sends the request";
        return Err(azure_core::Error::with_message(azure_core::error::ErrorKind::Other, text));
    };
    first.send(ctx, request, rest).await
}

/// The values of [`CONTENT_HEADERS`], in their order.
fn of_headers(values: [Option<String>; CONTENT_HEADERS.len()]) -> ContentHeaders {
    let pairs = CONTENT_HEADERS.into_iter().zip(values);
    pairs.filter_map(|(name, value)| Some((name, value.filter(|v| !v.is_empty())?))).collect()
}

fn nanoseconds(time: OffsetDateTime) -> u64 {
    u64::try_from(time.unix_timestamp_nanos()).unwrap_or(0)
}

/// An ETag without its quotes, as listings spell it.
fn bare(etag: &Etag) -> String {
    etag.as_ref().trim_matches('"').to_owned()
}

#[async_trait]
impl Backend for AzureBackend {
    async fn head_bucket(&self) -> Result<()> {
        // Not by the container's properties: a SAS that may read and list may not see those.
        self.page("", None, None, 1).await.map(drop)
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.check_name(name)?;
        let blob = self.blob(name);
        let found = self.answer(blob.get_properties(None), Right::Read, Some(name)).await?;
        let facts = || -> azure_core::Result<Facts> {
            Ok(Facts {
                size: found.content_length()?.unwrap_or(0),
                etag: found.etag()?,
                modified: found.last_modified()?,
                md5: found.content_md5()?,
                content_type: found.content_type()?,
                headers: of_headers([
                    found.content_encoding()?,
                    found.content_language()?,
                    found.content_disposition()?,
                    found.cache_control()?,
                ]),
                custom: found.metadata()?,
            })
        };
        facts().map(Facts::meta).map_err(|_| self.nonsense("with unreadable headers", name))
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        self.check_name(name)?;
        let most = range.map_or(ONE_REQUEST, |r| r.len()).clamp(1, ONE_REQUEST);
        let options = BlobClientDownloadOptions {
            range: range.map(|r| (r.start..r.end).into()),
            if_match: if_version.map(|version| Etag::from(format!("\"{version}\""))),
            parallel: Some(NonZero::<usize>::MIN),
            partition_size: usize::try_from(most).ok().and_then(NonZero::new),
            ..BlobClientDownloadOptions::default()
        };
        let blob = self.blob(name);
        let found = self.answer(blob.download(Some(options)), Right::Read, Some(name)).await?;
        let BlobDownloadProperties {
            etag,
            last_modified,
            content_length,
            content_type,
            content_encoding,
            content_language,
            content_disposition,
            cache_control,
            content_md5,
            blob_content_md5,
            metadata,
            ..
        } = found.properties;
        let header = found.headers.get_optional_str(&"content-range".into());
        let (got, size) = match header {
            Some(header) => super::source::content_range(header)
                .ok_or_else(|| self.nonsense("with an unreadable Content-Range", name))?,
            None => {
                let size = content_length.ok_or_else(|| self.nonsense("without a length", name))?;
                (ByteRange::whole(size), size)
            }
        };
        let wanted = range.unwrap_or(ByteRange::whole(size));
        if wanted.start >= size && range.is_some() {
            let uri = self.errors.place.bucket.object_uri(name);
            let text = format!("{uri} has {size} bytes: none from {} on", wanted.start);
            return Err(Error::new(ErrorCode::RangeNotSatisfiable, text));
        }
        if got != (ByteRange { start: wanted.start, end: wanted.end.min(size) }) {
            return Err(self.nonsense("with other bytes than asked", name));
        }
        let md5 = blob_content_md5.or(if header.is_none() { content_md5 } else { None });
        let headers =
            of_headers([content_encoding, content_language, content_disposition, cache_control]);
        let (modified, custom) = (last_modified, metadata);
        let facts = Facts { size, etag, modified, md5, content_type, headers, custom };
        let (errors, name) = (self.errors.clone(), name.to_owned());
        let stream = found.body.map(move |chunk| chunk.map_err(|e| errors.of_body(&e, &name)));
        Ok(RemoteObject { meta: facts.meta(), range: got, stream: stream.boxed() })
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        if is_impossible(name) {
            let text = format!("Azure Blob Storage has no objects named \"{name}\"");
            return Err(Error::new(ErrorCode::InvalidName, text));
        }
        write::put(self, name, body).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.check_name(name)?;
        let blob = self.blob(name);
        self.answer(blob.delete(None), Right::Delete, Some(name)).await.map(drop)
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.list_blobs(prefix, after.name, limit).await
    }
}

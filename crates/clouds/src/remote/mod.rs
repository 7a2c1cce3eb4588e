//! Buckets of another cluster, Forebay or AIStore, by the protocol of both (v1).
//!
//! A version is the object's version in that cluster. For a native object it is a number that
//! starts again when the object is deleted and written again, so its checksum is part of the
//! version, too. An object with a backend in that cluster has the version of that backend; its
//! checksum appears and disappears with the cached copy, and is ignored here.

mod error;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use error::Errors;
use forebay_core::bill::RequestClass;
use forebay_core::bucket::BackendKind;
use forebay_core::egress::{EgressPolicy, EndpointTrust};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::intra::MAP_HEADER;
use forebay_core::name::Bucket;
use forebay_core::shown_url;
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;
use forebay_node::off_worker;
use forebay_v1::headers as v1;
use forebay_v1::list::{ListMsg, MAX_PAGE, MSGPACK, Page};
use forebay_v1::query::{bucket_uri, object_uri};
use futures::{StreamExt, TryStreamExt};
use reqwest::redirect::Policy;
use reqwest::{Body, Client, Method, RequestBuilder, Response};
use tokio::time::timeout;
use walk::Walks;

use super::bounded::{has_long_head, long_head, read_listing};
use super::place::Place;
use super::source::{SourceError, content_range};
use super::{After, Backend, PutBody, RemoteEntry, RemoteMeta, RemoteObject, RemotePage};
use crate::egress::EndpointGuard;

const MIB: u64 = 1 << 20;
/// Most redirects of one request: from a gateway to another, and to the target.
const MAX_REDIRECTS: usize = 5;

/// Settings for other clusters.
#[derive(Clone, Debug)]
pub struct RemoteSettings {
    pub connect_timeout: Duration,
    /// Longest wait for the first byte of a response; uploads get more by their size.
    pub read_timeout: Duration,
    /// The destinations of clusters, and of their targets.
    pub egress: EgressPolicy,
    pub trust: EndpointTrust,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(30),
            egress: EgressPolicy::default(),
            trust: EndpointTrust::Judged,
        }
    }
}

/// See the module.
pub struct RemoteBackend {
    /// A gateway of the other cluster, without a slash at the end.
    endpoint: String,
    /// The bucket's name in that cluster.
    there: Bucket,
    /// Follows redirects of the gateway to the target of the object.
    client: Client,
    /// For requests whose body is sent only to the target.
    asking: Client,
    guard: EndpointGuard,
    settings: RemoteSettings,
    errors: Errors,
    bill: Arc<Bill>,
    /// Listings of an AIStore, and whether the cluster is one, once known.
    walks: Walks,
    is_aistore: AtomicBool,
}

impl RemoteBackend {
    /// `bucket` is the name that errors show; `remote` the one at the cluster behind `endpoint`.
    pub(crate) fn new(
        bucket: Bucket,
        remote: &str,
        endpoint: Option<&str>,
        settings: RemoteSettings,
    ) -> Result<Self> {
        let endpoint = endpoint.unwrap_or_default().trim_end_matches('/').to_owned();
        let usable = endpoint.starts_with("http://") || endpoint.starts_with("https://");
        if !usable {
            return Err(Error::invalid(format!(
                "bucket \"{bucket}\" lives in another cluster, whose URL \"{endpoint}\" is none"
            ))
            .hint("give it as http://host:port"));
        }
        forebay_node::tls::choose_provider();
        let (kind, egress) = (BackendKind::Ais, &settings.egress);
        let guard = EndpointGuard::of(kind, Some(&endpoint), settings.trust, None, egress)?;
        let client = |policy: Policy| {
            let built = guard
                .guard(Client::builder())
                .connect_timeout(settings.connect_timeout)
                .redirect(policy)
                .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
                .build();
            built.map_err(|e| {
                Error::internal(format!("no client for {}: {e}", shown_url(&endpoint)))
            })
        };
        let (client, asking) = (client(guard.redirects(MAX_REDIRECTS))?, client(Policy::none())?);
        let there = Bucket::new(Default::default(), remote)?;
        let errors = Errors { place: Place::new(bucket, &endpoint) };
        let bill = Arc::new(Bill::unseen(BackendKind::Ais));
        Ok(Self {
            endpoint,
            there,
            client,
            asking,
            guard,
            settings,
            errors,
            bill,
            walks: Walks::default(),
            is_aistore: AtomicBool::new(false),
        })
    }

    /// Adds requests to this bill.
    pub(crate) fn billing(self, bill: Arc<Bill>) -> Self {
        Self { bill, ..self }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.endpoint)
    }

    fn object(&self, method: Method, name: &str) -> RequestBuilder {
        self.client.request(method, self.url(&object_uri(&self.there, name)))
    }

    async fn send(
        &self,
        request: RequestBuilder,
        wait: Duration,
        name: Option<&str>,
    ) -> Result<Response> {
        self.bill.request(RequestClass::Request);
        let answer = match timeout(wait, request.send()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(e)) => return Err(self.errors.of_send(&e)),
            Err(_) => return Err(self.errors.unavailable("it did not answer in time")),
        };
        if has_long_head(&answer) {
            return Err(self.errors.unavailable(&long_head()));
        }
        match answer.status().as_u16() {
            400.. => Err(self.explain(self.errors.refused(answer, name).await).await),
            _ => Ok(answer),
        }
    }

    /// The response to a HEAD does not show whether the object or its bucket is missing.
    async fn explain(&self, error: Error) -> Error {
        if error.code != ErrorCode::ObjectNotFound {
            return error;
        }
        match Box::pin(self.head_bucket()).await {
            Err(e) if e.code == ErrorCode::RemoteBucketNotFound => e,
            _ => error,
        }
    }

    fn meta(&self, answer: &Response, size: u64) -> RemoteMeta {
        let known = v1::object_meta(answer.headers(), size);
        let checksum = known.checksum.map(|sum| sum.value).unwrap_or_default();
        RemoteMeta { mtime_ns: known.mtime_ns, ..facts(size, &known.version, &checksum) }
    }

    /// Requests a page. A Forebay includes its map version, and lists in byte order.
    async fn page(&self, msg: ListMsg) -> Result<Page> {
        let msg = ListMsg { props: "name,size,version,checksum".into(), ..msg };
        let action = serde_json::json!({ "action": "list", "value": msg.to_value() });
        let request = self.client.request(Method::GET, self.url(&bucket_uri(&self.there)));
        let request = request.header("accept", MSGPACK).json(&action);
        let answer = self.send(request, self.settings.read_timeout, None).await?;
        let is_forebay = answer.headers().contains_key(MAP_HEADER);
        self.is_aistore.store(!is_forebay, Ordering::Relaxed);
        let body = timeout(self.settings.read_timeout, read_listing(answer)).await;
        let body = body.map_err(|_| self.errors.unavailable("its listing stalled"))?;
        let body = body.map_err(|error| self.errors.unavailable(&error.why()))?;
        self.bill.listing_page(body.len());
        let page = off_worker(body.len(), || Page::from_msgpack(&body));
        page.map_err(|e| self.errors.unavailable(&e.message))
    }

    /// All of a folder of an AIStore, by the tokens of one listing.
    async fn walk(&self, folder: String) -> Result<Vec<RemoteEntry>> {
        let mut msg = ListMsg { prefix: folder, page_size: MAX_PAGE, ..ListMsg::default() };
        let mut all = Vec::new();
        loop {
            let page = self.page(msg.clone()).await?;
            let is_last = page.token.is_empty() || page.entries.is_empty();
            all.extend(page.entries.into_iter().map(entry));
            walk::check_count(&self.errors.place.subject(None), all.len())?;
            if is_last {
                return Ok(all);
            }
            (msg.token, msg.uuid) = (page.token, page.uuid);
        }
    }
}

fn entry(entry: forebay_v1::list::Entry) -> RemoteEntry {
    let meta = facts(entry.size, &entry.version, &entry.checksum);
    let RemoteMeta { size, version, etag, mtime_ns, .. } = meta;
    RemoteEntry { name: entry.name, size, version, etag, mtime_ns }
}

/// Most digits of the write counter of a native object: a generation of Google's has 16.
const MAX_WRITES_DIGITS: usize = 12;

/// Whether this is the version of a native object.
fn counts_writes(version: &str) -> bool {
    version.len() <= MAX_WRITES_DIGITS && version.bytes().all(|byte| byte.is_ascii_digit())
}

/// The fields that identify the content, the same in listings and reads.
fn facts(size: u64, version: &str, checksum: &str) -> RemoteMeta {
    let checksum = if counts_writes(version) { checksum } else { "" };
    let version = match (version, checksum) {
        (version, "") => version.to_owned(),
        (version, checksum) => format!("{version}.{checksum}"),
    };
    RemoteMeta { size, etag: checksum.to_owned(), version, ..RemoteMeta::default() }
}

fn length(answer: &Response) -> Option<u64> {
    // Not by the body: the response to a HEAD has none.
    answer.headers().get("content-length")?.to_str().ok()?.trim().parse().ok()
}

#[async_trait]
impl Backend for RemoteBackend {
    async fn head_bucket(&self) -> Result<()> {
        let request = self.client.request(Method::HEAD, self.url(&bucket_uri(&self.there)));
        self.send(request, self.settings.read_timeout, None).await.map(drop)
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        let request = self.object(Method::HEAD, name);
        let answer = self.send(request, self.settings.read_timeout, Some(name)).await?;
        // AIStore returns none for an empty object, except in reads.
        let declared = length(&answer);
        let answer = match declared {
            Some(_) => answer,
            None => {
                let read = self.object(Method::GET, name);
                self.send(read, self.settings.read_timeout, Some(name)).await?
            }
        };
        let size = match (declared, length(&answer)) {
            (Some(size), _) | (None, Some(size @ 0)) => size,
            _ => return Err(self.errors.place.nonsense("with no length", name)),
        };
        Ok(self.meta(&answer, size))
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let mut request = self.object(Method::GET, name);
        if let Some(ByteRange { start, end }) = range {
            request = request.header("range", format!("bytes={start}-{}", end.saturating_sub(1)));
        }
        let answer = self.send(request, self.settings.read_timeout, Some(name)).await?;
        let header = answer.headers().get("content-range").and_then(|v| v.to_str().ok());
        let (got, size) = match header {
            Some(header) => content_range(header).ok_or_else(|| {
                self.errors.place.nonsense("with an unreadable Content-Range", name)
            })?,
            None => {
                let size = length(&answer)
                    .ok_or_else(|| self.errors.place.nonsense("with no length", name))?;
                (ByteRange::whole(size), size)
            }
        };
        let wanted = range.unwrap_or(ByteRange::whole(size));
        if got != (ByteRange { start: wanted.start, end: wanted.end.min(size) }) {
            return Err(self.errors.place.nonsense("with other bytes than asked", name));
        }
        let meta = match range {
            None => self.meta(&answer, size),
            // The checksum of such a response is that of the range.
            Some(_) => self.stat(name).await?,
        };
        if if_version.is_some_and(|version| version != meta.version) || meta.size != size {
            return Err(self.errors.place.changed(name));
        }
        let (errors, of) = (self.errors.clone(), name.to_owned());
        let stream =
            answer.bytes_stream().map(move |chunk| chunk.map_err(|e| errors.of_body(&e, &of)));
        Ok(RemoteObject { meta, range: got, stream: stream.boxed() })
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        // The gateway redirects, so that the bytes are sent once.
        let to = self.asking.put(self.url(&object_uri(&self.there, name)));
        let to = to.header("content-length", 0);
        let asked = self.send(to, self.settings.read_timeout, Some(name)).await?;
        let location = asked.headers().get("location").and_then(|to| to.to_str().ok());
        let Some(location) = location else {
            return Err(self.errors.place.nonsense("with no target for the upload", name));
        };
        self.guard.check(location, &self.settings.egress.endpoints())?;
        let failed = SourceError::default();
        let kept = failed.clone();
        let bytes = body.read(ByteRange::whole(body.size)).inspect_err(move |e| kept.keep(e));
        let request = self.asking.put(location).header("content-length", body.size);
        let request = match body.size {
            0 => request,
            _ => request.body(Body::wrap_stream(bytes)),
        };
        let wait = self.settings.read_timeout + Duration::from_secs(body.size / MIB);
        match self.send(request, wait, Some(name)).await {
            Ok(_) => self.stat(name).await,
            Err(e) => Err(failed.take().unwrap_or(e)),
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let request = self.object(Method::DELETE, name);
        self.send(request, self.settings.read_timeout, Some(name)).await.map(drop)
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        let (limit, after) = (limit.clamp(1, MAX_PAGE), after.name);
        let from = |after: &str, page_size: usize| ListMsg {
            prefix: prefix.to_owned(),
            start_after: after.to_owned(),
            page_size,
            ..ListMsg::default()
        };
        let walked = || self.walks.list((prefix, after, limit), |folder| self.walk(folder));
        if self.is_aistore.load(Ordering::Relaxed) {
            return walked().await;
        }
        let page = self.page(from(after, limit)).await?;
        if self.is_aistore.load(Ordering::Relaxed) {
            return walked().await;
        }
        let mut more = !page.token.is_empty() && !page.entries.is_empty();
        if let (true, Some(last)) = (more, page.entries.last()) {
            // A full page is never marked as the last one.
            more = !self.page(from(&last.name, 1)).await?.entries.is_empty();
        }
        Ok(RemotePage {
            entries: page.entries.into_iter().map(entry).collect(),
            more,
            ..RemotePage::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_belongs_to_the_version_of_a_native_object_alone() {
        let of = |version, checksum| {
            let meta = facts(7, version, checksum);
            (meta.version.clone(), meta.shown_etag())
        };
        assert_eq!(of("3", "abc"), ("3.abc".into(), "abc".into()));
        assert_ne!(of("1", "abc"), of("1", "def"), "deleted and made again");
        assert_eq!(of("", "abc"), (".abc".into(), "abc".into()));
        let (cold, cached) = (of("1795260811-7-99", ""), of("1795260811-7-99", "abc"));
        assert_eq!(cold, cached, "of a folder there");
        assert_eq!(of("1795260811270448", ""), of("1795260811270448", "abc"), "of Google there");
        assert_eq!(of("3.abc", ""), of("3.abc", "def"), "of a third cluster there");
        assert_ne!(cold, of("1795260812-7-99", ""));
    }
}

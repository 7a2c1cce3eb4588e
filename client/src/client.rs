//! The client and its two ways to send a request: directly to an object's owner, or to any gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use serde::de::DeserializeOwned;

use forebay_core::intra::MapReply;
use forebay_core::state::Node;
use forebay_core::v1::query::bucket_uri;
use forebay_core::{Bucket, Error as CoreError, ErrorCode, placement};

use crate::body::{Body, Progress, Upload};
use crate::contact::Contact;
use crate::error::{Error, Result};
use crate::hedging::{self, HedgeLimit};
use crate::map::MapCache;
use crate::objects::Route;
use crate::pace::Pace;
use crate::retry::Attempts;
use crate::transport::{self, Download, Transport};

/// Where a cluster started without settings listens.
pub const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:7400";

/// How a client reaches its cluster.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// URL of a gateway, or of several with commas between them.
    pub endpoint: String,
    /// How long transient failures are retried without any progress, and how long an answer may
    /// take for its next 16 KiB.
    pub deadline: Duration,
    /// Timeout for making one connection.
    pub connect_timeout: Duration,
    /// How long a node may be silent before or during an answer.
    pub idle_timeout: Duration,
    /// How targets try clouds again for this client: the value of the header `forebay-cloud-retry`.
    pub cloud_retry: Option<String>,
    /// Whether the cluster was ever reached. Clients that share this wait for a cluster that
    /// restarts.
    pub contact: Contact,
}

impl ClientConfig {
    /// The defaults, for this endpoint.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), ..Self::default() }
    }

    /// The endpoint that the environment names (`FOREBAY_ENDPOINT`, else `AIS_ENDPOINT`).
    pub fn from_env() -> Self {
        let set = |name| std::env::var(name).ok().filter(|v: &String| !v.trim().is_empty());
        match set("FOREBAY_ENDPOINT").or_else(|| set("AIS_ENDPOINT")) {
            Some(endpoint) => Self::new(endpoint),
            None => Self::default(),
        }
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            deadline: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(20),
            cloud_retry: None,
            contact: Contact::default(),
        }
    }
}

/// A client of one cluster. Cheap to clone; clones share connections and the map.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    /// As configured, at least one; the first names the cluster in errors.
    endpoints: Arc<[String]>,
    transport: Transport,
    maps: Arc<MapCache>,
    pace: Pace,
    hedge_limit: HedgeLimit,
}

/// A request about one object, which may be sent several times.
pub(crate) struct ObjectCall<'a> {
    pub(crate) method: Method,
    pub(crate) bucket: &'a Bucket,
    pub(crate) name: &'a str,
    /// Where nodes answer it.
    pub(crate) route: Route,
    /// The reader of the answer drives the connection itself. Meant for long answers to idempotent
    /// requests that are read at once.
    pub(crate) caller_driven: bool,
    /// Appended to the query; empty or starting with `&`.
    pub(crate) query: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<&'a Body>,
}

/// A request to any gateway.
pub(crate) struct ControlCall<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    /// JSON.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) accept: Option<&'static str>,
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether an earlier try may have succeeded already.
    pub(crate) ambiguous: bool,
}

impl Client {
    /// A client for the cluster that `config` names. Nothing is sent before the first request.
    pub fn new(config: ClientConfig) -> Result<Self> {
        let endpoints = config.endpoint.split(',').map(str::trim).filter(|e| !e.is_empty());
        let endpoints = endpoints.map(check_endpoint).collect::<Result<Vec<_>>>()?;
        if endpoints.is_empty() {
            return Err(Error::Api(
                CoreError::invalid("no endpoint is given")
                    .hint("set FOREBAY_ENDPOINT, for example to http://127.0.0.1:7400"),
            ));
        }
        let endpoints: Arc<[String]> = endpoints.into();
        let transport = Transport::new(config.connect_timeout, config.idle_timeout)
            .with_limit(config.deadline)
            .with_contact(config.contact.clone())
            .with_cloud_retry(config.cloud_retry.as_deref())?;
        let within = config.idle_timeout.min(config.deadline);
        let maps = Arc::new(MapCache::new(&transport, within, endpoints.clone()));
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                endpoints,
                transport,
                maps,
                pace: Pace::default(),
                hedge_limit: HedgeLimit::default(),
            }),
        })
    }

    /// The URL that names the cluster: the first of those configured.
    pub fn endpoint(&self) -> &str {
        // `new` refuses a configuration without any.
        self.inner.endpoints.first().map_or("", String::as_str)
    }

    /// The endpoints, if all of them have refused every connection of this client so far.
    pub fn refusing_endpoints(&self) -> Option<&[String]> {
        let Inner { config, endpoints, .. } = &*self.inner;
        config.contact.is_refused_by_all(endpoints).then_some(&**endpoints)
    }

    /// The map of the cluster as this client knows it now.
    pub async fn map(&self) -> Result<Arc<MapReply>> {
        let mut tries = self.attempts();
        loop {
            match self.maps().get().await {
                Ok(map) => return Ok(map),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    /// Fetches the current map.
    pub async fn refresh_map(&self) -> Result<Arc<MapReply>> {
        let mut tries = self.attempts();
        loop {
            let known = self.maps().get().await;
            let fresh = match known {
                Ok(known) => self.maps().replace(Some(&known)).await,
                Err(e) => Err(e),
            };
            match fresh {
                Ok(map) => return Ok(map),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    pub(crate) fn attempts(&self) -> Attempts {
        let Inner { config, endpoints, .. } = &*self.inner;
        Attempts::new(self.endpoint(), config.deadline).of_cluster(&config.contact, endpoints)
    }

    pub(crate) fn maps(&self) -> &Arc<MapCache> {
        &self.inner.maps
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.inner.transport
    }

    pub(crate) fn hedge_limit(&self) -> &HedgeLimit {
        &self.inner.hedge_limit
    }

    /// Begins a request straight to a target.
    pub(crate) fn direct(
        &self,
        call: &ObjectCall<'_>,
        node: &Node,
        map: &MapReply,
    ) -> http::request::Builder {
        let path = format!("{}{}", call.route.path(call.bucket, call.name), call.query);
        let mut builder = transport::direct(call.method.clone(), &node.url, &path, map);
        if let Some(headers) = builder.headers_mut() {
            headers.extend(call.headers.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        builder
    }

    /// Sends a request to the owner of an object until it succeeds or fails permanently.
    pub(crate) async fn ask_owner(
        &self,
        call: &ObjectCall<'_>,
        tries: &mut Attempts,
    ) -> Result<(Response<Download>, u64)> {
        forebay_core::ObjectName::new(call.name)?;
        loop {
            match self.ask_owner_once(call, tries).await {
                Ok(answer) => return Ok(answer),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    async fn ask_owner_once(
        &self,
        call: &ObjectCall<'_>,
        tries: &mut Attempts,
    ) -> Result<(Response<Download>, u64)> {
        let map = self.map_with(call.bucket).await?;
        let info = map.state.bucket(call.bucket)?;
        let node = match placement::owner(&map.state, info, call.name) {
            Ok(node) => node,
            Err(mut e) => {
                // The map is requested, not the dead node: that is cheap, so no long pause.
                e.retry_after_s = None;
                self.maps().replace(Some(&map)).await?;
                return Err(e.into());
            }
        };
        let (upload, progress) = match call.body {
            Some(body) => body.open().await?,
            None => (Upload::empty(), Arc::<Progress>::default()),
        };
        let turn = self.inner.pace.turn().await;
        let answer = if hedging::is_read(call) {
            self.send_to_either(call, &map, node).await
        } else {
            let request = transport::finish(self.direct(call, node, &map), upload)?;
            self.transport().send_ok(&node.url, request, Some(&progress)).await
        };
        turn.end(answer.as_ref().err().map(|(e, _)| e.code()));
        match answer {
            Ok(answer) => {
                if let Some(version) = transport::map_version(answer.headers()) {
                    self.maps().saw(version);
                }
                Ok((answer, progress.sent()))
            }
            Err((e, version)) => Err(self.explain(e, version, &map, node, &tries.regranted).await),
        }
    }

    /// Returns a map that contains the bucket; an unknown cloud bucket is registered by a request
    /// to a gateway.
    pub(crate) async fn map_with(&self, bucket: &Bucket) -> Result<Arc<MapReply>> {
        let map = self.maps().get().await?;
        if map.state.bucket(bucket).is_ok() {
            return Ok(map);
        }
        let map = self.maps().replace(Some(&map)).await?;
        if map.state.bucket(bucket).is_ok() {
            return Ok(map);
        }
        let call = ControlCall {
            method: Method::HEAD,
            path: &bucket_uri(bucket),
            body: None,
            accept: None,
        };
        self.ask_gateway_once(&call).await?;
        let map = self.maps().replace(Some(&map)).await?;
        match map.state.bucket(bucket) {
            Ok(_) => Ok(map),
            Err(e) => Err(Error::Api(CoreError::new(ErrorCode::Unavailable, e.message))),
        }
    }

    /// Classifies the failure of a try, given the map that was used; refreshes that map where it
    /// may be the cause.
    pub(crate) async fn explain(
        &self,
        error: Error,
        version: Option<u64>,
        map: &Arc<MapReply>,
        node: &Node,
        regranted: &AtomicBool,
    ) -> Error {
        let Error::Api(e) = &error else {
            // No answer: the node may be gone. If the map cannot be fetched either, the next try
            // reports that.
            let _ = self.maps().replace(Some(map)).await;
            return error;
        };
        let known = map.state.version;
        match e.code {
            ErrorCode::WrongOwner => {
                let _ = self.maps().replace(Some(map)).await;
                error
            }
            ErrorCode::AccessDenied | ErrorCode::Unauthenticated
                if !regranted.swap(true, Ordering::Relaxed) =>
            {
                let _ = self.maps().replace(Some(map)).await;
                let message = format!("target {} refused the grant: {}", node.id, e.message);
                Error::Api(CoreError::new(ErrorCode::Unavailable, message))
            }
            // Either the node does not have the bucket yet, or this client does not have its
            // removal yet.
            ErrorCode::BucketNotFound | ErrorCode::RemoteBucketNotFound
                if version.is_some_and(|v| v != known) =>
            {
                if version.is_some_and(|v| v > known) {
                    let _ = self.maps().replace(Some(map)).await;
                }
                Error::Api(CoreError::new(ErrorCode::Unavailable, e.message.clone()))
            }
            code if code.is_transient() => {
                if version.is_some_and(|v| v > known) {
                    let _ = self.maps().replace(Some(map)).await;
                }
                error
            }
            _ => error,
        }
    }

    /// Sends a request to the gateways until one succeeds or fails permanently.
    pub(crate) async fn ask_gateway(&self, call: ControlCall<'_>) -> Result<Answer> {
        let mut tries = self.attempts();
        loop {
            match self.ask_gateway_once(&call).await {
                Ok(mut answer) => {
                    answer.ambiguous = tries.ambiguous;
                    return Ok(answer);
                }
                Err(Error::Api(e)) if tries.ambiguous && was_done(&call, e.code) => {
                    let headers = HeaderMap::new();
                    return Ok(Answer { headers, body: Bytes::new(), ambiguous: true });
                }
                Err(e) => tries.again(e).await?,
            }
        }
    }

    async fn ask_gateway_once(&self, call: &ControlCall<'_>) -> Result<Answer> {
        let (parts, body) = self.open_gateway(call).await?.into_parts();
        Ok(Answer { headers: parts.headers, body: body.collect().await?, ambiguous: false })
    }

    /// Sends a request to a gateway once and returns before the body of the answer is read.
    pub(crate) async fn open_gateway(&self, call: &ControlCall<'_>) -> Result<Response<Download>> {
        let base = self.maps().gateway();
        let mut builder = transport::request(call.method.clone(), &base, call.path);
        if let Some(accept) = call.accept {
            builder = builder.header(http::header::ACCEPT, accept);
        }
        let request = match &call.body {
            Some(body) => transport::json(builder, body.clone())?,
            None => transport::finish(builder, Upload::empty())?,
        };
        let answer = match self.transport().send_ok(&base, request, None).await {
            Ok(answer) => answer,
            Err((e, _)) => {
                if e.is_transient() {
                    self.maps().next_gateway();
                }
                return Err(e);
            }
        };
        if let Some(version) = transport::map_version(answer.headers()) {
            self.maps().saw(version);
        }
        Ok(answer)
    }

    /// Asks a gateway for a JSON document.
    pub(crate) async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let call = ControlCall { method: Method::GET, path, body: None, accept: None };
        let answer = self.ask_gateway(call).await?;
        parse(&answer.body)
    }
}

/// Whether this refusal, after a try whose answer was lost, means that the earlier try succeeded.
fn was_done(call: &ControlCall<'_>, code: ErrorCode) -> bool {
    match call.method {
        Method::POST => code == ErrorCode::BucketExists,
        Method::DELETE => code == ErrorCode::BucketNotFound,
        _ => false,
    }
}

/// Reads the JSON of an answer.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|e| {
        let text: String = String::from_utf8_lossy(body).chars().take(80).collect();
        Error::Api(CoreError::internal(format!("unexpected answer \"{text}\": {e}")))
    })
}

/// `http://host:port` without a trailing slash; the scheme may be left out.
fn check_endpoint(text: &str) -> Result<String> {
    let bad = |why: &str| {
        let e = CoreError::invalid(format!("invalid endpoint \"{text}\": {why}"));
        Error::Api(e.hint("for example http://127.0.0.1:7400"))
    };
    let url = match text.split_once("://") {
        Some(("http", _)) => text.to_owned(),
        Some(("https", _)) => return Err(bad("https is not supported yet")),
        Some(_) => return Err(bad("the scheme must be http")),
        None => format!("http://{text}"),
    };
    let url = url.trim_end_matches('/');
    let uri: http::Uri = url.parse().map_err(|_| bad("it is not a URL"))?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(bad("it names no host"));
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err(bad("it must not have a path"));
    }
    Ok(url.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_checked_before_anything_is_sent() {
        assert_eq!(check_endpoint("http://h:1/").unwrap(), "http://h:1");
        assert_eq!(check_endpoint("h:1").unwrap(), "http://h:1");
        for bad in ["https://h", "ftp://h", "http://", "http://h/v1", "http://h?x", "h h"] {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
        assert!(Client::new(ClientConfig::new(" , ")).is_err());
        let two = Client::new(ClientConfig::new("http://a:1, http://b:2")).unwrap();
        assert_eq!(two.endpoint(), "http://a:1");
    }
}

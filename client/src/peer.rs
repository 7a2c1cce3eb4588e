//! Requests between nodes: signed, one try each.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use http::request::Builder;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use forebay_core::batch::BatchRequest;
use forebay_core::cloud_rules::{CloudRules, RETRY_HEADER};
use forebay_core::intra::MAP_HEADER;
use forebay_core::locks::MutexExt;
use forebay_core::object::ObjectMeta;
use forebay_core::request::{REQUEST_ID_HEADER, RequestId};
use forebay_core::sign::{
    NO_BODY, NODE_AUTH_HEADER, PROOF_FORMAT_PATH, Signer, UNSIGNED_BODY, body_hash,
};
use forebay_core::size::RangeSpec;
use forebay_core::trace::{TRACEPARENT_HEADER, TraceContext};
use forebay_core::{Bucket, Error as CoreError, ErrorCode};
use forebay_v1::query::object_uri;

use crate::body::{Body, Upload};
use crate::client::parse;
use crate::download::{GetReply, Identity};
use crate::error::{Error, Result};
use crate::objects::{head_meta, range_header};
use crate::rows::RowStream;
use crate::tls::{ClientStream, TlsClient};
use crate::transport::{self, Download, Transport};

/// Timeout for a node to report which format of proofs it reads; after it, the node is asked again.
const FORMAT_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeouts of a node for other nodes: for a connection, and for a silent peer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A node's client for other nodes. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct PeerClient {
    signer: Signer,
    transport: Transport,
    acts_by: Arc<dyn Fn() -> u64 + Send + Sync>,
    works_for: Arc<dyn Fn() -> Option<RequestId> + Send + Sync>,
    traced_by: Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>,
    tls: TlsClient,
    https: Option<Arc<HttpsOf>>,
}

/// Returns the HTTPS URL of a node by its URL, if the node has to be reached over TLS.
type HttpsOf = dyn Fn(&str) -> Option<String> + Send + Sync;

impl PeerClient {
    /// A client that signs as this node.
    pub fn new(signer: Signer) -> Self {
        let tls = TlsClient::default();
        let transport = Transport::over(tls.clone(), CONNECT_TIMEOUT, IDLE_TIMEOUT);
        let (acts_by, works_for) = (Arc::new(|| 0), Arc::new(|| None));
        let traced_by = Arc::new(|| None);
        Self { signer, transport, acts_by, works_for, traced_by, tls, https: None }
    }

    /// Reaches nodes over TLS where `https` returns a URL for theirs. Signatures still name the
    /// node's own URL.
    #[must_use]
    pub fn secured(
        self,
        tls: TlsClient,
        https: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let transport = Transport::over(tls.clone(), CONNECT_TIMEOUT, IDLE_TIMEOUT);
        Self { transport, tls, https: Some(Arc::new(https)), ..self }
    }

    /// The URL at which the node at `url` is reached.
    pub fn reached_at<'a>(&self, url: &'a str) -> Cow<'a, str> {
        match self.https.as_ref().and_then(|https| https(url)) {
            Some(https) => Cow::Owned(https),
            None => Cow::Borrowed(url),
        }
    }

    /// The TLS of this node's connections to others.
    pub fn tls(&self) -> &TlsClient {
        &self.tls
    }

    /// Opens a connection of its own to the node at `url`; returns it with the value of `Host`.
    pub async fn connect(&self, url: &str) -> std::io::Result<(ClientStream, String)> {
        self.tls.connect(&self.reached_at(url), CONNECT_TIMEOUT).await
    }

    /// The key with which the client signs its requests.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The same connections with another limit on the silence of a peer.
    #[must_use]
    pub fn with_idle_timeout(&self, idle: Duration) -> Self {
        Self { transport: self.transport.with_idle(idle), ..self.clone() }
    }

    /// Sends with each request the version of the cluster's state by which this node acts, so that
    /// the other node catches up before it answers. 0: none yet.
    #[must_use]
    pub fn acting_by(self, version: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { acts_by: Arc::new(version), ..self }
    }

    /// Sends with each request the id of the client's request that causes it.
    #[must_use]
    pub fn working_for(
        self,
        request: impl Fn() -> Option<RequestId> + Send + Sync + 'static,
    ) -> Self {
        Self { works_for: Arc::new(request), ..self }
    }

    /// Sends with each request the span that causes it.
    #[must_use]
    pub fn traced_by(
        self,
        span: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        Self { traced_by: Arc::new(span), ..self }
    }

    /// Asks the node at `url` which format of proofs it reads, unless that is known: in a rolling
    /// upgrade some nodes read only the first format. If the node does not answer, its format stays
    /// unknown.
    pub async fn learn_format(&self, url: &str) {
        let now = unix_s();
        if !self.signer.should_ask_format(url, now) {
            return;
        }
        let request = transport::request(Method::GET, &self.reached_at(url), PROOF_FORMAT_PATH);
        let Ok(request) = transport::finish(request, Upload::empty()) else { return };
        let asking = self.transport.with_idle(FORMAT_TIMEOUT);
        if let Ok(answer) = asking.send(url, request, None).await {
            self.signer.note_format(url, !answer.status().is_success(), now);
        }
    }

    /// Makes sure that a node that refused a request is asked for its format again.
    fn note_refusal(&self, url: &str, e: &Error) {
        if matches!(e, Error::Api(e) if e.code == ErrorCode::AccessDenied) {
            self.signer.forget_format(url);
        }
    }

    /// POSTs a JSON document to `url` + `path` and reads one back; an empty answer reads as
    /// `null`, so `()` is a good `Resp` where none is expected.
    pub async fn post_json<Req: Serialize + ?Sized, Resp: DeserializeOwned>(
        &self,
        url: &str,
        path: &str,
        body: &Req,
    ) -> Result<Resp> {
        let answer = self.post_for_bytes(url, path, body).await?;
        parse(if answer.is_empty() { b"null" } else { &answer })
    }

    /// POSTs a JSON document and returns the answer's bytes.
    pub async fn post_for_bytes<Req: Serialize + ?Sized>(
        &self,
        url: &str,
        path: &str,
        body: &Req,
    ) -> Result<Bytes> {
        let body = to_json(body)?;
        let answer = self.send(Method::POST, url, path, HeaderMap::new(), Some(body)).await?;
        answer.into_body().collect().await
    }

    /// POSTs a JSON document; returns the headers of the answer and its bytes as a stream. The
    /// stream fails where the connection breaks.
    pub async fn post_for_stream<Req: Serialize + ?Sized>(
        &self,
        url: &str,
        path: &str,
        body: &Req,
    ) -> Result<(HeaderMap, BoxStream<'static, Result<Bytes>>)> {
        let body = to_json(body)?;
        let answer = self.send(Method::POST, url, path, HeaderMap::new(), Some(body)).await?;
        let (parts, body) = answer.into_parts();
        Ok((parts.headers, body.boxed()))
    }

    /// GETs a JSON document.
    pub async fn get_json<Resp: DeserializeOwned>(&self, url: &str, path: &str) -> Result<Resp> {
        read_json(self.send(Method::GET, url, path, HeaderMap::new(), None).await?).await
    }

    /// GETs a document that is not JSON; returns the headers of the answer and its bytes.
    pub async fn get_bytes(&self, url: &str, path: &str) -> Result<(HeaderMap, Bytes)> {
        let answer = self.send(Method::GET, url, path, HeaderMap::new(), None).await?;
        let (parts, body) = answer.into_parts();
        Ok((parts.headers, body.collect().await?))
    }

    /// GETs an answer; returns its headers, and its bytes as a stream that fails where the connection
    /// breaks.
    pub async fn get_stream(
        &self,
        url: &str,
        path: &str,
    ) -> Result<(HeaderMap, BoxStream<'static, Result<Bytes>>)> {
        let answer = self.send(Method::GET, url, path, HeaderMap::new(), None).await?;
        let (parts, body) = answer.into_parts();
        Ok((parts.headers, body.boxed()))
    }

    /// DELETEs what `path` names.
    pub async fn delete(&self, url: &str, path: &str) -> Result<()> {
        let answer = self.send(Method::DELETE, url, path, HeaderMap::new(), None).await?;
        answer.into_body().collect().await.map(drop)
    }

    /// Requests a batch from a target.
    pub async fn batch_stream(&self, url: &str, request: &BatchRequest) -> Result<RowStream> {
        self.batch_stream_by(url, request, &CloudRules::default()).await
    }

    /// Like [`Self::batch_stream`], with the request's rules for calls to backends.
    pub async fn batch_stream_by(
        &self,
        url: &str,
        request: &BatchRequest,
        cloud: &CloudRules,
    ) -> Result<RowStream> {
        let mut headers = HeaderMap::new();
        if let Some(retry) = cloud.to_header().and_then(|text| text.parse().ok()) {
            headers.insert(RETRY_HEADER, retry);
        }
        self.learn_format(url).await;
        let body = to_json(request)?;
        let hash = body_hash(&body);
        let builder = self.builder(Method::POST, url, crate::batch::PATH, headers, &hash);
        let request = transport::json(builder, body)?;
        let answer =
            self.transport.send_ok_caller_driven(url, request).await.map_err(|(e, _)| e)?;
        Ok(RowStream::new(answer.into_body()))
    }

    /// Starts reading an object at one target; the stream fails where the connection breaks.
    pub async fn get_object(
        &self,
        url: &str,
        bucket: &Bucket,
        name: &str,
        range: Option<RangeSpec>,
    ) -> Result<GetReply> {
        let path = object_uri(bucket, name);
        let answer = self.send(Method::GET, url, &path, range_header(range), None).await?;
        Ok(Identity::open(answer, range)?.plain())
    }

    /// Returns the properties of an object on one target.
    pub async fn head_object(&self, url: &str, bucket: &Bucket, name: &str) -> Result<ObjectMeta> {
        let path = format!("{}{}", object_uri(bucket, name), crate::objects::HEAD_PROPS);
        let answer = self.send(Method::HEAD, url, &path, HeaderMap::new(), None).await?;
        Ok(head_meta(answer.headers()))
    }

    /// Sends bytes to `url` + `path` by one PUT; returns their number and the headers of the
    /// answer. More or fewer bytes than `len`, if that is known, are an error.
    pub async fn put_stream(
        &self,
        url: &str,
        path: &str,
        headers: HeaderMap,
        stream: impl Stream<Item = Result<Bytes, CoreError>> + Send + 'static,
        len: Option<u64>,
    ) -> Result<(u64, HeaderMap)> {
        // A failure of the local source explains more than the failure of the transfer.
        let failure = Arc::new(Mutex::new(None));
        let noted = failure.clone();
        let stream = stream.map_err(move |e| {
            let shown = std::io::Error::other(e.to_string());
            *noted.locked() = Some(e);
            shown
        });
        let (upload, progress) = Body::once_of(stream, len).open().await.map_err(Error::Api)?;
        self.learn_format(url).await;
        let builder = self.builder(Method::PUT, url, path, headers, UNSIGNED_BODY);
        let request = transport::finish(builder, upload)?;
        let answer = self.transport.send_ok(url, request, Some(&progress)).await;
        let answer = answer.map_err(|(e, _)| {
            let source = failure.locked().take();
            source.map_or(e, Error::Api)
        })?;
        let (parts, body) = answer.into_parts();
        body.collect().await?;
        Ok((progress.sent(), parts.headers))
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        path: &str,
        headers: HeaderMap,
        json: Option<Vec<u8>>,
    ) -> Result<Response<Download>> {
        self.learn_format(url).await;
        let hash = json.as_deref().map_or_else(|| NO_BODY.to_owned(), body_hash);
        let builder = self.builder(method, url, path, headers, &hash);
        let request: Request<Upload> = match json {
            Some(body) => transport::json(builder, body)?,
            None => transport::finish(builder, Upload::empty())?,
        };
        let answer = self.transport.send_ok(url, request, None).await;
        answer.map_err(|(e, _)| e).inspect_err(|e| self.note_refusal(url, e))
    }

    /// Builds a request with a proof of this node for this body.
    fn builder(
        &self,
        method: Method,
        url: &str,
        path: &str,
        headers: HeaderMap,
        body: &str,
    ) -> Builder {
        let proof = self.signer.node_call(method.as_str(), path, body, url, unix_s());
        let base = self.reached_at(url);
        let mut builder = transport::request(method, &base, path).header(NODE_AUTH_HEADER, proof);
        if let Some(all) = builder.headers_mut() {
            all.extend(headers);
            match (self.acts_by)() {
                0 => {}
                version => drop(all.insert(MAP_HEADER, version.into())),
            }
            if let Some(Ok(id)) = (self.works_for)().map(|id| HeaderValue::from_bytes(&id.digits()))
            {
                all.insert(REQUEST_ID_HEADER, id);
            }
            if let Some(Ok(span)) = (self.traced_by)().map(|span| span.to_header().parse()) {
                all.insert(TRACEPARENT_HEADER, span);
            }
        }
        builder
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|e| Error::Api(CoreError::internal(format!("cannot be written as JSON: {e}"))))
}

async fn read_json<T: DeserializeOwned>(answer: Response<Download>) -> Result<T> {
    let body = answer.into_body().collect().await?;
    parse(if body.is_empty() { b"null" } else { &body })
}

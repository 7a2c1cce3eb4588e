//! One HTTP request and its answer: the connection pool, time-outs, and errors in answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use futures::{Stream, StreamExt, ready};
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, Sleep};

use forebay_core::cloud_rules::RETRY_HEADER;
use forebay_core::intra::{MAP_HEADER, MapReply};
use forebay_core::request::{REQUEST_ID_HEADER, RequestId};
use forebay_core::sign::GRANT_HEADER;
use forebay_core::{Error as CoreError, ErrorCode};
use forebay_v1::error::ErrorBody;
use forebay_v1::headers::HDR_ERROR;

use crate::body::{Progress, Upload};
use crate::caller_driven::{CallerDrivenPool, Driver, READ};
use crate::contact::Contact;
use crate::direct;
use crate::error::{Error, Reason, Result};
use crate::span_parent;
use crate::timeouts::ReadTimeouts;
use crate::timing::Timed;
use crate::tls::{Connector, PooledConnector, TlsClient, TlsProblem};
use crate::token::TokenSource;

/// Longest error body that is read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// How long an unused connection is kept.
const KEEP_IDLE: Duration = Duration::from_secs(30);
/// Poll interval for an answer that is slow to start.
const GLANCE: Duration = Duration::from_secs(1);

/// A successful answer, or its error with the version of the state by which the node answered.
pub(crate) type Answered = Result<Response<Download>, (Error, Option<u64>)>;

/// A pool of connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    http: HyperClient<PooledConnector, Upload>,
    caller_driven: CallerDrivenPool,
    timeouts: ReadTimeouts,
    contact: Contact,
    /// Sent with every request as `forebay-cloud-retry`.
    cloud_retry: Option<HeaderValue>,
    token: TokenSource,
}

impl Transport {
    /// A pool with the certificates that the environment names.
    #[cfg(test)]
    pub(crate) fn new(connect_timeout: Duration, idle: Duration) -> Self {
        Self::over(TlsClient::default(), connect_timeout, idle)
    }

    pub(crate) fn over(tls: TlsClient, connect_timeout: Duration, idle: Duration) -> Self {
        let connector = PooledConnector::new(tls.clone(), connect_timeout);
        let http = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .http1_max_buf_size(READ)
            .build(connector);
        let timeouts = ReadTimeouts::new(idle, Duration::MAX);
        let caller_driven = CallerDrivenPool::new(Connector { tls, timeout: connect_timeout });
        let (contact, token) = (Contact::default(), TokenSource::default());
        Self { http, caller_driven, timeouts, contact, cloud_retry: None, token }
    }

    /// The same pool with another silence timeout.
    pub(crate) fn with_idle(&self, idle: Duration) -> Self {
        Self { timeouts: self.timeouts.with_idle(idle), ..self.clone() }
    }

    /// The same pool with a limit on the time for
    /// [`PROGRESS_BYTES`](crate::timeouts::PROGRESS_BYTES) of an answer.
    pub(crate) fn with_limit(&self, limit: Duration) -> Self {
        Self { timeouts: self.timeouts.with_limit(limit), ..self.clone() }
    }

    /// The same pool, whose requests carry this token, and which records in `contact` whether it
    /// reached a cluster.
    pub(crate) fn of_client(self, contact: Contact, token: TokenSource) -> Self {
        Self { contact, token, ..self }
    }

    /// The same pool, whose requests carry these rules for retries to clouds.
    pub(crate) fn with_cloud_retry(self, retry: Option<&str>) -> Result<Self> {
        let cloud_retry = retry.map(HeaderValue::from_str).transpose().map_err(|e| {
            Error::Api(CoreError::invalid(format!("{RETRY_HEADER} cannot be sent: {e}")))
        })?;
        Ok(Self { cloud_retry, ..self })
    }

    /// Sends one request to the node at `base` and waits for the head of its answer, of any status.
    /// `progress` of an upload extends the timeout.
    pub(crate) async fn send(
        &self,
        base: &str,
        request: Request<Upload>,
        progress: Option<&Progress>,
    ) -> Result<Response<Download>> {
        let answer = self.send_once(base, request, progress).await;
        self.contact.note(base, &answer);
        answer
    }

    async fn send_once(
        &self,
        base: &str,
        mut request: Request<Upload>,
        progress: Option<&Progress>,
    ) -> Result<Response<Download>> {
        self.mark(&mut request);
        let idle = self.timeouts.idle();
        let mut answer = std::pin::pin!(self.http.request(request));
        let mut sent = 0;
        let mut quiet_since = Instant::now();
        let answer = loop {
            match tokio::time::timeout(GLANCE.min(idle), answer.as_mut()).await {
                Ok(answer) => break answer,
                Err(_) => {
                    let now = progress.map_or(0, Progress::sent);
                    if now != sent {
                        (sent, quiet_since) = (now, Instant::now());
                    } else if quiet_since.elapsed() >= idle {
                        return Err(stalled(base, idle));
                    }
                }
            }
        };
        match answer {
            Ok(response) => Ok(response.map(|body| self.download(base, body, None))),
            Err(_) if progress.is_some_and(|p| p.failure().is_some()) => {
                let local = progress.and_then(Progress::failure);
                Err(Error::Api(local.unwrap_or_else(|| CoreError::internal("sending failed"))))
            }
            Err(e) if let Some(problem) = TlsProblem::of(base, &e) => Err(Error::Tls(problem)),
            Err(e) if e.is_connect() => {
                let (is_refused, source) = (Reason::is_refusal(&e), Reason::of(&e));
                Err(Error::Connect { endpoint: base.to_owned(), is_refused, source })
            }
            Err(e) => Err(Error::Broken { endpoint: base.to_owned(), source: Reason::of(&e) }),
        }
    }

    /// Like [`Self::send`]; an answer that is not a success becomes its error, with the version of
    /// the state by which the node answered.
    pub(crate) async fn send_ok(
        &self,
        base: &str,
        request: Request<Upload>,
        progress: Option<&Progress>,
    ) -> Answered {
        let head = request.method() == Method::HEAD;
        let answer = self.send(base, request, progress).await.map_err(|e| (e, None))?;
        successful(answer, head).await
    }

    /// Like [`Self::send_ok`], for an idempotent request with a long answer: the reader drives the
    /// connection itself, so that no bytes arrive ahead of the reader.
    pub(crate) async fn send_ok_caller_driven(
        &self,
        base: &str,
        mut request: Request<Bytes>,
    ) -> Answered {
        self.mark(&mut request);
        let head = request.method() == Method::HEAD;
        let idle = self.timeouts.idle();
        let answer = match tokio::time::timeout(idle, self.caller_driven.send(request)).await {
            Ok(answer) => answer.map_err(|e| e.of(base)),
            Err(_) => Err(stalled(base, idle)),
        };
        self.contact.note(base, &answer);
        let (answer, driver) = answer.map_err(|e| (e, None))?;
        successful(answer.map(|body| self.download(base, body, Some(driver))), head).await
    }

    /// Adds the token, the rules for retries to clouds, and the caller's span, to this request.
    fn mark<B>(&self, request: &mut Request<B>) {
        span_parent::mark(request.headers_mut());
        if let Some(token) = self.token.header() {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        if let Some(retry) = &self.cloud_retry {
            request.headers_mut().insert(RETRY_HEADER, retry.clone());
        }
    }

    fn download(&self, base: &str, body: Incoming, driver: Option<Driver>) -> Download {
        let (timeouts, endpoint) = (self.timeouts, base.into());
        Download { body, driver, timeouts, wait: None, endpoint, timed: None }
    }
}

async fn successful(answer: Response<Download>, head: bool) -> Answered {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let version = map_version(answer.headers());
    Err((Error::Api(failure(answer, head).await), version))
}

/// Starts a request for a path (with its query) of the node at `base`.
pub(crate) fn request(method: Method, base: &str, path: &str) -> request::Builder {
    Request::builder()
        .method(method)
        .uri(format!("{base}{path}"))
        .header(USER_AGENT, concat!("forebay/", env!("CARGO_PKG_VERSION")))
}

/// Starts a request directly to a target: carries the grant, and the version of the state by which
/// the target was chosen, so that the target catches up before it answers.
pub(crate) fn direct(method: Method, url: &str, path: &str, map: &MapReply) -> request::Builder {
    request(method, url, path)
        .header(GRANT_HEADER, &map.grant)
        .header(MAP_HEADER, map.state.version)
}

/// Adds a body of JSON.
pub(crate) fn json<B: From<Vec<u8>>>(
    builder: request::Builder,
    body: Vec<u8>,
) -> Result<Request<B>> {
    finish(builder.header(CONTENT_TYPE, "application/json"), body.into())
}

/// Finishes a request; fails if the URL or a header is invalid.
pub(crate) fn finish<B>(builder: request::Builder, body: B) -> Result<Request<B>> {
    builder.body(body).map_err(|e| Error::Api(CoreError::invalid(format!("bad request: {e}"))))
}

/// The version of the cluster's state that a node acts by.
pub(crate) fn map_version(headers: &HeaderMap) -> Option<u64> {
    headers.get(MAP_HEADER)?.to_str().ok()?.parse().ok()
}

/// The id of the request that is answered.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<RequestId> {
    RequestId::parse(headers.get(REQUEST_ID_HEADER)?.to_str().ok()?)
}

fn stalled(endpoint: &str, idle: Duration) -> Error {
    Error::broken(endpoint, format!("no bytes for {} s", idle.as_secs_f32()))
}

/// The error that an answer without success describes.
async fn failure(answer: Response<Download>, head: bool) -> CoreError {
    let (parts, mut body) = answer.into_parts();
    let status = parts.status.as_u16();
    let retry_after = parts.headers.get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|v| v.to_str().ok()?.trim().parse::<u32>().ok());
    let request_id = request_id(&parts.headers);
    let mut error = if parts.status.is_redirection() {
        let to = parts.headers.get(LOCATION).and_then(|v| v.to_str().ok()).unwrap_or("elsewhere");
        CoreError::new(ErrorCode::WrongOwner, format!("the node redirects to {to}"))
    } else if head {
        match parts.headers.get(HDR_ERROR) {
            Some(text) => ErrorBody::read(status, text.as_bytes()),
            None => ErrorBody::read(status, b""),
        }
    } else {
        let mut text = Vec::new();
        while let Ok(Some(bytes)) = futures::TryStreamExt::try_next(&mut body).await {
            text.extend_from_slice(&bytes);
            if text.len() > MAX_ERROR_BODY {
                break;
            }
        }
        ErrorBody::read(status, &text)
    };
    error.request_id = request_id.or(error.request_id);
    // A gateway that answers before it has its state sends a 503 without a body.
    if error.retry_after_s.is_none() {
        error.retry_after_s = retry_after;
    }
    if parts.status == StatusCode::MISDIRECTED_REQUEST {
        error.code = ErrorCode::WrongOwner;
    }
    error
}

/// The body of an answer; silence for too long, or bytes that arrive too slowly, are an error.
pub(crate) struct Download {
    body: Incoming,
    /// Drives the connection if no other task does.
    driver: Option<Driver>,
    timeouts: ReadTimeouts,
    /// The current wait for bytes: its start and its timeout.
    wait: Option<(Instant, Pin<Box<Sleep>>)>,
    endpoint: Arc<str>,
    /// The exchange, if the reader is observed.
    timed: Option<Timed>,
}

impl Download {
    /// Records the arrival of the bytes in an exchange.
    pub(crate) fn observe(&mut self, timed: Timed) {
        self.timed = Some(timed);
    }

    /// The observed exchange.
    pub(crate) fn timed(&mut self) -> Option<&mut Timed> {
        self.timed.as_mut()
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Counts the bytes so far as progress for the reader, however few they are.
    pub(crate) fn progressed(&mut self) {
        self.timeouts.progressed();
    }

    /// The error for a body that ended too early.
    pub(crate) fn too_short(&self) -> Error {
        Error::broken(&self.endpoint, "fewer bytes than announced")
    }

    /// The error for a body that is longer than announced.
    pub(crate) fn too_long(&self) -> Error {
        Error::broken(&self.endpoint, "more bytes than announced")
    }

    /// Appends the rest of the body to `dest`, which must have space for it. The body is used up
    /// afterwards.
    pub(crate) async fn read_into(&mut self, dest: &mut (impl BufMut + Send)) -> Result<()> {
        let left =
            self.body.size_hint().exact().filter(|left| *left >= direct::SOCKET_READ_MIN_BYTES);
        let is_plain = self.driver.as_ref().is_some_and(Driver::is_plain);
        let bare = left.filter(|_| is_plain).and_then(|_| self.driver.take()?.bare());
        let room = dest.remaining_mut();
        while let Some(piece) = self.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                // HTTP has ended on a raw connection; the bytes that it had read were delivered
                // first.
                Err(_) if bare.is_some() => break,
                Err(e) => return Err(e),
            };
            if piece.len() > dest.remaining_mut() {
                return Err(self.too_long());
            }
            dest.put(piece);
        }
        let (Some(left), Some(bare)) = (left, bare) else { return Ok(()) };
        let left = left.saturating_sub((room - dest.remaining_mut()) as u64);
        let timeouts = &mut self.timeouts;
        let started = Instant::now();
        let read = direct::read_into(bare, left, dest, timeouts).await;
        if let Some(timed) = &mut self.timed {
            timed.came(started.elapsed());
        }
        read.map_err(|e| match e.kind() {
            std::io::ErrorKind::TimedOut => timeouts.exhausted(&self.endpoint),
            _ => Error::broken(&self.endpoint, e.to_string()),
        })
    }

    /// All of it.
    pub(crate) async fn collect(self) -> Result<Bytes> {
        let size = self.body.size_hint().exact().unwrap_or(0);
        crate::body::collect(self, size).await
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Pending, Some(driver)) = (&frame, &mut self.driver) {
            driver.drive(cx);
            frame = Pin::new(&mut self.body).poll_frame(cx);
        }
        if let Poll::Ready(None) = frame
            && let Some(driver) = self.driver.take()
        {
            driver.release();
        }
        frame
    }
}

impl Stream for Download {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let this = self.get_mut();
        loop {
            match this.poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Ok(frame))) => {
                    let waited = this.wait.take().map(|(since, _)| since.elapsed());
                    let bytes = frame.into_data();
                    let count = bytes.as_ref().map_or(0, Bytes::len) as u64;
                    this.timeouts.came(count, waited.unwrap_or_default());
                    if let Some(timed) = &mut this.timed {
                        timed.came(waited.unwrap_or_default());
                    }
                    if let Ok(bytes) = bytes {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Poll::Ready(Some(Err(e))) => {
                    let endpoint = this.endpoint.to_string();
                    return Poll::Ready(Some(Err(Error::Broken {
                        endpoint,
                        source: Reason::of(&e),
                    })));
                }
                Poll::Pending => {
                    // Armed when the wait begins, so that the reader may pause before.
                    let left = this.timeouts.left();
                    let begin = || (Instant::now(), Box::pin(tokio::time::sleep(left)));
                    let (_, timer) = this.wait.get_or_insert_with(begin);
                    ready!(timer.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(this.timeouts.exhausted(&this.endpoint))));
                }
            }
        }
    }
}

//! A request and its answer as the node measures and logs them: metrics, one log line for each
//! failure, and access lines.
//!
//! The listener makes an [`Exchange`] for each request and passes it along: to the answer's head, and
//! with the body to the answer's end. Small reads below `hyper` are counted by
//! [`Observer::small_get`] alone; they have a span only where its trace is chosen. Handlers only name
//! the operation, with [`set_operation`], where the route does not say it.

mod access_line;
mod current;
mod failures;
pub(crate) mod metrics;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::HttpBody;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use forebay_core::Error;
use forebay_core::config::LogConfig;
use forebay_core::request::{Protocol, REQUEST_ID_HEADER, RequestContext, RequestId};
use forebay_core::trace::{ChoiceReason, TraceId};

use self::access_line::AccessLine;
pub(crate) use self::current::{CurrentRequest, current, set_route, set_user};
pub use self::current::{add_written, carried, id, set_bucket, set_operation, trace_context};
use self::failures::FailureLog;
pub use self::metrics::RequestMetrics;
use self::metrics::{InFlight, Outcome, api_name};
use crate::id_share::last_id_of;
use crate::lifecycle::Lifecycle;
use crate::listener::Peer;
use crate::metric_families::Families;
use crate::trace::Tracer;
use crate::traffic::{Finished, FinishedRequest, Traffic, is_of_client};

/// The header of the id in answers of v1 and of the native API.
static OWN_ID: HeaderName = HeaderName::from_static(REQUEST_ID_HEADER);
/// The header of the id in answers of S3.
static S3_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Operations whose answers last as long as their reader wants.
const ENDLESS: [&str; 2] = ["requests_live", "overview_live"];

/// The text of a failed answer's error, for the log, where the answer has no [`Error`].
#[derive(Clone, Debug)]
pub(crate) struct ErrorText(pub(crate) String);

/// Measures and logs the requests of a node.
#[derive(Debug)]
pub struct Observer {
    metrics: RequestMetrics,
    failures: Arc<FailureLog>,
    traffic: Traffic,
    tracer: Tracer,
    /// Requests with ids up to this have an access line; 0: none.
    logged_up_to: Arc<AtomicU64>,
}

impl Default for Observer {
    /// An observer whose metrics nobody reads.
    fn default() -> Self {
        Self::new(RequestMetrics::new(&Families::default()), &LogConfig::default())
    }
}

impl Observer {
    pub fn new(metrics: RequestMetrics, config: &LogConfig) -> Self {
        let logged_up_to = Arc::new(AtomicU64::new(last_id_of(config.access_share)));
        let failures = Arc::new(FailureLog::new(config.failures_per_s));
        let (traffic, tracer) = (Traffic::default(), Tracer::default());
        Self { metrics, failures, traffic, tracer, logged_up_to }
    }

    /// Applies changed settings of the log.
    #[must_use]
    pub fn following(self, lifecycle: &Lifecycle) -> Self {
        let (logged_up_to, failures) = (self.logged_up_to.clone(), self.failures.clone());
        lifecycle.on_reload(move |config| {
            logged_up_to.store(last_id_of(config.log.access_share), Ordering::Relaxed);
            failures.set(config.log.failures_per_s);
        });
        self
    }

    /// Makes spans of the requests.
    #[must_use]
    pub fn traced_by(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Counts the requests of clients in `traffic`, too.
    #[must_use]
    pub fn counting(self, traffic: Traffic) -> Self {
        Self { traffic, ..self }
    }

    /// Whether a request has an access line. The ids of a node are spread evenly, and all nodes that a
    /// request passes decide alike.
    fn is_logged(&self, id: RequestId) -> bool {
        let last = self.logged_up_to.load(Ordering::Relaxed);
        last > 0 && id.0 <= last
    }

    /// Counts a read of an object that was answered at once, with the path and query as sent.
    pub(crate) fn small_get(
        &self,
        started: Instant,
        about: &RequestContext,
        target: &str,
        bytes: usize,
        Peer(peer): Peer,
    ) {
        let (time, id) = (started.elapsed(), about.id);
        self.metrics.gets().observe(Some(time), time);
        let status = StatusCode::OK.as_u16();
        if is_of_client(about.protocol, about.caller()) {
            self.traffic.finished(&Finished {
                from: peer,
                user: about.user(),
                operation: "get",
                status,
                is_error: false,
                sent_bytes: bytes as u64,
                written_bytes: 0,
                time,
            });
        }
        let described = || {
            let (path, query) = match target.split_once('?') {
                Some((path, query)) => (path, Some(query)),
                None => (target, None),
            };
            FinishedRequest {
                id,
                protocol: Some(about.protocol),
                api: api_name(Some(about.protocol)),
                operation: "get",
                path,
                query,
                bucket: None,
                from: peer,
                user: about.user(),
                status,
                result: Outcome::Ok.name(),
                whole: time,
                first_byte: Some(time),
                bytes: bytes as u64,
            }
        };
        self.traffic.live().publish(described);
        if self.tracer.has_small(about, time) {
            let trace = self.tracer.finish_small(about, time, |span| described().describe(span));
            self.metrics.gets().exemplify(trace, Some(time), time);
        }
        if self.is_logged(id) {
            let line = AccessLine {
                id,
                protocol: Some(Protocol::V1),
                operation: "get",
                outcome: Outcome::Ok,
                status: StatusCode::OK.as_u16(),
                method: &Method::GET,
                path: target.split_once('?').map_or(target, |(path, _)| path),
                bytes: bytes as u64,
                first_byte: Some(time),
                whole: time,
                from: peer,
                user: None,
            };
            line.write();
        }
    }

    /// Logs the answer to a connection that no HTTP server reads.
    pub(crate) fn refused_connection(&self, id: RequestId, error: &Error) {
        let status = error.code.status();
        if self.failures.admits("connection", status) {
            tracing::warn!(request_id = %id, status, error = %error, "connection refused");
        }
    }
}

/// A request and its answer. When it is dropped before the end of the answer, the client went away.
#[derive(Debug)]
pub(crate) struct Exchange {
    observer: Arc<Observer>,
    request: Arc<CurrentRequest>,
    protocol: Option<Protocol>,
    /// Whether a client sent it, and this node counts it as such.
    is_of_client: bool,
    method: Method,
    uri: Uri,
    from: IpAddr,
    started: Instant,
    in_flight: Option<InFlight>,
    first_byte: Option<Duration>,
    status: u16,
    sent: u64,
    /// Bytes of the answer, if known.
    expected: Option<u64>,
    is_over: bool,
}

impl Exchange {
    /// A request that a node received. `id` is a new one of this node.
    pub(crate) fn begin(
        observer: &Arc<Observer>,
        id: RequestId,
        method: Method,
        uri: Uri,
        Peer(from): Peer,
    ) -> Self {
        Self {
            observer: observer.clone(),
            request: CurrentRequest::new(id),
            protocol: None,
            is_of_client: false,
            method,
            uri,
            from,
            started: Instant::now(),
            in_flight: None,
            first_byte: None,
            status: 0,
            sent: 0,
            expected: None,
            is_over: false,
        }
    }

    /// Records the properties of the request, which include the id that another node gave it.
    pub(crate) fn admitted(&mut self, about: &RequestContext) -> Arc<CurrentRequest> {
        let trace = self.observer.tracer.begin(about);
        if about.id != self.request.id() || trace.is_some() {
            self.request = CurrentRequest::traced(about.id, trace);
        }
        if let Some(user) = about.user() {
            self.request.set_user(user);
        }
        self.protocol = Some(about.protocol);
        self.is_of_client = is_of_client(about.protocol, about.caller());
        self.in_flight = Some(self.observer.metrics.begin(api_name(self.protocol)));
        self.request.clone()
    }

    pub(crate) fn id(&self) -> RequestId {
        self.request.id()
    }

    /// The request, for the tasks that work for it.
    pub(crate) fn current(&self) -> Arc<CurrentRequest> {
        self.request.clone()
    }

    /// Records nothing: the request will be answered by another exchange.
    pub(crate) fn forget(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    /// Records the head of the answer and adds the request's id to it. A failure is logged.
    pub(crate) fn answered(&mut self, response: &mut Response) {
        let is_s3 = self.protocol.is_some_and(Protocol::is_s3);
        let name = if is_s3 { &S3_ID } else { &OWN_ID };
        if let Ok(id) = HeaderValue::from_bytes(&self.id().digits()) {
            response.headers_mut().insert(name, id);
        }
        let status = response.status();
        self.head(status, HttpBody::size_hint(response.body()).exact());
        if status.is_client_error() || status.is_server_error() {
            let error = response.extensions().get::<Error>().map(Error::to_string);
            let text = || response.extensions().get::<ErrorText>().map(|text| text.0.clone());
            self.failed(status, &error.or_else(text).unwrap_or_default());
        }
    }

    /// Records the head of an answer that has `expected` bytes, if that is known.
    pub(crate) fn head(&mut self, status: StatusCode, expected: Option<u64>) {
        self.first_byte = Some(self.started.elapsed());
        self.status = status.as_u16();
        self.expected = expected;
        let is_bodiless = self.method == Method::HEAD
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if is_bodiless || expected == Some(0) {
            self.end(Outcome::of_status(self.status));
        }
    }

    /// Records bytes of the body that are passed on.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
        if self.expected.is_some_and(|expected| self.sent >= expected) {
            self.complete();
        }
    }

    /// Records the end of the body.
    pub(crate) fn complete(&mut self) {
        self.end(Outcome::of_status(self.status));
    }

    /// Records that the body cannot be continued.
    pub(crate) fn broke(&mut self, why: &str) {
        if self.is_over {
            return;
        }
        let (request_id, op, path) = (self.id(), self.request.operation(), self.path());
        tracing::warn!(%request_id, op, path, sent = self.sent, error = why, "answer broke off");
        self.end(Outcome::Error);
    }

    fn end(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.in_flight = None;
        let whole = self.started.elapsed();
        let operation = self.request.operation();
        let series = self.observer.metrics.of(api_name(self.protocol), operation, outcome);
        series.observe(self.first_byte, whole);
        self.count(operation, outcome, whole);
        if let Some(trace) = self.trace(operation, outcome, whole) {
            series.exemplify(trace, self.first_byte, whole);
        }
        if self.observer.is_logged(self.id()) {
            let line = AccessLine {
                id: self.id(),
                protocol: self.protocol,
                operation,
                outcome,
                status: self.status,
                method: &self.method,
                path: self.path(),
                bytes: self.sent,
                first_byte: self.first_byte,
                whole,
                from: self.from,
                user: self.request.user(),
            };
            line.write();
        }
    }

    /// Counts the request for the overview, and shows it to those who watch requests.
    fn count(&self, operation: &'static str, outcome: Outcome, whole: Duration) {
        let (traffic, is_error) = (&self.observer.traffic, outcome == Outcome::Error);
        if self.is_of_client {
            if let Some(bucket) = self.request.bucket().filter(|_| is_error) {
                traffic.failed(bucket);
            }
            traffic.finished(&Finished {
                from: self.from,
                user: self.request.user(),
                operation,
                status: self.status,
                is_error,
                sent_bytes: self.sent,
                written_bytes: self.request.written(),
                time: whole,
            });
        }
        traffic.live().publish(|| self.described(operation, outcome, whole));
    }

    fn described(
        &self,
        operation: &'static str,
        outcome: Outcome,
        whole: Duration,
    ) -> FinishedRequest<'_> {
        FinishedRequest {
            id: self.id(),
            protocol: self.protocol,
            api: api_name(self.protocol),
            operation,
            path: self.path(),
            query: self.uri.query(),
            bucket: self.request.bucket().map(|info| &info.bucket),
            from: self.from,
            user: self.request.user(),
            status: self.status,
            result: outcome.name(),
            whole,
            first_byte: self.first_byte,
            bytes: self.sent,
        }
    }

    /// Ends the span of the request. Returns the id of its trace if that is chosen.
    fn trace(&self, operation: &'static str, outcome: Outcome, whole: Duration) -> Option<TraceId> {
        let trace = self.request.trace()?;
        let mut span = trace.server_span(self.id(), operation, whole);
        self.described(operation, outcome, whole).describe(&mut span);
        let is_slow =
            || self.is_of_client && !ENDLESS.contains(&operation) && trace.tracer().is_slow(whole);
        let reason = match outcome {
            Outcome::Error => Some(ChoiceReason::Failed),
            _ => is_slow().then_some(ChoiceReason::Slow),
        };
        trace.end(span, reason).then_some(trace.context().trace)
    }

    /// Logs a failed request.
    fn failed(&self, status: StatusCode, error: &str) {
        let (request_id, op) = (self.id(), self.request.operation());
        if !self.observer.failures.admits(op, status.as_u16()) {
            return;
        }
        let (api, method, path) = (api_name(self.protocol), &self.method, self.path());
        let (status, from) = (status.as_u16(), self.from.to_canonical());
        let user = self.request.user();
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    %request_id, api, op, status, %method, path, error, %from, user,
                    "request failed"
                )
            };
        }
        match status {
            500 => line!(error),
            501.. => line!(warn),
            _ => line!(info),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(Outcome::Aborted);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! The answer to one request: refused heads, the handler, the headers of every answer, and errors
//! in one format.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use forebay_core::audit::Reason;
use forebay_core::intra::MAP_HEADER;
use forebay_core::request::{Protocol, RequestContext, RequestId, Route};
use forebay_core::sign::{FORMAT, PROOF_FORMAT_PATH};
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, Result};
use forebay_v1::error::ErrorBody;
use forebay_v1::headers as v1;
use futures::FutureExt;

use super::external::ExternalRequest;
use super::{Handler, Peer, Server};
use crate::activity::User;
use crate::audit::Event;
use crate::drain::Waits;
use crate::edge::LastSender;
use crate::exchange::Exchange;
use crate::fast_http::{MAX_HEAD, Refusal};
use crate::forwarded::is_https;
use crate::reply::{self, Failure};
use crate::s3;
use crate::sender::{self, Sender};

/// The header on every answer.
static OWN_MAP: HeaderName = HeaderName::from_static(MAP_HEADER);

impl<H: Handler> Server<H> {
    /// Registers a client that is not a node of the cluster, until its connection ends.
    pub(crate) fn meet(&self, user: &OnceLock<User>) {
        user.get_or_init(|| self.lifecycle.activity().enter());
    }

    /// Runs the handler, then adds the headers that every answer has. Also returns the exchange, which
    /// has to see the body.
    pub(super) async fn answer(
        &self,
        mut request: Request,
        peer: Peer,
        waits: Waits,
        refusal: Option<Refusal>,
        last: &LastSender,
    ) -> (Response, Exchange) {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let (observer, id) = (self.edge.observer(), self.edge.new_id());
        let mut exchange = Exchange::begin(observer, id, method.clone(), uri.clone(), peer);
        let is_https = is_https(request.headers());
        let external = ExternalRequest::of(&self.edge, &mut request);
        let seen_from_outside = external.as_ref();
        let seen = &mut exchange;
        let answer = async {
            if let Some(refusal) = unserved(&request, refusal) {
                return refusal;
            }
            let about = match self.admitted(id, &mut request, last).await {
                Ok(about) => about,
                Err(e) => return Failure(e).into_response(),
            };
            ExternalRequest::mark(seen_from_outside, &mut request);
            let current = seen.admitted(&about);
            if says_format(&about, &request) {
                current.set_route(PROOF_FORMAT_PATH);
                return reply::text(FORMAT);
            }
            if let Err(e) = self.edge.check_boundary(&about, &mut request) {
                let sender = Sender::new(&about, peer, self.edge.audit());
                sender.record(refused_event(&subject(&method, uri.path()), Reason::from(&e)));
                return refused_by_edge(&about, e, &method, uri.path());
            }
            // Requests for objects cause no audit records that name their sender.
            if about.route == Route::Objects && !self.edge.audit().is_on() {
                // A handler may do its work before it returns a future.
                let answer = async { self.handler.answer(about, request, peer).await };
                return current.scope(answer).await;
            }
            let sender = Sender::new(&about, peer, self.edge.audit());
            let answer = async { self.handler.answer(about, request, peer).await };
            current.scope(sender.scope(recorded(answer, &method, uri.path()))).await
        };
        let mut response = self.finished(answer).await;
        self.explain(&mut response, &exchange);
        match external {
            Some(external) => {
                response = external.finish(&self.edge, response).await;
                self.explain(&mut response, &exchange);
            }
            None if is_https => self.keep_https(&mut response),
            None => {}
        }
        let version = HeaderValue::from(self.edge.maps().version());
        response.headers_mut().insert(&OWN_MAP, version);
        reply::put_retry_after(&mut response, None);
        if waits.still() {
            // No `100 Continue` was sent, so the client may omit its body: its next bytes on this
            // connection could be that body or another request. The AWS command line also mistakes
            // this status for that of the connection's next answer, and waits forever.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        exchange.answered(&mut response);
        (response, exchange)
    }

    /// The context of a request, once its sender is verified.
    async fn admitted(
        &self,
        id: RequestId,
        request: &mut Request,
        last: &LastSender,
    ) -> Result<RequestContext> {
        if let Some(about) = self.edge.admit_again(id, request, last) {
            return Ok(about);
        }
        if let Some(sender) = self.edge.unknown_sender(request) {
            self.edge.maps().learn_key(&sender).await;
            if let Some(refusal) = self.edge.refusal_of_unknown(request) {
                return Err(refusal);
            }
        }
        self.edge.admit(id, request, last)
    }

    /// The handler's answer; a panic is converted to an error.
    pub(crate) async fn finished(&self, answer: impl Future<Output = Response>) -> Response {
        AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| {
            Failure(Error::internal("the node failed to answer; see its log")).into_response()
        })
    }

    /// Makes a redirect to a node one to its HTTPS URL, if the node has one.
    pub(crate) fn keep_https(&self, response: &mut Response) {
        let headers = response.headers_mut();
        let Some(location) = headers.get(header::LOCATION).and_then(|v| v.to_str().ok()) else {
            return;
        };
        let state = self.edge.maps().load();
        let rest = |node: &Node| {
            let rest = location.strip_prefix(node.url.as_str())?;
            let is_node = rest.starts_with('/') && !node.https.is_empty();
            is_node.then(|| format!("{}{rest}", node.https))
        };
        if let Some(Ok(location)) = state.nodes.values().find_map(rest).map(HeaderValue::try_from) {
            headers.insert(header::LOCATION, location);
        }
    }

    /// Writes the error of a failed answer as a v1 body.
    pub(crate) fn explain(&self, response: &mut Response, exchange: &Exchange) {
        if response.status().is_success() {
            return;
        }
        let (method, path) = (exchange.method(), exchange.path());
        if response.extensions().get::<Error>().is_none() {
            // The router's own refusal has no body yet.
            let bare = !response.headers().contains_key(header::CONTENT_TYPE);
            if response.status() == StatusCode::METHOD_NOT_ALLOWED && bare {
                let text = format!("{method} is not served at {path}");
                response.extensions_mut().insert(Error::new(ErrorCode::MethodNotAllowed, text));
            }
        }
        let Some(error) = response.extensions().get::<Error>() else { return };
        let body = ErrorBody::new(error, method.as_str(), path, &self.edge.identity().label());
        write_error(response, method, body.of_request(exchange.id()));
    }
}

/// The refusal of a request before a handler sees it, in the form of its protocol.
fn refused_by_edge(about: &RequestContext, e: Error, method: &Method, path: &str) -> Response {
    if about.protocol.is_s3() {
        return s3::failure(about.id, &e.into(), method, path);
    }
    Failure(e).into_response()
}

/// The handler's answer. If it refuses the request for its sender, an audit record is kept. The
/// query is not part of it: it may hold signatures.
async fn recorded(answer: impl Future<Output = Response>, method: &Method, path: &str) -> Response {
    let answer = answer.await;
    let status = answer.status();
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let error = answer.extensions().get::<Error>();
        let reason = match error {
            Some(error) => Reason { status: status.as_u16(), ..Reason::from(error) },
            None => Reason { code: None, status: status.as_u16(), message: String::new() },
        };
        sender::record(refused_event(&subject(method, path), reason));
    }
    answer
}

fn subject(method: &Method, path: &str) -> String {
    format!("{method} {path}")
}

fn refused_event(subject: &str, reason: Reason) -> Event<'_> {
    let refused = Some(reason);
    Event { event: "request refused", subject, detail: "", refused, map_version: None }
}

/// The reply to a request whose head no handler may see; `refusal` is set if the request is a
/// stand-in for a refused one.
fn unserved(request: &Request, refusal: Option<Refusal>) -> Option<Response> {
    if let Some(refusal) = refusal {
        return Some(refused(refusal));
    }
    let headers = request.headers();
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if bytes.sum::<usize>() + target > MAX_HEAD {
        let text = format!("the request's head has more than {MAX_HEAD} bytes");
        let mut response = Failure(Error::invalid(text)).into_response();
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some(response);
    }
    refusal_of(request).map(refused)
}

/// The refusal of a head that `hyper` has accepted. The fast path refuses such requests before
/// `hyper` sees them; this is for nodes without it.
fn refusal_of(request: &Request) -> Option<Refusal> {
    let headers = request.headers();
    // A body with another coding would be stored in its encoded form.
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|coding| !is_chunked(coding)) || codings.next().is_some() {
        return Some(Refusal::Coding);
    }
    let is_one_host = headers.get_all(header::HOST).iter().count() == 1;
    (request.version() == Version::HTTP_11 && !is_one_host).then_some(Refusal::Host)
}

/// The answer to a refused request. The connection ends with it.
fn refused(why: Refusal) -> Response {
    let mut response = Failure(error_of(why)).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn error_of(why: Refusal) -> Error {
    match why {
        Refusal::Lengths => Error::invalid(
            "the request has more than one of Content-Length and Transfer-Encoding: \
             its body has no certain end",
        ),
        Refusal::Coding => {
            Error::unsupported("the request's body has a transfer coding other than chunked")
        }
        Refusal::Host => Error::invalid("the request has no Host header, or more than one"),
    }
}

/// Whether another node asks which format of proofs this node reads.
fn says_format(about: &RequestContext, request: &Request) -> bool {
    about.protocol == Protocol::Internal && request.uri().path() == PROOF_FORMAT_PATH
}

fn write_error(response: &mut Response, method: &Method, body: ErrorBody) {
    let text = body.to_json();
    if *method == Method::HEAD {
        v1::set(response.headers_mut(), v1::HDR_ERROR, text.trim_end());
        return;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.remove(header::CONTENT_LENGTH);
    *response.body_mut() = Body::from(text);
}

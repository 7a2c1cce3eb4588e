//! Answers that are sent without `hyper`, including their heads.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::body::HttpBody;
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use forebay_core::Error;
use forebay_core::date::format_http;
use forebay_core::intra::MAP_HEADER;
use forebay_core::request::{REQUEST_ID_HEADER, RequestContext, RequestId};
use forebay_v1::headers::{self as v1, Headers};
use futures::{FutureExt, StreamExt};

use super::connection::FastPath;
use super::head::RequestHead;
use super::piece::{Piece, Pieces};
use super::response_writer::{FastAnswer, StreamedAnswer};
use super::small_body::Taker;
use crate::activity::User;
use crate::clock::unix_ns;
use crate::edge::LastSender;
use crate::exchange::Exchange;
use crate::listener::{Handler, Peer, Server};

/// Bytes of a typical head.
const HEAD: usize = 512;

/// The part of a server that answers requests before `hyper` sees them.
pub(crate) struct FastServer<H> {
    server: Arc<Server<H>>,
    /// The client, once it is registered.
    user: Arc<OnceLock<User>>,
    /// Whether the connection is inside TLS.
    is_tls: bool,
    sender: Arc<LastSender>,
    peer: Peer,
}

impl<H: Handler> FastServer<H> {
    pub(crate) fn new(
        server: Arc<Server<H>>,
        user: Arc<OnceLock<User>>,
        sender: Arc<LastSender>,
        peer: Peer,
        is_tls: bool,
    ) -> Self {
        Self { server, user, is_tls, sender, peer }
    }

    /// The exchange of a request for an object that is answered later.
    fn begin(&self, about: &RequestContext, method: Method, target: &str) -> Option<Exchange> {
        let operation = if method == Method::PUT { "put" } else { "get" };
        let observer = self.server.edge.observer();
        let uri = target.parse().ok()?;
        let mut exchange = Exchange::begin(observer, about.id, method, uri, self.peer);
        exchange.admitted(about).set_route(operation);
        Some(exchange)
    }

    fn meet(&self) {
        if self.user.get().is_none() {
            self.server.meet(&self.user);
        }
    }
}

impl<H: Handler> FastPath for FastServer<H> {
    fn answer(&self, get: &RequestHead<'_, '_>, out: &mut Vec<u8>) -> Option<FastAnswer> {
        let started = Instant::now();
        let server = &*self.server;
        let before = out.len();
        let about = server.edge.quick(&Method::GET, get, &self.sender)?;
        let id = about.id;
        let answer = AssertUnwindSafe(|| server.handler.fast_path(&about, get, out));
        // The panic happens again in the normal path, which handles it.
        let Ok(Some(answer)) = std::panic::catch_unwind(answer) else {
            out.truncate(before);
            return None;
        };
        self.meet();
        Some(match answer {
            FastAnswer::Whole(body) => {
                end_head(out, id, server.edge.maps().version());
                let observer = server.edge.observer();
                observer.small_get(started, &about, get.target, body.len(), self.peer);
                FastAnswer::Whole(body)
            }
            FastAnswer::Streamed(answer) => {
                let mut exchange = self.begin(&about, Method::GET, get.target)?;
                let answer = AssertUnwindSafe(answer).catch_unwind();
                let server = self.server.clone();
                FastAnswer::Streamed(Box::pin(async move {
                    let Ok(Some(mut answer)) = exchange.current().scope(answer).await else {
                        exchange.forget();
                        return None;
                    };
                    end_head(&mut answer.head, id, server.edge.maps().version());
                    exchange.head(StatusCode::OK, Some(answer.len));
                    answer.body = measured(answer.body, exchange);
                    Some(answer)
                }))
            }
        })
    }

    fn take(&self, put: &RequestHead<'_, '_>) -> Option<Taker> {
        let server = self.server.clone();
        let about = server.edge.quick(&Method::PUT, put, &self.sender)?;
        let take = AssertUnwindSafe(|| server.handler.take(&about, put));
        // The panic happens again in the normal path, which handles it.
        let take = std::panic::catch_unwind(take).ok()??;
        let mut exchange = self.begin(&about, Method::PUT, put.target)?;
        self.meet();
        let is_tls = self.is_tls;
        Some(Box::new(move |body| {
            Box::pin(async move {
                let answer = exchange.current().scope(async move { take(body).await });
                let mut response = server.finished(answer).await;
                server.explain(&mut response, &exchange);
                if is_tls {
                    server.keep_https(&mut response);
                }
                exchange.answered(&mut response);
                let mut answer = written(response, server.edge.maps().version()).await?;
                answer.body = measured(answer.body, exchange);
                Some(answer)
            })
        }))
    }
}

/// The body, whose bytes the exchange sees.
fn measured(body: Pieces, mut exchange: Exchange) -> Pieces {
    body.inspect(move |piece| match piece {
        Ok(piece) => exchange.sent(piece.len()),
        Err(e) => exchange.broke(&e.to_string()),
    })
    .boxed()
}

/// The answer as it is sent without `hyper`.
async fn written(response: Response, map: u64) -> Option<StreamedAnswer> {
    let (parts, body) = response.into_parts();
    let len = HttpBody::size_hint(&body).exact()?;
    let mut head = Vec::with_capacity(HEAD);
    let mut text = v1::HeadText::new(&mut head, parts.status);
    for (name, value) in parts.headers.iter().filter(|(name, _)| **name != header::CONTENT_LENGTH) {
        text.line(name, value.as_bytes());
    }
    text.number(&header::CONTENT_LENGTH, len);
    end_head_with_map(&mut head, map);
    let body = match len {
        0 => futures::stream::empty().boxed(),
        _ => body
            .into_data_stream()
            .map(|read| read.map(Piece::from).map_err(|e| Error::internal(e.to_string())))
            .boxed(),
    };
    Some(StreamedAnswer { head, len, body })
}

/// Writes the headers that every answer of v1 has, and the end of its head.
fn end_head(out: &mut Vec<u8>, id: RequestId, map: u64) {
    let mut put = |parts: [&[u8]; 4]| parts.iter().for_each(|part| out.extend_from_slice(part));
    put([REQUEST_ID_HEADER.as_bytes(), b": ", &id.digits(), b"\r\n"]);
    end_head_with_map(out, map);
}

/// Like [`end_head`], after the request's id.
fn end_head_with_map(out: &mut Vec<u8>, map: u64) {
    let mut put = |parts: [&[u8]; 3]| parts.iter().for_each(|part| out.extend_from_slice(part));
    put([MAP_HEADER.as_bytes(), b": ", itoa::Buffer::new().format(map).as_bytes()]);
    DATE.with_borrow_mut(|(second, text)| {
        let now = unix_ns() / 1_000_000_000;
        if *second != now {
            (*second, *text) = (now, format_http(now * 1_000_000_000));
        }
        put([b"\r\ndate: ", text.as_bytes(), b"\r\n\r\n"]);
    });
}

thread_local! {
    /// A Unix second, and its HTTP form.
    static DATE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

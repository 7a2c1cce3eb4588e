//! The interface between the listener and the handlers of requests.

use std::future::Future;
use std::net::IpAddr;

use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use forebay_core::request::RequestContext;
use futures::future::{BoxFuture, Either, Ready};
use tokio_util::sync::CancellationToken;

use crate::fast_http::{FastAnswer, RequestHead};

/// Ends the connection of a request immediately, even in the middle of an answer. An extension of
/// each request that comes through `hyper`.
#[derive(Clone, Debug, Default)]
pub struct Hangup(CancellationToken);

impl Hangup {
    /// Ends the connection: the client sees a reset.
    pub fn hang_up(&self) {
        self.0.cancel();
    }

    /// Waits until the connection is hung up.
    pub async fn ended(&self) {
        self.0.cancelled().await;
    }
}

/// Extension of a request that came to this node over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverTls;

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Turns requests into answers. Errors are extensions of the answers, as
/// [`Failure`](crate::reply::Failure) puts them. Every call gets the context that the
/// [`Edge`](crate::edge::Edge) built for the request.
pub trait Handler: Send + Sync + 'static {
    fn answer(
        &self,
        about: RequestContext,
        request: Request,
        peer: Peer,
    ) -> impl Future<Output = Response> + Send;

    /// Answers a GET without `hyper`. If no wait is needed, returns the whole body, with the status
    /// line and headers in `out`; for a large body, returns a stream. Either head omits the final
    /// empty line. `None`, now or later: use [`Self::answer`]; nothing was done or counted.
    fn fast_path(
        &self,
        _about: &RequestContext,
        _get: &RequestHead<'_, '_>,
        _out: &mut Vec<u8>,
    ) -> Option<FastAnswer> {
        None
    }

    /// Accepts a PUT with a small body without `hyper`, before the body has arrived. `None`: use
    /// [`Self::answer`]; nothing was done or counted.
    fn take(&self, _about: &RequestContext, _put: &RequestHead<'_, '_>) -> Option<Take> {
        None
    }
}

/// Answers an accepted PUT once its body has arrived.
pub type Take = Box<dyn FnOnce(Bytes) -> BoxFuture<'static, Response> + Send>;

/// An answer that may be ready already. The future of an answer that waits is on the heap: a
/// request's future is moved into its connection, and a small read should not carry its size.
pub type Answer<'a> = Either<Ready<Response>, BoxFuture<'a, Response>>;

//! Handlers that run once this node has the state that the sender used.

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use forebay_node::reply::Failure;
use futures::future::BoxFuture;

use crate::state_sync::StateSync;

/// The state of routes whose handlers are [`Current`]; the handlers get `api` alone.
#[derive(Clone)]
pub(crate) struct Synced<S> {
    pub(crate) api: S,
    pub(crate) sync: StateSync,
}

/// A handler that first gets at least the state that the sender used.
#[derive(Clone)]
pub(super) struct Current<H>(pub(super) H);

impl<H, T, S> Handler<T, Synced<S>> for Current<H>
where
    H: Handler<T, S>,
    S: Send + 'static,
{
    type Future = BoxFuture<'static, Response>;

    fn call(self, request: Request, state: Synced<S>) -> Self::Future {
        Box::pin(async move {
            let Synced { api, sync } = state;
            match sync.catch_up(request.headers(), request.uri()).await {
                Ok(()) => self.0.call(request, api).await,
                Err(e) => Failure(e).into_response(),
            }
        })
    }
}

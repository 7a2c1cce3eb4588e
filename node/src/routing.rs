//! Routers that are built from the table of routes: a route exists only with its rule, which is
//! checked before the handler runs.

use std::convert::Infallible;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, on};
use forebay_core::Result;
use forebay_core::request::RequestContext;
use forebay_core::sign::not_a_node;
use forebay_routes::{Rule, Verb};
use futures::future::{Either, Ready, ready};

use crate::exchange;
use crate::reply::Failure;

/// Routes without the state of their handlers.
pub struct RouteSet<S> {
    router: Router<S>,
    rules: Vec<&'static Rule>,
}

impl<S: Clone + Send + Sync + 'static> Default for RouteSet<S> {
    fn default() -> Self {
        Self { router: Router::new(), rules: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> RouteSet<S> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves the requests of a rule by `handler`, once the rule admits them.
    #[must_use]
    pub fn on<H, T>(mut self, rule: &'static Rule, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let admitted = method_router(rule.verb, Admitted { rule, handler });
        for path in rule.paths {
            self.router = self.router.route(path, admitted.clone());
        }
        self.rules.push(rule);
        self
    }

    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.rules.extend(other.rules);
        self
    }

    /// The rules of all routes, in the order in which they were added.
    pub fn rules(&self) -> &[&'static Rule] {
        &self.rules
    }

    /// Gives the handlers their state.
    #[must_use]
    pub fn with_state(self, state: S) -> GuardedRouter {
        GuardedRouter(self.router.with_state(state))
    }
}

/// A router that has only routes with a rule.
#[derive(Clone, Default)]
pub struct GuardedRouter(Router);

impl GuardedRouter {
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self(self.0.merge(other.0))
    }

    /// Sets the maximum size of the bodies that extractors read.
    #[must_use]
    pub fn with_body_limit(self, bytes: usize) -> Self {
        Self(self.0.layer(DefaultBodyLimit::max(bytes)))
    }

    /// The router itself, to serve it.
    pub(crate) fn into_inner(self) -> Router {
        self.0
    }

    /// Answers a request, whose context is in its extensions.
    pub async fn answer(&mut self, request: Request) -> Response {
        let Ok(response) = tower_service::Service::call(&mut self.0, request).await;
        response
    }
}

fn method_router<H, T, S>(verb: Verb, handler: H) -> MethodRouter<S, Infallible>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    let filter = match verb {
        Verb::Get => MethodFilter::GET,
        Verb::Head => MethodFilter::HEAD,
        Verb::Post => MethodFilter::POST,
        Verb::Put => MethodFilter::PUT,
        Verb::Delete => MethodFilter::DELETE,
        Verb::Patch => MethodFilter::PATCH,
        Verb::Options => MethodFilter::OPTIONS,
        Verb::Any => return any(handler),
    };
    on(filter, handler)
}

/// A handler behind a rule.
#[derive(Clone)]
struct Admitted<H> {
    rule: &'static Rule,
    handler: H,
}

impl<H, T, S> Handler<T, S> for Admitted<H>
where
    H: Handler<T, S>,
{
    type Future = Either<Ready<Response>, H::Future>;

    fn call(self, request: Request, state: S) -> Self::Future {
        exchange::set_route(self.rule.operation);
        match admit(self.rule, &request) {
            Ok(()) => Either::Right(self.handler.call(request, state)),
            Err(e) => Either::Left(ready(Failure(e).into_response())),
        }
    }
}

fn admit(rule: &'static Rule, request: &Request) -> Result<()> {
    // Every request has a context; one without is refused like one without a proof.
    let about = request.extensions().get::<RequestContext>().ok_or_else(not_a_node)?;
    rule.admit(about, request.uri().path(), request.uri().query())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::body::Body;
    use axum::http::Method;
    use forebay_core::access::Access;
    use forebay_core::request::{Caller, Principal, Protocol, RequestId, Route};
    use forebay_routes::{internal, operations, v1_objects};

    use super::*;

    async fn status(method: Method, path: &str, access: Access) -> u16 {
        let mut router = RouteSet::<()>::new()
            .on(&operations::HEALTHZ, || async { "ok" })
            .on(&v1_objects::GET, || async { "bytes" })
            .on(&v1_objects::PUT, || async { "done" })
            .on(&internal::STATE, || async { "state" })
            .with_state(());
        let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(RequestContext {
            id: RequestId(1),
            protocol: Protocol::V1,
            route: Route::Other,
            principal: Principal { access, ..Principal::new(Caller::Anonymous) },
            trace: None,
        });
        router.answer(request).await.status().as_u16()
    }

    #[tokio::test]
    async fn a_handler_runs_only_after_its_rule_admits_the_request() {
        let object = "/v1/objects/b/x";
        for (access, expected) in [(Access::Open, 200), (Access::Anonymous, 401)] {
            assert_eq!(status(Method::GET, object, access.clone()).await, expected);
            assert_eq!(status(Method::PUT, object, access).await, expected);
        }
        assert_eq!(status(Method::GET, "/healthz", Access::Anonymous).await, 200);
        assert_eq!(status(Method::POST, "/internal/v1/state", Access::Open).await, 403);
        assert_eq!(status(Method::DELETE, object, Access::Anonymous).await, 405);
    }
}

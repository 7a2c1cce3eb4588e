//! The description of the API, which is generated from the table of routes.

use axum::response::Response;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::document;
use forebay_routes::operations::OPENAPI;

pub(crate) fn router() -> GuardedRouter {
    routes().with_state(())
}

pub(crate) fn routes() -> RouteSet<()> {
    RouteSet::new().on(&OPENAPI, show)
}

async fn show() -> Response {
    json(&document(env!("CARGO_PKG_VERSION")))
}

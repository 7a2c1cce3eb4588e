//! Parts of v1 that this version does not have: a clear refusal in the form that its
//! clients expect.

use axum::Router;
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::Response;
use axum::routing::any;
use forebay_core::{Error, Result};
use forebay_node::metrics::Metrics;
use forebay_node::reply::json;

use super::counted;

pub(crate) fn router(metrics: Metrics) -> Router {
    Router::new()
        .route("/v1/sort", any(dsort))
        .route("/v1/sort/{*rest}", any(dsort))
        .with_state(metrics)
}

async fn dsort(State(metrics): State<Metrics>, method: Method, uri: Uri) -> Response {
    counted(&metrics, "v1", "dsort", none_or_refusal("dsort", &method, &uri))
}

/// Clients that list all kinds of jobs ask here too: there are none.
fn none_or_refusal(what: &str, method: &Method, uri: &Uri) -> Result<Response> {
    if method == Method::GET && !uri.query().is_some_and(|q| q.contains("uuid=")) {
        return Ok(json(&Vec::<()>::new()));
    }
    Err(Error::unsupported(format!("{what} is not served yet")))
}

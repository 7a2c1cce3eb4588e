//! Health, readiness and metrics of a gateway.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use forebay_core::v1::headers as v1;
use forebay_node::clock::unix_ns;
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_node::reply::with_type;

use crate::meta::MetaLog;
use crate::meta::group::Group;
use crate::metric_sums;
use crate::raw_http;

/// A target that does not give its numbers within this time is left out of the sums.
const SCRAPE_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Daemon {
    pub(crate) maps: Maps,
    pub(crate) identity: Identity,
    pub(crate) metrics: Metrics,
    pub(crate) group: Group,
}

pub(crate) fn router(state: Daemon) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/v1/health", get(health))
        .route("/metrics", get(metrics))
        .with_state(state)
}

/// Ready once the cluster's state is known here and this gateway votes: whoever stops gateways one after
/// the other waits for that, or would leave too few to decide anything.
fn readiness(state: &Daemon) -> Response {
    let knows = state.maps.version() > 0 && state.maps.primary().is_some();
    let ready = knows && state.group.has_voter(&state.identity.url);
    if ready { "ok\n".into_response() } else { StatusCode::SERVICE_UNAVAILABLE.into_response() }
}

async fn ready(State(state): State<Daemon>) -> Response {
    readiness(&state)
}

async fn health(State(state): State<Daemon>) -> Response {
    let mut response = readiness(&state);
    let cluster = unix_ns().saturating_sub(state.maps.load().created_ns);
    let headers = response.headers_mut();
    v1::set(headers, v1::NODE_UPTIME, &state.identity.uptime_ns().to_string());
    v1::set(headers, v1::CLUSTER_UPTIME, &cluster.to_string());
    response
}

/// The gateway's own numbers, and the sums over the targets that answer.
async fn metrics(State(state): State<Daemon>) -> Response {
    let snapshot = state.maps.load();
    let none = HeaderMap::new();
    let asked = snapshot.alive_targets().map(|node| {
        let none = &none;
        async move { raw_http::get(&node.url, "/metrics", none, SCRAPE_WITHIN).await }
    });
    let answers = futures::future::join_all(asked).await;
    let pages: Vec<String> = answers
        .into_iter()
        .filter_map(|a| a.ok().filter(|a| a.status().is_success()))
        .map(|a| String::from_utf8_lossy(a.body()).into_owned())
        .collect();
    let text = state.metrics.render() + &metric_sums::sum(&pages);
    with_type("text/plain; version=0.0.4", text)
}

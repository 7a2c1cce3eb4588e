//! Requests about the node itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use forebay_core::intra::{DiskCommand, DiskStatus};
use forebay_core::state::{ClusterState, Node, ShownUrls};
use forebay_core::traffic::LiveFilter;
use forebay_core::{Error, Result, membership};
use forebay_node::checks::{self, Check};
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::shown_urls;
use forebay_node::logs;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_node::open_metrics;
use forebay_node::reply::{Failure, json, text};
use forebay_node::routing::RouteSet;
use forebay_node::traffic::{StreamLimit, requests_stream};
use forebay_routes::{internal, operations, v1_cluster};
use forebay_v1::cluster::{node_json, smap_json};
use forebay_v1::headers as v1;
use forebay_v1::query::Query;

use super::synced::{Current, Synced};
use crate::disks::DiskAdmin;
use crate::object::ObjectService;

/// The services for requests about the node; cheap to clone.
#[derive(Clone)]
pub(crate) struct DaemonApi {
    pub(crate) maps: Maps,
    pub(crate) identity: Identity,
    pub(crate) objects: ObjectService,
    pub(crate) disks: DiskAdmin,
    pub(crate) metrics: Metrics,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) streams: StreamLimit,
}

/// Requests that need no particular state of the cluster.
pub(crate) fn routes() -> RouteSet<DaemonApi> {
    RouteSet::new()
        .on(&internal::STATE, state)
        .on(&internal::INSTANCE, instance)
        .on(&internal::TRAFFIC, traffic)
        .on(&internal::TRAFFIC_HISTORY, traffic_history)
        .on(&internal::REQUESTS_LIVE, requests)
        .on(&v1_cluster::DAEMON, daemon)
        .on(&operations::HEALTH, health)
        .on(&operations::HEALTHZ, || async { "ok\n" })
        .on(&operations::READYZ, ready)
        .on(&operations::METRICS, metrics)
}

/// Commands of gateways.
pub(crate) fn commands() -> RouteSet<Synced<DaemonApi>> {
    RouteSet::new().on(&internal::DISKS, Current(disks)).on(&internal::STOP, Current(stop))
}

/// Receives a newer state of the cluster, ahead of the next heartbeat.
async fn state(State(api): State<DaemonApi>, Json(state): Json<ClusterState>) -> Response {
    api.maps.offer(state);
    json(&serde_json::Value::Null)
}

/// The traffic of the last seconds.
async fn traffic(State(api): State<DaemonApi>) -> Response {
    json(&api.metrics.traffic().window())
}

/// The traffic of the last minutes.
async fn traffic_history(State(api): State<DaemonApi>) -> Response {
    json(&api.metrics.traffic().history())
}

/// The requests that this target finishes, until the gateway that asks leaves.
async fn requests(
    State(api): State<DaemonApi>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let filter = LiveFilter::parse(query.as_deref())?;
    let (permit, stop) = (api.streams.begin()?, api.lifecycle.token());
    Ok(requests_stream(api.metrics.traffic(), &api.identity.id, filter, permit, stop))
}

/// The id of this process.
async fn instance(State(api): State<DaemonApi>) -> Response {
    json(&api.identity.instance)
}

/// `GET /v1/daemon?what=…`: clients that read directly fetch the cluster map from here too.
async fn daemon(
    State(api): State<DaemonApi>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref());
    let state = match (shown_urls(&headers), api.maps.load()) {
        (ShownUrls::Own, map) => map,
        (urls, map) => Arc::new(urls.in_state(map.as_ref().clone())),
    };
    match query.get("what") {
        Some("smap") => {
            let primary = api
                .maps
                .primary()
                .ok_or_else(|| Error::unavailable("this target has not joined a cluster yet"))?;
            Ok(json(&smap_json(&state, &primary)))
        }
        Some("snode") => match state.node(&api.identity.id) {
            Some(node) => Ok(json(&node_json(node))),
            None => Err(Error::unavailable("this target has not joined a cluster yet").into()),
        },
        Some("log") => Ok(logs::answer(&query, api.identity.id.as_str())?),
        Some("software_version") => Ok(text(env!("CARGO_PKG_VERSION"))),
        what => {
            let what = what.unwrap_or("");
            Err(Error::invalid(format!("a target does not answer what={what}")).into())
        }
    }
}

/// `GET /v1/health`.
async fn health(State(api): State<DaemonApi>) -> Response {
    let mut response = readiness(&api);
    let uptime = api.identity.uptime_ns().to_string();
    v1::set(response.headers_mut(), v1::NODE_UPTIME, &uptime);
    v1::set(response.headers_mut(), v1::CLUSTER_UPTIME, &uptime);
    response
}

/// Ready once it is a member and has the cluster's state.
async fn ready(State(api): State<DaemonApi>, RawQuery(query): RawQuery) -> Response {
    checks::answer(&checks_of(&api), query.as_deref())
}

fn readiness(api: &DaemonApi) -> Response {
    checks::answer(&[joined(api)], None)
}

fn joined(api: &DaemonApi) -> Check {
    let (state, me) = (api.maps.load(), &api.identity);
    let is_me = |node: &&Node| membership::check_instance(node, me.instance).is_ok();
    let joined = state.node(&me.id).filter(is_me).is_some_and(|node| node.alive);
    let detail = match joined {
        true => "an alive member of the cluster",
        false => "not a member yet, or reported as down",
    };
    Check::required("joined", joined, detail)
}

fn checks_of(api: &DaemonApi) -> Vec<Check> {
    let version = api.maps.version();
    let disks = api.disks.show();
    let used = disks.iter().filter(|disk| disk.state == DiskStatus::InUse).count();
    let of_all = format!("{used} of {} disks in use", disks.len());
    vec![
        joined(api),
        Check::shown("map", version > 0, format!("version {version}")),
        Check::shown("disks", used == disks.len() && used > 0, of_all),
    ]
}

async fn metrics(State(api): State<DaemonApi>, headers: HeaderMap) -> Response {
    let usage = api.objects.usage();
    api.metrics.store(usage.objects, usage.bytes, usage.budget);
    let disks = api.disks.show();
    let file_systems = disks.iter().filter_map(|d| Some((d.path.as_str(), d.file_system?)));
    api.metrics.file_systems(file_systems);
    for state in DiskStatus::ALL {
        let count = disks.iter().filter(|disk| disk.state == state).count();
        api.metrics.disks(state.as_str(), count as u64);
    }
    open_metrics::answer(&headers, &api.metrics, api.metrics.render())
}

/// A command about the disks of this target.
async fn disks(
    State(api): State<DaemonApi>,
    Json(command): Json<DiskCommand>,
) -> Result<Response, Failure> {
    Ok(json(&api.disks.act(command).await?))
}

/// Ends this process, as a signal would.
async fn stop(State(api): State<DaemonApi>) -> Response {
    tracing::info!("stopping: this target leaves the cluster, or received a stop request");
    api.lifecycle.token().cancel();
    json(&serde_json::Value::Null)
}

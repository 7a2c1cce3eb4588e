//! Health, readiness and metrics of a gateway.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use forebay_client::PeerClient;
use forebay_core::locks::MutexExt;
use forebay_core::state::{ClusterState, Node, NodeStatus, Role};
use forebay_core::stopping::{self, Situation};
use forebay_core::{Error, ErrorCode, NodeId};
use forebay_node::checks::{self, Check};
use forebay_node::clock::unix_ns;
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_node::open_metrics;
use forebay_node::reply::{Failure, json as json_answer};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::operations;
use forebay_v1::headers as v1;
use forebay_v1::query::Query;
use serde_json::json;

use crate::cluster::leadership::{LeaderWatch, Leadership};
use crate::cluster_view::ClusterView;
use crate::meta::MetaLog;
use crate::meta::group::Group;
use crate::metric_sums::{self, ClusterGauge, Sums};

/// A target that does not return its metrics within this time is left out of the sums.
const SCRAPE_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Daemon {
    pub(crate) maps: Maps,
    pub(crate) identity: Identity,
    pub(crate) peer: PeerClient,
    pub(crate) metrics: Metrics,
    pub(crate) group: Group,
    pub(crate) leadership: LeaderWatch,
    pub(crate) sums: Arc<Mutex<Sums>>,
}

pub(crate) fn router(state: Daemon) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Daemon> {
    RouteSet::new()
        .on(&operations::HEALTHZ, || async { "ok\n" })
        .on(&operations::READYZ, ready)
        .on(&operations::CLUSTERZ, clusterz)
        .on(&operations::HEALTH, health)
        .on(&operations::METRICS, metrics)
}

/// Ready once the cluster's state is known here and this gateway votes. A rolling restart of
/// gateways waits for that; otherwise too few voters could remain.
fn readiness(state: &Daemon) -> Response {
    checks::answer(&required_checks(state), None)
}

fn required_checks(state: &Daemon) -> Vec<Check> {
    let (version, primary) = (state.maps.version(), state.maps.primary());
    let votes = state.group.has_voter(&state.identity.url);
    let leader =
        primary.as_ref().map_or("no leader is known".to_owned(), |id| format!("led by {id}"));
    vec![
        Check::required("map", version > 0, format!("version {version}")),
        Check::required("leader", primary.is_some(), leader),
        Check::required("vote", votes, if votes { "this gateway votes" } else { "no vote yet" }),
    ]
}

async fn ready(State(state): State<Daemon>, RawQuery(query): RawQuery) -> Response {
    let (voters, reachable) = votes_of(&state.maps.load(), &state.leadership.now(), &state.group);
    let quorum = format!("{reachable} of {voters} voting gateways are alive");
    let mut checks = required_checks(&state);
    checks.push(Check::shown("quorum", reachable * 2 > voters, quorum));
    let cluster = state.maps.load();
    let (all, alive) = (cluster.targets().count(), cluster.alive_targets().count());
    let targets = format!("{alive} of {all} targets are alive");
    checks.push(Check::shown("targets", alive > 0 && alive == all, targets));
    checks::answer(&checks, query.as_deref())
}

/// Numbers of voting gateways, and of those that are alive.
fn votes_of(state: &ClusterState, leadership: &Leadership, group: &Group) -> (usize, usize) {
    let alive: Vec<_> = state.gateways().filter(|node| node.alive).map(|node| &node.url).collect();
    let voters: Vec<_> = group.seats().into_iter().filter(|seat| seat.votes).collect();
    let reachable = match leadership {
        // Without a leader the state does not change, whatever dies: this gateway is all that is known.
        Leadership::Waiting => 1,
        _ => voters.iter().filter(|seat| alive.contains(&&seat.url)).count(),
    };
    (voters.len(), reachable)
}

/// Whether a node may be stopped, 200 or 412 with the reasons; without a node, whether the cluster
/// serves requests.
async fn clusterz(
    State(state): State<Daemon>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref());
    let (cluster, leadership) = (state.maps.load(), state.leadership.now());
    let led = matches!(leadership, Leadership::Leading(_) | Leadership::Following(_));
    let (voters, alive) = votes_of(&cluster, &leadership, &state.group);
    let Some(id) = query.get("stopping") else {
        let serves = led && cluster.alive_targets().next().is_some();
        let targets = (cluster.alive_targets().count(), cluster.targets().count());
        let shown = json!({
            "serves": serves, "led": led, "voters": voters, "voters_alive": alive,
            "targets": targets.1, "targets_alive": targets.0,
        });
        return Ok(with_status(&shown, serves, StatusCode::SERVICE_UNAVAILABLE));
    };
    let id = NodeId::new(id)?;
    let node = cluster.node(&id).ok_or_else(|| {
        Error::new(ErrorCode::NodeNotFound, format!("node {id} does not exist in this cluster"))
    })?;
    let Daemon { maps, leadership, peer, identity, .. } = state.clone();
    let info = ClusterView { maps, leadership, peer, identity }.info().await?;
    let reported = info.nodes.iter().find(|known| known.id == id && known.usage.is_known());
    let has_vote = state.group.has_voter(&node.url) && node.alive;
    let reasons = stopping::reasons(
        &cluster,
        node,
        &Situation {
            led,
            voters,
            remaining_votes: alive.saturating_sub(usize::from(has_vote)),
            objects: reported.map(|node| node.usage.objects),
        },
    );
    let shown = json!({ "node": id, "safe": reasons.is_empty(), "reasons": reasons });
    // A status of an error would hide the reasons from clients that read only the body of a success.
    let status = match query.flag("report") {
        true => StatusCode::OK,
        false => StatusCode::PRECONDITION_FAILED,
    };
    Ok(with_status(&shown, reasons.is_empty(), status))
}

fn with_status(shown: &serde_json::Value, is_good: bool, otherwise: StatusCode) -> Response {
    let mut response = json_answer(shown);
    if !is_good {
        *response.status_mut() = otherwise;
    }
    response
}

async fn health(State(state): State<Daemon>) -> Response {
    let mut response = readiness(&state);
    let cluster = unix_ns().saturating_sub(state.maps.load().created_ns);
    let headers = response.headers_mut();
    v1::set(headers, v1::NODE_UPTIME, &state.identity.uptime_ns().to_string());
    v1::set(headers, v1::CLUSTER_UPTIME, &cluster.to_string());
    response
}

/// The gateway's own metrics, the sums over the targets that reply, and the gateway's view of the
/// cluster.
async fn metrics(State(state): State<Daemon>, headers: HeaderMap) -> Response {
    let snapshot = state.maps.load();
    let asked = snapshot.alive_targets().map(|node| {
        let page = state.peer.get_bytes(&node.url, "/metrics");
        async move {
            let (_, page) = tokio::time::timeout(SCRAPE_WITHIN, page).await.ok()?.ok()?;
            Some((node.id.to_string(), String::from_utf8_lossy(&page).into_owned()))
        }
    });
    let answers = futures::future::join_all(asked).await;
    let pages: Vec<(String, String)> = answers.into_iter().flatten().collect();
    let members = snapshot.targets().map(|node| node.id.as_str());
    // After a panic, the stored sums are still valid.
    let sums = state.sums.locked().render(&pages, members);
    let leadership = state.leadership.now();
    let text = state.metrics.render()
        + &sums
        + &seen(&snapshot, &leadership)
        + &votes(&snapshot, &leadership, &state.group);
    open_metrics::answer(&headers, &state.metrics, text)
}

/// Metrics of this gateway's view of the cluster.
fn seen(state: &ClusterState, leadership: &Leadership) -> String {
    let is = |yes: bool| vec![(String::new(), u64::from(yes))];
    let (leads, led) = match leadership {
        Leadership::Leading(_) => (true, true),
        Leadership::Following(_) => (false, true),
        Leadership::Waiting => (false, false),
    };
    let mut nodes = Vec::new();
    for (role, word) in [(Role::Gateway, "gateway"), (Role::Target, "target")] {
        for status in NodeStatus::ALL {
            let status_of = |node: &&Node| node.role == role && node.status() == status;
            let count = state.nodes.values().filter(status_of).count() as u64;
            let labels = format!("{{role=\"{word}\",state=\"{}\"}}", status.as_str());
            nodes.push((labels, count));
        }
    }
    metric_sums::gauge(ClusterGauge::Leading, &is(leads))
        + &metric_sums::gauge(ClusterGauge::HasLeader, &is(led))
        + &metric_sums::gauge(ClusterGauge::Nodes, &nodes)
        + &clocks(state, leadership)
}

/// Metrics of the group of gateways that decides about metadata.
fn votes(state: &ClusterState, leadership: &Leadership, group: &Group) -> String {
    let (voters, reachable) = votes_of(state, leadership, group);
    let is = |value: u64| vec![(String::new(), value)];
    metric_sums::gauge(ClusterGauge::Voters, &is(voters as u64))
        + &metric_sums::gauge(ClusterGauge::VotersReachable, &is(reachable as u64))
        + &metric_sums::gauge(ClusterGauge::Term, &is(group.term()))
}

/// Clock offsets of the nodes that are alive, which report to the leading gateway; other gateways have no
/// such series. The last report of a dead node may be wrong by now.
fn clocks(state: &ClusterState, leadership: &Leadership) -> String {
    let Leadership::Leading(lead) = leadership else { return String::new() };
    let usage = lead.members.usage();
    let is_alive = |id: &NodeId| state.node(id).is_some_and(|node| node.alive);
    let samples: Vec<_> = usage
        .iter()
        .filter(|(id, _)| is_alive(id))
        .filter_map(|(id, usage)| Some((format!("{{node=\"{id}\"}}"), usage.clock?.seconds())))
        .collect();
    match samples.is_empty() {
        true => String::new(),
        false => metric_sums::gauge(ClusterGauge::ClockOffset, &samples),
    }
}

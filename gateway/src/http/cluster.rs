//! `/v1/daemon` and `/v1/cluster`: the map, buckets' metadata, configuration, nodes and their
//! numbers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Method};
use axum::response::Response;
use forebay_core::access::Access;
use forebay_core::intra::{ClusterInfo, NodeInfo};
use forebay_core::state::{ClusterState, Node, Role, ShownUrls};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::identity::Identity;
use forebay_node::listener::shown_urls;
use forebay_node::logs;
use forebay_node::maps::Maps;
use forebay_node::reply::{json, text};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::v1_cluster as rules;
use forebay_v1::action::ActionMsg;
use forebay_v1::cluster::{config_json, node_config_json, node_json, smap_json};
use forebay_v1::headers::NODE_ID;
use forebay_v1::query::Query;
use serde_json::{Map, Value, json};

use super::admin::Admin;
use super::disks::DisksFront;
use super::node_status::{self, bmd, mountpaths, sysinfo};
use super::{MAX_CONTROL, access_of, answered, done, jobs, read_body};
use crate::cluster_view::ClusterView;

/// Timeout for another node to answer a forwarded request.
const RELAY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct ClusterFront {
    pub(crate) maps: Maps,
    pub(crate) view: ClusterView,
    pub(crate) disks: DisksFront,
    pub(crate) jobs: jobs::JobsFront,
    pub(crate) admin: Admin,
    pub(crate) identity: Identity,
}

pub(crate) fn router(state: ClusterFront) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<ClusterFront> {
    RouteSet::new()
        .on(&rules::DAEMON, daemon)
        .on(&rules::NODE_CONTROL, node_control)
        .on(&rules::REVERSE, reverse)
        .on(&rules::REVERSE_PUT, node_control)
        .on(&rules::REVERSE_CONTROL, node_control)
        .on(&rules::CLUSTER, cluster)
        .on(&rules::CLUSTER_PUT, control)
        .on(&rules::CLUSTER_CONTROL, control_by_path)
}

/// To whom an answer is shown, and by which URLs of nodes.
struct Viewer {
    access: Access,
    urls: ShownUrls,
}

impl Viewer {
    fn of(headers: &HeaderMap, extensions: &Extensions) -> Self {
        Self { access: access_of(extensions), urls: shown_urls(headers) }
    }

    /// The state with the URLs of the answer.
    fn state(&self, state: &Arc<ClusterState>) -> Arc<ClusterState> {
        match &self.urls {
            ShownUrls::Own => state.clone(),
            urls => Arc::new(urls.in_state(state.as_ref().clone())),
        }
    }
}

/// The state and the nodes' reports, read at the same time.
struct Snapshot {
    state: Arc<ClusterState>,
    info: ClusterInfo,
}

impl ClusterFront {
    async fn snapshot(&self, viewer: &Viewer) -> Result<Snapshot> {
        let info = self.view.info().await?;
        Ok(Snapshot { state: viewer.state(&self.maps.load()), info })
    }
}

impl Snapshot {
    fn node(&self, id: &NodeId) -> Result<(&Node, &NodeInfo)> {
        let unknown = || unknown_node(id);
        let node = self.state.node(id).ok_or_else(unknown)?;
        let report = self.info.nodes.iter().find(|n| n.id == *id).ok_or_else(unknown)?;
        Ok((node, report))
    }

    /// One document for each node of a role.
    fn by_node(&self, role: Role, make: impl Fn(&Node, &NodeInfo) -> Value) -> Value {
        let nodes = self.info.nodes.iter().filter(|n| n.role == role);
        let docs = nodes.filter_map(|report| {
            let node = self.state.node(&report.id)?;
            Some((node.id.to_string(), make(node, report)))
        });
        Value::Object(docs.collect::<Map<_, _>>())
    }
}

async fn daemon(State(state): State<ClusterFront>, request: Request) -> Response {
    let query = Query::parse(request.uri().query());
    let me = state.identity.id.clone();
    let viewer = Viewer::of(request.headers(), request.extensions());
    let result = about_node(&state, &me, &query, &viewer).await;
    answered("daemon", result)
}

/// Answers that need only the map, also while no gateway leads.
fn from_map(
    state: &ClusterFront,
    id: &NodeId,
    what: &str,
    viewer: &Viewer,
) -> Result<Option<Response>> {
    let map = state.maps.load();
    // A copy of the whole state, so only for answers with URLs.
    let shown = || viewer.state(&map);
    let primary = state.maps.primary();
    let primary = primary.ok_or_else(|| Error::unavailable("this gateway knows no leader yet"))?;
    Ok(Some(match what {
        "smap" => json(&smap_json(&shown(), &primary)),
        "bmd" => json(&bmd(&map, &viewer.access)),
        "snode" => json(&node_json(shown().node(id).ok_or_else(|| unknown_node(id))?)),
        "cluster_config" => json(&config_json(&shown(), &primary)),
        _ => return Ok(None),
    }))
}

fn unknown_node(id: &NodeId) -> Error {
    Error::new(ErrorCode::NodeNotFound, format!("node {id} does not exist in this cluster"))
}

/// Answers that this gateway can give for any node; `what` as in §4.3.
async fn about_node(
    state: &ClusterFront,
    id: &NodeId,
    query: &Query,
    viewer: &Viewer,
) -> Result<Response> {
    let what = query.get("what").unwrap_or("");
    if let Some(answer) = from_map(state, id, what, viewer)? {
        return Ok(answer);
    }
    if what == "log" && *id == state.identity.id {
        return logs::answer(query, id.as_str());
    }
    let all = state.snapshot(viewer).await?;
    let (node, report) = all.node(id)?;
    Ok(match what {
        "node_status" => json(&node_status::status(&all.state, node, report, &all.info)),
        "node_stats" => json(&node_status::stats(node, report)),
        "sysinfo" => json(&sysinfo(report)),
        "metrics" => json(&node_status::metric_kinds()),
        "mountpaths" => json(&mountpaths(report)),
        "disk" => json(&node_status::disk(report)),
        "config" => json(&node_config_json(&all.state, &all.info.primary, node, &report.usage)),
        "software_version" => {
            let build = env!("CARGO_PKG_VERSION");
            text(format!("{}.forebay-{build}", node_status::PROTOCOL_VERSION))
        }
        "tls_certificate" => {
            return Err(Error::new(
                ErrorCode::ObjectNotFound,
                format!("TLS certificate of node {id} does not exist"),
            ));
        }
        _ => return Err(Error::invalid(format!("unrecognized 'what={what}' query of a node"))),
    })
}

async fn reverse(State(state): State<ClusterFront>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let result = about_another(&state, &parts).await;
    answered("reverse", result)
}

/// Answers a request about the node that a header names. Data that nodes report to the gateways is
/// answered here; other requests are forwarded to the node.
async fn about_another(state: &ClusterFront, request: &Parts) -> Result<Response> {
    let id = named_node(request)?;
    let query = Query::parse(request.uri.query());
    if query.get("what") != Some("log") || id == state.identity.id {
        let viewer = Viewer::of(&request.headers, &request.extensions);
        return about_node(state, &id, &query, &viewer).await;
    }
    let map = state.maps.load();
    let node = map.node(&id).ok_or_else(|| unknown_node(&id))?;
    let path = format!("/v1/daemon?{}", request.uri.query().unwrap_or(""));
    let answer = state.view.peer.get_bytes(&node.url, &path);
    let answer = tokio::time::timeout(RELAY_WITHIN, answer).await;
    let timeout = |_| Error::unavailable(format!("node {id} did not answer in time"));
    let (headers, body) = answer.map_err(timeout)??;
    let mut response = Response::new(Body::from(body));
    if let Some(kind) = headers.get(axum::http::header::CONTENT_TYPE) {
        response.headers_mut().insert(axum::http::header::CONTENT_TYPE, kind.clone());
    }
    Ok(response)
}

/// Changes one node: commands for its disks. Its settings are in its own file.
async fn node_control(State(state): State<ClusterFront>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let result = control_node(&state, &parts, body).await;
    answered("node_control", result)
}

async fn control_node(state: &ClusterFront, request: &Parts, body: Body) -> Result<Response> {
    let is_change = matches!(request.method, Method::PUT | Method::POST | Method::DELETE);
    if is_change && request.uri.path() == "/v1/reverse/daemon/mountpaths" {
        let body = read_body(body, MAX_CONTROL).await?;
        let query = Query::parse(request.uri.query());
        state.disks.act(&named_node(request)?, &body, &query).await?;
        return Ok(done());
    }
    Err(Error::unsupported(format!(
        "'{} {}' is not served: settings of one node stand in its configuration file",
        request.method,
        request.uri.path()
    )))
}

/// The node that a request names.
fn named_node(request: &Parts) -> Result<NodeId> {
    let id = request.headers.get(NODE_ID).and_then(|v| v.to_str().ok()).unwrap_or("");
    if id.is_empty() {
        return Err(Error::invalid("header Ais-Node-Id is missing"));
    }
    NodeId::new(id)
}

/// `PUT /v1/cluster` with an action.
async fn control(State(state): State<ClusterFront>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let result = async {
        let body = read_body(body, MAX_CONTROL).await?;
        let action = forebay_node::off_worker(body.len(), || ActionMsg::parse(&body))?;
        let access = access_of(&parts.extensions);
        if let Some(row) = rules::CLUSTER_PUT.action(&action.action) {
            let grant = row.of(&access);
            grant.check_sender()?;
            if let "start" | "stop" = action.action.as_str() {
                return Ok(jobs::control(&state.jobs, grant, &action).await);
            }
        } else if access != Access::Open {
            return Err(Error::invalid(format!("unknown action \"{}\"", action.action)));
        }
        let query = Query::parse(parts.uri.query());
        let result = state.admin.act(&action.action, &action.value, &query).await;
        Ok(answered("admin", result))
    };
    match result.await {
        Ok(answer) => answer,
        Err(e) => answered("admin", Err(e)),
    }
}

async fn control_by_path(State(state): State<ClusterFront>, request: Request) -> Response {
    let query = Query::parse(request.uri().query());
    let items = request.uri().path().strip_prefix("/v1/cluster/").unwrap_or("");
    let result = if request.method() == Method::PUT {
        state.admin.act_by_path(items, &query, request.headers()).await
    } else {
        Err(Error::invalid(format!(
            "invalid request URI: '{} /v1/cluster/{items}'",
            request.method()
        )))
    };
    answered("admin", result)
}

async fn cluster(State(state): State<ClusterFront>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query());
    let access = access_of(&parts.extensions);
    let result = async {
        let what = query.get("what").unwrap_or("");
        if let "status" | "status_all" | "running_all" | "qryxstats" = what {
            let body = read_body(body, MAX_CONTROL).await?;
            let grant = rules::CLUSTER.by_query(&query).of(&access);
            return jobs::answer(&state.jobs.jobs, grant, what, &body).await;
        }
        let viewer = Viewer::of(&parts.headers, &parts.extensions);
        about_cluster(&state, what, &viewer).await
    };
    let result = result.await;
    answered("cluster", result)
}

/// Attached clusters, as AIStore lists them; only their URLs are known.
fn remotes(state: &ClusterState) -> serde_json::Value {
    let one = |(alias, url): (&String, &String)| json!({"uuid": alias, "alias": alias, "url": url});
    let all: Vec<_> = state.remotes.iter().map(one).collect();
    match all.is_empty() {
        true => json!({"a": null, "ver": 0}),
        false => json!({"a": all, "ver": state.version}),
    }
}

async fn about_cluster(state: &ClusterFront, what: &str, viewer: &Viewer) -> Result<Response> {
    if let Some(answer) = from_map(state, &state.identity.id, what, viewer)? {
        return Ok(answer);
    }
    let all = state.snapshot(viewer).await?;
    let (gateways, targets) = (Role::Gateway, Role::Target);
    Ok(match what {
        "sysinfo" => json(&json!({
            "proxy": all.by_node(gateways, |_, report| sysinfo(report)),
            "target": all.by_node(targets, |_, report| sysinfo(report)),
        })),
        "node_stats" => json(&json!({
            "proxy": all.by_node(gateways, node_status::stats),
            "target": all.by_node(targets, node_status::stats),
        })),
        "mountpaths" => {
            json(&json!({"targets": all.by_node(targets, |_, report| mountpaths(report))}))
        }
        "backends" => json(&["ais", "aws", "azure", "gcp", "ht"]),
        "remote" => json(&remotes(&all.state)),
        "target_ips" => {
            let hosts = all.state.targets().map(|n| {
                let rest = n.url.split_once("://").map_or(n.url.as_str(), |(_, rest)| rest);
                rest.rsplit_once(':').map_or(rest, |(host, _)| host).to_owned()
            });
            text(hosts.collect::<Vec<_>>().join(","))
        }
        _ => return Err(Error::invalid(format!("unrecognized 'what={what}' query of a cluster"))),
    })
}

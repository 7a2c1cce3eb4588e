//! Requests about the node itself.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use forebay_core::intra::DiskStatus;
use forebay_core::state::Node;
use forebay_core::v1::cluster::{node_json, smap_json};
use forebay_core::v1::headers as v1;
use forebay_core::v1::query::Query;
use forebay_core::{Error, Result, membership};
use forebay_node::listener::is_https;
use forebay_node::logs;
use forebay_node::reply::{Failure, json, text, with_type};

use super::{Context, Shared};

/// `GET /v1/daemon?what=…`: clients that read directly fetch the cluster map from here too.
pub(super) async fn daemon(
    State(context): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref());
    let state = match context.maps.load() {
        map if is_https(&headers) => Arc::new(map.as_ref().clone().over_https()),
        map => map,
    };
    match query.get("what") {
        Some("smap") => {
            let primary = context
                .maps
                .primary()
                .ok_or_else(|| Error::unavailable("this target has not joined a cluster yet"))?;
            Ok(json(&smap_json(&state, &primary)))
        }
        Some("snode") => match state.node(&context.identity.id) {
            Some(node) => Ok(json(&node_json(node))),
            None => Err(Error::unavailable("this target has not joined a cluster yet").into()),
        },
        Some("log") => Ok(logs::answer(&query, context.identity.id.as_str())?),
        Some("software_version") => Ok(text(env!("CARGO_PKG_VERSION"))),
        what => {
            let what = what.unwrap_or("");
            Err(Error::invalid(format!("a target does not answer what={what}")).into())
        }
    }
}

/// `GET /v1/health`.
pub(super) async fn health(State(context): State<Shared>) -> Response {
    let mut response = readiness(&context);
    let uptime = context.identity.uptime_ns().to_string();
    v1::set(response.headers_mut(), v1::NODE_UPTIME, &uptime);
    v1::set(response.headers_mut(), v1::CLUSTER_UPTIME, &uptime);
    response
}

/// Ready once it is a member and has the cluster's state.
pub(super) async fn ready(State(context): State<Shared>) -> Response {
    readiness(&context)
}

fn readiness(context: &Context) -> Response {
    let (state, me) = (context.maps.load(), &context.identity);
    let is_me = |node: &&Node| membership::check_instance(node, me.instance).is_ok();
    let joined = state.node(&me.id).filter(is_me).is_some_and(|node| node.alive);
    if joined { "ok\n".into_response() } else { StatusCode::SERVICE_UNAVAILABLE.into_response() }
}

pub(super) async fn metrics(State(context): State<Shared>) -> Response {
    let usage = context.objects.usage();
    context.metrics.store(usage.objects, usage.bytes, usage.budget);
    let disks = context.disks.show();
    let file_systems = disks.iter().filter_map(|d| Some((d.path.as_str(), d.file_system?)));
    context.metrics.file_systems(file_systems);
    for state in DiskStatus::ALL {
        let count = disks.iter().filter(|disk| disk.state == state).count();
        context.metrics.disks(state.as_str(), count as u64);
    }
    with_type("text/plain; version=0.0.4", context.metrics.render())
}

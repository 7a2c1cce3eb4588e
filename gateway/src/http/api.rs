//! The API for Forebay's own clients: the map with a grant, the leader, and the cluster's state.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use forebay_core::access::Access;
use forebay_core::intra::{LeaderReply, MapReply};
use forebay_core::request::RequestContext;
use forebay_core::routes::native;
use forebay_core::sign::GRANT_TTL_S;
use forebay_core::{Error, Result};
use forebay_node::clock::unix_s;
use forebay_node::identity::Identity;
use forebay_node::listener::is_https;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};

use super::counted;
use crate::cluster::leadership::{LeaderWatch, Leadership};
use crate::cluster::membership::FORWARDED_MARK;
use crate::cluster_view::ClusterView;

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) maps: Maps,
    pub(crate) view: ClusterView,
    pub(crate) leadership: LeaderWatch,
    pub(crate) identity: Identity,
    pub(crate) metrics: Metrics,
}

pub(crate) fn router(state: Api) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Api> {
    RouteSet::new().on(&native::MAP, map).on(&native::CLUSTER, cluster).on(&native::LEADER, leader)
}

async fn map(
    State(state): State<Api>,
    Extension(about): Extension<RequestContext>,
    headers: HeaderMap,
) -> Response {
    let map = read_map(&state, about.access(), is_https(&headers));
    counted(&state.metrics, "api", "map", map)
}

/// The map with the buckets that the sender sees, and the URLs of the scheme of the request.
fn read_map(state: &Api, access: &Access, is_https: bool) -> Result<Response> {
    let starting = || Error::unavailable("this gateway knows no leader yet");
    let primary = state.maps.primary().ok_or_else(starting)?;
    let snapshot = state.maps.load();
    if snapshot.version == 0 {
        return Err(starting());
    }
    let now = unix_s();
    let mut shown =
        if is_https { snapshot.over_https() } else { snapshot.as_ref().clone() };
    if *access != Access::Open {
        shown.buckets.retain(|_, info| access.sees(&info.bucket));
    }
    Ok(json(&MapReply {
        state: shown,
        primary,
        grant: state.identity.signer.grant(now),
        grant_expires_s: now + GRANT_TTL_S,
    }))
}

async fn leader(State(state): State<Api>) -> Response {
    let term = match state.leadership.now() {
        Leadership::Leading(lead) => Some(lead.term),
        Leadership::Following(_) | Leadership::Waiting => None,
    };
    let reply = LeaderReply { leads: term.is_some(), term, primary: state.maps.primary() };
    counted(&state.metrics, "api", "leader", Ok(json(&reply)))
}

async fn cluster(State(state): State<Api>, request: Request) -> Response {
    let passed_on = request.uri().query() == Some(FORWARDED_MARK);
    let info = if passed_on { state.view.info_here() } else { state.view.info().await };
    let info = info.map(|info| match is_https(request.headers()) && !passed_on {
        true => state.view.over_https(info),
        false => info,
    });
    let result = info.map(|info| json(&info));
    counted(&state.metrics, "api", "cluster", result)
}

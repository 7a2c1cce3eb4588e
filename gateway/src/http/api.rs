//! The API for Forebay's own clients: the map with a grant, the leader, and the cluster's state.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use forebay_core::access::{Access, unauthenticated};
use forebay_core::intra::{LeaderReply, MapReply};
use forebay_core::program_version::OLDEST_CLIENT;
use forebay_core::request::RequestContext;
use forebay_core::sign::{GRANT_TTL_S, GrantUser};
use forebay_core::{Error, Result};
use forebay_node::access::bearer;
use forebay_node::clock::unix_s;
use forebay_node::identity::Identity;
use forebay_node::listener::shown_urls;
use forebay_node::maps::Maps;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::native;

use super::answered;
use crate::accounts::Accounts;
use crate::cluster::leadership::{LeaderWatch, Leadership};
use crate::cluster::membership::FORWARDED_MARK;
use crate::cluster_view::ClusterView;

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) accounts: Accounts,
    pub(crate) maps: Maps,
    pub(crate) view: ClusterView,
    pub(crate) leadership: LeaderWatch,
    pub(crate) identity: Identity,
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
    answered("map", read_map(&state, &about, &headers))
}

/// A grant for the sender: bound to the user and the token of the request, if the cluster has users.
fn grant(state: &Api, about: &RequestContext, headers: &HeaderMap, now: u64) -> Result<String> {
    let signer = &state.identity.signer;
    let user = match about.access() {
        Access::Open => return Ok(signer.grant(now)),
        Access::Anonymous => return Err(unauthenticated()),
        Access::User(user) => user.name.clone(),
    };
    let token = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let snapshot = state.maps.load();
    let token = state.accounts.users().token(token.ok_or_else(unauthenticated)?, &snapshot)?;
    let (token, epoch) = (token.token.clone(), snapshot.access.epoch);
    Ok(signer.user_grant(&GrantUser { user, token, epoch }, now))
}

/// The map, with the buckets that the sender sees, and the URLs by which the sender reaches the nodes.
fn read_map(state: &Api, about: &RequestContext, headers: &HeaderMap) -> Result<Response> {
    let starting = || Error::unavailable("this gateway knows no leader yet");
    let primary = state.maps.primary().ok_or_else(starting)?;
    let snapshot = state.maps.load();
    if snapshot.version == 0 {
        return Err(starting());
    }
    let now = unix_s();
    let (shown, access) = (snapshot.for_clients(), about.access());
    let mut shown = shown_urls(headers).in_state(shown);
    if *access != Access::Open {
        shown.buckets.retain(|_, info| access.sees(&info.bucket));
    }
    Ok(json(&MapReply {
        state: shown,
        primary,
        grant: grant(state, about, headers, now)?,
        grant_expires_s: now + GRANT_TTL_S,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        oldest_client: Some(OLDEST_CLIENT.to_owned()),
    }))
}

async fn leader(State(state): State<Api>) -> Response {
    let term = match state.leadership.now() {
        Leadership::Leading(lead) => Some(lead.term),
        Leadership::Following(_) | Leadership::Waiting => None,
    };
    let reply = LeaderReply { leads: term.is_some(), term, primary: state.maps.primary() };
    answered("leader", Ok(json(&reply)))
}

async fn cluster(State(state): State<Api>, request: Request) -> Response {
    let passed_on = request.uri().query() == Some(FORWARDED_MARK);
    let info = if passed_on { state.view.info_here() } else { state.view.info().await };
    let info = info.map(|info| match passed_on {
        true => info,
        false => state.view.shown(info, &shown_urls(request.headers())),
    });
    let result = info.map(|info| json(&info));
    answered("cluster", result)
}

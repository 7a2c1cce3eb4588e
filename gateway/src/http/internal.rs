//! Internal requests to a gateway: nodes join, send heartbeats and leave; gateways exchange votes,
//! log entries, decisions, the newest state, and the members of the group.

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use forebay_core::request::RequestContext;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use forebay_node::maps::Maps;
use forebay_node::membership::{HEARTBEAT_PATH, INSTANCE_PATH, JOIN_PATH, LEAVE_PATH};
use forebay_node::reply::{Failure, json};
use serde::de::DeserializeOwned;

use super::read_message;
use crate::changes::Changes;
use crate::cluster::membership::{FORWARDED_MARK, MembershipService};
use crate::cluster::publish::STATE_PATH;
use crate::meta::front::COMMAND_PATH;
use crate::meta::group::Group;
use crate::meta::network::{APPEND_PATH, SNAPSHOT_PATH, VOTE_PATH};
use crate::meta::view::{ENTER_PATH, GROUP_PATH, REMOVE_PATH, REMOVED_PATH};

#[derive(Clone)]
pub(crate) struct Internal {
    pub(crate) membership: MembershipService,
    pub(crate) changes: Changes,
    pub(crate) group: Group,
    pub(crate) maps: Maps,
    /// The id of this process, new at each start.
    pub(crate) instance: u64,
}

pub(crate) fn router(state: Internal) -> Router {
    Router::new()
        .route(JOIN_PATH, post(handle))
        .route(HEARTBEAT_PATH, post(handle))
        .route(LEAVE_PATH, post(handle))
        .route(INSTANCE_PATH, get(instance))
        .route(COMMAND_PATH, post(handle))
        .route(STATE_PATH, post(handle))
        .route(APPEND_PATH, post(raft))
        .route(VOTE_PATH, post(raft))
        .route(SNAPSHOT_PATH, post(raft))
        .route(GROUP_PATH, get(group))
        .route(ENTER_PATH, post(handle))
        .route(REMOVE_PATH, post(handle))
        .route(REMOVED_PATH, post(handle))
        .layer(middleware::from_fn(nodes_only))
        .with_state(state)
}

async fn nodes_only(
    Extension(about): Extension<RequestContext>,
    request: Request,
    next: Next,
) -> Response {
    match about.require_node() {
        Ok(()) => next.run(request).await,
        Err(e) => Failure(e).into_response(),
    }
}

async fn handle(State(state): State<Internal>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = read_message(body).await?;
    let passed_on = parts.uri.query() == Some(FORWARDED_MARK);
    let membership = &state.membership;
    Ok(match parts.uri.path() {
        JOIN_PATH => json(&membership.join(parse(&body)?, passed_on).await?),
        HEARTBEAT_PATH => json(&membership.heartbeat(parse(&body)?, passed_on).await?),
        LEAVE_PATH => json(&membership.leave(parse(&body)?, passed_on).await?),
        ENTER_PATH => json(&state.group.enter(parse(&body)?).await?),
        REMOVE_PATH => json(&state.group.remove(parse(&body)?).await?),
        REMOVED_PATH => json(&state.group.was_removed(parse(&body)?).await?),
        COMMAND_PATH => json(&state.changes.commit_relayed(parse::<Command>(&body)?).await?),
        // A published state was acknowledged by a majority, so it is valid whichever gateway leads.
        _ => {
            state.maps.offer(parse::<ClusterState>(&body)?);
            json(&state.maps.version())
        }
    })
}

/// The members of the group, as far as this gateway knows.
async fn group(State(state): State<Internal>) -> Response {
    json(&state.group.view())
}

/// The id of this process.
async fn instance(State(state): State<Internal>) -> Response {
    json(&state.instance)
}

/// Messages of Raft.
async fn raft(State(state): State<Internal>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = read_message(body).await?;
    Ok(json(&state.group.answer(parts.uri.path(), &body).await?))
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("unreadable message of a node: {e}")))
}

//! Internal requests to a gateway: nodes join, send heartbeats and leave; gateways exchange votes,
//! log entries, decisions, the newest state, and the members of the group.

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use forebay_core::routes::internal as rules;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use forebay_node::maps::Maps;
use forebay_node::membership::{HEARTBEAT_PATH, JOIN_PATH, LEAVE_PATH};
use forebay_node::reply::{Failure, json};
use forebay_node::routing::{GuardedRouter, RouteSet};
use serde::de::DeserializeOwned;

use super::read_message;
use crate::changes::Changes;
use crate::cluster::membership::{FORWARDED_MARK, MembershipService};
use crate::meta::front::COMMAND_PATH;
use crate::meta::group::Group;
use crate::meta::view::{ENTER_PATH, REMOVE_PATH, REMOVED_PATH};

#[derive(Clone)]
pub(crate) struct Internal {
    pub(crate) membership: MembershipService,
    pub(crate) changes: Changes,
    pub(crate) group: Group,
    pub(crate) maps: Maps,
    /// The id of this process, new at each start.
    pub(crate) instance: u64,
}

pub(crate) fn router(state: Internal) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Internal> {
    RouteSet::new()
        .on(&rules::JOIN, handle)
        .on(&rules::HEARTBEAT, handle)
        .on(&rules::LEAVE, handle)
        .on(&rules::INSTANCE, instance)
        .on(&rules::COMMAND, handle)
        .on(&rules::STATE, handle)
        .on(&rules::RAFT_APPEND, raft)
        .on(&rules::RAFT_VOTE, raft)
        .on(&rules::RAFT_SNAPSHOT, raft)
        .on(&rules::RAFT_GROUP, group)
        .on(&rules::RAFT_ENTER, handle)
        .on(&rules::RAFT_REMOVE, handle)
        .on(&rules::RAFT_REMOVED, handle)
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

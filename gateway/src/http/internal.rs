//! Internal requests to a gateway: nodes join, send heartbeats and leave; gateways exchange votes,
//! log entries, decisions, the newest state, and the members of the group.

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use forebay_core::intra::{DecommissionRequest, Heartbeat, JoinRequest, LeaveRequest};
use forebay_core::request::RequestContext;
use forebay_core::sign::JOIN_PATH;
use forebay_core::state::{ClusterState, Command, Leaving, Role};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::membership::{HEARTBEAT_PATH, LEAVE_PATH};
use forebay_node::reply::{Failure, json};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_node::scale_down::DECOMMISSION_PATH;
use forebay_routes::internal as rules;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
    pub(crate) identity: Identity,
}

pub(crate) fn router(state: Internal) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Internal> {
    RouteSet::new()
        .on(&rules::JOIN, handle)
        .on(&rules::HEARTBEAT, handle)
        .on(&rules::LEAVE, handle)
        .on(&rules::DECOMMISSION, handle)
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
    let principal = request.extensions().get::<RequestContext>().map(|c| c.principal.clone());
    let (sender, token) = principal.map(|p| (p.node, p.join_token)).unwrap_or_default();
    let own = |id: &NodeId| check_own(&state.maps.load(), sender.as_ref(), id);
    let (parts, body) = request.into_parts();
    let body = read_message(body).await?;
    let passed_on = parts.uri.query() == Some(FORWARDED_MARK);
    let membership = &state.membership;
    Ok(match parts.uri.path() {
        JOIN_PATH => {
            let mut request: JoinRequest = parse(&body)?;
            own(&request.id)?;
            if token.is_some() || !passed_on {
                request.token = token;
            }
            let receiver = request.key.clone().filter(|_| request.needs_s3_key);
            let mut reply = membership.join(request, passed_on).await?;
            if let (Some(receiver), Some(me)) = (receiver, state.identity.signer.key()) {
                reply.s3_key = state.identity.sealer.s3_key_for(me, &receiver);
            }
            json(&reply)
        }
        HEARTBEAT_PATH => {
            let beat: Heartbeat = parse(&body)?;
            own(&beat.id)?;
            json(&membership.heartbeat(beat, passed_on).await?)
        }
        LEAVE_PATH => {
            let request: LeaveRequest = parse(&body)?;
            own(&request.id)?;
            json(&membership.leave(request, passed_on).await?)
        }
        DECOMMISSION_PATH => {
            let request: DecommissionRequest = parse(&body)?;
            state.decommission(sender.as_ref(), request).await?;
            json(&Value::Null)
        }
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

impl Internal {
    /// Drains the target that sends the request, and removes it once it is empty. Only the target
    /// itself may ask for that, also where another node is a gateway.
    async fn decommission(
        &self,
        sender: Option<&NodeId>,
        DecommissionRequest { id }: DecommissionRequest,
    ) -> Result<()> {
        if sender != Some(&id) {
            let sender = sender.map_or("an unnamed node", NodeId::as_str);
            tracing::warn!(sender, node = %id, "decommission of another node refused");
            let text = format!("{sender} asks to decommission {id}");
            return Err(Error::new(ErrorCode::AccessDenied, text)
                .hint("a node decommissions itself only; use `forebay node remove`"));
        }
        let state = self.maps.load();
        let node = state.node(&id).filter(|node| node.role == Role::Target).ok_or_else(|| {
            Error::new(ErrorCode::NodeNotFound, format!("{id} is not a target of this cluster"))
        })?;
        if node.leaving == Some(Leaving::Remove) {
            return Ok(());
        }
        let leave = Command::Retire { id, leaving: Leaving::Remove };
        self.changes.commit(leave).await.map(drop)
    }
}

/// Refuses the report of a node in the name of another one. Gateways forward reports.
fn check_own(state: &ClusterState, sender: Option<&NodeId>, id: &NodeId) -> Result<()> {
    let role = |sender: &NodeId| state.node_keys.get(sender.as_str()).map(|sender| sender.role);
    match sender {
        Some(sender) if sender != id && state.node_keys.are_required() => {
            if role(sender) == Some(Role::Gateway) {
                return Ok(());
            }
            tracing::warn!(%sender, node = %id, "report in the name of another node refused");
            let text = format!("{sender} reports in the name of {id}");
            Err(Error::new(ErrorCode::AccessDenied, text).hint("a node reports for itself only"))
        }
        _ => Ok(()),
    }
}

/// The members of the group, as far as this gateway knows.
async fn group(State(state): State<Internal>) -> Response {
    json(&state.group.view())
}

/// The id of this process.
async fn instance(State(state): State<Internal>) -> Response {
    json(&state.identity.instance)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::sign::NodeKey;

    use super::*;

    #[test]
    fn a_node_reports_for_itself_and_a_gateway_forwards() {
        let id = |id: &str| NodeId::new(id).unwrap();
        let mut state = ClusterState::default();
        let may = |state: &ClusterState, sender: &str| {
            check_own(state, Some(&id(sender)), &id("target-01")).is_ok()
        };
        assert!(may(&state, "target-02"), "without keys nothing proves an id");
        for (n, role) in [("gateway-1", Role::Gateway), ("target-02", Role::Target)] {
            let key = NodeKey::of_seed(&[n.len() as u8; 32]).unwrap().public().clone();
            state
                .apply(1, Command::NodeKey { id: id(n), role, key, now_s: 1, token: None })
                .unwrap();
        }
        assert!(may(&state, "target-01") && may(&state, "gateway-1"));
        assert!(!may(&state, "target-02") && !may(&state, "target-03"));
        assert!(check_own(&state, None, &id("target-01")).is_ok());
    }
}

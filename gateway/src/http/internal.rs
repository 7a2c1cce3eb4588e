//! What nodes ask of a gateway: to be let in, to stay, to leave; and gateways of the primary: to
//! decide. A gateway that is not the primary passes on what only the primary may answer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use forebay_node::auth;
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::reply::{Failure, json};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{MAX_CONTROL, read_body};
use crate::changes::Changes;
use crate::cluster::members::Members;
use crate::cluster::publish::STATE_PATH;
use crate::meta::follower::{COMMAND_PATH, CommandReply};

/// Marks a request that one gateway passed on, so that two never play ball with it.
const PASSED_ON: &str = "passed-on=1";

/// Who decides here.
#[derive(Clone)]
pub(crate) enum Authority {
    Primary { members: Arc<Members>, changes: Changes },
    Follower { peer: PeerClient, primary_url: String },
}

#[derive(Clone)]
pub(crate) struct Internal {
    pub(crate) authority: Authority,
    pub(crate) identity: Identity,
    pub(crate) maps: Maps,
}

pub(crate) fn router(state: Internal) -> Router {
    Router::new()
        .route("/internal/v1/join", post(handle))
        .route("/internal/v1/heartbeat", post(handle))
        .route("/internal/v1/leave", post(handle))
        .route(COMMAND_PATH, post(handle))
        .route(STATE_PATH, post(take_state))
        .layer(middleware::from_fn_with_state(state.identity.clone(), nodes_only))
        .with_state(state)
}

async fn nodes_only(State(identity): State<Identity>, request: Request, next: Next) -> Response {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    match auth::require_node(method, uri, headers, &identity) {
        Ok(()) => next.run(request).await,
        Err(e) => Failure(e).into_response(),
    }
}

async fn handle(State(state): State<Internal>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = read_body(body, MAX_CONTROL).await?;
    match &state.authority {
        Authority::Primary { members, changes } => {
            Ok(decide(&state, members, changes, parts.uri.path(), &body).await?)
        }
        Authority::Follower { peer, primary_url } => {
            if parts.uri.query().is_some_and(|q| q.contains(PASSED_ON)) {
                return Err(Failure(
                    Error::unavailable(format!("{} is not the primary gateway", state.identity.id))
                        .hint("cluster.gateways must be the same list, in the same order, on all nodes"),
                ));
            }
            let path = format!("{}?{PASSED_ON}", parts.uri.path());
            let request: Value = parse(&body)?;
            let answer: Value = peer.post_json(primary_url, &path, &request).await?;
            Ok(json(&answer))
        }
    }
}

async fn decide(
    state: &Internal,
    members: &Members,
    changes: &Changes,
    path: &str,
    body: &Bytes,
) -> Result<Response> {
    Ok(match path.trim_start_matches("/internal/v1/") {
        "join" => json(&members.join(parse(body)?).await?),
        "heartbeat" => json(&members.heartbeat(parse(body)?).await?),
        "leave" => {
            members.leave(parse(body)?).await?;
            json(&Value::Null)
        }
        _ => {
            let version = changes.commit(parse::<Command>(body)?).await?;
            json(&CommandReply { version, state: state.maps.load().as_ref().clone() })
        }
    })
}

/// A new state from the primary. The primary itself takes none: it makes them.
async fn take_state(State(state): State<Internal>, request: Request) -> Result<Response, Failure> {
    if matches!(state.authority, Authority::Primary { .. }) {
        return Err(Failure(Error::invalid("the primary gateway takes no state from others")));
    }
    let body = read_body(request.into_body(), MAX_CONTROL).await?;
    state.maps.offer(parse::<ClusterState>(&body)?);
    Ok(json(&state.maps.version()))
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("unreadable message of a node: {e}")))
}

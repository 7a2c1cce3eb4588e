//! The chosen traces of all nodes, and the spans of one of them.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use forebay_client::PeerClient;
use forebay_core::trace::{
    INTERNAL_TRACES_PATH, TraceKey, TraceReply, TracesReply, merged, summaries,
};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_node::trace::{Tracer, key_of};
use forebay_routes::native;
use serde::de::DeserializeOwned;

use super::answered;

/// Timeout for the traces of another node.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// The services for traces; cheap to clone.
#[derive(Clone)]
pub(crate) struct TracesApi {
    pub(crate) tracer: Tracer,
    pub(crate) maps: Maps,
    pub(crate) peer: PeerClient,
    pub(crate) identity: Identity,
}

pub(crate) fn router(state: TracesApi) -> GuardedRouter {
    let of_nodes = forebay_node::trace::routes().with_state(state.tracer.clone());
    routes().with_state(state).merge(of_nodes)
}

pub(crate) fn routes() -> RouteSet<TracesApi> {
    RouteSet::new().on(&native::TRACES, traces).on(&native::TRACE, trace)
}

async fn traces(State(api): State<TracesApi>) -> Response {
    answered("traces", Ok(json(&api.traces().await)))
}

async fn trace(State(api): State<TracesApi>, Path(id): Path<String>) -> Response {
    answered("trace", api.trace(&id).await.map(|reply| json(&reply)))
}

impl TracesApi {
    async fn traces(&self) -> TracesReply {
        let (replies, away) = self.ask::<TracesReply>(INTERNAL_TRACES_PATH).await;
        let others = replies.into_iter().flat_map(|reply| reply.traces);
        TracesReply { traces: summaries(self.tracer.summaries().into_iter().chain(others)), away }
    }

    async fn trace(&self, id: &str) -> Result<TraceReply> {
        let mut key = key_of(id)?;
        let mut reply = self.spans(key).await;
        // A node names a trace by a request that it had itself; others know only the trace.
        if let (TraceKey::Request(_), Some(first)) = (key, reply.spans.first()) {
            key = TraceKey::Trace(first.trace);
            reply = self.spans(key).await;
        }
        if reply.spans.is_empty() {
            let text = format!("no node has spans of {id}");
            let hint = "nodes keep slow, failed and sampled traces for an hour, and others for 10 s: \
                        forebay trace ls lists the first";
            return Err(Error::new(ErrorCode::JobNotFound, text).hint(hint));
        }
        Ok(reply)
    }

    /// The spans of all nodes.
    async fn spans(&self, key: TraceKey) -> TraceReply {
        let id = match key {
            TraceKey::Trace(trace) => trace.to_string(),
            TraceKey::Request(request) => request.to_string(),
        };
        let path = format!("{INTERNAL_TRACES_PATH}/{id}");
        let (replies, away) = self.ask::<TraceReply>(&path).await;
        let others = replies.into_iter().flat_map(|reply| reply.spans);
        TraceReply { spans: merged(self.tracer.spans(key).into_iter().chain(others)), away }
    }

    /// The replies of all other nodes, and the ids of those that do not reply.
    async fn ask<T: DeserializeOwned>(&self, path: &str) -> (Vec<T>, Vec<String>) {
        let state = self.maps.load();
        let others = state.nodes.values().filter(|node| node.id != self.identity.id);
        let asked = others.map(|node| async move {
            let call = self.peer.get_json::<T>(&node.url, path);
            let reply = match node.alive {
                true => tokio::time::timeout(PEER_TIMEOUT, call).await.ok().and_then(Result::ok),
                false => None,
            };
            (node.id.to_string(), reply)
        });
        let (mut replies, mut away) = (Vec::new(), Vec::new());
        for (node, reply) in futures::future::join_all(asked).await {
            match reply {
                Some(reply) => replies.push(reply),
                None => away.push(node),
            }
        }
        (replies, away)
    }
}

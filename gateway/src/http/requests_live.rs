//! Requests that the nodes of the cluster finish, as one stream of events.
//!
//! This gateway reads a stream of lines of each node, and begins anew with a node whose stream ends.
//! Nodes describe requests only while such a stream exists.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use forebay_client::PeerClient;
use forebay_core::state::Node;
use forebay_core::traffic::{LiveEvent, LiveFilter};
use forebay_core::{NodeId, Result};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_node::traffic::Listener;
use forebay_routes::native;
use futures::StreamExt;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::answered;
use super::overview::OverviewApi;
use crate::event_stream::{self, HEARTBEAT, event, heartbeat, lasts};

/// Path of the stream of a node.
const PATH: &str = "/internal/v1/requests/live";
/// Events that wait for a slow reader; further ones are dropped, and counted.
const WAITING: usize = 1_024;
/// Time between looks for nodes without a stream.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A node's stream that says nothing for this long has ended.
const SILENT_AFTER: Duration = Duration::from_secs(6);
/// Longest line of a node's stream.
const MAX_LINE_BYTES: usize = 64 << 10;

pub(crate) fn router(state: OverviewApi) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<OverviewApi> {
    RouteSet::new().on(&native::REQUESTS_LIVE, requests)
}

async fn requests(State(api): State<OverviewApi>, RawQuery(query): RawQuery) -> Response {
    answered("requests_live", stream(&api, query.as_deref()))
}

fn stream(api: &OverviewApi, query: Option<&str>) -> Result<Response> {
    let filter = LiveFilter::parse(query)?;
    let ends = tokio::time::Instant::now() + lasts(query)?;
    let permit = api.streams.begin()?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let readers = Readers { api: api.clone(), filter, sender, running: BTreeMap::new() };
    // The tasks end with the stream that owns them.
    let mut tasks = JoinSet::new();
    tasks.spawn(readers.run());
    let stop = api.lifecycle.token();
    let start = (receiver, tasks, permit, stop);
    let events = futures::stream::unfold(start, move |mut state| async move {
        let (receiver, _, _, stop) = &mut state;
        let bytes = tokio::select! {
            next = receiver.recv() => shown(&next?),
            () = tokio::time::sleep(HEARTBEAT) => heartbeat(),
            () = tokio::time::sleep_until(ends) => return None,
            () = stop.cancelled() => return None,
        };
        Some((bytes, state))
    });
    Ok(event_stream::response(events))
}

fn shown(next: &LiveEvent) -> Bytes {
    match next {
        LiveEvent::Request(request) => event("request", request),
        LiveEvent::Dropped(count) => event("dropped", &json!({ "count": count })),
        LiveEvent::Idle => heartbeat(),
    }
}

/// Reads the streams of all nodes.
struct Readers {
    api: OverviewApi,
    filter: LiveFilter,
    sender: mpsc::Sender<LiveEvent>,
    running: BTreeMap<NodeId, tokio::task::AbortHandle>,
}

impl Readers {
    async fn run(mut self) {
        let mut tasks = JoinSet::new();
        loop {
            let state = self.api.overviews.state();
            for node in state.nodes.values().filter(|node| node.alive) {
                let is_wanted = self.filter.node.as_deref().is_none_or(|id| id == node.id.as_str());
                let runs = self.running.get(&node.id).is_some_and(|task| !task.is_finished());
                if is_wanted && !runs {
                    let task = tasks.spawn(self.reader(node));
                    self.running.insert(node.id.clone(), task);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Passes the events of a node on until its stream ends.
    fn reader(&self, node: &Node) -> impl Future<Output = ()> + Send + 'static {
        let (sender, filter) = (self.sender.clone(), self.filter.clone());
        let is_here = node.id == self.api.identity.id;
        let listener = is_here.then(|| self.api.traffic.live().listen());
        let peer = self.api.overviews.peer().clone();
        let (id, url) = (node.id.clone(), node.url.clone());
        async move {
            let out = Events { sender, dropped: 0 };
            match listener {
                Some(listener) => here(listener, &filter, &id, out).await,
                None => {
                    if let Err(e) = there(&peer, &url, &filter, out).await {
                        tracing::debug!(node = %id, error = %e, "stream of requests ended");
                    }
                }
            }
        }
    }
}

/// Events for a reader who may be slow.
struct Events {
    sender: mpsc::Sender<LiveEvent>,
    /// Requests that were dropped and not reported yet.
    dropped: u64,
}

impl Events {
    fn send(&mut self, event: LiveEvent) {
        let event = match event {
            LiveEvent::Idle => return self.report(),
            LiveEvent::Dropped(count) => {
                self.dropped += count;
                return self.report();
            }
            request => request,
        };
        self.report();
        if self.dropped > 0 || self.sender.try_send(event).is_err() {
            self.dropped += 1;
        }
    }

    /// Reports what was dropped, as soon as there is space for that.
    fn report(&mut self) {
        if self.dropped > 0 && self.sender.try_send(LiveEvent::Dropped(self.dropped)).is_ok() {
            self.dropped = 0;
        }
    }
}

/// The requests of this gateway.
async fn here(mut listener: Listener, filter: &LiveFilter, id: &NodeId, mut out: Events) {
    let own = LiveFilter { node: None, ..filter.clone() };
    while let Some(mut event) = listener.next_shown(&own).await {
        if let LiveEvent::Request(request) = &mut event {
            id.as_str().clone_into(&mut request.node);
        }
        out.send(event);
    }
}

/// The requests of another node.
async fn there(
    peer: &PeerClient,
    url: &str,
    filter: &LiveFilter,
    mut out: Events,
) -> forebay_client::Result<()> {
    let path = format!("{PATH}?{}", filter.to_query());
    let (_, mut body) = peer.get_stream(url, &path).await?;
    let mut buffer = BytesMut::new();
    while let Ok(Some(chunk)) = tokio::time::timeout(SILENT_AFTER, body.next()).await {
        buffer.extend_from_slice(&chunk?);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end + 1);
            match serde_json::from_slice(&line) {
                Ok(event) => out.send(event),
                Err(e) => tracing::debug!(error = %e, "unexpected line in a stream of requests"),
            }
        }
        if buffer.len() > MAX_LINE_BYTES {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_gets_the_number_of_what_it_missed() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut out = Events { sender, dropped: 0 };
        let request = || LiveEvent::Dropped(0);
        out.sender.try_send(request()).ok();
        out.sender.try_send(request()).ok();
        out.send(LiveEvent::Dropped(4));
        out.send(LiveEvent::Dropped(3));
        assert_eq!(out.dropped, 7);
        receiver.try_recv().ok();
        out.send(LiveEvent::Idle);
        assert_eq!(out.dropped, 0);
        receiver.try_recv().ok();
        assert_eq!(receiver.try_recv().ok(), Some(LiveEvent::Dropped(7)));
    }
}

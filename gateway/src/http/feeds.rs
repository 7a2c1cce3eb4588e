//! Feeds of training loops: clients report theirs to any gateway, and each gateway returns those of
//! all. They are in memory only, and expire without new reports.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_client::PeerClient;
use forebay_core::feed::board::{self, Board};
use forebay_core::feed::{Feed, FeedsReply, INTERNAL_FEEDS_PATH};
use forebay_core::locks::MutexExt;
use forebay_core::request::RequestContext;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_s;
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{internal, native};

use super::{answered, done, read_body};

/// Most bytes of a report.
const MAX_REPORT_BYTES: usize = 64 << 10;
/// Timeout for the feeds of another gateway.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// The services for feeds; cheap to clone.
#[derive(Clone)]
pub(crate) struct FeedsApi {
    /// The feeds that were reported to this gateway.
    pub(crate) board: Arc<Mutex<Board>>,
    pub(crate) maps: Maps,
    pub(crate) peer: PeerClient,
    pub(crate) identity: Identity,
}

pub(crate) fn router(state: FeedsApi) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<FeedsApi> {
    RouteSet::new()
        .on(&native::FEEDS, all)
        .on(&native::FEED_PUT, put)
        .on(&internal::FEEDS, of_this_gateway)
}

async fn all(State(api): State<FeedsApi>, Extension(about): Extension<RequestContext>) -> Response {
    let grant = native::FEEDS.row().of(about.access());
    let mut reply = api.all().await;
    reply.feeds.retain(|feed| grant.has_feed(feed));
    answered("feeds", Ok(json(&reply)))
}

async fn of_this_gateway(State(api): State<FeedsApi>) -> Response {
    let feeds = api.board.locked().all(unix_s());
    answered("feeds_internal", Ok(json(&FeedsReply { feeds, away: Vec::new() })))
}

async fn put(
    State(api): State<FeedsApi>,
    Extension(about): Extension<RequestContext>,
    Path(id): Path<String>,
    body: Body,
) -> Response {
    let result = api.put(&about, &id, body).await;
    answered("feed_put", result.map(|()| done()))
}

impl FeedsApi {
    async fn put(&self, about: &RequestContext, id: &str, body: Body) -> Result<()> {
        let body = read_body(body, MAX_REPORT_BYTES).await?;
        let mut feed: Feed = serde_json::from_slice(&body)
            .map_err(|e| Error::invalid(format!("feed: the report cannot be read: {e}")))?;
        id.clone_into(&mut feed.id);
        feed.check()?;
        let grant = native::FEED_PUT.row().of(about.access());
        let now_s = unix_s();
        let mut board = self.board.locked();
        // A feed that another user reported stays that user's.
        let is_allowed =
            grant.has_feed(&feed) && board.get(id, now_s).is_none_or(|known| grant.has_feed(known));
        if !is_allowed {
            let text = format!("feed {id}: no right to read its buckets");
            return Err(Error::new(ErrorCode::AccessDenied, text));
        }
        board.put(feed, now_s);
        Ok(())
    }

    /// The feeds of all gateways. A gateway that does not reply is named.
    async fn all(&self) -> FeedsReply {
        let state = self.maps.load();
        let others = state.gateways().filter(|node| node.id != self.identity.id);
        let asked = others.map(|node| async move {
            let call = self.peer.get_json::<FeedsReply>(&node.url, INTERNAL_FEEDS_PATH);
            let reply = match node.alive {
                true => tokio::time::timeout(PEER_TIMEOUT, call).await.ok().and_then(Result::ok),
                false => None,
            };
            (node.id.to_string(), reply)
        });
        let replies = futures::future::join_all(asked).await;
        let mut feeds = self.board.locked().all(unix_s());
        let mut away = Vec::new();
        for (node, reply) in replies {
            match reply {
                Some(reply) => feeds.extend(reply.feeds),
                None => away.push(node),
            }
        }
        FeedsReply { feeds: board::newest(feeds), away }
    }
}

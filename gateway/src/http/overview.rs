//! The overview of the cluster, once and live, its last minutes, and the traffic of this gateway for others.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use forebay_core::Result;
use forebay_core::access::Access;
use forebay_core::request::RequestContext;
use forebay_core::state::ShownUrls;
use forebay_core::traffic::LiveFilter;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::shown_urls;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_node::traffic::{StreamLimit, Traffic, requests_stream};
use forebay_routes::{internal, native};

use super::answered;
use crate::event_stream::{self, HEARTBEAT, event, heartbeat, lasts};
use crate::overview::{Collected, Overviews};

/// The services behind the overview.
#[derive(Clone)]
pub(crate) struct OverviewApi {
    pub(crate) overviews: Overviews,
    pub(crate) traffic: Traffic,
    pub(crate) identity: Identity,
    pub(crate) streams: StreamLimit,
    pub(crate) lifecycle: Lifecycle,
}

pub(crate) fn router(state: OverviewApi) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<OverviewApi> {
    RouteSet::new()
        .on(&native::OVERVIEW, once)
        .on(&native::OVERVIEW_LIVE, live)
        .on(&native::OVERVIEW_HISTORY, history)
        .on(&internal::TRAFFIC, traffic)
        .on(&internal::TRAFFIC_HISTORY, traffic_history)
        .on(&internal::REQUESTS_LIVE, requests)
}

async fn once(
    State(api): State<OverviewApi>,
    Extension(about): Extension<RequestContext>,
    headers: HeaderMap,
) -> Response {
    let (collected, urls) = (api.overviews.now().await, shown_urls(&headers));
    let shown = |found: Arc<Collected>| json(&api.overviews.shown(&found, about.access(), &urls));
    answered("overview", collected.map(shown))
}

async fn live(
    State(api): State<OverviewApi>,
    Extension(about): Extension<RequestContext>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let stream = api.stream(about.access().clone(), shown_urls(&headers), query.as_deref());
    answered("overview_live", stream)
}

async fn traffic(State(api): State<OverviewApi>) -> Response {
    json(&api.traffic.window())
}

/// The last minutes of the cluster: sums of all traffic, the same for all who see the cluster.
async fn history(State(api): State<OverviewApi>) -> Response {
    json(&*api.overviews.history().await)
}

async fn traffic_history(State(api): State<OverviewApi>) -> Response {
    json(&api.traffic.history())
}

/// The requests that this gateway finishes, for the gateway that asks.
async fn requests(State(api): State<OverviewApi>, RawQuery(query): RawQuery) -> Response {
    let stream = || {
        let filter = LiveFilter::parse(query.as_deref())?;
        let (permit, stop) = (api.streams.begin()?, api.lifecycle.token());
        Ok(requests_stream(&api.traffic, &api.identity.id, filter, permit, stop))
    };
    answered(internal::REQUESTS_LIVE.operation, stream())
}

impl OverviewApi {
    /// The overviews that this gateway collects, as events, until the reader leaves.
    fn stream(&self, access: Access, urls: ShownUrls, query: Option<&str>) -> Result<Response> {
        let ends = tokio::time::Instant::now() + lasts(query)?;
        let (permit, stop) = (self.streams.begin()?, self.lifecycle.token());
        let overviews = self.overviews.clone();
        let start = (self.overviews.watch(), access, permit);
        let events = futures::stream::unfold(start, move |mut state| {
            let (stop, overviews, urls) = (stop.clone(), overviews.clone(), urls.clone());
            async move {
                let (watch, access, _) = &mut state;
                let bytes = tokio::select! {
                    collected = watch.next() => {
                        let found = collected?;
                        event("overview", &overviews.shown(&found, access, &urls))
                    },
                    () = tokio::time::sleep(HEARTBEAT) => heartbeat(),
                    () = tokio::time::sleep_until(ends) => return None,
                    () = stop.cancelled() => return None,
                };
                Some((bytes, state))
            }
        });
        Ok(event_stream::response(events))
    }
}

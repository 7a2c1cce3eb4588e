//! GetBatch over v1: check the request, choose the target that assembles the answer, redirect.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use forebay_core::access::{Access, Scope};
use forebay_core::batch::{self, BatchEntry, BatchRequest};
use forebay_core::url::decode_path;
use forebay_core::{Bucket, Error, Result};
use forebay_node::identity::Identity;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::On;
use forebay_routes::v1_objects::MOSS;
use forebay_v1::batch::MossRequest;
use forebay_v1::query::Query;

use super::{access_of, answered, auth, read_body, redirect};
use crate::route::Route;

/// Maximum request size in bytes: a request names many objects.
const MAX_REQUEST: usize = 256 << 20;

#[derive(Clone)]
pub(crate) struct Batches {
    pub(crate) route: Route,
    pub(crate) identity: Identity,
}

pub(crate) fn router(state: Batches) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Batches> {
    RouteSet::new().on(&MOSS, handle)
}

async fn handle(State(state): State<Batches>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let result = async {
        let body = read_body(body, MAX_REQUEST).await?;
        send_on(&state, &parts, &body).await
    };
    let result = result.await;
    answered("moss", result)
}

async fn send_on(state: &Batches, parts: &Parts, body: &[u8]) -> Result<Response> {
    let request = MossRequest::parse(body)?;
    request.format()?;
    let default = match parts.uri.path().trim_start_matches("/v1/ml/moss").trim_matches('/') {
        "" => None,
        bucket => Some(Query::parse(parts.uri.query()).bucket(&decode_path(bucket)?)?),
    };
    let request = plain(&request, default.as_ref())?;
    let access = access_of(&parts.extensions);
    let grant = MOSS.row().of(&access);
    let named = request.entries.iter().filter_map(|entry| {
        Some((request.buckets.get(entry.bucket as usize)?, entry.name.as_str()))
    });
    grant.require_entries(named)?;
    if let Some(unused) = default.as_ref().filter(|bucket| !request.buckets.contains(bucket)) {
        grant.require(On::Entry, Scope::Prefix(unused, ""))?;
    }
    for bucket in request.buckets.iter().chain(&default) {
        state.route.bucket(bucket).await?;
    }
    let cluster = state.route.state();
    let plan = batch::plan(&cluster, &request, 0..request.entries.len());
    let assembler = batch::assembler(&plan).and_then(|id| cluster.node(id));
    match (assembler, plan.failed.into_iter().next()) {
        (Some(node), _) => {
            let uri = match access {
                Access::Open => parts.uri.clone(),
                // The target does not get the token of the user.
                _ => auth::with_body(&parts.uri, body)?,
            };
            redirect(&state.identity, cluster.version, parts, &uri, &node.url)
        }
        (None, Some((_, e))) => Err(e),
        (None, None) => Err(Error::invalid("moss: empty input")),
    }
}

/// Converts the request for the planner; members of shards and ranges do not affect the owner.
fn plain(request: &MossRequest, default: Option<&Bucket>) -> Result<BatchRequest> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in request.resolve(default)? {
        // Most requests have one bucket, so the last one is compared first.
        let known = buckets.iter().rposition(|b| *b == entry.bucket);
        let bucket = known.unwrap_or_else(|| {
            buckets.push(entry.bucket.clone());
            buckets.len() - 1
        });
        entries.push(BatchEntry::whole(bucket as u32, entry.name));
    }
    Ok(BatchRequest { buckets, entries, ordered: true })
}

//! HTTP of a target: decode, call one service, encode; no decisions here.

mod batch;
mod copies;
mod daemon;
mod download;
mod etl;
mod intra;
mod inventory;
mod object_actions;
mod object_fast_path;
mod object_get;
mod object_head;
mod object_write;
mod objects;
mod promote;
mod shard;
mod uploads;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Router};
use forebay_client::PeerClient;
use forebay_core::Result;
use forebay_core::intra::{BACKEND_LIST_PATH, LIST_PATH, MAP_HEADER};
use forebay_core::request::{RequestContext, Route};
use forebay_core::state::Role;
use forebay_core::v1::query::Query;
use forebay_node::auth::REDIRECT_VERSION;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::{Answer, Asked, Direct, Handler, Peer, Routes, Take};
use forebay_node::maps::Maps;
use forebay_node::membership::{INSTANCE_PATH, Refresher};
use forebay_node::metrics::Metrics;
use forebay_node::reply::Failure;

use crate::batch::budget::Budget;
use crate::disks::DiskAdmin;
use crate::download::Downloads;
use crate::etl::Etls;
use crate::job::Jobs;
use crate::job::build::builds::Builds;
use crate::object::{ENSURE_PATH, ObjectService, READ_PATH, SEND_VERSIONS_PATH};
use crate::promote::Promotions;
use crate::s3::{self, S3};
use crate::shard::Shards;

/// Largest JSON body that a target reads (a batch request names many objects).
const MAX_JSON: usize = 256 << 20;

/// The header with the version of the map that the sender used.
static KNOWN_MAP: HeaderName = HeaderName::from_static(MAP_HEADER);

/// [`Context`] as all handlers share it.
pub(crate) type Shared = Arc<Context>;

/// The services that handlers call.
pub(crate) struct Context {
    pub(crate) objects: ObjectService,
    pub(crate) disks: DiskAdmin,
    pub(crate) shards: Shards,
    pub(crate) jobs: Jobs,
    pub(crate) etls: Etls,
    pub(crate) downloads: Downloads,
    pub(crate) builds: Builds,
    pub(crate) promotions: Promotions,
    pub(crate) identity: Identity,
    pub(crate) maps: Maps,
    pub(crate) peer: PeerClient,
    pub(crate) refresher: Refresher,
    pub(crate) metrics: Metrics,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) s3: S3,
    /// Memory of the batches in progress.
    pub(crate) batches: Budget,
}

/// All HTTP services of a target. Requests for objects bypass the router: for a small read, routes
/// and boxed middleware cost more than the disk.
pub(crate) struct Front {
    context: Shared,
    routes: Routes,
}

impl Front {
    pub(crate) fn new(context: Context) -> Self {
        let context = Arc::new(context);
        Self { routes: Routes::new(router(context.clone()), Role::Target), context }
    }
}

impl Handler for Front {
    fn fast_path(
        &self,
        about: RequestContext,
        get: &Asked<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Option<Direct> {
        (about.route == Route::Objects)
            .then(|| object_fast_path::fast_path(&self.context, &about, get, out))?
    }

    fn take(&self, about: RequestContext, put: &Asked<'_, '_>) -> Option<Take> {
        (about.route == Route::Objects)
            .then(|| object_fast_path::take(&self.context, &about, put))?
    }

    fn answer(
        &self,
        about: RequestContext,
        request: Request,
        peer: Peer,
    ) -> impl Future<Output = Response> + Send {
        if about.route == Route::Objects {
            return objects::handle(&self.context, &about, request);
        }
        let context = &self.context;
        Answer::Right(match context.s3.door.front(about.protocol) {
            Some(front) => {
                Box::pin(async move { s3::answer(context, &about, front, request, peer).await })
            }
            None => Box::pin(self.routes.answer(about, request, peer)),
        })
    }
}

/// All routes but those of objects.
fn router(context: Shared) -> Router {
    let data = Router::new()
        .route("/v1/ml/moss", get(batch::moss))
        .route("/v1/ml/moss/{*rest}", get(batch::moss))
        .route("/api/v1/batch", post(batch::native))
        .route("/api/v1/shard/{*name}", get(shard::index))
        .layer(middleware::from_fn_with_state(context.clone(), catch_up));
    let state = Router::new()
        .route("/internal/v1/state", post(intra::state))
        .route(INSTANCE_PATH, get(intra::instance))
        .layer(middleware::from_fn(nodes_only));
    let internal = Router::new()
        .route(LIST_PATH, post(intra::list))
        .route("/internal/v1/uploads", post(uploads::list))
        .route("/internal/v1/backend/head", post(intra::backend_head))
        .route(BACKEND_LIST_PATH, post(intra::backend_list))
        .route("/internal/v1/backend/changes", post(intra::backend_changes))
        .route("/internal/v1/backend/access", post(intra::backend_access))
        .route("/internal/v1/backend/bill", post(intra::backend_bill))
        .route("/internal/v1/job", post(intra::start_job).get(intra::jobs))
        .route("/internal/v1/job/{id}", get(intra::job).delete(intra::stop_job))
        .route("/internal/v1/disks", post(intra::disks))
        .route("/internal/v1/job/{id}/forget", post(intra::forget_job))
        .route("/internal/v1/stop", post(intra::stop))
        .route("/internal/v1/copy/look", post(copies::look))
        .route("/internal/v1/copy/survey", post(copies::survey))
        .route("/internal/v1/copy/peek", post(copies::peek))
        .route("/internal/v1/copy/send", post(copies::send))
        .route(SEND_VERSIONS_PATH, post(copies::send_versions))
        .route("/internal/v1/copy/remove", post(copies::remove))
        .route(ENSURE_PATH, post(copies::ensure))
        .route(READ_PATH, post(copies::slice))
        .route("/internal/v1/copies/{*name}", put(copies::take))
        .route("/internal/v1/shard/build", post(intra::start_build))
        .route("/internal/v1/shard/build/{id}", get(intra::build).delete(intra::stop_build))
        .route("/internal/v1/shard/build/{id}/publish", post(intra::publish_build))
        .route("/internal/v1/shard/hold", post(intra::hold_builds))
        .route("/internal/v1/shard/unpack", post(intra::unpack))
        .route("/internal/v1/inventory/create", post(inventory::create))
        .route("/internal/v1/inventory/info", post(inventory::info))
        .route("/internal/v1/inventory/page", post(inventory::page))
        .route("/internal/v1/inventory/destroy", post(inventory::destroy))
        .route("/internal/v1/bucket/{id}", delete(intra::drop_bucket))
        .route(
            "/internal/v1/objects/{*name}",
            put(object_actions::accept).delete(object_actions::remove),
        )
        .route("/internal/v1/promote", post(promote::start))
        .route("/internal/v1/promote/scan", post(promote::scan))
        .route("/internal/v1/etl", post(etl::check))
        .route("/internal/v1/etl/part", post(etl::part))
        .route("/internal/v1/download", post(download::start).get(download::all))
        .route("/internal/v1/download/{id}", get(download::one).delete(download::remove))
        .route("/internal/v1/download/{id}/abort", post(download::abort))
        .layer(middleware::from_fn_with_state(context.clone(), catch_up))
        .layer(middleware::from_fn(nodes_only));
    Router::new()
        .merge(data)
        .merge(internal)
        .merge(state)
        .route("/v1/etl/_object/{*name}", get(etl::pulled))
        .route("/v1/daemon", get(daemon::daemon))
        .route("/v1/health", get(daemon::health))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(daemon::ready))
        .route("/metrics", get(daemon::metrics))
        .layer(DefaultBodyLimit::max(MAX_JSON))
        .with_state(context)
}

async fn catch_up(State(context): State<Shared>, request: Request, next: Next) -> Response {
    match caught_up(&context, request.headers(), request.uri()).await {
        Ok(()) => next.run(request).await,
        Err(e) => Failure(e).into_response(),
    }
}

/// First gets at least the state that the sender used.
pub(crate) async fn caught_up(context: &Context, headers: &HeaderMap, uri: &Uri) -> Result<()> {
    match newer_state(context, headers, uri) {
        Some(version) => context.refresher.at_least(version).await.map(drop),
        None => Ok(()),
    }
}

/// The version of the state that the sender used, if it is newer than this node's.
fn newer_state(context: &Context, headers: &HeaderMap, uri: &Uri) -> Option<u64> {
    let header = headers.get(&KNOWN_MAP).and_then(|v| v.to_str().ok()?.parse().ok());
    let known = header.or_else(|| {
        let query = uri.query().filter(|q| q.contains(REDIRECT_VERSION))?;
        Query::parse(Some(query)).get(REDIRECT_VERSION).and_then(|v| v.parse().ok())
    });
    known.filter(|version| *version > context.maps.version())
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

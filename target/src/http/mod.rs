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

use axum::extract::Request;
use axum::handler::Handler as AxumHandler;
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::{IntoResponse, Response};
use forebay_client::PeerClient;
use forebay_core::Result;
use forebay_core::access::Access;
use forebay_core::intra::MAP_HEADER;
use forebay_core::request::{RequestContext, Route};
use forebay_core::routes::{Rule, internal, native, operations, v1_cluster, v1_objects};
use forebay_core::state::Role;
use forebay_core::v1::query::Query;
use forebay_node::auth::REDIRECT_VERSION;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::{Answer, Asked, Direct, Handler, Peer, Routes, Take};
use forebay_node::maps::Maps;
use forebay_node::membership::Refresher;
use forebay_node::metrics::Metrics;
use forebay_node::reply::Failure;
use forebay_node::routing::{GuardedRouter, RouteSet};
use futures::future::BoxFuture;

use crate::batch::budget::Budget;
use crate::disks::DiskAdmin;
use crate::download::Downloads;
use crate::etl::Etls;
use crate::job::Jobs;
use crate::job::build::builds::Builds;
use crate::object::ObjectService;
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
fn router(context: Shared) -> GuardedRouter {
    routes().with_state(context).with_body_limit(MAX_JSON)
}

fn routes() -> RouteSet<Shared> {
    RouteSet::new()
        .on(&v1_objects::MOSS, Current(batch::moss))
        .on(&native::BATCH, Current(batch::native))
        .on(&native::SHARD, Current(shard::index))
        .on(&internal::STATE, intra::state)
        .on(&internal::INSTANCE, intra::instance)
        .on(&v1_objects::ETL_OBJECT, etl::pulled)
        .on(&v1_cluster::DAEMON, daemon::daemon)
        .on(&operations::HEALTH, daemon::health)
        .on(&operations::HEALTHZ, || async { "ok\n" })
        .on(&operations::READYZ, daemon::ready)
        .on(&operations::METRICS, daemon::metrics)
        .merge(requests_of_nodes())
}

fn requests_of_nodes() -> RouteSet<Shared> {
    use forebay_core::routes::internal as rules;
    RouteSet::new()
        .on(&rules::LIST, Current(intra::list))
        .on(&rules::UPLOADS, Current(uploads::list))
        .on(&rules::BACKEND_HEAD, Current(intra::backend_head))
        .on(&rules::BACKEND_LIST, Current(intra::backend_list))
        .on(&rules::BACKEND_CHANGES, Current(intra::backend_changes))
        .on(&rules::BACKEND_ACCESS, Current(intra::backend_access))
        .on(&rules::BACKEND_BILL, Current(intra::backend_bill))
        .on(&rules::JOB_START, Current(intra::start_job))
        .on(&rules::JOBS, Current(intra::jobs))
        .on(&rules::JOB, Current(intra::job))
        .on(&rules::JOB_STOP, Current(intra::stop_job))
        .on(&rules::JOB_FORGET, Current(intra::forget_job))
        .on(&rules::DISKS, Current(intra::disks))
        .on(&rules::STOP, Current(intra::stop))
        .on(&rules::COPY_LOOK, Current(copies::look))
        .on(&rules::COPY_SURVEY, Current(copies::survey))
        .on(&rules::COPY_PEEK, Current(copies::peek))
        .on(&rules::COPY_SEND, Current(copies::send))
        .on(&rules::COPY_SEND_VERSIONS, Current(copies::send_versions))
        .on(&rules::COPY_REMOVE, Current(copies::remove))
        .on(&rules::COPY_ENSURE, Current(copies::ensure))
        .on(&rules::COPY_SLICE, Current(copies::slice))
        .on(&rules::COPY_TAKE, Current(copies::take))
        .on(&rules::BUILD_START, Current(intra::start_build))
        .on(&rules::BUILD, Current(intra::build))
        .on(&rules::BUILD_STOP, Current(intra::stop_build))
        .on(&rules::BUILD_PUBLISH, Current(intra::publish_build))
        .on(&rules::BUILD_HOLD, Current(intra::hold_builds))
        .on(&rules::BUILD_UNPACK, Current(intra::unpack))
        .on(&rules::INVENTORY_CREATE, Current(inventory::create))
        .on(&rules::INVENTORY_INFO, Current(inventory::info))
        .on(&rules::INVENTORY_PAGE, Current(inventory::page))
        .on(&rules::INVENTORY_DESTROY, Current(inventory::destroy))
        .on(&rules::BUCKET_DROP, Current(intra::drop_bucket))
        .on(&rules::OBJECT_ACCEPT, Current(object_actions::accept))
        .on(&rules::OBJECT_REMOVE, Current(object_actions::remove))
        .on(&rules::PROMOTE, Current(promote::start))
        .on(&rules::PROMOTE_SCAN, Current(promote::scan))
        .on(&rules::ETL_CHECK, Current(etl::check))
        .on(&rules::ETL_PART, Current(etl::part))
        .on(&rules::DOWNLOAD_START, Current(download::start))
        .on(&rules::DOWNLOADS, Current(download::all))
        .on(&rules::DOWNLOAD, Current(download::one))
        .on(&rules::DOWNLOAD_REMOVE, Current(download::remove))
        .on(&rules::DOWNLOAD_ABORT, Current(download::abort))
}

/// A handler that first gets at least the state that the sender used.
#[derive(Clone)]
struct Current<H>(H);

impl<H, T> AxumHandler<T, Shared> for Current<H>
where
    H: AxumHandler<T, Shared>,
{
    type Future = BoxFuture<'static, Response>;

    fn call(self, request: Request, context: Shared) -> Self::Future {
        Box::pin(async move {
            match caught_up(&context, request.headers(), request.uri()).await {
                Ok(()) => self.0.call(request, context).await,
                Err(e) => Failure(e).into_response(),
            }
        })
    }
}

/// The rights of the sender of a request.
fn access_of(request: &Request) -> Access {
    let about = request.extensions().get::<RequestContext>();
    about.map_or(Access::Anonymous, |about| about.access().clone())
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

/// The rules of objects, which bypass the router.
pub(crate) static OBJECT_RULES: [&Rule; 6] = [
    &v1_objects::GET,
    &v1_objects::HEAD,
    &v1_objects::PUT,
    &v1_objects::DELETE,
    &v1_objects::PATCH,
    &v1_objects::POST,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_of_targets_has_one_handler() {
        let name = |rule: &&'static Rule| (rule.verb.name(), rule.paths[0]);
        let served: Vec<_> = routes().rules().iter().chain(&OBJECT_RULES).map(name).collect();
        let is_here = |rule: &&'static Rule| rule.is_of_targets() && !rule.is_of_s3();
        let table: BTreeSet<_> =
            forebay_core::routes::table().filter(is_here).map(|rule| name(&rule)).collect();
        assert_eq!(served.iter().copied().collect::<BTreeSet<_>>(), table);
        assert_eq!(served.len(), table.len());
    }
}

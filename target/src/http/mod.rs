//! HTTP of a target: decode, call one service, encode; no decisions here.
//!
//! One file per resource, each with its routes and the struct of the services that its handlers
//! use. The wiring makes each struct once and hands it out with the routes.

pub(crate) mod batch;
pub(crate) mod blobs;
pub(crate) mod buckets;
pub(crate) mod builds;
pub(crate) mod copies;
pub(crate) mod daemon;
pub(crate) mod download;
pub(crate) mod etl;
mod get_request;
pub(crate) mod inventory;
pub(crate) mod jobs;
pub(crate) mod listing;
pub(crate) mod object_actions;
mod object_fast_path;
pub(crate) mod object_get;
mod object_head;
mod object_reply;
mod object_request;
pub(crate) mod object_write;
pub(crate) mod objects;
pub(crate) mod owner;
pub(crate) mod prestop;
pub(crate) mod promote;
pub(crate) mod remote_writes;
pub(crate) mod shard;
pub(crate) mod synced;
pub(crate) mod uploads;

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use forebay_core::request::{RequestContext, Route};
use forebay_core::state::Role;
use forebay_node::fast_http::{FastAnswer, RequestHead};
use forebay_node::listener::{Answer, Handler, Peer, Routes, Take};
use forebay_node::routing::GuardedRouter;

use self::objects::ObjectsApi;
use crate::s3::{self, S3Api};

/// Largest JSON body that a target reads (a batch request names many objects).
const MAX_JSON: usize = 256 << 20;

/// All HTTP services of a target. Requests for objects bypass the router: for a small read, routes
/// and boxed middleware cost more than the disk.
pub(crate) struct Front {
    objects: Arc<ObjectsApi>,
    s3: S3Api,
    routes: Routes,
}

impl Front {
    /// `router` has all routes but those of objects and of S3.
    pub(crate) fn new(objects: ObjectsApi, s3: S3Api, router: GuardedRouter) -> Self {
        let routes = Routes::new(router.with_body_limit(MAX_JSON), Role::Target);
        Self { objects: Arc::new(objects), s3, routes }
    }
}

impl Handler for Front {
    fn fast_path(
        &self,
        about: &RequestContext,
        get: &RequestHead<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Option<FastAnswer> {
        (about.route == Route::Objects).then(|| self.objects.fast_path(about, get, out))?
    }

    fn take(&self, about: &RequestContext, put: &RequestHead<'_, '_>) -> Option<Take> {
        (about.route == Route::Objects).then(|| self.objects.take(about, put))?
    }

    fn answer(
        &self,
        about: RequestContext,
        request: Request,
        peer: Peer,
    ) -> impl Future<Output = Response> + Send {
        if about.route == Route::Objects {
            return self.objects.handle(&about, request);
        }
        let s3 = &self.s3;
        Answer::Right(match s3.door.front(about.protocol) {
            Some(front) => {
                Box::pin(async move { s3::answer(s3, &about, front, request, peer).await })
            }
            None => Box::pin(self.routes.answer(about, request, peer)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_routes::{Rule, table};

    use super::*;

    fn routed() -> Vec<&'static Rule> {
        [
            batch::routes().rules(),
            batch::get_batch_routes().rules(),
            buckets::routes().rules(),
            builds::routes().rules(),
            copies::routes().rules(),
            daemon::commands().rules(),
            daemon::routes().rules(),
            forebay_node::trace::routes().rules(),
            download::routes().rules(),
            etl::pull_routes().rules(),
            etl::routes().rules(),
            inventory::routes().rules(),
            jobs::routes().rules(),
            listing::routes().rules(),
            prestop::routes().rules(),
            promote::routes().rules(),
            remote_writes::routes().rules(),
            shard::routes().rules(),
            uploads::routes().rules(),
        ]
        .concat()
    }

    #[test]
    fn every_route_of_targets_has_one_handler() {
        let name = |rule: &&'static Rule| (rule.verb.name(), rule.paths[0]);
        let served: Vec<_> = routed().iter().chain(&objects::OBJECT_RULES).map(name).collect();
        let is_here = |rule: &&'static Rule| rule.is_of_targets() && !rule.is_of_s3();
        let table: BTreeSet<_> = table().filter(is_here).map(|rule| name(&rule)).collect();
        assert_eq!(served.iter().copied().collect::<BTreeSet<_>>(), table);
        assert_eq!(served.len(), table.len());
    }
}

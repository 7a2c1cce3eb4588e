//! The credential and access that each target has to a bucket's backend. Every target is asked,
//! because only targets call clouds, each with the credentials of its own environment.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use forebay_core::Result;
use forebay_core::backend_access::{AccessRequest, BackendAccess, BucketAccess, TargetAccess};
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::native;
use forebay_v1::query::Query;

use super::answered;
use crate::route::Route;
use crate::targets::{self, Targets};

/// Path at which a target checks its access.
const ACCESS: &str = "/internal/v1/backend/access";

#[derive(Clone)]
pub(crate) struct AccessFront {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
}

pub(crate) fn router(state: AccessFront) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<AccessFront> {
    RouteSet::new().on(&native::ACCESS, access)
}

async fn access(
    State(front): State<AccessFront>,
    Path(bucket): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let result = front.ask(&bucket, &Query::parse(query.as_deref())).await;
    answered("access", result.map(|access| json(&access)))
}

impl AccessFront {
    async fn ask(&self, bucket: &str, query: &Query) -> Result<BucketAccess> {
        let found = self.route.known_or_requested(&query.bucket(bucket)?)?;
        if !found.info.has_backend() {
            return Ok(BucketAccess { native: true, ..BucketAccess::default() });
        }
        let prefix = query.get("prefix").unwrap_or_default().to_owned();
        let request = AccessRequest { info: found.info.clone(), prefix };
        let nodes = targets::alive(&found.state)?;
        let mut all = BucketAccess::default();
        for (node, answer) in
            self.targets.post_all::<_, BackendAccess>(nodes, ACCESS, &request).await
        {
            match answer {
                Ok(access) => {
                    all.targets.push(TargetAccess { target: node.to_string(), access });
                }
                Err(e) => {
                    tracing::debug!(%node, error = %e, "target did not report its access");
                    all.away.push(node.to_string());
                }
            }
        }
        Ok(all)
    }
}

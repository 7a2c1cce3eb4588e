//! The cloud bill of a bucket, summed over the targets: only targets call clouds.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use forebay_core::Result;
use forebay_core::bill::{BillRequest, BucketBill, CloudBill};
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::native;
use forebay_v1::query::Query;

use super::answered;
use crate::route::Route;
use crate::targets::{self, Targets};

/// Path at which a target returns its counters.
const BILL: &str = "/internal/v1/backend/bill";

#[derive(Clone)]
pub(crate) struct BillFront {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
}

pub(crate) fn router(state: BillFront) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<BillFront> {
    RouteSet::new().on(&native::BILL, bill)
}

async fn bill(
    State(front): State<BillFront>,
    Path(bucket): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let result = front.sum(&bucket, &Query::parse(query.as_deref())).await;
    answered("bill", result.map(|bill| json(&bill)))
}

impl BillFront {
    async fn sum(&self, bucket: &str, query: &Query) -> Result<BucketBill> {
        let found = self.route.bucket(&query.bucket(bucket)?).await?;
        let nodes = targets::alive(&found.state)?;
        let request = BillRequest { bucket: found.info.bucket.clone() };
        let away = found.state.targets().count() - nodes.len();
        let mut sum = BucketBill { away, ..BucketBill::default() };
        for (node, answer) in self.targets.post_all(nodes, BILL, &request).await {
            match answer {
                Ok(bill) => {
                    let bill: CloudBill = bill;
                    sum.bill.add(&bill);
                    sum.targets += 1;
                }
                Err(e) => {
                    tracing::debug!(%node, error = %e, "its part of a bill is missing");
                    sum.away += 1;
                }
            }
        }
        Ok(sum)
    }
}

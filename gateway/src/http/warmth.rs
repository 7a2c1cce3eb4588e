//! The warmth of buckets, summed over the targets: they count their copies and reads as these change,
//! so no bucket is listed for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use forebay_core::access::Scope;
use forebay_core::bill::RequestClass;
use forebay_core::bucket::BucketInfo;
use forebay_core::quota::StoredPart;
use forebay_core::request::RequestContext;
use forebay_core::state::ClusterState;
use forebay_core::warmth::{BucketWarmth, TargetWarmth, WarmthReply, WarmthRequest};
use forebay_core::{Provider, Result};
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{On, native};
use forebay_v1::query::Query;

use super::{answered, list};
use crate::route::Route;
use crate::targets::Targets;

/// Path at which a target returns its part.
const WARMTH: &str = "/internal/v1/bucket/warmth";

/// The services for the warmth of buckets.
#[derive(Clone)]
pub(crate) struct WarmthApi {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
}

pub(crate) fn router(state: WarmthApi) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<WarmthApi> {
    RouteSet::new().on(&native::WARMTH, one).on(&native::WARMTHS, all)
}

async fn one(
    State(api): State<WarmthApi>,
    Path(bucket): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let result = api.of_bucket(&bucket, &Query::parse(query.as_deref())).await;
    answered("warmth", result.map(|reply| json(&reply)))
}

async fn all(
    State(api): State<WarmthApi>,
    Extension(about): Extension<RequestContext>,
    RawQuery(query): RawQuery,
) -> Response {
    let grant = native::WARMTHS.row().of(about.access());
    let is_shown = |info: &BucketInfo| grant.has(On::Selected, Scope::Bucket(&info.bucket));
    let result = api.of_all(&Query::parse(query.as_deref()), is_shown).await;
    answered("warmths", result.map(|reply| json(&reply)))
}

impl WarmthApi {
    async fn of_bucket(&self, bucket: &str, query: &Query) -> Result<WarmthReply> {
        let found = self.route.bucket(&query.bucket(bucket)?).await?;
        let request = WarmthRequest { bucket: Some(found.info.bucket.clone()) };
        Ok(self.sum(&found.state, vec![found.info.clone()], &request).await)
    }

    /// The warmth of the buckets that are shown, of one provider if the query names it.
    async fn of_all(
        &self,
        query: &Query,
        is_shown: impl Fn(&BucketInfo) -> bool,
    ) -> Result<WarmthReply> {
        let provider: Option<Provider> = query.get("provider").map(str::parse).transpose()?;
        let state = self.route.state();
        let is_wanted = |info: &&Arc<BucketInfo>| {
            let is_of_provider = provider.is_none_or(|provider| provider == info.bucket.provider);
            is_of_provider && !list::is_system(&info.bucket) && is_shown(info)
        };
        let infos = state.buckets.values().filter(is_wanted).cloned().collect();
        Ok(self.sum(&state, infos, &WarmthRequest::default()).await)
    }

    /// The sums over the targets for some buckets. A target that does not reply is named.
    async fn sum(
        &self,
        state: &ClusterState,
        infos: Vec<Arc<BucketInfo>>,
        request: &WarmthRequest,
    ) -> WarmthReply {
        let away = state.targets().filter(|node| !node.alive).map(|node| node.id.clone());
        let mut reply = WarmthReply { away: away.collect(), ..WarmthReply::default() };
        let mut sums: BTreeMap<u64, BucketWarmth> =
            infos.iter().map(|info| (info.id, empty(info))).collect();
        let mut stored = BTreeMap::<u64, StoredPart>::new();
        for (node, part) in self.targets.post_all(state.alive_targets(), WARMTH, request).await {
            match part {
                Ok(TargetWarmth { buckets }) => {
                    reply.targets += 1;
                    for part in &buckets {
                        if let Some(sum) = sums.get_mut(&part.bucket_id) {
                            sum.add(part);
                        }
                        if let Some(quota) = &part.quota {
                            stored.entry(part.bucket_id).or_default().add(quota);
                        }
                    }
                }
                Err(e) => {
                    tracing::debug!(%node, error = %e, "its part of the warmth is missing");
                    reply.away.push(node);
                }
            }
        }
        reply.away.sort();
        let is_complete = reply.away.is_empty();
        for info in &infos {
            let exact = is_complete && is_countable(state, info);
            let used = stored.get(&info.id).filter(|_| info.quota().is_set());
            let quota_used = used.map(|part| part.logical(info.copies, info.erasure.as_ref()));
            let sum = sums.remove(&info.id).map(|sum| BucketWarmth {
                exact,
                quota_used,
                ..finished(info, sum)
            });
            reply.buckets.extend(sum);
        }
        reply.buckets.sort_by_cached_key(|warmth| warmth.bucket.to_string());
        reply
    }
}

fn empty(info: &BucketInfo) -> BucketWarmth {
    let (backed, pinned) = (info.has_backend(), info.cache.pin);
    BucketWarmth { backed, pinned, ..BucketWarmth::of(info.bucket.clone()) }
}

/// Whether the number of copies is the number of objects, times the bucket's copies.
fn is_countable(state: &ClusterState, info: &BucketInfo) -> bool {
    info.has_backend() || (info.erasure.is_none() && state.is_quiescent())
}

/// The sum with what follows from the properties of the bucket.
fn finished(info: &BucketInfo, mut sum: BucketWarmth) -> BucketWarmth {
    let is_billed = |kind| !RequestClass::of(kind).is_empty();
    if info.backend.as_ref().is_some_and(|backend| is_billed(backend.kind)) {
        sum.egress_saved_hour_bytes = sum.hour.reads.saved_bytes();
        sum.egress_saved_day_bytes = sum.day.reads.saved_bytes();
    }
    // Each object counts once, as in a listing.
    if !info.has_backend() && info.copies > 1 {
        let copies = u64::from(info.copies);
        sum.objects = sum.objects.div_ceil(copies);
        sum.bytes = sum.bytes.div_ceil(copies);
    }
    sum
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::Bucket;
    use forebay_core::bucket::{BackendKind, BackendSpec};
    use forebay_core::erasure::Erasure;
    use forebay_core::warmth::{ReadCounts, ReadWindow, TargetBucketWarmth};

    use super::*;

    fn info(provider: Provider) -> BucketInfo {
        BucketInfo::requested(Bucket::new(provider, "b").unwrap(), None)
    }

    fn sum(info: &BucketInfo) -> BucketWarmth {
        let reads = ReadCounts { hit_bytes: 30, miss_bytes: 5, ..ReadCounts::default() };
        let window = Some(ReadWindow { seconds: 60, reads });
        let (hour, day) = (window, window);
        let part = TargetBucketWarmth { objects: 4, bytes: 80, hour, day, ..Default::default() };
        let mut sum = empty(info);
        sum.add(&part);
        finished(info, sum)
    }

    #[test]
    fn only_a_backend_with_costs_saves_egress() {
        let mut cloud = info(Provider::Aws);
        assert!(cloud.has_backend());
        assert_eq!(sum(&cloud).egress_saved_day_bytes, 30);
        cloud.backend = Some(BackendSpec { kind: BackendKind::Folder, ..cloud.backend.unwrap() });
        assert_eq!(sum(&cloud).egress_saved_day_bytes, 0);
        assert_eq!(sum(&info(Provider::Ais)).egress_saved_hour_bytes, 0);
    }

    #[test]
    fn a_native_bucket_is_countable_without_erasure_coding_while_all_copies_are_in_place() {
        let (cloud, native) = (info(Provider::Aws), info(Provider::Ais));
        let coded = BucketInfo { erasure: Some(Erasure::default()), ..native.clone() };
        let countable =
            |state: &ClusterState| [&cloud, &native, &coded].map(|b| is_countable(state, b));
        let mut state = ClusterState::default();
        assert_eq!(countable(&state), [true, true, false]);
        state.targets_changed = state.version + 1;
        assert_eq!(countable(&state), [true, false, false], "objects move");
    }

    #[test]
    fn copies_of_a_native_object_count_once() {
        let two = BucketInfo { copies: 2, ..info(Provider::Ais) };
        let warmth = sum(&two);
        assert_eq!((warmth.objects, warmth.bytes), (2, 40));
    }
}

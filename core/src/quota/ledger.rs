//! The leading gateway's record of usage and grants.

use std::collections::BTreeMap;

use super::{Amount, BucketQuota, QuotaGrant, QuotaReport, StoredPart};
use crate::erasure::Erasure;
use crate::lease::LEASE_MS;
use crate::name::NodeId;
use crate::state::ClusterState;

/// How long a target may use a grant. A target without a newer one has also lost its lease.
pub const GRANT_VALID_MS: u64 = LEASE_MS;
/// A grant may arrive this long after the leader made it.
const ANSWER_MS: u64 = 2_000;

/// How a bucket's objects are counted.
#[derive(Clone, Debug)]
struct Counted {
    quota: BucketQuota,
    copies: u32,
    erasure: Option<Erasure>,
}

impl Counted {
    /// Whether the part of a target that is away counts: nothing else has its objects, so they come
    /// back with it. With copies, other targets make new ones meanwhile.
    fn keeps_away(&self) -> bool {
        self.copies <= 1 && self.erasure.is_none()
    }
}

/// The last report of a target, and the grants that answered it.
#[derive(Debug, Default)]
struct Reported {
    at_ms: u64,
    /// `None`: a program that knows no quotas.
    parts: Option<BTreeMap<u64, QuotaReport>>,
    granted: BTreeMap<u64, Amount>,
}

/// Usage and grants of all buckets with a quota. It begins empty with each leader: until all targets
/// that are alive have reported, it grants nothing.
#[derive(Debug, Default)]
pub struct Ledger {
    version: u64,
    buckets: BTreeMap<u64, Counted>,
    targets: BTreeMap<NodeId, Reported>,
}

impl Ledger {
    /// Takes over the quotas of a state, if it is another than before.
    fn follow(&mut self, state: &ClusterState) {
        if self.version == state.version {
            return;
        }
        self.version = state.version;
        let with_quota = state.buckets.values().filter(|info| info.quota().is_set());
        self.buckets = with_quota
            .map(|info| {
                let (quota, copies, erasure) = (info.quota(), info.copies, info.erasure);
                (info.id, Counted { quota, copies, erasure })
            })
            .collect();
        self.targets.retain(|id, _| state.node(id).is_some());
    }

    /// Records the report of a target and returns its grants: one for each of its buckets whose usage
    /// is known. `reports` is `None` from a program that knows no quotas.
    pub fn report(
        &mut self,
        state: &ClusterState,
        id: &NodeId,
        reports: Option<Vec<QuotaReport>>,
        now_ms: u64,
    ) -> Vec<QuotaGrant> {
        self.follow(state);
        let parts = reports.map(|reports| reports.into_iter().map(|r| (r.bucket_id, r)).collect());
        let granted = BTreeMap::new();
        let reported = Reported { at_ms: now_ms, parts, granted };
        self.targets.insert(id.clone(), reported);
        let alive: Vec<&NodeId> = state.alive_targets().map(|node| &node.id).collect();
        let grants: Vec<QuotaGrant> = self
            .buckets
            .iter()
            .filter_map(|(bucket, counted)| self.grant(*bucket, counted, id, &alive, now_ms))
            .collect();
        if let Some(own) = self.targets.get_mut(id) {
            own.granted = grants.iter().map(|grant| (grant.bucket_id, grant.grant)).collect();
        }
        grants
    }

    fn grant(
        &self,
        bucket: u64,
        counted: &Counted,
        id: &NodeId,
        alive: &[&NodeId],
        now_ms: u64,
    ) -> Option<QuotaGrant> {
        let own = self.targets.get(id)?.parts.as_ref()?.get(&bucket)?;
        // A target that knows quotas, but not this one yet, has an unknown part.
        let is_known = |id: &&NodeId| {
            let reported = self.targets.get(*id);
            reported.is_some_and(|r| r.parts.as_ref().is_none_or(|p| p.contains_key(&bucket)))
        };
        if !alive.iter().all(is_known) {
            return None;
        }
        let (mut stored, mut pending) = (StoredPart::default(), Amount::default());
        let (mut outstanding, mut others_wait) = (Amount::default(), false);
        let mut oldest_ms = 0;
        for (node, reported) in &self.targets {
            let is_alive = alive.contains(&node);
            let Some(part) = reported.parts.as_ref().and_then(|parts| parts.get(&bucket)) else {
                continue;
            };
            if is_alive || counted.keeps_away() {
                stored.add(&part.stored);
            }
            let age_ms = now_ms.saturating_sub(reported.at_ms);
            if is_alive {
                pending += part.pending;
                oldest_ms = oldest_ms.max(age_ms + part.age_ms);
            }
            let granted = reported.granted.get(&bucket).copied().unwrap_or_default();
            if node != id && age_ms < GRANT_VALID_MS + ANSWER_MS {
                outstanding += granted;
                others_wait |= is_alive && !granted.covers(&part.wanted);
            }
        }
        let limit = counted.quota.limit();
        let used = stored.logical(counted.copies, counted.erasure.as_ref()).plus(&pending);
        let headroom = limit.minus(&used);
        // Half of the headroom is spread, so that a large write anywhere finds the other half.
        let spread = headroom.over(2 * alive.len() as u64);
        let wish = if others_wait { own.wanted } else { own.wanted.max(&spread) };
        let mut grant = wish.min(&headroom.minus(&outstanding));
        if counted.quota.bytes.is_none() {
            grant.bytes = u64::MAX;
        }
        if counted.quota.objects.is_none() {
            grant.objects = u64::MAX;
        }
        Some(QuotaGrant { bucket_id: bucket, sample: own.sample, used, grant, oldest_ms })
    }
}

//! A target's side: which writes its grants allow.

use std::collections::BTreeMap;

use super::{Amount, BucketQuota, GRANT_VALID_MS, QuotaGrant, QuotaReport, StoredPart};
use crate::state::ClusterState;

/// The state of one bucket.
#[derive(Clone, Debug, Default)]
struct Gated {
    quota: BucketQuota,
    /// How much more writes may add under the last grant.
    left: Amount,
    /// When the report was sent that the last grant answered.
    granted_ms: Option<u64>,
    /// Usage in the cluster, as of the last grant.
    used: Amount,
    /// No sample in `used` is from before this time.
    known_ms: u64,
    /// All growth that was ever reserved, without that of failed writes.
    charged: Amount,
    /// Growth of the writes in progress.
    pending: Amount,
    /// Growth of the writes that wait.
    waiting: Amount,
    report: Option<QuotaReport>,
    /// When the reported sample began.
    sampled_ms: u64,
    /// `charged` at the reported sample.
    charged_before: Amount,
}

/// The counters of a bucket just before its stored objects are counted.
#[derive(Clone, Copy, Debug)]
pub struct SampleMark {
    pub bucket_id: u64,
    began_ms: u64,
    charged: Amount,
    pending: Amount,
}

/// The result of [`QuotaGate::try_reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The bucket has no quota, or the write does not add to it.
    Unlimited,
    Reserved,
    /// The grant does not cover the write.
    Insufficient {
        /// Usage in the cluster, as of the last grant.
        used: Amount,
        /// `used` has every write and deletion that ended before this time; `None` before the first
        /// grant.
        known_ms: Option<u64>,
    },
}

/// The grants of one target. Times are milliseconds of a monotonic clock of the caller.
#[derive(Debug, Default)]
pub struct QuotaGate {
    version: u64,
    samples: u64,
    buckets: BTreeMap<u64, Gated>,
}

impl QuotaGate {
    /// Takes over the quotas of a state, if it is another than before.
    pub fn follow(&mut self, state: &ClusterState) {
        if self.version == state.version {
            return;
        }
        self.version = state.version;
        let mut old = std::mem::take(&mut self.buckets);
        for info in state.buckets.values() {
            let quota = info.quota();
            if !quota.is_set() {
                continue;
            }
            let mut gated = old.remove(&info.id).unwrap_or_default();
            if gated.quota != quota {
                // The grant was for another quota.
                (gated.quota, gated.left, gated.granted_ms) = (quota, Amount::default(), None);
            }
            self.buckets.insert(info.id, gated);
        }
    }

    /// Whether no bucket has a quota.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The usage of a bucket in the cluster, if it has a quota and its usage is known.
    pub fn used(&self, bucket_id: u64) -> Option<Amount> {
        let gated = self.buckets.get(&bucket_id)?;
        gated.granted_ms.map(|_| gated.used)
    }

    /// Begins a sample: the caller counts what is stored of these buckets after this call, so that a
    /// write that ends meanwhile counts at least once.
    pub fn begin_sample(&self, now_ms: u64) -> Vec<SampleMark> {
        let mark = |(id, gated): (&u64, &Gated)| SampleMark {
            bucket_id: *id,
            began_ms: now_ms,
            charged: gated.charged,
            pending: gated.pending,
        };
        self.buckets.iter().map(mark).collect()
    }

    /// Records what is stored of a bucket.
    pub fn end_sample(&mut self, mark: &SampleMark, stored: StoredPart) {
        self.samples += 1;
        let sample = self.samples;
        let Some(gated) = self.buckets.get_mut(&mark.bucket_id) else { return };
        let (bucket_id, pending) = (mark.bucket_id, mark.pending);
        let wanted = Amount::default();
        let age_ms = 0;
        gated.report = Some(QuotaReport { bucket_id, sample, age_ms, stored, pending, wanted });
        (gated.charged_before, gated.sampled_ms) = (mark.charged, mark.began_ms);
    }

    /// The reports of the last samples, for the next heartbeat.
    pub fn reports(&self, now_ms: u64) -> Vec<QuotaReport> {
        let with_wish = |gated: &Gated| {
            let report = gated.report.clone()?;
            let age_ms = now_ms.saturating_sub(gated.sampled_ms);
            Some(QuotaReport { wanted: gated.waiting, age_ms, ..report })
        };
        self.buckets.values().filter_map(with_wish).collect()
    }

    /// Takes over the grants of the leader, which answer a report that was sent at `sent_ms`.
    pub fn granted(&mut self, grants: &[QuotaGrant], sent_ms: u64) {
        for grant in grants {
            let Some(gated) = self.buckets.get_mut(&grant.bucket_id) else { continue };
            if gated.report.as_ref().is_none_or(|report| report.sample != grant.sample) {
                // A newer sample is on its way already.
                continue;
            }
            gated.left = grant.grant.minus(&gated.charged.minus(&gated.charged_before));
            (gated.used, gated.granted_ms) = (grant.used, Some(sent_ms));
            gated.known_ms = sent_ms.saturating_sub(grant.oldest_ms);
        }
    }

    /// Grants from the usage of this target alone: the leader does not know quotas.
    pub fn granted_alone(&mut self, state: &ClusterState, sent_ms: u64) {
        let mut grants = Vec::new();
        for info in state.buckets.values().filter(|info| self.buckets.contains_key(&info.id)) {
            let Some(gated) = self.buckets.get(&info.id) else { continue };
            let Some(report) = &gated.report else { continue };
            let stored = report.stored.logical(info.copies, info.erasure.as_ref());
            let used = stored.plus(&report.pending);
            let grant = gated.quota.limit().minus(&used);
            let (bucket_id, sample) = (info.id, report.sample);
            let oldest_ms = sent_ms.saturating_sub(gated.sampled_ms);
            grants.push(QuotaGrant { bucket_id, sample, used, grant, oldest_ms });
        }
        self.granted(&grants, sent_ms);
    }

    /// Reserves the growth of a write, if the grant covers it. [`Self::release`] ends the reservation.
    pub fn try_reserve(&mut self, bucket_id: u64, need: Amount, now_ms: u64) -> Attempt {
        let Some(gated) = self.buckets.get_mut(&bucket_id) else { return Attempt::Unlimited };
        if need.is_zero() {
            return Attempt::Unlimited;
        }
        let age_ms = |at: u64| now_ms.saturating_sub(at);
        let is_valid = gated.granted_ms.is_some_and(|at| age_ms(at) < GRANT_VALID_MS);
        if !is_valid || !gated.left.covers(&need) {
            let known_ms = gated.granted_ms.map(|_| gated.known_ms);
            return Attempt::Insufficient { used: gated.used, known_ms };
        }
        gated.left = gated.left.minus(&need);
        gated.charged += need;
        gated.pending += need;
        Attempt::Reserved
    }

    /// Ends a reservation. `is_stored`: the write succeeded, so the next sample counts its bytes.
    pub fn release(&mut self, bucket_id: u64, need: Amount, is_stored: bool) {
        let Some(gated) = self.buckets.get_mut(&bucket_id) else { return };
        gated.pending = gated.pending.minus(&need);
        if !is_stored {
            gated.charged = gated.charged.minus(&need);
        }
    }

    /// Begins or ends the wait of a write for a grant.
    pub fn wait(&mut self, bucket_id: u64, need: Amount, begins: bool) {
        let Some(gated) = self.buckets.get_mut(&bucket_id) else { return };
        let waiting = gated.waiting;
        gated.waiting = if begins { waiting.plus(&need) } else { waiting.minus(&need) };
    }
}

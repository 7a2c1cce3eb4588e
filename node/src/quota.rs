//! The quotas of buckets at a target: writes wait here for the leader's grants, and are refused when
//! the bucket is full.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::quota::{Amount, Attempt, QuotaGate, QuotaGrant, QuotaReport, SampleMark};
use forebay_core::state::ClusterState;
use forebay_core::{Error, Result};
use tokio::sync::Notify;

/// A write that does not fit is refused when every target has reported after it began, so that all that was
/// deleted before counts; and at the latest after this time. An election of gateways rarely takes longer.
const REFUSED_AFTER: Duration = Duration::from_secs(3);
/// Interval at which a waiting write has the counters sampled again.
const SAMPLE_AGAIN: Duration = Duration::from_millis(150);

/// The quotas at this node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Quotas(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gate: Mutex<QuotaGate>,
    started: Instant,
    granted: Notify,
    wanted: Notify,
}

impl Default for Quotas {
    fn default() -> Self {
        let (gate, granted, wanted) = Default::default();
        Self(Arc::new(Inner { gate, started: Instant::now(), granted, wanted }))
    }
}

impl Quotas {
    fn gate(&self) -> MutexGuard<'_, QuotaGate> {
        // After a panic the next samples and grants correct the counters.
        self.0.gate.locked()
    }

    fn now_ms(&self) -> u64 {
        self.0.started.elapsed().as_millis() as u64
    }

    /// Begins a sample of the buckets with a quota in this state. [`Self::end_sample`] ends it.
    pub fn begin_sample(&self, state: &ClusterState) -> Vec<SampleMark> {
        let mut gate = self.gate();
        gate.follow(state);
        gate.begin_sample(self.now_ms())
    }

    /// Records what is stored of a bucket; counted after [`Self::begin_sample`].
    pub fn end_sample(&self, mark: &SampleMark, stored: forebay_core::quota::StoredPart) {
        self.gate().end_sample(mark, stored);
    }

    /// Returns when a write needs a sample ahead of time.
    pub async fn sample_wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// The reports for a heartbeat.
    pub(crate) fn reports(&self) -> Vec<QuotaReport> {
        self.gate().reports(self.now_ms())
    }

    /// Takes over the leader's answer to the reports of a heartbeat that was sent `ago` before now. `None`:
    /// the leader does not know quotas.
    pub(crate) fn answered(
        &self,
        grants: Option<&[QuotaGrant]>,
        state: &ClusterState,
        ago: Duration,
    ) {
        let sent_ms = self.now_ms().saturating_sub(ago.as_millis() as u64);
        let mut gate = self.gate();
        if gate.is_empty() {
            return;
        }
        match grants {
            Some(grants) => gate.granted(grants, sent_ms),
            None => gate.granted_alone(state, sent_ms),
        }
        drop(gate);
        self.0.granted.notify_waiters();
    }

    /// Reserves the growth of a write to a bucket of this state. A write that the quota does not allow waits a moment, since
    /// grants move between targets and deletions may be under way, and is then refused.
    pub async fn reserve(
        &self,
        state: &ClusterState,
        info: &BucketInfo,
        need: Amount,
    ) -> Result<Reservation> {
        // A quota counts from the moment on at which the target has it.
        self.gate().follow(state);
        let mut reservation = Reservation {
            quotas: self.clone(),
            bucket_id: info.id,
            held: Amount::default(),
            is_stored: false,
        };
        if info.quota().is_set() {
            reservation.grow(info, need).await?;
        }
        Ok(reservation)
    }

    async fn wait(&self, info: &BucketInfo, need: Amount) -> Result<bool> {
        let began_ms = self.now_ms();
        let _waiting = Waiting::begin(self, info.id, need);
        loop {
            let granted = self.0.granted.notified();
            let mut granted = std::pin::pin!(granted);
            granted.as_mut().enable();
            let attempt = self.gate().try_reserve(info.id, need, self.now_ms());
            let (used, known_ms) = match attempt {
                Attempt::Unlimited => return Ok(false),
                Attempt::Reserved => return Ok(true),
                Attempt::Insufficient { used, known_ms } => (used, known_ms),
            };
            let waited = Duration::from_millis(self.now_ms().saturating_sub(began_ms));
            let is_late = waited >= REFUSED_AFTER;
            if known_ms.is_some_and(|known| known > began_ms || is_late) {
                return Err(info.quota().exceeded(&info.bucket.to_string(), &used, &need));
            }
            if is_late {
                let text = format!("the usage of bucket \"{}\" is not known just now", info.bucket);
                return Err(Error::unavailable(text).retry_after(1).hint("it has a quota"));
            }
            self.0.wanted.notify_one();
            let _ = tokio::time::timeout(SAMPLE_AGAIN, granted).await;
        }
    }
}

/// A write that waits for a grant; its growth is part of the reports meanwhile.
struct Waiting<'a> {
    quotas: &'a Quotas,
    bucket_id: u64,
    need: Amount,
}

impl<'a> Waiting<'a> {
    fn begin(quotas: &'a Quotas, bucket_id: u64, need: Amount) -> Self {
        quotas.gate().wait(bucket_id, need, true);
        Self { quotas, bucket_id, need }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.quotas.gate().wait(self.bucket_id, self.need, false);
    }
}

/// Reserved growth of a bucket; given back when it is dropped, unless the write succeeded.
#[derive(Debug)]
pub struct Reservation {
    quotas: Quotas,
    bucket_id: u64,
    held: Amount,
    is_stored: bool,
}

impl Reservation {
    /// Reserves more, until `total` is covered.
    pub async fn grow(&mut self, info: &BucketInfo, total: Amount) -> Result<()> {
        let need = total.minus(&self.held);
        if need.is_zero() || !info.quota().is_set() {
            return Ok(());
        }
        let attempt = self.quotas.gate().try_reserve(info.id, need, self.quotas.now_ms());
        let is_reserved = match attempt {
            Attempt::Reserved => true,
            Attempt::Unlimited => false,
            Attempt::Insufficient { .. } => self.quotas.wait(info, need).await?,
        };
        if is_reserved {
            self.held += need;
        }
        Ok(())
    }

    /// The write succeeded: its bytes are stored.
    pub fn stored(mut self) {
        self.is_stored = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.held.is_zero() {
            self.quotas.gate().release(self.bucket_id, self.held, self.is_stored);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::quota::StoredPart;
    use forebay_core::state::Command;
    use forebay_core::{Bucket, ErrorCode, Provider};
    use serde_json::json;

    use super::*;

    fn bytes(bytes: u64) -> Amount {
        Amount { bytes, objects: 1 }
    }

    fn state() -> (ClusterState, BucketInfo) {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        info.set_quota(&json!({"bytes": 100})).unwrap();
        let mut state = ClusterState::default();
        let create = Command::CreateBucket { info: Box::new(info), now_ns: 1 };
        state.apply(1, create).unwrap();
        let info = state.buckets.values().next().unwrap().as_ref().clone();
        (state, info)
    }

    fn sample(quotas: &Quotas, state: &ClusterState, stored: u64) -> u64 {
        for mark in quotas.begin_sample(state) {
            let copies = Amount { bytes: stored, objects: 1 };
            quotas.end_sample(&mark, StoredPart { copies, ..StoredPart::default() });
        }
        quotas.reports()[0].sample
    }

    #[tokio::test]
    async fn a_write_waits_for_its_grant_and_one_beyond_the_quota_is_refused() {
        let (state, info) = state();
        let quotas = Quotas::default();
        let first = sample(&quotas, &state, 0);
        let (waits, of, now) = (quotas.clone(), info.clone(), state.clone());
        let waiting = tokio::spawn(async move { waits.reserve(&now, &of, bytes(60)).await });
        quotas.sample_wanted().await;
        assert_eq!(quotas.reports()[0].wanted, bytes(60));
        let grant = Amount { bytes: 60, objects: u64::MAX };
        let grant = QuotaGrant {
            bucket_id: info.id,
            sample: first,
            used: Amount::default(),
            grant,
            oldest_ms: 0,
        };
        quotas.answered(Some(&[grant]), &state, Duration::ZERO);
        waiting.await.unwrap().unwrap().stored();
        let second = sample(&quotas, &state, 60);
        assert!(quotas.reports()[0].pending.is_zero());
        let (asks, of, now) = (quotas.clone(), info.clone(), state.clone());
        let refused = tokio::spawn(async move { asks.reserve(&now, &of, bytes(50)).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (used, grant) = (bytes(60), Amount { bytes: 40, objects: u64::MAX });
        let grant = QuotaGrant { bucket_id: info.id, sample: second, used, grant, oldest_ms: 0 };
        quotas.answered(Some(&[grant]), &state, Duration::ZERO);
        let e = refused.await.unwrap().unwrap_err();
        assert_eq!(e.code, ErrorCode::QuotaExceeded);
        quotas.reserve(&state, &info, bytes(40)).await.unwrap();
    }

    #[tokio::test]
    async fn without_a_leader_that_knows_quotas_the_target_acts_by_its_own_usage() {
        let (state, info) = state();
        let quotas = Quotas::default();
        sample(&quotas, &state, 70);
        quotas.answered(None, &state, Duration::ZERO);
        quotas.reserve(&state, &info, bytes(30)).await.unwrap().stored();
        assert!(quotas.gate().used(info.id).is_some());
    }
}

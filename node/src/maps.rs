//! The node's snapshot of the cluster's state: a request reads it once and acts by that version.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use forebay_core::lease::{LEASE_BACK_WITHIN_MS, LEASE_MS};
use forebay_core::placement::owners_may_have_left;
use forebay_core::sign::Signer;
use forebay_core::state::ClusterState;
use forebay_core::{Error, NodeId, Result};
use tokio::sync::{Notify, watch};

use crate::clock::{Clock, SystemClock};
use crate::quota::Quotas;
use crate::rates::Rates;

/// How long a request of a node that this one does not know waits for its key.
const KEY_WITHIN: Duration = Duration::from_millis(700);
/// Pause between two states that such requests cause.
const REFRESH_PAUSE_MS: u64 = 50;

/// Shared snapshot; cheap to clone and to read.
#[derive(Clone, Debug)]
pub struct Maps(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: ArcSwap<ClusterState>,
    primary: ArcSwapOption<NodeId>,
    version: watch::Sender<u64>,
    /// Version of the last state for which [`owners_may_have_left`] was true.
    owners_left: AtomicU64,
    /// Milliseconds of `clock` until which this node's lease lasts; 0: it never had a lease.
    lease: AtomicU64,
    leased: Notify,
    clock: SystemClock,
    /// The keys of this node.
    signer: OnceLock<Signer>,
    /// Requests the newest state ahead of the next heartbeat.
    refresh: Arc<Notify>,
    /// When a sender that this node does not know last caused that, milliseconds of `clock`.
    refreshed: AtomicU64,
    quotas: Quotas,
    rates: Rates,
}

impl Default for Maps {
    fn default() -> Self {
        Self(Arc::new(Inner {
            state: ArcSwap::default(),
            primary: ArcSwapOption::empty(),
            version: watch::channel(0).0,
            owners_left: AtomicU64::new(0),
            lease: AtomicU64::new(0),
            leased: Notify::new(),
            clock: SystemClock::default(),
            signer: OnceLock::new(),
            refresh: Arc::default(),
            refreshed: AtomicU64::new(0),
            quotas: Quotas::default(),
            rates: Rates::default(),
        }))
    }
}

impl Maps {
    pub fn load(&self) -> Arc<ClusterState> {
        self.0.state.load_full()
    }

    /// Version of the snapshot; 0 before the first one.
    pub fn version(&self) -> u64 {
        *self.0.version.borrow()
    }

    /// Version up to which a target that is no longer an owner may have written objects of backends. A
    /// state that is loaded before this call is not newer than the result.
    pub fn owners_left(&self) -> u64 {
        self.0.owners_left.load(Ordering::Acquire)
    }

    /// Stores a state if it is newer than the current one; returns whether it was.
    pub fn offer(&self, state: ClusterState) -> bool {
        let version = state.version;
        let mut state = Some(Arc::new(state));
        // The watch's lock orders writers; readers never wait for it.
        self.0.version.send_if_modified(|current| {
            let newer = version > *current;
            if newer && let Some(state) = state.take() {
                if let Some(signer) = self.0.signer.get() {
                    signer.follow(&state);
                }
                if owners_may_have_left(&self.0.state.load(), &state) {
                    self.0.owners_left.store(version, Ordering::Release);
                }
                self.0.state.store(state);
                *current = version;
            }
            newer
        })
    }

    /// Makes this node sign for the members of its state. Only the first call has an effect.
    pub fn signed_by(&self, signer: &Signer) {
        let signer = self.0.signer.get_or_init(|| signer.clone());
        signer.follow(&self.load());
    }

    /// Wakes the task that reports to a gateway.
    pub(crate) fn refresh(&self) -> Arc<Notify> {
        self.0.refresh.clone()
    }

    /// The quotas of buckets at this node.
    pub fn quotas(&self) -> &Quotas {
        &self.0.quotas
    }

    /// The rates of requests at this node.
    pub fn rates(&self) -> &Rates {
        &self.0.rates
    }

    /// Has the task that reports to a gateway report now.
    pub fn report_now(&self) {
        self.0.refresh.notify_one();
    }

    /// Waits a moment for a state with the key of this node, or another one than now: the node signed a
    /// request.
    pub(crate) async fn learn_key(&self, sender: &str) {
        let mut seen = self.subscribe();
        // 0 stands for never.
        let now = self.0.clock.now_ms() + 1;
        let last = self.0.refreshed.swap(now, Ordering::Relaxed);
        // Anybody can name a sender that does not exist.
        if last == 0 || now.saturating_sub(last) >= REFRESH_PAUSE_MS {
            self.0.refresh.notify_one();
        }
        let key = || self.load().node_keys.get(sender).map(|record| record.key.clone());
        let before = key();
        let known = seen.wait_for(|_| key().is_some_and(|now| before.as_ref() != Some(&now)));
        let _ = tokio::time::timeout(KEY_WITHIN, known).await;
    }

    /// A receiver that sees every change of version.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Renews the lease after a leading gateway confirmed this node; the lease began `ago` before
    /// now. Until the lease ends no other node treats this node as dead.
    pub fn renew_lease(&self, ago: Duration) {
        let until = (self.0.clock.now_ms() + LEASE_MS).saturating_sub(ago.as_millis() as u64);
        self.0.lease.fetch_max(until, Ordering::Relaxed);
        self.0.leased.notify_waiters();
    }

    /// Waits a moment for a new lease if the lease has expired; 503 if none comes. Costs nothing
    /// while there is a lease.
    pub async fn leased(&self) -> Result<()> {
        if self.has_lease() {
            return Ok(());
        }
        let comes = async {
            loop {
                let renew_lease = self.0.leased.notified();
                if self.has_lease() {
                    return;
                }
                renew_lease.await;
            }
        };
        let within = Duration::from_millis(LEASE_BACK_WITHIN_MS);
        tokio::time::timeout(within, comes).await.map_err(|_| {
            Error::unavailable("no gateway that leads a majority has confirmed this node")
                .retry_after(1)
        })
    }

    /// Whether this node may answer for objects that another node could take over.
    pub fn has_lease(&self) -> bool {
        self.0.clock.now_ms() < self.0.lease.load(Ordering::Relaxed)
    }

    /// Takes a lease that never ends: for a node without a cluster, as in tests.
    pub fn lease_for_good(&self) {
        self.0.lease.store(u64::MAX, Ordering::Relaxed);
    }

    /// The last known leading gateway.
    pub fn primary(&self) -> Option<NodeId> {
        self.0.primary.load().as_deref().cloned()
    }

    pub fn set_primary(&self, id: NodeId) {
        self.0.primary.store(Some(Arc::new(id)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::sign::NodeKey;
    use forebay_core::state::{Command, Role};

    use super::*;

    #[test]
    fn a_lease_counts_from_when_the_node_reported() {
        let maps = Maps::default();
        assert!(!maps.has_lease());
        maps.renew_lease(Duration::from_millis(LEASE_MS + 1));
        assert!(!maps.has_lease(), "the answer took too long");
        maps.renew_lease(Duration::ZERO);
        assert!(maps.has_lease());
        maps.renew_lease(Duration::from_secs(60));
        assert!(maps.has_lease(), "an older report takes nothing back");
    }

    #[tokio::test]
    async fn a_request_without_a_lease_waits_for_one_and_fails_if_none_comes() {
        let maps = Maps::default();
        assert!(maps.leased().await.is_err());
        let waiting = tokio::spawn({
            let maps = maps.clone();
            async move { maps.leased().await }
        });
        tokio::time::sleep(Duration::from_millis(LEASE_BACK_WITHIN_MS / 2)).await;
        maps.renew_lease(Duration::ZERO);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_request_of_a_new_member_waits_until_its_key_is_here() {
        let maps = Maps::default();
        let mut state = ClusterState::default();
        state.version = 1;
        maps.offer(state.clone());
        let waiting = tokio::spawn({
            let maps = maps.clone();
            async move { maps.learn_key("target-01").await }
        });
        maps.refresh().notified().await;
        assert!(!waiting.is_finished());
        let id = NodeId::new("target-01").unwrap();
        let key = NodeKey::of_seed(&[1; 32]).unwrap().public().clone();
        state
            .apply(2, Command::NodeKey { id, role: Role::Target, key, now_s: 1, token: None })
            .unwrap();
        assert!(maps.offer(state));
        tokio::time::timeout(KEY_WITHIN / 2, waiting).await.unwrap().unwrap();
        maps.learn_key("target-01").await;
        assert!(maps.load().node_keys.get("target-01").is_some());
    }

    #[test]
    fn an_older_state_never_replaces_a_newer_one() {
        let maps = Maps::default();
        let state = |version| {
            let mut state = ClusterState::default();
            state.version = version;
            state
        };
        assert!(maps.offer(state(5)));
        assert!(!maps.offer(state(4)));
        assert!(!maps.offer(state(5)));
        assert_eq!((maps.load().version, maps.version()), (5, 5));
    }
}

//! A node's side of membership: it joins through a gateway, sends heartbeats whose replies carry
//! the newest state, and leaves at a clean stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forebay_client::PeerClient;
use forebay_core::clock_offset::ClockOffset;
use forebay_core::intra::{
    Heartbeat, HeartbeatReply, JoinRequest, LeaveReply, LeaveRequest, NodeUsage,
};
use forebay_core::lease::{DEAD_AFTER_MS, HEARTBEAT_MS};
use forebay_core::sign::JOIN_PATH;
use forebay_core::state::{ClusterState, Role, STATE_FORMAT};
use forebay_core::{Error, ErrorCode, Result};
use tokio::sync::Notify;

use crate::clock_watch::{ClockWatch, SentAt};
use crate::identity::Identity;
use crate::lifecycle::Lifecycle;
use crate::maps::Maps;

/// Timeout for a join, a heartbeat or a leave.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Interval between join attempts: the cluster may have just started.
const JOIN_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Interval after which a failed report is repeated: the lease must outlast an election.
const REPORT_AGAIN: Duration = Duration::from_millis(200);
/// Timeout of the final leave request at a stop.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);
/// How long a target that left still answers clients that gateways had redirected to it before.
const LEAVE_GRACE: Duration = Duration::from_millis(300);

/// A node that is rejected for this long stops: by then the lease of its previous process has
/// expired.
pub const REJECTED_WITHIN: Duration = Duration::from_millis(DEAD_AFTER_MS + 1_000);

pub const HEARTBEAT_PATH: &str = "/internal/v1/heartbeat";
pub const LEAVE_PATH: &str = "/internal/v1/leave";

/// The service that a node reports to.
#[async_trait]
pub trait MembershipClient: Send + Sync {
    async fn join(&self, request: &JoinRequest) -> Result<HeartbeatReply>;
    async fn heartbeat(&self, beat: &Heartbeat) -> Result<HeartbeatReply>;
    async fn leave(&self, request: &LeaveRequest) -> Result<LeaveReply>;

    /// Name of the service for the log.
    fn name(&self) -> String;

    /// Records that the last report was not answered; the next one may use another gateway.
    fn failed(&self) {}
}

/// Reports a node's usage when asked.
pub type UsageFn = Arc<dyn Fn() -> NodeUsage + Send + Sync>;

/// Requests the newest state ahead of the next heartbeat; cheap to clone.
#[derive(Clone, Debug)]
pub struct Refresher {
    maps: Maps,
    wake: Arc<Notify>,
}

impl Refresher {
    /// Waits until this node acts by `version` or a newer one; 503 if it cannot catch up.
    pub async fn at_least(&self, version: u64) -> Result<()> {
        let mut seen = self.maps.subscribe();
        if *seen.borrow() >= version {
            return Ok(());
        }
        self.wake.notify_one();
        match tokio::time::timeout(ANSWER_WITHIN, seen.wait_for(|v| *v >= version)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::unavailable(format!(
                "this node has version {} of the cluster's state and cannot get {version}",
                self.maps.version()
            ))),
        }
    }
}

/// Follows the cluster through its gateways until the node stops. Spawns its own task and returns
/// immediately; the node is a member as soon as `maps` has a version.
pub fn follow(
    identity: Identity,
    maps: Maps,
    peer: PeerClient,
    gateways: Vec<String>,
    usage: UsageFn,
    lifecycle: &Lifecycle,
) -> Refresher {
    let door = Gateways { peer, configured: gateways, maps: maps.clone(), at: AtomicUsize::new(0) };
    let (refresher, following) = follow_through(identity, maps, Arc::new(door), usage, lifecycle);
    lifecycle.spawn(following);
    refresher
}

/// Like [`follow`] through any membership service, as a future.
pub fn follow_through(
    identity: Identity,
    maps: Maps,
    door: Arc<dyn MembershipClient>,
    usage: UsageFn,
    lifecycle: &Lifecycle,
) -> (Refresher, impl Future<Output = ()> + Send + 'static) {
    let (stop, going, farewell) = (lifecycle.token(), lifecycle.going(), lifecycle.farewell());
    maps.signed_by(&identity.signer);
    let wake = maps.refresh();
    let refresher = Refresher { maps: maps.clone(), wake: wake.clone() };
    let life = lifecycle.clone();
    let follower = Follower { identity, maps, door, usage, wake, life };
    let following = async move {
        {
            let mut run = std::pin::pin!(follower.run());
            tokio::select! {
                () = stop.cancelled() => {}
                () = going.cancelled() => {}
                () = run.as_mut() => {}
            }
            if follower.has_a_stand_in() {
                // Until then the node still receives state changes, and has its lease.
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = run.as_mut() => {}
                    () = follower.step_down() => {}
                }
            }
        }
        follower.leave().await;
        if follower.has_a_stand_in() {
            let _ = tokio::time::timeout(LEAVE_GRACE, stop.cancelled()).await;
        }
        drop(farewell);
    };
    (refresher, following)
}

/// URLs of the gateways of the configuration, and of those that joined later and are alive.
pub fn gateway_urls(configured: &[String], maps: &Maps) -> Vec<String> {
    let mut urls = configured.to_vec();
    for node in maps.load().gateways().filter(|node| node.alive) {
        if !urls.iter().any(|url| url.trim_end_matches('/') == node.url) {
            urls.push(node.url.clone());
        }
    }
    urls
}

/// The gateways of the configuration and those that joined later, tried one after the other.
struct Gateways {
    peer: PeerClient,
    configured: Vec<String>,
    maps: Maps,
    /// Position of the gateway that answered last.
    at: AtomicUsize,
}

impl Gateways {
    fn urls(&self) -> Vec<String> {
        gateway_urls(&self.configured, &self.maps)
    }

    fn url(&self) -> String {
        let mut urls = self.urls();
        match urls.len() {
            0 => String::new(),
            several => urls.swap_remove(self.at.load(Ordering::Relaxed) % several),
        }
    }
}

#[async_trait]
impl MembershipClient for Gateways {
    async fn join(&self, request: &JoinRequest) -> Result<HeartbeatReply> {
        Ok(self.peer.post_json(&self.url(), JOIN_PATH, request).await?)
    }

    async fn heartbeat(&self, beat: &Heartbeat) -> Result<HeartbeatReply> {
        Ok(self.peer.post_json(&self.url(), HEARTBEAT_PATH, beat).await?)
    }

    async fn leave(&self, request: &LeaveRequest) -> Result<LeaveReply> {
        Ok(self.peer.post_json(&self.url(), LEAVE_PATH, request).await?)
    }

    fn name(&self) -> String {
        self.url()
    }

    fn failed(&self) {
        // The order may have changed since; a gateway that is skipped because of that is tried in
        // the next round.
        let next = (self.at.load(Ordering::Relaxed) + 1) % self.urls().len().max(1);
        self.at.store(next, Ordering::Relaxed);
    }
}

struct Follower {
    identity: Identity,
    maps: Maps,
    door: Arc<dyn MembershipClient>,
    usage: UsageFn,
    wake: Arc<Notify>,
    life: Lifecycle,
}

impl Follower {
    async fn run(&self) {
        let heartbeat = Duration::from_millis(HEARTBEAT_MS);
        let mut joined = false;
        let mut complained = 0u32;
        let mut rejected: Option<Instant> = None;
        let mut clock = ClockWatch::default();
        loop {
            let mut leased = false;
            let (reported, sent) = (Instant::now(), SentAt::now());
            let answer =
                if joined { self.heartbeat(clock.last()).await } else { self.join().await };
            match answer {
                Ok(reply) => {
                    clock.note(sent.offset(reply.clock_ns));
                    if !joined && !reply.unknown {
                        tracing::info!(gateway = self.door.name(), "joined the cluster");
                        self.identity.scale_down.forget();
                    }
                    (complained, rejected) = (0, None);
                    joined = !reply.unknown;
                    self.maps.set_primary(reply.primary);
                    leased = reply.lease;
                    if leased {
                        let (grants, ago) = (reply.quotas.as_deref(), reported.elapsed());
                        self.maps.quotas().answered(grants, &self.maps.load(), ago);
                    }
                    let confirmed = Duration::from_millis(reply.confirmed_ms);
                    if let Some(state) = reply.state {
                        self.take_s3_key(reply.s3_key.as_deref(), &state);
                        let version = state.version;
                        if self.maps.offer(state) {
                            tracing::debug!(version, "new cluster state");
                        }
                    }
                    // Only now: the lease is valid only for a node that acts by the state that came
                    // with it.
                    if leased {
                        self.maps.renew_lease(reported.elapsed() + confirmed);
                    }
                }
                Err(e) if e.code == ErrorCode::Conflict => {
                    joined = false;
                    let since = *rejected.get_or_insert_with(|| {
                        tracing::error!(
                            gateway = self.door.name(),
                            "the cluster rejects this node: {e}"
                        );
                        Instant::now()
                    });
                    if since.elapsed() >= REJECTED_WITHIN {
                        // The settings of this node are wrong, and a restart does not help.
                        self.life.fail(Error { code: ErrorCode::InvalidArgument, ..e });
                        return std::future::pending().await;
                    }
                }
                Err(e) if e.code == ErrorCode::AccessDenied && !joined && self.joins_by_token() => {
                    if let Some(join) = &self.identity.token_join {
                        join.refused(&e);
                    }
                    // Another gateway may have the token already.
                    self.door.failed();
                }
                // The gateway does not know this node's key.
                Err(e) if joined && e.code == ErrorCode::AccessDenied => {
                    tracing::warn!(gateway = self.door.name(), error = %e, "joins again");
                    joined = false;
                }
                Err(e) => {
                    // Logged rarely, so that a long outage stays readable. A cluster that is
                    // starting is not an outage.
                    complained += 1;
                    if complained % 14 == 4 {
                        tracing::warn!(gateway = self.door.name(), error = %e, "gateway does not answer");
                    }
                    self.door.failed();
                }
            }
            let pause = match (joined, complained) {
                (false, _) => JOIN_RETRY_INTERVAL,
                (true, 0) if leased => heartbeat,
                (true, _) => REPORT_AGAIN,
            };
            // Woken early if a request carries a newer version than this node has.
            let _ = tokio::time::timeout(pause, self.wake.notified()).await;
        }
    }

    async fn join(&self) -> Result<HeartbeatReply> {
        let me = &self.identity;
        if let Some(join) = &me.token_join {
            join.prepare(&me.signer).await;
        }
        let request = JoinRequest {
            id: me.id.clone(),
            role: me.role,
            url: me.url.clone(),
            zone: me.zone.clone(),
            instance: me.instance,
            cluster: me.cluster.clone(),
            empty: me.empty,
            https: me.https.clone(),
            external: me.external.clone(),
            state_format: STATE_FORMAT,
            key: me.signer.public_key(),
            token: None,
            needs_s3_key: self.joins_by_token(),
            returns: me.scale_down.is_over(),
        };
        within(ANSWER_WITHIN, self.door.join(&request)).await
    }

    fn joins_by_token(&self) -> bool {
        self.identity.token_join.is_some()
    }

    /// Takes the key for S3 secrets that came with this state.
    fn take_s3_key(&self, s3_key: Option<&str>, state: &ClusterState) {
        let (Some(s3_key), Some(me)) = (s3_key, self.identity.signer.key()) else { return };
        if let Err(e) = self.identity.sealer.take_s3_key(s3_key, me, &state.node_keys) {
            tracing::error!(gateway = self.door.name(), error = %e, "S3 keys of users do not count here");
        }
    }

    async fn heartbeat(&self, clock: Option<ClockOffset>) -> Result<HeartbeatReply> {
        let is_target = self.identity.role == Role::Target;
        let beat = Heartbeat {
            id: self.identity.id.clone(),
            version: self.maps.version(),
            usage: NodeUsage {
                clock,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                quotas: is_target.then(|| self.maps.quotas().reports()),
                ..(self.usage)()
            },
            instance: self.identity.instance,
            state_format: STATE_FORMAT,
            key: self.identity.signer.public_key(),
        };
        within(ANSWER_WITHIN, self.door.heartbeat(&beat)).await
    }

    /// Whether there is another target that could take over objects of this one.
    fn has_a_stand_in(&self) -> bool {
        let state = self.maps.load();
        self.identity.role == Role::Target
            && state.alive_targets().any(|node| node.id != self.identity.id)
    }

    fn leave_request(&self, yields: bool) -> LeaveRequest {
        let id = self.identity.id.clone();
        let since = self.maps.load().node(&id).map_or(0, |node| node.alive_since);
        LeaveRequest { id, yields, since, instance: self.identity.instance }
    }

    /// Makes other targets take over objects that they have copies of, while this node still
    /// serves.
    async fn step_down(&self) {
        let request = self.leave_request(true);
        match within(LEAVE_WITHIN, self.door.leave(&request)).await {
            // Requests that arrived before are answered by then, and those in flight are forwarded.
            Ok(_) => tokio::time::sleep(LEAVE_GRACE).await,
            Err(e) => tracing::debug!(error = %e, "could not announce the stop of this node"),
        }
    }

    async fn leave(&self) {
        if self.maps.version() == 0 {
            return;
        }
        let request = self.leave_request(false);
        match within(LEAVE_WITHIN, self.door.leave(&request)).await {
            Ok(LeaveReply { state: Some(state) }) => drop(self.maps.offer(state)),
            Ok(LeaveReply { state: None }) => {}
            Err(e) => tracing::debug!(error = %e, "the leave request failed"),
        }
    }
}

async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::unavailable(format!("no answer within {limit:?}"))),
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;

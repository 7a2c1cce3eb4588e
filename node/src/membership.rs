//! A node's side of membership: join through a gateway, then a heartbeat that brings the newest
//! state back, and a leave at a clean stop.

use std::sync::Arc;
use std::time::Duration;

use forebay_client::PeerClient;
use forebay_core::intra::{Heartbeat, HeartbeatReply, JoinRequest, LeaveRequest, NodeUsage};
use forebay_core::lease::HEARTBEAT_MS;
use forebay_core::{Error, Result};
use tokio::sync::Notify;

use crate::identity::Identity;
use crate::lifecycle::Lifecycle;
use crate::maps::Maps;

/// A join, a heartbeat or a leave must be answered within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Reports a node's usage when asked.
pub type UsageFn = Arc<dyn Fn() -> NodeUsage + Send + Sync>;

/// Asks for the newest state ahead of the next heartbeat; cheap to clone.
#[derive(Clone, Debug)]
pub struct Refresher {
    maps: Maps,
    wake: Arc<Notify>,
}

impl Refresher {
    /// Waits until this node acts by `version` or a newer one; 503 when it cannot catch up.
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

/// Follows the cluster until the node stops. Spawns its own task and returns at once; the node is
/// a member as soon as `maps` has a version.
pub fn follow(
    identity: Identity,
    maps: Maps,
    peer: PeerClient,
    gateways: Vec<String>,
    usage: UsageFn,
    lifecycle: &Lifecycle,
) -> Refresher {
    let stop = lifecycle.token();
    let wake = Arc::new(Notify::new());
    let refresher = Refresher { maps: maps.clone(), wake: wake.clone() };
    let follower = Follower { identity, maps, peer, gateways, usage, wake, at: 0 };
    lifecycle.spawn(async move {
        let mut follower = follower;
        tokio::select! {
            () = stop.cancelled() => {}
            () = follower.run() => {}
        }
        follower.leave().await;
    });
    refresher
}

struct Follower {
    identity: Identity,
    maps: Maps,
    peer: PeerClient,
    gateways: Vec<String>,
    usage: UsageFn,
    wake: Arc<Notify>,
    /// Index of the gateway that answered last.
    at: usize,
}

impl Follower {
    async fn run(&mut self) {
        let mut joined = false;
        let mut complained = 0u32;
        loop {
            let answer = if joined { self.heartbeat().await } else { self.join().await };
            match answer {
                Ok(reply) => {
                    if !joined && !reply.unknown {
                        tracing::info!(gateway = self.gateway(), "joined the cluster");
                    }
                    complained = 0;
                    joined = !reply.unknown;
                    self.maps.set_primary(reply.primary);
                    if let Some(state) = reply.state {
                        let version = state.version;
                        if self.maps.offer(state) {
                            tracing::debug!(version, "new cluster state");
                        }
                    }
                }
                Err(e) => {
                    // First failure, then about every 10 s, so that a long outage stays readable.
                    if complained.is_multiple_of(14) {
                        tracing::warn!(gateway = self.gateway(), error = %e, "gateway does not answer");
                    }
                    complained += 1;
                    self.at = (self.at + 1) % self.gateways.len().max(1);
                }
            }
            // Woken early when a request knows of a newer state than this node has.
            let _ = tokio::time::timeout(Duration::from_millis(HEARTBEAT_MS), self.wake.notified())
                .await;
        }
    }

    fn gateway(&self) -> &str {
        self.gateways.get(self.at).map_or("", String::as_str)
    }

    async fn join(&self) -> Result<HeartbeatReply> {
        let me = &self.identity;
        let request = JoinRequest {
            id: me.id.clone(),
            role: me.role,
            url: me.url.clone(),
            zone: me.zone.clone(),
        };
        self.ask("/internal/v1/join", &request).await
    }

    async fn heartbeat(&self) -> Result<HeartbeatReply> {
        let request = Heartbeat {
            id: self.identity.id.clone(),
            version: self.maps.version(),
            usage: (self.usage)(),
        };
        self.ask("/internal/v1/heartbeat", &request).await
    }

    async fn leave(&self) {
        let request = LeaveRequest { id: self.identity.id.clone() };
        if self.maps.version() > 0 {
            let answer: Result<serde_json::Value> = self.ask("/internal/v1/leave", &request).await;
            if let Err(e) = answer {
                tracing::debug!(error = %e, "could not say goodbye");
            }
        }
    }

    async fn ask<A, B>(&self, path: &str, request: &A) -> Result<B>
    where
        A: serde::Serialize + Sync,
        B: serde::de::DeserializeOwned,
    {
        let answer = self.peer.post_json(self.gateway(), path, request);
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Error::unavailable(format!("no answer within {ANSWER_WITHIN:?}"))),
        }
    }
}

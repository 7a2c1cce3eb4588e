//! The membership service of every gateway: the leader decides, the others forward requests to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_client::PeerClient;
use forebay_core::intra::{Heartbeat, HeartbeatReply, JoinRequest, LeaveReply, LeaveRequest};
use forebay_core::sign::JOIN_PATH;
use forebay_core::{Error, Result};
use forebay_node::maps::Maps;
use forebay_node::membership::{HEARTBEAT_PATH, LEAVE_PATH, MembershipClient};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::leadership::{LeaderWatch, Leadership};
use super::members::Members;
use crate::meta::group::Group;

/// Marks a request that a gateway forwarded, so that gateways never forward it in a loop.
pub(crate) const FORWARDED_MARK: &str = "passed-on=1";
/// Shorter than a node's own timeout: a silent leader must not look like a silent gateway.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// A leave is answered only when all nodes know of it.
const LEAVE_WITHIN: Duration = Duration::from_millis(2_500);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct MembershipService {
    leadership: LeaderWatch,
    peer: PeerClient,
    maps: Maps,
}

impl MembershipService {
    pub(crate) fn new(leadership: LeaderWatch, peer: PeerClient, maps: Maps) -> Self {
        Self { leadership, peer, maps }
    }

    /// `passed_on`: another gateway forwarded the request to this one as the leader.
    pub(crate) async fn join(
        &self,
        request: JoinRequest,
        passed_on: bool,
    ) -> Result<HeartbeatReply> {
        match self.leader(passed_on)? {
            Ok(members) => members.join(request).await,
            Err(url) => self.pass_on(&url, JOIN_PATH, &request).await,
        }
    }

    /// If there is no leader, a node that reports still gets the newest state, if it has an older
    /// one: one of its requests may wait for that state.
    pub(crate) async fn heartbeat(
        &self,
        beat: Heartbeat,
        passed_on: bool,
    ) -> Result<HeartbeatReply> {
        let has = beat.version;
        let answer = match self.leader(passed_on) {
            Ok(Ok(members)) => return members.heartbeat(beat).await,
            Ok(Err(url)) => self.pass_on(&url, HEARTBEAT_PATH, &beat).await,
            Err(e) => Err(e),
        };
        let state = self.maps.load();
        match (answer, self.maps.primary()) {
            (Err(_), Some(primary)) if has < state.version => Ok(HeartbeatReply {
                version: state.version,
                primary,
                state: Some(state.as_ref().clone()),
                lease: false,
                confirmed_ms: 0,
                unknown: false,
                clock_ns: 0,
                s3_key: None,
                quotas: None,
            }),
            (answer, _) => answer,
        }
    }

    pub(crate) async fn leave(&self, request: LeaveRequest, passed_on: bool) -> Result<LeaveReply> {
        match self.leader(passed_on)? {
            Ok(members) => members.leave(request).await,
            Err(url) => self.pass_on(&url, LEAVE_PATH, &request).await,
        }
    }

    /// The leader's members if this gateway leads, otherwise the leader's URL.
    fn leader(&self, passed_on: bool) -> Result<Result<Arc<Members>, String>> {
        match self.leadership.now() {
            Leadership::Leading(lead) => Ok(Ok(lead.members.clone())),
            Leadership::Following(url) if !passed_on => Ok(Err(url)),
            Leadership::Following(_) => {
                Err(Error::unavailable("another gateway leads").retry_after(1))
            }
            Leadership::Waiting => {
                Err(Error::unavailable("no gateway leads just now").retry_after(1))
            }
        }
    }

    async fn pass_on<A, B>(&self, url: &str, path: &str, request: &A) -> Result<B>
    where
        A: Serialize + Sync,
        B: DeserializeOwned,
    {
        let path = format!("{path}?{FORWARDED_MARK}");
        let limit = if path.starts_with(LEAVE_PATH) { LEAVE_WITHIN } else { ANSWER_WITHIN };
        let asked = self.peer.post_json(url, &path, request);
        match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Error::unavailable(format!("the leading gateway {url} is silent"))),
        }
    }
}

/// This gateway's own [`MembershipClient`]: uses its local membership service.
pub(crate) struct LocalMembership {
    pub(crate) membership: MembershipService,
    pub(crate) group: Group,
}

#[async_trait]
impl MembershipClient for LocalMembership {
    async fn join(&self, request: &JoinRequest) -> Result<HeartbeatReply> {
        self.membership.join(request.clone(), false).await
    }

    async fn heartbeat(&self, beat: &Heartbeat) -> Result<HeartbeatReply> {
        self.membership.heartbeat(beat.clone(), false).await
    }

    async fn leave(&self, request: &LeaveRequest) -> Result<LeaveReply> {
        // There may be no other gateway to inform.
        if self.group.is_alone() {
            Ok(LeaveReply::default())
        } else {
            self.membership.leave(request.clone(), false).await
        }
    }

    fn name(&self) -> String {
        "the leader".into()
    }
}

//! The metadata as every gateway offers it: the leader decides changes, wherever it is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_client::PeerClient;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::MetaLog;
use super::group::{DECIDE_WITHIN, Group, Undecided};
use crate::cluster::leadership::{LeaderWatch, Leadership};
use forebay_node::maps::Maps;

/// Path at which the leader accepts commands from other gateways.
pub(crate) const COMMAND_PATH: &str = "/internal/v1/command";
/// Longer than the leader's wait for other nodes to get the change.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer may still arrive from a leader that was replaced.
const LATE_ANSWER: Duration = Duration::from_millis(300);
/// Pause before another try, unless the leader changes earlier.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Answer to a relayed command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommandReply {
    /// Done; `state` contains the change.
    Done { version: u64, state: Box<ClusterState> },
    /// The gateway does not lead and has done nothing.
    NotLeader,
}

/// The [`MetaLog`] of a gateway. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RaftMeta {
    group: Group,
    leadership: LeaderWatch,
    peer: PeerClient,
    maps: Maps,
}

impl RaftMeta {
    pub(crate) fn new(group: Group, leadership: LeaderWatch, peer: PeerClient, maps: Maps) -> Self {
        Self { group, leadership, peer, maps }
    }

    /// Decides the command if this gateway leads; otherwise nothing is done.
    pub(crate) async fn decide_here(&self, command: Command) -> Result<u64, Undecided> {
        match self.leadership.now() {
            Leadership::Leading(lead) => {
                lead.members.check_readable(&command).map_err(Undecided::Final)?;
                self.group.decide(command, DECIDE_WITHIN).await
            }
            _ => Err(Undecided::Untouched(Error::unavailable("this gateway does not lead"))),
        }
    }

    async fn try_once(&self, command: &Command) -> Result<u64, Undecided> {
        match self.leadership.now() {
            Leadership::Leading(_) => self.decide_here(command.clone()).await,
            Leadership::Following(url) => self.relay(&url, command).await,
            Leadership::Waiting => {
                Err(Undecided::Untouched(Error::unavailable("no gateway leads just now")))
            }
        }
    }

    async fn relay(&self, url: &str, command: &Command) -> Result<u64, Undecided> {
        let unknown = |why: &str| {
            Undecided::Final(Error::unavailable(format!(
                "the change may or may not take effect: gateway {url} did not answer: {why}"
            )))
        };
        let asked = self.peer.post_json(url, COMMAND_PATH, command);
        let answer = tokio::select! {
            answer = timeout(ANSWER_WITHIN, asked) => answer,
            () = self.leads_no_more(url) => return Err(unknown("it does not lead any more")),
        };
        match answer {
            Ok(Ok(CommandReply::Done { version, state })) => {
                self.maps.offer(*state);
                Ok(version)
            }
            Ok(Ok(CommandReply::NotLeader)) => {
                Err(Undecided::Untouched(Error::unavailable(format!("{url} does not lead"))))
            }
            Ok(Err(forebay_client::Error::Api(e))) => Err(Undecided::Final(e)),
            Ok(Err(e @ forebay_client::Error::Connect { .. })) => {
                Err(Undecided::Untouched(Error::unavailable(e.message())))
            }
            Ok(Err(e)) => Err(unknown(&e.message())),
            Err(_) => Err(unknown("time-out")),
        }
    }

    /// Returns shortly after this gateway learned that another gateway leads, or none: the old
    /// leader may have been cut off, so that its answer never comes.
    async fn leads_no_more(&self, url: &str) {
        let mut leadership = self.leadership.clone();
        while matches!(leadership.now(), Leadership::Following(leader) if leader == url) {
            leadership.changed().await;
        }
        tokio::time::sleep(LATE_ANSWER).await;
    }
}

#[async_trait]
impl MetaLog for RaftMeta {
    /// Retries through an election, as long as it is certain that the command was not logged.
    async fn propose(&self, command: Command) -> Result<u64> {
        let deadline = Instant::now() + DECIDE_WITHIN;
        let mut leadership = self.leadership.clone();
        loop {
            let why = match self.try_once(&command).await {
                Ok(version) => return Ok(version),
                Err(Undecided::Final(e)) => return Err(e),
                Err(Undecided::Untouched(e)) => e,
            };
            if Instant::now() >= deadline {
                return Err(Error::unavailable(format!(
                    "the gateways cannot agree on a change now: {}",
                    why.message
                ))
                .hint("reads go on; changes of buckets and members need a majority of gateways"));
            }
            let _ = timeout(TRY_AGAIN_AFTER, leadership.changed()).await;
        }
    }

    fn state(&self) -> Arc<ClusterState> {
        self.maps.load()
    }

    fn has_voter(&self, url: &str) -> bool {
        self.group.has_voter(url)
    }
}

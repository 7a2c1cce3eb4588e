//! Messages between gateways about their group: its members, its leader, joins and removals.

use std::time::Duration;

use forebay_client::PeerClient;
use serde::{Deserialize, Serialize};

/// GET: a gateway's view of the group, a [`GroupView`].
pub(crate) const GROUP_PATH: &str = "/internal/v1/raft/group";
/// POST to the leader: admits a gateway, step by step.
pub(crate) const ENTER_PATH: &str = "/internal/v1/raft/enter";
/// POST to the leader: removes a gateway.
pub(crate) const REMOVE_PATH: &str = "/internal/v1/raft/remove";
/// POST to a gateway that was removed. Carries the state without it.
pub(crate) const REMOVED_PATH: &str = "/internal/v1/raft/removed";

/// Timeout for a gateway to return its view; after it, the gateway counts as silent.
pub(super) const LOOK_WITHIN: Duration = Duration::from_millis(700);

/// The group as one gateway knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupView {
    /// Whether the gateway is part of a group. If not, `gateways` are those with which it would
    /// form one.
    pub(crate) formed: bool,
    /// Whether its group has not had a leader yet, as far as it knows: its log has the members alone.
    /// False from older gateways.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fresh: bool,
    /// Whether it leads, and a majority recently confirmed that.
    pub(crate) leads: bool,
    /// URL of the leader that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) leader: Option<String>,
    pub(crate) gateways: Vec<Seat>,
}

/// A gateway in the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) id: u64,
    pub(crate) url: String,
    /// False while it catches up.
    pub(crate) votes: bool,
}

impl GroupView {
    pub(super) fn seat(&self, id: u64) -> Option<&Seat> {
        self.gateways.iter().find(|seat| seat.id == id)
    }
}

/// A gateway's request to join; repeated until it votes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EnterRequest {
    pub(crate) id: u64,
    pub(crate) url: String,
    /// Its file is empty: the group's record of this id belongs to another disk.
    pub(crate) blank: bool,
    /// Id of the node; empty from older gateways.
    #[serde(default)]
    pub(crate) node: String,
    /// The newest format of the cluster's state that the gateway reads; 0 from older gateways.
    #[serde(default)]
    pub(crate) state_format: u32,
}

/// The progress of a joining gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EnterReply {
    /// The gateway that was asked does not lead.
    NotLeader {
        leader: Option<String>,
    },
    /// It is a learner and receives the log.
    Learns,
    Votes,
}

/// A request to remove a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RemoveRequest {
    pub(crate) url: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RemoveReply {
    NotLeader { leader: Option<String> },
    Done,
}

/// The result of asking a gateway for its view.
pub(super) enum Look {
    At(GroupView),
    /// It answers, but its version does not know the request.
    Old,
    Silent,
}

/// Asks one gateway for its view of the group.
pub(super) async fn look(peer: &PeerClient, url: &str) -> Look {
    match tokio::time::timeout(LOOK_WITHIN, peer.get_json(url, GROUP_PATH)).await {
        Ok(Ok(view)) => Look::At(view),
        Ok(Err(forebay_client::Error::Api(_))) => Look::Old,
        _ => Look::Silent,
    }
}

/// Asks all of `urls`, and the gateways that they name as leader, for the leader's own view.
pub(super) async fn ask_leader(peer: &PeerClient, urls: &[String]) -> Option<GroupView> {
    let mut asked: Vec<String> = Vec::new();
    let mut next = urls.to_vec();
    while !next.is_empty() {
        let looks = next.iter().map(|url| look(peer, url));
        let mut leaders = Vec::new();
        for answer in futures::future::join_all(looks).await {
            match answer {
                Look::At(view) if view.leads => return Some(view),
                Look::At(view) => leaders.extend(view.leader),
                Look::Old | Look::Silent => {}
            }
        }
        asked.append(&mut next);
        leaders.retain(|url| !asked.contains(url));
        leaders.sort_unstable();
        leaders.dedup();
        next = leaders;
    }
    None
}

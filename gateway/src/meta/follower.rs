//! The metadata as a gateway sees it that does not hold the log: changes go to the one that does,
//! the state comes back with each answer and with heartbeats.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_client::PeerClient;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use forebay_node::maps::Maps;
use serde::{Deserialize, Serialize};

use super::MetaLog;

/// Path of the primary that takes commands of other gateways.
pub(crate) const COMMAND_PATH: &str = "/internal/v1/command";
/// The primary waits for other nodes to hear of the change, so this is longer than that wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Answer to a relayed command: the state that holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CommandReply {
    pub(crate) version: u64,
    pub(crate) state: ClusterState,
}

pub(crate) struct Follower {
    peer: PeerClient,
    primary_url: String,
    maps: Maps,
}

impl Follower {
    pub(crate) fn new(peer: PeerClient, primary_url: String, maps: Maps) -> Self {
        Self { peer, primary_url, maps }
    }
}

#[async_trait]
impl MetaLog for Follower {
    async fn propose(&self, command: Command) -> Result<u64> {
        let asked = self.peer.post_json(&self.primary_url, COMMAND_PATH, &command);
        let reply: CommandReply = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(forebay_client::Error::Api(e))) => return Err(e),
            Ok(Err(e)) => return Err(self.no_answer(&e.message())),
            Err(_) => return Err(self.no_answer("time-out")),
        };
        self.maps.offer(reply.state);
        Ok(reply.version)
    }

    fn state(&self) -> Arc<ClusterState> {
        self.maps.load()
    }
}

impl Follower {
    fn no_answer(&self, why: &str) -> Error {
        Error::unavailable(format!(
            "the primary gateway {} does not answer: {why}",
            self.primary_url
        ))
        .hint("reads go on; changes of buckets and members wait for the primary")
    }
}

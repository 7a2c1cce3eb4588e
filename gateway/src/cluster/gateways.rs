//! Keeps the gateways in the map equal to the members of the Raft group. Only the leader does this.

use std::time::Duration;

use forebay_client::PeerClient;
use forebay_core::state::Command;
use forebay_core::{NodeId, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;

use crate::meta::MetaLog;
use crate::meta::group::Group;
use crate::meta::view::REMOVED_PATH;

/// Interval between checks by the leader.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Timeout for notifying a removed gateway, which otherwise finds out by itself.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// Removes gateways that left the group from the map.
pub(crate) struct Gateways {
    pub(crate) me: NodeId,
    pub(crate) group: Group,
    pub(crate) maps: Maps,
    pub(crate) peer: PeerClient,
}

impl Gateways {
    /// Runs until this gateway is no longer the leader.
    pub(crate) async fn keep(self, life: Lifecycle) {
        let stop = life.token();
        let keep = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if let Err(e) = self.look().await {
                    tracing::debug!(error = %e, "the group of gateways is not in order yet");
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = keep => {}
        }
    }

    async fn look(&self) -> Result<()> {
        let Some(seats) = self.group.tidy().await? else { return Ok(()) };
        let state = self.maps.load();
        let gone = state
            .gateways()
            .filter(|node| node.id != self.me && !seats.iter().any(|seat| seat.url == node.url));
        for node in gone {
            let version = self.group.propose(Command::Remove { id: node.id.clone() }).await?;
            tracing::info!(node = %node.id, version, "gateway is no member any more");
            let without = self.maps.load();
            let sent = self.peer.post_json::<_, ()>(&node.url, REMOVED_PATH, without.as_ref());
            if let Ok(Err(e)) = tokio::time::timeout(NOTIFY_TIMEOUT, sent).await {
                tracing::debug!(node = %node.id, error = %e, "removed gateway could not be notified");
            }
        }
        Ok(())
    }
}

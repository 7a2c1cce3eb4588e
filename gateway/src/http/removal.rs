//! Removes a gateway from the cluster; the request may go to any gateway.

use std::time::Duration;

use forebay_client::PeerClient;
use forebay_core::state::Node;
use forebay_core::{Error, Result};
use forebay_node::maps::Maps;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::leadership::{LeaderWatch, Leadership};
use crate::meta::group::Group;
use crate::meta::view::{REMOVE_PATH, RemoveReply, RemoveRequest};

/// Timeout of the whole removal, which may include an election.
const WITHIN: Duration = Duration::from_secs(15);
/// Pause before the leader is asked again.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The components that remove a gateway; cheap to clone.
#[derive(Clone)]
pub(crate) struct GatewayRemoval {
    pub(crate) group: Group,
    pub(crate) leadership: LeaderWatch,
    pub(crate) peer: PeerClient,
    pub(crate) maps: Maps,
}

impl GatewayRemoval {
    /// Removes the gateway from the group, and waits until the map no longer contains it. If it is
    /// out already, this succeeds, so the request may be repeated.
    pub(super) async fn remove(&self, node: &Node) -> Result<()> {
        let deadline = Instant::now() + WITHIN;
        let request = RemoveRequest { url: node.url.clone() };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let asked = async {
                match self.leadership.now() {
                    Leadership::Leading(_) => self.group.remove(request.clone()).await,
                    Leadership::Following(url) => {
                        self.peer.post_json(&url, REMOVE_PATH, &request).await.map_err(Error::from)
                    }
                    Leadership::Waiting => Ok(RemoveReply::NotLeader { leader: None }),
                }
            };
            let why = match timeout(left, asked).await {
                Ok(Ok(RemoveReply::Done)) => break,
                Ok(Ok(RemoveReply::NotLeader { .. })) => "no gateway leads just now".to_owned(),
                Ok(Err(e)) if e.code != forebay_core::ErrorCode::Unavailable => return Err(e),
                Ok(Err(e)) => e.message,
                Err(_) => "time-out".to_owned(),
            };
            if Instant::now() + TRY_AGAIN_AFTER >= deadline {
                return Err(Error::unavailable(format!(
                    "gateway {} may or may not be taken out: {why}",
                    node.id
                ))
                .hint("ask again: what is done already is not done twice"));
            }
            sleep(TRY_AGAIN_AFTER).await;
        }
        let mut versions = self.maps.subscribe();
        let gone = async {
            tokio::select! {
                _ = versions.wait_for(|_| self.maps.load().node(&node.id).is_none()) => {}
                () = self.is_out(node) => {}
            }
        };
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout(left, gone).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Error::unavailable(format!(
                "gateway {} left the group, but the map still names it: no gateway leads just now",
                node.id
            ))
            .hint("it leaves the map when one leads again")),
        }
    }

    /// If this gateway is the one that is removed, waits until its group reports that: the report may
    /// come before a map without this gateway, or instead of it.
    async fn is_out(&self, node: &Node) {
        while !(node.url == self.group.url() && self.group.is_out()) {
            sleep(TRY_AGAIN_AFTER).await;
        }
    }
}

//! One change of the cluster's buckets: decided by the metadata log, then heard of by every
//! node that is alive, and only then acknowledged.

use forebay_core::Result;
use forebay_core::state::Command;

use crate::cluster::standing::{Standing, StandingWatch};
use crate::meta::MetaLog;
use crate::meta::front::{CommandReply, RaftMeta};
use crate::meta::group::Undecided;

/// Where front ends bring their changes; cheap to clone.
#[derive(Clone)]
pub(crate) struct Changes {
    meta: RaftMeta,
    standing: StandingWatch,
}

impl Changes {
    pub(crate) fn new(meta: RaftMeta, standing: StandingWatch) -> Self {
        Self { meta, standing }
    }

    /// Returns the version that holds the change.
    pub(crate) async fn commit(&self, command: Command) -> Result<u64> {
        let version = self.meta.propose(command).await?;
        self.settled(version).await;
        Ok(version)
    }

    /// A change that another gateway brings, which takes this one for the leader.
    pub(crate) async fn commit_relayed(&self, command: Command) -> Result<CommandReply> {
        match self.meta.decide_here(command).await {
            Ok(version) => {
                self.settled(version).await;
                let state = Box::new(self.meta.state().as_ref().clone());
                Ok(CommandReply::Done { version, state })
            }
            Err(Undecided::Untouched(_)) => Ok(CommandReply::NotLeader),
            Err(Undecided::Final(e)) => Err(e),
        }
    }

    /// Only the leader knows who has heard; when another one leads, it has waited already.
    async fn settled(&self, version: u64) {
        if let Standing::Leading(lead) = self.standing.now() {
            lead.publisher.settled(version).await;
        }
    }
}

//! Starts and stops the work of the leader: admitting nodes, checking liveness, publishing the
//! state.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::state::Command;
use forebay_core::{ErrorCode, NodeId, Result};
use forebay_node::clock::{SystemClock, unix_ns};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use tokio::sync::watch;

use super::gateways::Gateways;
use super::leadership::{Lead, Leadership};
use super::liveness;
use super::members::Members;
use super::publish::Publisher;
use super::rebalance::Keeper;
use crate::ids;
use crate::job_control::JobControl;
use crate::meta::MetaLog;
use crate::meta::group::{Group, Leader};
use crate::targets::Targets;

/// Interval at which a leader confirms its leadership with the other gateways: leases count from
/// the last confirmation by a majority.
const CONFIRM_EVERY: Duration = Duration::from_millis(200);
/// Pause before a new leader tries again to catch up with everything acknowledged before it.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The components that a leader works with.
pub(crate) struct Leading {
    pub(crate) me: NodeId,
    /// Id of this gateway's process.
    pub(crate) instance: u64,
    pub(crate) group: Group,
    pub(crate) maps: Maps,
    pub(crate) targets: Targets,
    pub(crate) jobs: JobControl,
    pub(crate) lifecycle: Lifecycle,
}

/// One term of leadership.
struct Term {
    number: u64,
    life: Lifecycle,
}

impl Drop for Term {
    fn drop(&mut self) {
        self.life.token().cancel();
    }
}

impl Leading {
    /// Follows the leader election and publishes this gateway's role, until the group stops.
    pub(crate) async fn run(self, sender: watch::Sender<Leadership>) {
        let mut leader = self.group.leader();
        let mut term: Option<Term> = None;
        loop {
            let now = leader.borrow_and_update().clone();
            let mut again = None;
            match now {
                Leader::Here { term: number }
                    if term.as_ref().is_some_and(|t| t.number == number) => {}
                Leader::Here { term: number } => {
                    drop(term.take());
                    sender.send_replace(Leadership::Waiting);
                    let life = self.lifecycle.child();
                    match self.assume_leadership(number, &life).await {
                        Ok(lead) => {
                            tracing::info!(term = number, "this gateway leads");
                            sender.send_replace(Leadership::Leading(Arc::new(lead)));
                            term = Some(Term { number, life });
                        }
                        Err(e) => {
                            tracing::debug!(error = %e, "cannot lead yet");
                            again = Some(TRY_AGAIN_AFTER);
                        }
                    }
                }
                Leader::At(url) => {
                    drop(term.take());
                    tracing::info!(leader = url, "another gateway leads");
                    sender.send_replace(Leadership::Following(url));
                }
                Leader::Unknown => {
                    let led = term.take().is_some();
                    if led && !self.lifecycle.token().is_cancelled() {
                        tracing::warn!("no majority of the gateways; changes have to wait");
                    }
                    sender.send_replace(Leadership::Waiting);
                }
            }
            let changed = match again {
                // Repeats the last change after a pause.
                Some(pause) => tokio::time::timeout(pause, leader.changed()).await,
                None => Ok(leader.changed().await),
            };
            if let Ok(Err(_)) = changed {
                return;
            }
        }
    }

    /// Prepares leadership: the leader must have everything that was acknowledged before it, and
    /// the cluster must have a name.
    async fn assume_leadership(&self, term: u64, life: &Lifecycle) -> Result<Lead> {
        self.group.catch_up().await?;
        if self.maps.load().cluster_id.is_empty() {
            let init = Command::Init { cluster_id: ids::mint(""), now_ns: unix_ns() };
            match self.group.propose(init).await {
                Err(e) if e.code != ErrorCode::Conflict => return Err(e),
                _ => {}
            }
        }
        let publisher = Publisher::new(self.me.clone(), self.maps.clone(), self.targets.clone());
        let members = Arc::new(Members::new(
            self.me.clone(),
            self.instance,
            self.targets.peer().clone(),
            Arc::new(self.group.clone()),
            publisher.clone(),
            Arc::new(SystemClock::default()),
        ));
        self.maps.set_primary(self.me.clone());
        life.spawn(liveness::watch(members.clone(), life.clone()));
        life.spawn(confirm(self.group.clone(), members.clone(), life.clone()));
        life.spawn(publisher.clone().run(life.clone()));
        let keeper = Keeper {
            meta: Arc::new(self.group.clone()),
            maps: self.maps.clone(),
            targets: self.targets.clone(),
            jobs: self.jobs.clone(),
        };
        life.spawn(keeper.run(life.clone()));
        let gateways = Gateways {
            me: self.me.clone(),
            group: self.group.clone(),
            maps: self.maps.clone(),
            peer: self.targets.peer().clone(),
        };
        life.spawn(gateways.keep(life.clone()));
        Ok(Lead { term, members, publisher })
    }
}

/// Records in `members` when a majority last confirmed this gateway as leader.
async fn confirm(group: Group, members: Arc<Members>, life: Lifecycle) {
    let stop = life.token();
    loop {
        // A confirmation is valid as of the time of the request.
        let asked = members.now_ms();
        tokio::select! {
            () = stop.cancelled() => return,
            led = group.catch_up() => match led {
                Ok(()) => members.confirmed(asked),
                Err(e) => tracing::debug!(error = %e, "no majority confirms this leader"),
            },
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CONFIRM_EVERY) => {}
        }
    }
}

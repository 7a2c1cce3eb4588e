//! The leader's rebalance: it moves objects to where they belong. The real [`rebalance::completion`]
//! decides when the rebalance is complete.

use forebay_core::rebalance::{self, Lives, lives};
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use futures::future::join_all;

use crate::broken::Broken;
use crate::exec::{MS, Micros, SECOND};
use crate::world::{At, W, World, at_of};

const LOOK_EVERY: Micros = 250 * MS;
/// Rest after a change of placement.
const SETTLING: Micros = 5 * SECOND;
const TRY_AGAIN_AFTER: Micros = 3 * SECOND;
const LONGEST_PAUSE: Micros = 60 * SECOND;
/// A job whose target does not report for this time has failed.
const WORKED_WITHIN: Micros = 60 * SECOND;

impl World {
    /// Runs as long as the gateway leads in this term.
    pub(crate) async fn keep(self: W, me: At, term: u64) {
        let (mut seen, mut since) = ((0, Lives::default()), self.exec.now());
        let mut pause = TRY_AGAIN_AFTER;
        loop {
            self.exec.sleep(LOOK_EVERY).await;
            if self.gateways[me].member.leads.get() != Some(term) {
                return;
            }
            let state = self.state_at(me);
            if state.is_rebalance_complete() && !state.needs_repair() {
                continue;
            }
            let news = (state.targets_changed, lives(&state));
            if news != seen {
                (seen, since, pause) = (news, self.exec.now(), TRY_AGAIN_AFTER);
            }
            if self.exec.now() - since < SETTLING {
                continue;
            }
            if let Err(e) = self.round(me, &state).await {
                self.note(|| format!("not all objects are in place: {}", e.message));
                let until = self.exec.now() + pause;
                while self.exec.now() < until && lives(&self.state_at(me)) == seen.1 {
                    self.exec.sleep(LOOK_EVERY).await;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Starts a job on all targets that moves misplaced objects.
    async fn round(self: &W, me: At, state: &ClusterState) -> Result<()> {
        let (placed, before) = (state.targets_changed, lives(state));
        self.note(|| format!("gateway {me} has objects moved since version {placed}"));
        let jobs = state.alive_targets().map(|node| {
            let (world, at) = (self.clone(), at_of(&node.id));
            let version = state.version;
            let job = async move { world.rebalance(at, version).await };
            self.call_within(WORKED_WITHIN, (me, at), job)
        });
        let done = join_all(jobs).await;
        if done.is_empty() {
            return Err(Error::unavailable("no target is alive"));
        }
        let failed: Vec<Error> = done.into_iter().filter_map(Result::err).collect();
        let now = self.state_at(me);
        let completion = if self.is_broken(Broken::CompleteTooEarly) {
            let repaired = now.targets().map(|n| (n.id.clone(), n.alive_since)).collect();
            Command::RebalanceComplete { placed, repaired }
        } else {
            if let Some(e) = failed.into_iter().next() {
                return Err(e);
            }
            rebalance::completion(&now, placed, &before)?
        };
        self.propose(me, completion).await.map(drop)
    }
}

//! The loop that checks for overdue heartbeats.

use std::sync::Arc;
use std::time::Duration;

use forebay_node::lifecycle::Lifecycle;

use super::members::Members;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Checks the members until this gateway's term as leader ends. A check that has not finished then
/// must not continue: in a later term, nodes may have new leases that it does not know of.
pub(crate) async fn watch(members: Arc<Members>, lifecycle: Lifecycle) {
    let stop = lifecycle.token();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = members.check() => {}
        }
    }
}

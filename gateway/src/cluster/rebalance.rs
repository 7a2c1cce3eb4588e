//! Starts rebalances after placement changed, records when all native objects are in place, and
//! stops targets that leave and are empty. Only the leader does this.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::job::{JobKind, JobSpec, JobState, JobStatus};
use forebay_core::rebalance::{Lives, completion, lives};
use forebay_core::state::{ClusterState, Command, Leaving, Node};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;

use crate::job_control::JobControl;
use crate::meta::MetaLog;
use crate::targets::Targets;

/// Path of a target that ends its process.
const STOP_PATH: &str = "/internal/v1/stop";
/// Pause after placement changed, so that several targets that join at once cause one rebalance.
const SETTLING: Duration = Duration::from_secs(5);
/// Interval between checks of the state.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause before objects that could not be moved are tried again; doubles up to `LONGEST_PAUSE`.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Keeps native objects in place.
pub(crate) struct Keeper {
    pub(crate) meta: Arc<dyn MetaLog>,
    pub(crate) maps: Maps,
    pub(crate) targets: Targets,
    pub(crate) jobs: JobControl,
}

/// The id of the rebalance for the placement of this version.
pub(crate) fn job_id(placed: u64) -> String {
    format!("g{placed}")
}

impl Keeper {
    /// Runs until this gateway is no longer the leader.
    pub(crate) async fn run(self, life: Lifecycle) {
        let stop = life.token();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&self) {
        let (mut seen, mut since) = ((0, Lives::default()), Instant::now());
        let mut pause = TRY_AGAIN_AFTER;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let state = self.maps.load();
            if state.is_rebalance_complete() && !state.needs_repair() {
                if let Err(e) = self.let_go(&state).await {
                    tracing::warn!(error = %e, "a target cannot leave yet");
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
                continue;
            }
            let news = (state.targets_changed, lives(&state));
            if news != seen {
                (seen, since, pause) = (news, Instant::now(), TRY_AGAIN_AFTER);
            }
            let enabled = state.settings.text("rebalance.enabled") == "true";
            if !enabled || since.elapsed() < SETTLING {
                continue;
            }
            match self.round(&state).await {
                Ok(true) => {}
                Ok(false) => pause = TRY_AGAIN_AFTER,
                Err(e) => {
                    tracing::warn!(error = %e, "not all objects are where they belong yet");
                    self.rest(pause, &seen.1).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits; ends early if a target joins or leaves, since the outcome may then change at once.
    async fn rest(&self, pause: Duration, lived: &Lives) {
        let until = Instant::now() + pause;
        while Instant::now() < until && lives(&self.maps.load()) == *lived {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Runs one rebalance on all targets. False: the placement changed again meanwhile.
    async fn round(&self, state: &ClusterState) -> Result<bool> {
        let placed = state.targets_changed;
        let before = lives(state);
        let id = job_id(placed);
        // Removes an earlier attempt, of this leader or of another.
        match self.jobs.forget(&id).await {
            Err(e) if e.code != ErrorCode::InvalidArgument => return Err(e),
            _ => {}
        }
        let nodes: Vec<&Node> = state.alive_targets().collect();
        if nodes.is_empty() {
            return Err(Error::unavailable("no target is alive"));
        }
        tracing::info!(job = id, "objects move to where they belong, copies are made");
        let spec = JobSpec::new(JobKind::Rebalance, id.clone());
        self.jobs.launch(spec, nodes).await?;
        let status = loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.maps.load().targets_changed != placed {
                return Ok(false);
            }
            let status = self.jobs.status(&id).await?;
            if status.is_over() {
                break status;
            }
        };
        check(&status)?;
        let now = self.maps.load();
        if now.targets_changed != placed {
            return Ok(false);
        }
        let version = self.meta.propose(completion(&now, placed, &before)?).await?;
        let (objects, bytes) = (status.objects, status.bytes);
        tracing::info!(version, objects, bytes, "all objects are where they belong");
        Ok(true)
    }

    /// Stops targets that are leaving: they are empty now.
    async fn let_go(&self, state: &ClusterState) -> Result<()> {
        for node in state.targets() {
            let Some(leaving) = node.leaving.filter(|_| node.emptied) else { continue };
            if node.alive {
                tracing::info!(node = %node.id, "nothing lies there any more, it stops");
                self.targets.post::<_, serde_json::Value>(node, STOP_PATH, &()).await?;
            }
            let id = node.id.clone();
            self.meta
                .propose(match leaving {
                    Leaving::Remove => Command::Remove { id },
                    Leaving::Stop => Command::SetMaintenance { id, on: true },
                })
                .await?;
        }
        Ok(())
    }
}

fn check(status: &JobStatus) -> Result<()> {
    if status.state == JobState::Done && status.errors == 0 {
        return Ok(());
    }
    let why = status.messages.first().map_or("it was stopped", String::as_str);
    Err(Error::unavailable(format!("{} of the moves failed: {why}", status.errors)))
}

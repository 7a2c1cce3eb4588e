//! The jobs of transforms: a running transform is a job on every target, as long as it is in the
//! cluster's state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use forebay_core::etl::Stage;
use forebay_core::job::JobKind;
use forebay_core::locks::MutexExt;
use forebay_core::state::ClusterState;
use forebay_node::maps::Maps;
use tokio_util::sync::CancellationToken;

use super::{Jobs, Registration, RequestJob};

/// Jobs of running transforms, by id; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct TransformJobs(Arc<Mutex<BTreeMap<String, RequestJob>>>);

impl TransformJobs {
    /// Counts an object that a transform has changed.
    pub(crate) fn done(&self, job: &str, bytes: u64) {
        let running = self.0.locked();
        if let Some(job) = running.get(job) {
            job.done(bytes);
        }
    }

    /// Keeps the jobs in accordance with the state, until `stop`.
    pub(crate) async fn follow(self, jobs: Jobs, maps: Maps, stop: CancellationToken) {
        let mut versions = maps.subscribe();
        loop {
            self.adopt(&maps.load(), &jobs);
            tokio::select! {
                () = stop.cancelled() => return,
                changed = versions.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Starts and ends jobs according to the state.
    fn adopt(&self, state: &ClusterState, jobs: &Jobs) {
        let runs =
            |id: &str| state.etls.values().any(|etl| etl.job == id && etl.stage == Stage::Running);
        let mut running = self.0.locked();
        let over: Vec<String> = running.keys().filter(|id| !runs(id)).cloned().collect();
        for job in over.iter().filter_map(|id| running.remove(id)) {
            job.end(Ok(()));
        }
        for etl in state.etls.values().filter(|etl| etl.stage == Stage::Running) {
            if !running.contains_key(&etl.job) {
                let what = Registration::new(JobKind::TransformInline).id(&etl.job);
                match jobs.register(what) {
                    Ok(job) => drop(running.insert(etl.job.clone(), job)),
                    Err(e) => tracing::debug!(etl = etl.name, error = %e, "runs without a job"),
                }
            }
        }
    }
}

//! The jobs that a target keeps: running ones, and the last ended ones of each kind.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use forebay_core::job::JobKind;

use super::run::JobRun;

/// Ended jobs of one kind that are kept.
const REMEMBERED: usize = 1000;
/// The same for kinds of which a training run starts many each second.
const REMEMBERED_FREQUENT: usize = 100;

#[derive(Default)]
pub(super) struct Table {
    pub(super) jobs: BTreeMap<String, Arc<JobRun>>,
    /// Ids, in the order of their ends.
    ended: HashMap<JobKind, VecDeque<String>>,
}

impl Table {
    /// Adds a job. If another job has its id, that job is returned.
    pub(super) fn add(&mut self, job: &Arc<JobRun>) -> Option<Arc<JobRun>> {
        if let Some(known) = self.jobs.get(&job.spec.id) {
            return Some(known.clone());
        }
        self.jobs.insert(job.spec.id.clone(), job.clone());
        None
    }

    /// Removes a job that is over.
    pub(super) fn forget(&mut self, id: &str) {
        if let Some(job) = self.jobs.remove(id)
            && let Some(ended) = self.ended.get_mut(&job.spec.kind)
        {
            ended.retain(|known| known != id);
        }
    }

    /// Records the end of a job. Returns the oldest job of its kind if it is removed in exchange.
    pub(super) fn over(&mut self, job: &JobRun) -> Option<Arc<JobRun>> {
        let kind = job.spec.kind;
        let ended = self.ended.entry(kind).or_default();
        ended.push_back(job.spec.id.clone());
        let most = if kind.is_frequent() { REMEMBERED_FREQUENT } else { REMEMBERED };
        let oldest = if ended.len() > most { ended.pop_front() } else { None };
        oldest.and_then(|oldest| self.jobs.remove(&oldest))
    }
}

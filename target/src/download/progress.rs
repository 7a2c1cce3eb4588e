//! The progress of a download, object by object; a bounded number of finished ones is kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_core::Error;
use forebay_core::download::{DownloadSpec, DownloadStatus, REMEMBERED_TASKS, Task};
use forebay_core::locks::MutexExt;
use forebay_node::clock::unix_ns;

/// The state of one job on this target.
pub(super) struct Progress(Mutex<State>);

struct State {
    status: DownloadStatus,
    /// By name.
    current: BTreeMap<String, Arc<Current>>,
}

/// An object that is being fetched.
pub(super) struct Current {
    started_ns: u64,
    bytes: AtomicU64,
    total: AtomicU64,
}

impl Current {
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Starts an attempt: nothing has arrived yet, of `total` bytes if that is known.
    pub(super) fn begin(&self, total: Option<u64>) {
        self.bytes.store(0, Ordering::Relaxed);
        self.total.store(total.unwrap_or(0), Ordering::Relaxed);
    }

    fn task(&self, name: &str, ended_ns: u64) -> Task {
        Task {
            name: name.to_owned(),
            bytes: self.bytes.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            started_ns: self.started_ns,
            ended_ns,
        }
    }
}

/// The result of one object.
pub(super) enum Outcome {
    Fetched,
    /// It was present already.
    Skipped,
    Failed(Error),
}

impl Progress {
    pub(super) fn new(spec: &DownloadSpec) -> Self {
        let status = DownloadStatus::new(spec, unix_ns());
        Self(Mutex::new(State { status, current: BTreeMap::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    pub(super) fn expect(&self, total: u64) {
        self.state().status.total = i64::try_from(total).unwrap_or(i64::MAX);
    }

    pub(super) fn begin(&self, name: &str) -> Arc<Current> {
        let current = Arc::new(Current {
            started_ns: unix_ns(),
            bytes: AtomicU64::new(0),
            total: AtomicU64::new(0),
        });
        let mut state = self.state();
        state.status.scheduled += 1;
        state.current.insert(name.to_owned(), current.clone());
        current
    }

    pub(super) fn end(&self, name: &str, outcome: Outcome) {
        let mut state = self.state();
        let current = state.current.remove(name);
        let status = &mut state.status;
        match outcome {
            Outcome::Failed(e) => {
                status.errors += 1;
                if status.failures.len() < REMEMBERED_TASKS {
                    status.failures.push((name.to_owned(), e.to_string()));
                }
                return;
            }
            Outcome::Skipped => status.skipped += 1,
            Outcome::Fetched => {}
        }
        status.finished += 1;
        if status.done.len() < REMEMBERED_TASKS
            && let Some(current) = current
        {
            status.done.push(current.task(name, unix_ns()));
        }
    }

    /// All objects are known and started.
    pub(super) fn all_started(&self) {
        let mut state = self.state();
        state.status.all_dispatched = true;
        if state.status.total < 0 {
            state.status.total = i64::try_from(state.status.scheduled).unwrap_or(i64::MAX);
        }
    }

    pub(super) fn finish(&self, aborted: bool) {
        let mut state = self.state();
        state.status.aborted = aborted;
        state.status.finished_ns = unix_ns();
        state.current.clear();
    }

    /// Records a failure that concerns no object.
    pub(super) fn broken(&self, name: &str, e: &Error) {
        let mut state = self.state();
        state.status.errors += 1;
        state.status.failures.push((name.to_owned(), e.to_string()));
    }

    /// Only the counters.
    pub(super) fn summary(&self) -> DownloadStatus {
        let state = self.state();
        let status = &state.status;
        DownloadStatus {
            id: status.id.clone(),
            description: status.description.clone(),
            current: Vec::new(),
            done: Vec::new(),
            failures: Vec::new(),
            ..*status
        }
    }

    pub(super) fn status(&self) -> DownloadStatus {
        let state = self.state();
        let current = state.current.iter().map(|(name, current)| current.task(name, 0)).collect();
        DownloadStatus { current, ..state.status.clone() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.state().status.is_over()
    }

    /// Unix nanoseconds; 0 while it runs.
    pub(super) fn finished_ns(&self) -> u64 {
        self.state().status.finished_ns
    }
}

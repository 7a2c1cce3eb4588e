//! A target's records of its transforms: counters, the last failures, and the log. All of it is
//! bounded, and all of it is lost with the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_core::Error;
use forebay_core::etl::{EtlFailure, EtlPart};
use forebay_core::locks::MutexExt;
use forebay_core::state::ClusterState;

/// Most jobs whose failures are kept; the oldest are removed first.
const JOBS: usize = 64;
/// Most failures of one job that are kept.
const FAILURES: usize = 100;
/// Longest text of one failure, in bytes.
const MESSAGE: usize = 1 << 10;
/// Bytes of log kept of one transform; the oldest lines are removed first.
const LOG: usize = 64 << 10;

/// Counters and log of one transform since it was started.
#[derive(Debug, Default)]
pub(crate) struct Note {
    pub(super) objects: AtomicU64,
    pub(super) in_bytes: AtomicU64,
    pub(super) out_bytes: AtomicU64,
    log: Mutex<String>,
}

impl Note {
    /// Adds lines to the log.
    pub(super) fn log(&self, text: &str) {
        let mut log = lock(&self.log);
        log.push_str(text);
        if !text.ends_with('\n') {
            log.push('\n');
        }
        if log.len() > LOG {
            let least = log.len() - LOG;
            let cut = log.as_bytes()[least..].iter().position(|b| *b == b'\n');
            let cut = cut.map_or(log.len(), |at| least + at + 1);
            log.drain(..cut);
        }
    }
}

/// The notes of all transforms; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// By the job as which a transform runs.
    notes: Mutex<BTreeMap<String, Arc<Note>>>,
    /// Oldest job first.
    failures: Mutex<VecDeque<(String, VecDeque<EtlFailure>)>>,
}

impl Notes {
    /// The record of a transform's job; records without a running transform are removed.
    pub(super) fn of(&self, state: &ClusterState, job: &str) -> Arc<Note> {
        let mut notes = lock(&self.0.notes);
        if let Some(note) = notes.get(job) {
            return note.clone();
        }
        notes.retain(|known, _| state.etls.values().any(|etl| etl.job == *known));
        notes.entry(job.to_owned()).or_default().clone()
    }

    /// Records an object that could not be transformed.
    pub(super) fn failed(&self, job: &str, object: String, error: &Error) {
        let mut message = error.message.clone();
        if message.len() > MESSAGE {
            let end = (0..=MESSAGE).rev().find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or(0));
        }
        let failure = EtlFailure { object, message, status: error.code.status() };
        let mut jobs = lock(&self.0.failures);
        let at = match jobs.iter().position(|(known, _)| known == job) {
            Some(at) => at,
            None => {
                if jobs.len() >= JOBS {
                    jobs.pop_front();
                }
                jobs.push_back((job.to_owned(), VecDeque::new()));
                jobs.len() - 1
            }
        };
        let list = &mut jobs[at].1;
        if list.len() >= FAILURES {
            list.pop_front();
        }
        list.push_back(failure);
    }

    /// The status of a transform; failures of `job`, which may be another one.
    pub(super) fn part(&self, state: &ClusterState, etl_job: &str, job: &str) -> EtlPart {
        let note = self.of(state, etl_job);
        let jobs = lock(&self.0.failures);
        let errors = jobs.iter().find(|(known, _)| known == job);
        EtlPart {
            objects: note.objects.load(Ordering::Relaxed),
            in_bytes: note.in_bytes.load(Ordering::Relaxed),
            out_bytes: note.out_bytes.load(Ordering::Relaxed),
            errors: errors.map(|(_, list)| list.iter().cloned().collect()).unwrap_or_default(),
            log: lock(&note.log).clone(),
            away: String::new(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.locked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_and_the_oldest_go_first() {
        let (notes, state) = (Notes::default(), ClusterState::default());
        for job in 0..JOBS + 1 {
            for object in 0..FAILURES + 1 {
                let error = Error::invalid("ä".repeat(MESSAGE));
                notes.failed(&format!("job-{job}"), format!("ais://b/{object}"), &error);
            }
        }
        assert!(notes.part(&state, "etl-1", "job-0").errors.is_empty());
        let errors = notes.part(&state, "etl-1", "job-1").errors;
        assert_eq!((errors.len(), errors[0].object.as_str()), (FAILURES, "ais://b/1"));
        assert_eq!(errors[0].message.len(), MESSAGE);
        let note = notes.of(&state, "etl-1");
        for line in 0..LOG {
            note.log(&format!("line {line}"));
        }
        let log = notes.part(&state, "etl-1", "").log;
        assert!(log.len() <= LOG && log.starts_with("line ") && log.ends_with("line 65535\n"));
    }
}

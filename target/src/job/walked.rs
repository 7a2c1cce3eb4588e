//! The position of a job's walk over its names. Objects are finished in any order; the position is
//! the last name before which all are finished.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use forebay_core::job::JobStatus;

use super::notes::Position;

/// How often a job's position is recorded.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// The result of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Another target processes it, or there was nothing to do.
    Nothing,
    Done(u64),
    Present(u64),
    Failed,
}

impl From<Option<u64>> for Outcome {
    /// The bytes of a finished object; `None` if there was nothing to do.
    fn from(done: Option<u64>) -> Self {
        done.map_or(Self::Nothing, Self::Done)
    }
}

/// The walk of one job.
#[derive(Debug, Default)]
pub(super) struct Walked {
    at: Position,
    /// Counters of the objects before the position.
    counts: Counts,
    /// The steps behind the position, in the order of the walk.
    open: VecDeque<Step>,
    /// Number of steps removed from `open`.
    gone: u64,
    noted: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    objects: u64,
    bytes: u64,
    present: u64,
    present_bytes: u64,
    errors: u64,
}

#[derive(Debug)]
struct Step {
    name: String,
    /// Its result, and the bytes of an object of this target if the listing has them.
    ended: Option<(Outcome, Option<u64>)>,
}

impl Walked {
    /// A walk that continues.
    pub(super) fn new(at: Position, so_far: &JobStatus) -> Self {
        let JobStatus { objects, bytes, present, present_bytes, errors, .. } = *so_far;
        let counts = Counts { objects, bytes, present, present_bytes, errors };
        Self { at, counts, ..Self::default() }
    }

    pub(super) fn at(&self) -> Position {
        self.at.clone()
    }

    /// Adds the next name. Returns its index in the walk.
    pub(super) fn step(&mut self, name: &str) -> u64 {
        self.open.push_back(Step { name: name.to_owned(), ended: None });
        self.gone + self.open.len() as u64 - 1
    }

    /// Records the result of a step, and the bytes of an object of this target if the listing has
    /// them. The position advances as far as all steps are finished.
    pub(super) fn end(&mut self, place: u64, outcome: Outcome, listed: Option<u64>) {
        let at = place.checked_sub(self.gone).and_then(|at| usize::try_from(at).ok());
        if let Some(step) = at.and_then(|at| self.open.get_mut(at)) {
            step.ended = Some((outcome, listed));
        }
        while let Some((outcome, listed)) = self.open.front().and_then(|step| step.ended) {
            let Some(step) = self.open.pop_front() else { break };
            self.gone += 1;
            self.at.names += 1;
            self.at.after = step.name;
            self.at.listed += u64::from(listed.is_some());
            self.at.listed_bytes += listed.unwrap_or(0);
            let counts = &mut self.counts;
            match outcome {
                Outcome::Nothing => {}
                Outcome::Done(bytes) => {
                    (counts.objects, counts.bytes) = (counts.objects + 1, counts.bytes + bytes)
                }
                Outcome::Present(bytes) => {
                    counts.present += 1;
                    counts.present_bytes += bytes;
                }
                Outcome::Failed => counts.errors += 1,
            }
        }
    }

    /// Puts the counters of the objects before the position into a status.
    pub(super) fn count_in(&self, status: &mut JobStatus) {
        let Counts { objects, bytes, present, present_bytes, errors } = self.counts;
        (status.objects, status.bytes, status.errors) = (objects, bytes, errors);
        (status.present, status.present_bytes) = (present, present_bytes);
    }

    /// Whether the position is to be recorded now; then not again for a while.
    pub(super) fn is_due(&mut self) -> bool {
        let due = self.noted.is_none_or(|at| at.elapsed() >= NOTED_EVERY);
        if due {
            self.noted = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::job::{JobKind, JobSpec};

    use super::*;

    #[test]
    fn the_position_is_before_the_first_object_that_is_not_done() {
        let mut walked = Walked::default();
        let places: Vec<u64> = ["a", "b", "c", "d"].map(|name| walked.step(name)).to_vec();
        walked.end(places[1], Outcome::Done(10), Some(10));
        walked.end(places[3], Outcome::Failed, Some(10));
        assert_eq!(walked.at(), Position::default(), "a is under way");
        walked.end(places[0], Outcome::Present(10), Some(10));
        let at = Position { names: 2, after: "b".into(), listed: 2, listed_bytes: 20 };
        assert_eq!(walked.at(), at);
        let mut status = JobStatus::new(&JobSpec::new(JobKind::Prefetch, "job-1"), 1);
        walked.count_in(&mut status);
        assert_eq!((status.objects, status.bytes, status.errors), (1, 10, 0), "without d");

        // After a resume at the position, the rest is counted on top.
        let mut again = Walked::new(walked.at(), &status);
        let (c, d) = (again.step("c"), again.step("d"));
        again.end(c, Outcome::Nothing, None);
        again.end(d, Outcome::Done(5), None);
        again.count_in(&mut status);
        assert_eq!((status.objects, status.bytes, status.present), (2, 15, 1));
        assert_eq!((again.at().names, again.at().after.as_str()), (4, "d"));
    }
}

//! The runner and the walk over objects, with small kinds of jobs of these tests.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forebay_core::bucket::Freshness;
use forebay_core::job::{JobKind, JobSpec, JobState, JobStatus, Selection};
use forebay_core::{Bucket, Error, ErrorCode, Result};
use forebay_node::lifecycle::Lifecycle;

use super::notes::{Notes, Position, Progress};
use super::run::{Job, JobRun, stopped};
use super::runner::{Jobs, MakeJob};
use super::scope::{Item, Scope};
use super::walk::{EachObject, ObjectJob, Walk};
use super::walked::Outcome;
use crate::object::ObjectService;
use crate::object::tests::Bench;

const DEADLINE: Duration = Duration::from_secs(20);

/// The names of objects, in the order in which their steps started.
#[derive(Clone, Default)]
struct StepLog(Arc<Mutex<Vec<String>>>);

impl StepLog {
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A job that records its steps. The name of an object decides its outcome.
struct Recorder {
    steps: StepLog,
    /// Whether a failed object ends the job.
    strict: bool,
}

#[async_trait]
impl ObjectJob for Recorder {
    fn scope(&self) -> Scope {
        Scope::OWNED
    }

    async fn step(&self, _walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        self.steps.0.lock().unwrap().push(item.name.clone());
        match item.name.as_str() {
            "present" => Ok(Outcome::Present(3)),
            "nothing" => Ok(Outcome::Nothing),
            "bad" => Err(Error::invalid("the object is bad")),
            "missing" | "missing1" | "missing2" => {
                Err(Error::new(ErrorCode::ObjectNotFound, "the object is missing"))
            }
            "endless" => std::future::pending().await,
            _ => Ok(Outcome::Done(10)),
        }
    }

    fn ends_at(&self, _error: &Error) -> bool {
        self.strict
    }
}

/// A job that is one run, and ends by itself when it is stopped.
struct Whole {
    started: Arc<AtomicBool>,
    cleaned_up: Arc<AtomicBool>,
}

#[async_trait]
impl Job for Whole {
    async fn run(&self, job: &JobRun) -> Result<()> {
        self.started.store(true, Ordering::SeqCst);
        job.stop.cancelled().await;
        tokio::task::yield_now().await;
        self.cleaned_up.store(true, Ordering::SeqCst);
        Err(stopped())
    }

    fn ends_itself(&self) -> bool {
        true
    }
}

/// A job that fails as a whole.
struct Failing;

#[async_trait]
impl Job for Failing {
    async fn run(&self, _job: &JobRun) -> Result<()> {
        Err(Error::unavailable("the work cannot begin"))
    }
}

struct Fixture {
    bench: Bench,
    bucket: Bucket,
    steps: StepLog,
    lifecycle: Lifecycle,
}

impl Fixture {
    async fn new() -> Self {
        let bench = Bench::new(1 << 30).await;
        let bucket = bench.bucket("b", true, Freshness::Always).bucket;
        Self { bench, bucket, steps: StepLog::default(), lifecycle: Lifecycle::new() }
    }

    fn notes(&self) -> Notes {
        Notes::new(self.bench.dir.path())
    }

    fn objects(&self) -> ObjectService {
        self.bench.service.clone()
    }

    fn jobs(&self, make: MakeJob) -> Jobs {
        Jobs::new(self.objects(), make, self.lifecycle.clone(), self.notes())
    }

    /// Jobs that record their steps.
    fn recorders(&self, strict: bool) -> Jobs {
        let (objects, steps) = (self.objects(), self.steps.clone());
        self.jobs(Box::new(move |_, _| {
            let kind = Recorder { steps: steps.clone(), strict };
            Box::new(EachObject { objects: objects.clone(), kind })
        }))
    }

    /// A job of a kind that resumes, which does one step after the other.
    fn spec(&self, selection: Selection) -> JobSpec {
        let bucket = Some(self.bucket.clone());
        JobSpec { bucket, selection, workers: 1, ..JobSpec::new(JobKind::Prefetch, "job-1") }
    }

    fn named(&self, names: &[&str]) -> JobSpec {
        self.spec(Selection::Names(names.iter().map(|name| (*name).to_owned()).collect()))
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < DEADLINE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The status of the job after its end.
async fn end_of(jobs: &Jobs, id: &str) -> JobStatus {
    until("the end of the job", || jobs.get(id).unwrap().is_over()).await;
    jobs.get(id).unwrap()
}

#[tokio::test]
async fn every_object_is_counted_once_by_its_outcome() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    let names = ["a", "present", "nothing", "b"];
    jobs.start(fixture.named(&names)).await.unwrap();
    let status = end_of(&jobs, "job-1").await;
    assert_eq!(fixture.steps.names(), names);
    assert_eq!(status.state, JobState::Done);
    assert_eq!((status.objects, status.bytes), (2, 20));
    assert_eq!((status.present, status.present_bytes, status.errors), (1, 3, 0));
}

#[tokio::test]
async fn a_job_on_a_prefix_does_a_step_for_each_listed_object() {
    let fixture = Fixture::new().await;
    for name in ["a", "b", "other"] {
        std::fs::write(fixture.bench.folder().join(name), name).unwrap();
    }
    let jobs = fixture.recorders(false);
    jobs.start(fixture.spec(Selection::Prefix(String::new()))).await.unwrap();
    assert_eq!(end_of(&jobs, "job-1").await.objects, 3);
    assert_eq!(fixture.steps.names(), ["a", "b", "other"]);
}

#[tokio::test]
async fn a_started_job_that_is_started_again_runs_once() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    jobs.start(fixture.named(&["a"])).await.unwrap();
    let ended = end_of(&jobs, "job-1").await;
    assert_eq!(jobs.start(fixture.named(&["a"])).await.unwrap(), ended);
    assert_eq!(fixture.steps.names(), ["a"]);
    assert_eq!(jobs.all().len(), 1);
}

#[tokio::test]
async fn the_error_of_an_object_is_in_the_status_and_the_job_continues() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    jobs.start(fixture.named(&["a", "bad", "missing", "b"])).await.unwrap();
    let status = end_of(&jobs, "job-1").await;
    assert_eq!((status.state, status.objects, status.errors), (JobState::Failed, 2, 2));
    assert!(status.messages[0].contains("the object is bad"), "{:?}", status.messages);
    assert!(status.messages[1].contains("the object is missing"), "{:?}", status.messages);
    assert_eq!(status.failure, None, "the job itself did not fail");
}

#[tokio::test]
async fn an_object_that_a_template_names_may_be_missing() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    let spec = fixture.spec(Selection::Template("missing{1..2}".into()));
    jobs.start(spec).await.unwrap();
    let status = end_of(&jobs, "job-1").await;
    assert_eq!((status.state, status.objects, status.errors), (JobState::Done, 0, 0));
    assert_eq!(fixture.steps.names(), ["missing1", "missing2"]);
}

#[tokio::test]
async fn an_error_that_its_kind_does_not_accept_ends_the_job() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(true);
    jobs.start(fixture.named(&["a", "bad", "b"])).await.unwrap();
    let status = end_of(&jobs, "job-1").await;
    assert_eq!(fixture.steps.names(), ["a", "bad"]);
    assert_eq!((status.state, status.objects, status.errors), (JobState::Failed, 1, 1));
    assert!(status.failure.unwrap().message.contains("the object is bad"));
}

#[tokio::test]
async fn the_error_of_a_whole_job_is_in_its_status() {
    let fixture = Fixture::new().await;
    let jobs = fixture.jobs(Box::new(|_, _| Box::new(Failing)));
    jobs.start(JobSpec::new(JobKind::Lru, "job-1")).await.unwrap();
    let status = end_of(&jobs, "job-1").await;
    assert_eq!((status.state, status.errors), (JobState::Failed, 1));
    assert_eq!(status.failure.unwrap().code, ErrorCode::Unavailable);
    assert!(status.messages[0].contains("the work cannot begin"));
    assert!(status.ended_ns >= status.started_ns);
}

#[tokio::test]
async fn a_job_on_objects_needs_a_bucket() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    jobs.start(JobSpec::new(JobKind::Delete, "job-1")).await.unwrap();
    let failure = end_of(&jobs, "job-1").await.failure.unwrap();
    assert!(failure.message.contains("a job delete needs a bucket"), "{failure}");
}

#[tokio::test]
async fn a_stopped_job_begins_no_further_step_and_keeps_its_counters() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    jobs.start(fixture.named(&["a", "endless", "b"])).await.unwrap();
    until("the second step", || fixture.steps.names().len() == 2).await;
    jobs.stop("job-1").unwrap();
    let status = end_of(&jobs, "job-1").await;
    assert_eq!((status.state, status.objects, status.errors), (JobState::Stopped, 1, 0));
    assert_eq!(fixture.steps.names(), ["a", "endless"]);
    assert_eq!(status.failure, None);
}

#[tokio::test]
async fn a_stopped_job_that_ends_by_itself_is_not_interrupted() {
    let fixture = Fixture::new().await;
    let (started, cleaned_up) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let flags = (started.clone(), cleaned_up.clone());
    let make = move |_: &JobSpec, _: &Jobs| -> Box<dyn Job> {
        let (started, cleaned_up) = flags.clone();
        Box::new(Whole { started, cleaned_up })
    };
    let jobs = fixture.jobs(Box::new(make));
    jobs.start(JobSpec::new(JobKind::Ishard, "job-1")).await.unwrap();
    until("the start of the run", || started.load(Ordering::SeqCst)).await;
    jobs.stop("job-1").unwrap();
    assert_eq!(end_of(&jobs, "job-1").await.state, JobState::Stopped);
    assert!(cleaned_up.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_running_job_cannot_be_removed_and_an_ended_one_can() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    jobs.start(fixture.named(&["endless"])).await.unwrap();
    assert!(jobs.forget("job-1").unwrap_err().message.contains("still in progress"));
    jobs.stop("job-1").unwrap();
    end_of(&jobs, "job-1").await;
    jobs.forget("job-1").unwrap();
    assert_eq!(jobs.get("job-1").unwrap_err().code, ErrorCode::JobNotFound);
}

#[tokio::test]
async fn a_resumed_job_skips_the_objects_before_its_recorded_position() {
    let fixture = Fixture::new().await;
    let spec = fixture.named(&["a", "b", "c", "d"]);
    let mut status = JobStatus::new(&spec, 7);
    (status.objects, status.bytes) = (2, 20);
    let at = Position { names: 2, after: "b".into(), ..Position::default() };
    fixture.notes().begin(&spec, &Progress { status, at }).await.unwrap();

    let jobs = fixture.recorders(false);
    jobs.take_up(fixture.notes().load().await.unwrap());
    let status = end_of(&jobs, "job-1").await;
    assert_eq!(fixture.steps.names(), ["c", "d"]);
    assert_eq!((status.state, status.objects, status.bytes), (JobState::Done, 4, 40));
    assert_eq!(status.started_ns, 7);
}

#[tokio::test]
async fn a_job_that_the_node_interrupts_is_recorded_and_resumes_after_its_objects() {
    let mut fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    jobs.start(fixture.named(&["a", "endless", "b"])).await.unwrap();
    until("the second step", || fixture.steps.names().len() == 2).await;
    assert_eq!(fixture.lifecycle.shutdown(DEADLINE).await, 0);
    assert!(!jobs.get("job-1").unwrap().is_over(), "it continues after the restart");

    let noted = fixture.notes().load().await.unwrap();
    (fixture.steps, fixture.lifecycle) = (StepLog::default(), Lifecycle::new());
    let jobs = fixture.recorders(false);
    jobs.take_up(noted);
    until("the interrupted step", || !fixture.steps.names().is_empty()).await;
    assert_eq!(fixture.steps.names(), ["endless"]);
    jobs.stop("job-1").unwrap();
    assert_eq!(end_of(&jobs, "job-1").await.objects, 1, "the first object counts once");
}

#[tokio::test]
async fn a_job_that_ended_before_a_restart_keeps_its_status() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    jobs.start(fixture.named(&["a", "bad"])).await.unwrap();
    let ended = end_of(&jobs, "job-1").await;
    assert_eq!(fixture.lifecycle.shutdown(DEADLINE).await, 0, "its end is recorded");

    let jobs = fixture.recorders(false);
    jobs.take_up(fixture.notes().load().await.unwrap());
    assert_eq!(jobs.get("job-1").unwrap(), ended);
    assert_eq!(fixture.steps.names(), ["a", "bad"], "no step is repeated");
}

#[tokio::test]
async fn a_kind_that_does_not_resume_is_not_recorded() {
    let fixture = Fixture::new().await;
    let jobs = fixture.recorders(false);
    let spec = JobSpec { kind: JobKind::Delete, ..fixture.named(&["a"]) };
    jobs.start(spec).await.unwrap();
    end_of(&jobs, "job-1").await;
    assert!(fixture.notes().load().await.unwrap().is_empty());
}

//! `forebay evict`, `write-back`, `scrub` and `job`: jobs on many objects.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_core::dsort::TargetPart;
use forebay_core::job::{JobKind, JobState, JobStatus, Selection};
use forebay_core::size::ByteSize;
use forebay_core::{Error, ErrorCode};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::failure::{Failure, exit};
use crate::output::{self, Column, Format, Row, Rows, time, time_json};
use crate::session::Session;
use crate::watch::WatchArgs;
use crate::{progress, uri};

#[derive(Debug, Args)]
pub(crate) struct SelectArgs {
    /// A bucket, optionally with a prefix
    #[arg(value_name = "URI")]
    pub(crate) what: String,
    /// Wait until the job ends
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay write-back ais://ckpt/run-7/ s3://models     as s3://models/run-7/…
  forebay write-back ais://ckpt s3://models/backup     as s3://models/backup/…

Objects that the bucket holds already are not sent again. With --wait, the exit
code is 8 if the cloud rejects an object, or if the job was cancelled.")]
pub(crate) struct WriteBackArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// A bucket of a cloud, optionally with a prefix for the names
    #[arg(value_name = "TO")]
    to: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, the latest first
    #[command(after_help = "Examples:\n  forebay job ls -o json\n  forebay job ls --watch=5")]
    Ls(WatchArgs),
    /// Show the progress of a job
    #[command(after_help = "Example:\n  forebay job get prefetch-x7 -o json")]
    Get(IdArgs),
    /// Wait until a job ends
    #[command(
        after_help = "Exit codes: 0 all objects are done, 4 no such job, 8 the job failed or was
cancelled. A job fails if one of its objects fails; the others stay done.

Example:
  forebay job wait prefetch-x7"
    )]
    Wait(IdArgs),
    /// Stop a job; its finished work is kept
    #[command(after_help = "Example:\n  forebay job cancel prefetch-x7")]
    Cancel(IdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// The job's id
    id: String,
}

/// Starts a job on the objects of a bucket or prefix.
pub(crate) async fn start(
    session: &Session,
    kind: JobKind,
    args: &SelectArgs,
) -> Result<(), Failure> {
    let (bucket, prefix) = uri::remote(&args.what)?;
    let id = session.client.start_job(kind, &bucket, &Selection::Prefix(prefix)).await?;
    started(session, kind, &id, args.wait).await
}

/// Starts a write-back.
pub(crate) async fn write_back(session: &Session, args: &WriteBackArgs) -> Result<(), Failure> {
    let (bucket, prefix) = uri::remote(&args.select.what)?;
    let (to, mut folder) = uri::remote(&args.to)?;
    if !folder.is_empty() && !folder.ends_with('/') {
        folder.push('/');
    }
    let chosen = Selection::Prefix(prefix);
    let id = session.client.start_write_back(&bucket, &chosen, (&to, &folder), false).await?;
    started(session, JobKind::WriteBack, &id, args.select.wait).await
}

/// Prints the id of a job that was started, or waits for its end.
pub(crate) async fn started(
    session: &Session,
    kind: JobKind,
    id: &str,
    wait: bool,
) -> Result<(), Failure> {
    if wait {
        return wait_for(session, id).await;
    }
    session.note(format!("started; `forebay job wait {id}` waits for it"));
    match session.format {
        Format::Table => output::one(Format::Name, id, &[], &Value::Null),
        format => output::one(format, id, &[], &json!({ "id": id, "kind": kind })),
    }
}

pub(crate) async fn run(session: &Session, command: &JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::Ls(watch) => watch.run(session, async || list(session).await).await,
        JobCommand::Get(args) => show(session, &session.client.job(&args.id).await?),
        JobCommand::Wait(args) => wait_for(session, &args.id).await,
        JobCommand::Cancel(args) => {
            session.client.stop_job(&args.id).await?;
            session.note(format!("cancelled {}", args.id));
            match session.format {
                Format::Table => Ok(()),
                format => output::one(format, &args.id, &[], &json!({ "id": args.id })),
            }
        }
    }
}

async fn list(session: &Session) -> Result<(), Failure> {
    let columns = [
        Column("ID", false),
        Column("KIND", false),
        Column("BUCKET", false),
        Column("STATE", false),
        Column("DONE", true),
        Column("OBJECTS", true),
        Column("BYTES", true),
        Column("ERRORS", true),
        Column("STARTED", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for job in session.client.jobs().await? {
        let cells = vec![
            job.id.clone(),
            job.kind.as_str().into(),
            bucket(&job),
            state(job.state).into(),
            percent(&job),
            job.objects.to_string(),
            ByteSize(job.bytes).to_string(),
            job.errors.to_string(),
            time(job.started_ns),
        ];
        rows.push(Row { name: job.id.clone(), cells, json: to_json(&job) })?;
    }
    rows.finish()
}

fn bucket(job: &JobStatus) -> String {
    job.bucket.as_ref().map_or_else(|| "-".into(), ToString::to_string)
}

/// Progress of the job in percent, if known.
fn percent(job: &JobStatus) -> String {
    match job.total_objects {
        0 => "-".into(),
        total => format!("{}%", (job.objects + job.present).min(total) * 100 / total),
    }
}

/// Waits until a job is over, then prints its result.
pub(crate) async fn wait_for(session: &Session, id: &str) -> Result<(), Failure> {
    let job = ended(session, id).await?;
    show(session, &job)?;
    verdict(&job)
}

/// Waits until a job is over, with a bar on a terminal; returns its status.
pub(crate) async fn ended(session: &Session, id: &str) -> Result<JobStatus, Failure> {
    let bar = progress::objects(progress::wanted(session.quiet), None);
    let job = watch(session, id, |job| {
        show_progress(&bar, job);
    })
    .await?;
    bar.finish_and_clear();
    Ok(job)
}

/// Updates a progress bar from a job's status.
pub(crate) fn show_progress(bar: &ProgressBar, job: &JobStatus) {
    progress::total_objects(bar, job.total_objects);
    bar.set_position(job.objects + job.present);
    bar.set_message(ByteSize(job.bytes).to_string());
}

/// Prints how to resume waiting for a job that continues without this command: at Ctrl-C, and if
/// the cluster does not reply.
pub(crate) struct Waiting<'a> {
    id: &'a str,
    over: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(id: &'a str) -> Self {
        Self { id, over: false }
    }

    /// The job is over: prints nothing on drop.
    pub(crate) fn over(&mut self) {
        self.over = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.over {
            let id = self.id;
            let _ = writeln!(
                std::io::stderr(),
                "job {id} goes on; `forebay job wait {id}` waits for it, `forebay job cancel {id}` \
                 stops it"
            );
        }
    }
}

/// Prints a job's status repeatedly, and its end.
pub(crate) async fn watch(
    session: &Session,
    id: &str,
    mut seen: impl FnMut(&JobStatus),
) -> Result<JobStatus, Failure> {
    let mut pause = Duration::from_millis(50);
    let mut waiting = Waiting::new(id);
    loop {
        let job = match session.client.job(id).await {
            Ok(job) => job,
            Err(e) => {
                waiting.over = !e.is_transient() && e.code() == ErrorCode::JobNotFound;
                return Err(e.into());
            }
        };
        seen(&job);
        if job.is_over() {
            waiting.over();
            return Ok(job);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_secs(1));
    }
}

pub(crate) fn show(session: &Session, job: &JobStatus) -> Result<(), Failure> {
    let mut lines = vec![
        ("job", job.id.clone()),
        ("kind", job.kind.as_str().to_owned()),
        ("bucket", bucket(job)),
        ("state", state(job.state).to_owned()),
        ("objects", of(job.total_objects, &|n| n.to_string(), job.objects + job.present)),
        ("bytes", of(job.total_bytes, &|n| ByteSize(n).to_string(), job.bytes + job.present_bytes)),
        ("errors", job.errors.to_string()),
        ("started", time(job.started_ns)),
        ("ended", time(job.ended_ns)),
    ];
    if job.present > 0 {
        let (objects, bytes) = (job.present, ByteSize(job.present_bytes));
        lines.push(("present", format!("{objects} of them were here, {bytes}")));
    }
    if let Some(report) = &job.dsort {
        let sum = |count: fn(&TargetPart) -> u64| report.targets.values().map(count).sum::<u64>();
        let number = |n: u64| n.to_string();
        lines.push(("extraction", of(report.inputs, &number, sum(|t| t.inputs))));
        let sorted = if report.sorting.is_finished() { "done" } else { "-" };
        lines.push(("sorting", sorted.to_owned()));
        lines.push(("creation", of(sum(|t| t.to_create), &number, sum(|t| t.created))));
    }
    lines.extend(job.messages.iter().map(|m| ("error", m.clone())));
    lines.extend(job.notes.iter().map(|m| ("note", m.clone())));
    output::one(session.format, &job.id, &lines, &to_json(job))
}

/// `done of total`, if the total is known.
fn of(total: u64, shown: &dyn Fn(u64) -> String, done: u64) -> String {
    match total {
        0 => shown(done),
        total => format!("{} of {}", shown(done), shown(total)),
    }
}

/// Returns an error if a job that is over did not succeed.
pub(crate) fn verdict(job: &JobStatus) -> Result<(), Failure> {
    let why = match (job.state, job.messages.first()) {
        (JobState::Running | JobState::Done, _) if job.errors == 0 => return Ok(()),
        (JobState::Running | JobState::Done, _) => return Err(Failure::silent(exit::PARTIAL)),
        (JobState::Stopped, _) => format!("job {} was cancelled", job.id),
        (JobState::Failed, Some(first)) => format!("job {} failed: {first}", job.id),
        (JobState::Failed, None) => format!("job {} failed", job.id),
    };
    Err(Failure::new(exit::JOB_FAILED, Some(Error::new(ErrorCode::Conflict, why))))
}

fn state(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Stopped => "cancelled",
    }
}

pub(crate) fn to_json(job: &JobStatus) -> Value {
    let mut json = json!({
        "id": job.id, "kind": job.kind, "bucket": job.bucket.as_ref().map(ToString::to_string),
        "state": state(job.state), "objects": job.objects, "bytes": job.bytes,
        "total_objects": job.total_objects, "total_bytes": job.total_bytes,
        "present": job.present, "present_bytes": job.present_bytes,
        "errors": job.errors, "messages": job.messages, "notes": job.notes,
        "started": time_json(job.started_ns), "ended": time_json(job.ended_ns),
    });
    if let Some(report) = &job.dsort {
        json["dsort"] = json!(report);
    }
    json
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::job::JobSpec;
    use forebay_core::{Bucket, Provider};

    fn job(state: JobState, errors: u64) -> JobStatus {
        let spec = JobSpec {
            bucket: Some(Bucket::new(Provider::Aws, "b").unwrap()),
            ..JobSpec::new(JobKind::Prefetch, "prefetch-1")
        };
        JobStatus { state, errors, ..JobStatus::new(&spec, 1) }
    }

    #[test]
    fn the_exit_code_says_how_a_job_ended() {
        let code = |state, errors| verdict(&job(state, errors)).err().map(|f| f.code);
        assert_eq!(code(JobState::Done, 0), None);
        assert_eq!(code(JobState::Done, 2), Some(3));
        assert_eq!(code(JobState::Failed, 1), Some(8));
        assert_eq!(code(JobState::Stopped, 0), Some(8));
    }

    #[test]
    fn json_has_the_bucket_as_people_write_it() {
        let json = to_json(&job(JobState::Stopped, 0));
        assert_eq!((&json["bucket"], &json["state"]), (&json!("s3://b"), &json!("cancelled")));
        assert_eq!(json["ended"], Value::Null);
    }
}

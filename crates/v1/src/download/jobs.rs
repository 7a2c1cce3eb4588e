//! Queries and commands for download jobs, and the status of jobs in the form of the protocol.

use forebay_core::date::format_rfc3339;
use forebay_core::download::{DownloadStatus, Task};
use forebay_core::error::{Error, ErrorCode, Result};
use regex_lite::Regex;
use serde_json::{Value, json};

use super::{flag, text};
use crate::action::parse_json;

/// A query or a command for jobs: the body of `GET` and `DELETE /v1/download`.
#[derive(Clone, Debug, Default)]
pub struct Question {
    pub id: String,
    /// Matches descriptions.
    pub regex: Option<Regex>,
    pub only_active: bool,
}

impl Question {
    /// An empty body means all jobs.
    pub fn parse(body: &[u8]) -> Result<Self> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let message = parse_json(body)?;
        let (id, regex) = (text(&message, "id")?, text(&message, "regex")?);
        if !id.is_empty() && !regex.is_empty() {
            return Err(Error::invalid(format!(
                "regex \"{regex}\" and job ID \"{id}\" cannot be defined together"
            )));
        }
        let regex = match regex.as_str() {
            "" => None,
            pattern => Some(Regex::new(pattern).map_err(|e| {
                Error::invalid(format!("invalid regular expression \"{pattern}\": {e}"))
            })?),
        };
        Ok(Self { id, regex, only_active: flag(&message, "only_active_tasks") })
    }

    /// The id of a command, which must name a job.
    pub fn one(&self) -> Result<&str> {
        if self.id.is_empty() { Err(Error::invalid("UUID not specified")) } else { Ok(&self.id) }
    }

    pub fn matches(&self, status: &DownloadStatus) -> bool {
        !(self.only_active && status.is_over())
            && self.regex.as_ref().is_none_or(|r| r.is_match(&status.description))
    }
}

/// A job in a list.
pub fn job_json(s: &DownloadStatus) -> Value {
    json!({
        "id": s.id, "xaction_id": s.id, "description": s.description,
        "started_time": format_rfc3339(s.started_ns), "finished_time": format_rfc3339(s.finished_ns),
        "finished_cnt": s.finished, "scheduled_cnt": s.scheduled, "skipped_cnt": s.skipped,
        "error_cnt": s.errors, "total": s.total, "all_dispatched": s.all_dispatched,
        "aborted": s.aborted,
    })
}

/// One job with its tasks; finished ones are omitted if only active ones are requested.
pub fn status_json(s: &DownloadStatus, only_active: bool) -> Value {
    let mut status = job_json(s);
    let tasks = |list: &[Task]| Value::Array(list.iter().map(task_json).collect());
    if !s.current.is_empty() {
        status["current_tasks"] = tasks(&s.current);
    }
    if !only_active && !s.done.is_empty() {
        status["finished_tasks"] = tasks(&s.done);
    }
    if !only_active && !s.failures.is_empty() {
        let row = |(name, error): &(String, String)| json!({"name": name, "error": error});
        status["download_errors"] = Value::Array(s.failures.iter().map(row).collect());
    }
    status
}

fn task_json(t: &Task) -> Value {
    let mut task = json!({
        "name": t.name, "downloaded": t.bytes.to_string(),
        "start_time": format_rfc3339(t.started_ns), "end_time": format_rfc3339(t.ended_ns),
    });
    if t.total > 0 {
        task["total"] = json!(t.total.to_string());
    }
    task
}

/// The error for an unknown id.
pub fn unknown_download(id: &str) -> Error {
    Error::new(ErrorCode::JobNotFound, format!("download job {id} does not exist"))
}

/// The error for removing a running job.
pub fn still_running(id: &str) -> Error {
    Error::invalid(format!("download job {id} is still running")).hint("abort it first")
}

/// Whether an error means that the job is unknown.
pub fn is_unknown(e: &Error) -> bool {
    e.code == ErrorCode::JobNotFound
}

//! The status of jobs that sort shards in v1's form: per target, or merged.

use forebay_core::date::format_rfc3339 as time;
use forebay_core::dsort::{DsortReport, Phase, TargetPart, Times};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::job::{JobState, JobStatus};
use regex_lite::Regex;
use serde_json::{Map, Value, json};

/// Selects the jobs of a query.
pub struct Filter {
    regex: Option<Regex>,
    only_active: bool,
}

impl Filter {
    pub fn new(regex: Option<&str>, only_active: bool) -> Result<Self> {
        let compiled = |text: &str| {
            Regex::new(text).map_err(|e| Error::invalid(format!("invalid regex \"{text}\": {e}")))
        };
        Ok(Self { regex: regex.map(compiled).transpose()?, only_active })
    }

    /// Matches jobs by their descriptions.
    pub fn matches(&self, status: &JobStatus) -> bool {
        let description = status.dsort.as_ref().map_or("", |report| &report.description);
        self.regex.as_ref().is_none_or(|r| r.is_match(description))
            && !(self.only_active && status.is_over())
    }
}

/// The error for an unknown id.
pub fn unknown_dsort(id: &str) -> Error {
    Error::new(ErrorCode::JobNotFound, format!("[dsort] {id} does not exist"))
}

/// The part of each target, by its id.
pub fn metrics_json(status: &JobStatus, now_ns: u64) -> Value {
    let empty = DsortReport::default();
    let report = status.dsort.as_deref().unwrap_or(&empty);
    let rows = report.targets.iter().enumerate().map(|(row, (id, part))| {
        (id.to_string(), info(status, report, Some((part, row == 0)), now_ns))
    });
    Value::Object(rows.collect())
}

/// All targets merged.
pub fn job_json(status: &JobStatus, now_ns: u64) -> Value {
    let empty = DsortReport::default();
    info(status, status.dsort.as_deref().unwrap_or(&empty), None, now_ns)
}

/// `part`: one target's part, and whether its row reports the errors.
fn info(
    status: &JobStatus,
    report: &DsortReport,
    part: Option<(&TargetPart, bool)>,
    now_ns: u64,
) -> Value {
    let all = report.targets.values().fold(TargetPart::default(), |all, one| sum(&all, one));
    let (part, reported) = part.unwrap_or((&all, true));
    // AIStore has a single state for jobs that did not succeed.
    let aborted = matches!(status.state, JobState::Failed | JobState::Stopped);
    let mut errors = status.messages.clone();
    if status.state == JobState::Stopped && errors.is_empty() {
        errors.push("stopped by user".to_owned());
    }
    let (errors, warnings) = match reported {
        true => (errors, status.notes.clone()),
        false => (Vec::new(), Vec::new()),
    };
    let none = json!({"name": "", "provider": ""});
    let source = status.bucket.as_ref().map_or(none, |b| json!(b));
    let destination = status.destination.as_ref().map_or_else(|| source.clone(), |b| json!(b));
    let elapsed = |phase: &Phase| phase.elapsed_ns(now_ns);
    let mut extraction = phase(&report.extraction, now_ns);
    extraction.extend(object(json!({
        "total_count": report.inputs.to_string(),
        "extracted_count": part.inputs.to_string(),
        "extracted_size": part.input_bytes.to_string(),
        "extracted_record_count": part.input_records.to_string(),
        "extracted_to_disk_count": "0", "extracted_to_disk_size": "0",
        "single_shard_stats": stats(&part.extraction),
    })));
    let mut sorting = phase(&report.sorting, now_ns);
    let idle = stats(&Times::default());
    sorting.extend(object(json!({ "sent_stats": idle, "recv_stats": idle })));
    let mut creation = phase(&report.creation, now_ns);
    creation.extend(object(json!({
        "to_create": part.to_create.to_string(), "created_count": part.created.to_string(),
        "moved_shard_count": "0", "req_stats": stats(&part.creation), "resp_stats": idle,
        "single_shard_stats": stats(&part.creation),
    })));
    json!({
        "id": status.id, "src-bck": source, "dst-bck": destination,
        "started_time": time(status.started_ns), "finish_time": time(status.ended_ns),
        "started_meta_sorting": elapsed(&report.extraction),
        "started_shard_creation": elapsed(&report.sorting),
        "finished_shard_creation": elapsed(&report.creation),
        "loc-objs": part.created.to_string(), "loc-bytes": part.created_bytes.to_string(),
        "Metrics": {
            "local_extraction": extraction, "meta_sorting": sorting, "shard_creation": creation,
            "description": report.description, "warnings": warnings, "errors": errors,
            "aborted": aborted, "archived": status.is_over(),
        },
        "aborted": aborted, "archived": status.is_over(),
    })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn sum(a: &TargetPart, b: &TargetPart) -> TargetPart {
    let times = |a: &Times, b: &Times| Times {
        count: a.count + b.count,
        total_ms: a.total_ms + b.total_ms,
        min_ms: match (a.count, b.count) {
            (0, _) => b.min_ms,
            (_, 0) => a.min_ms,
            _ => a.min_ms.min(b.min_ms),
        },
        max_ms: a.max_ms.max(b.max_ms),
        bytes: a.bytes + b.bytes,
    };
    TargetPart {
        inputs: a.inputs + b.inputs,
        input_records: a.input_records + b.input_records,
        input_bytes: a.input_bytes + b.input_bytes,
        to_create: a.to_create + b.to_create,
        created: a.created + b.created,
        created_bytes: a.created_bytes + b.created_bytes,
        extraction: times(&a.extraction, &b.extraction),
        creation: times(&a.creation, &b.creation),
    }
}

fn phase(phase: &Phase, now_ns: u64) -> Map<String, Value> {
    object(json!({
        "started_time": time(phase.started_ns), "end_time": time(phase.ended_ns),
        "elapsed": phase.elapsed_ns(now_ns), "running": phase.is_running(),
        "finished": phase.is_finished(),
    }))
}

fn stats(times: &Times) -> Value {
    // Bytes per second over all of them; individual rates are not stored.
    let rate = (times.bytes * 1000).checked_div(times.total_ms).unwrap_or(0).to_string();
    json!({
        "total_ms": times.total_ms.to_string(), "count": times.count.to_string(),
        "min_ms": times.min_ms.to_string(), "max_ms": times.max_ms.to_string(),
        "avg_ms": times.avg_ms().to_string(), "total": times.bytes.to_string(),
        "min_throughput": rate, "max_throughput": rate, "avg_throughput": rate,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::job::{JobKind, JobSpec};
    use forebay_core::name::NodeId;

    use super::*;

    #[test]
    fn metrics_have_a_row_for_each_target_with_numbers_as_strings() {
        let mut status = JobStatus::new(&JobSpec::new(JobKind::Dsort, "srt-1"), 1_000_000_000);
        let part = TargetPart { inputs: 2, to_create: 1, ..TargetPart::default() };
        let id = |n: &str| NodeId::new(n).unwrap();
        let report = DsortReport {
            extraction: Phase { started_ns: 5, ended_ns: 9 },
            sorting: Phase { started_ns: 9, ended_ns: 0 },
            inputs: 4,
            targets: [(id("target-01"), part.clone()), (id("target-02"), part)].into(),
            ..DsortReport::default()
        };
        status.dsort = Some(Box::new(report));
        let rows = metrics_json(&status, 20);
        let row = &rows["target-02"]["Metrics"];
        assert_eq!(row["local_extraction"]["total_count"], "4");
        assert_eq!(row["local_extraction"]["extracted_count"], "2");
        assert_eq!(row["meta_sorting"]["running"], true);
        assert_eq!(row["meta_sorting"]["elapsed"], 11);
        assert_eq!(row["shard_creation"]["finished"], false);
        assert_eq!(rows["target-01"]["finish_time"], "0001-01-01T00:00:00Z");
        assert_eq!(job_json(&status, 20)["Metrics"]["local_extraction"]["extracted_count"], "4");
        status.state = JobState::Failed;
        assert_eq!(metrics_json(&status, 20)["target-01"]["aborted"], true);
    }
}

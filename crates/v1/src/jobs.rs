//! Jobs as v1 clients query them (§10).

use std::collections::BTreeMap;

use forebay_core::date::format_rfc3339;
use forebay_core::error::{Error, ErrorCode};
use forebay_core::job::{JobState, JobStatus};
use forebay_core::name::NodeId;
use serde_json::{Map, Value, json};

/// `what=status`: one job, merged.
pub fn status_json(s: &JobStatus) -> Value {
    json!({
        "kind": s.kind.v1_kind(), "uuid": s.id,
        "err": s.messages.first().cloned().unwrap_or_default(),
        "end_time": s.ended_ns, "aborted": s.state == JobState::Stopped,
    })
}

/// One target's part of a job, for `what=qryxstats`. Counters are strings.
pub fn snapshot_json(s: &JobStatus) -> Value {
    let stopped = s.state == JobState::Stopped;
    let none = json!({"name": "", "provider": "", "namespace": {"uuid": "", "name": ""}});
    let source = s.bucket.as_ref().map_or(none, |b| json!(b));
    let destination = s.destination.as_ref().map_or_else(|| source.clone(), |b| json!(b));
    json!({
        "ext": null,
        "start-time": format_rfc3339(s.started_ns), "end-time": format_rfc3339(s.ended_ns),
        "bck": destination, "src-bck": source, "dst-bck": destination,
        "id": s.id, "kind": s.kind.v1_kind(), "ctlmsg": "",
        "abort-err": if stopped { "stopped by user" } else { "" },
        "err": s.messages.first().cloned().unwrap_or_default(),
        // Joggers, workers and full channels share one number.
        "glob.id": (u64::from(s.workers.min(1023)) << 10).to_string(),
        "stats": {"loc-objs": s.objects.to_string(), "loc-bytes": s.bytes.to_string(),
            "out-objs": "0", "out-bytes": "0", "in-objs": "0", "in-bytes": "0"},
        "aborted": stopped, "is_idle": s.is_over(),
    })
}

/// `what=qryxstats`: snapshots by target; every target has a list, never null.
pub fn snapshots_json(by_target: &BTreeMap<NodeId, Vec<JobStatus>>) -> Value {
    let rows = by_target
        .iter()
        .map(|(id, list)| (id.to_string(), Value::Array(list.iter().map(snapshot_json).collect())));
    Value::Object(rows.collect::<Map<_, _>>())
}

/// The error for an unknown id.
pub fn unknown_job(id: &str) -> Error {
    Error::new(ErrorCode::JobNotFound, format!("job \"{id}\" does not exist"))
}

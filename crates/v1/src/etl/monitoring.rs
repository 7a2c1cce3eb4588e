//! Monitoring of transforms: counters, errors, logs, health.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use forebay_core::etl::{Etl, EtlPart};
use forebay_core::name::NodeId;
use serde_json::{Value, json};

/// `GET /v1/etl`: one row for each transform, its counters summed over the targets.
pub fn list_json<'a>(rows: impl IntoIterator<Item = (&'a Etl, EtlPart)>) -> Value {
    let row = |(etl, sum): (&Etl, EtlPart)| {
        json!({"id": etl.name, "stage": etl.stage.v1_name(), "xaction_id": etl.job,
            "obj_count": sum.objects, "in_bytes": sum.in_bytes, "out_bytes": sum.out_bytes})
    };
    Value::Array(rows.into_iter().map(row).collect())
}

/// `GET /v1/etl/NAME`: its registration, and recent errors.
pub fn details_json(etl: &Etl, parts: &BTreeMap<NodeId, EtlPart>) -> Value {
    let errors = parts.values().flat_map(|part| &part.errors);
    let errors: Vec<Value> = errors
        .map(|e| json!({"obj_name": e.object, "msg": e.message, "ecode": e.status}))
        .collect();
    let mut details = json!({"init_msg": etl.init});
    if !errors.is_empty() {
        details["obj_errors"] = Value::Array(errors);
    }
    details
}

/// `GET /v1/etl/NAME/logs`.
pub fn logs_json(parts: &BTreeMap<NodeId, EtlPart>) -> Value {
    let row = |(id, part): (&NodeId, &EtlPart)| json!({"target_id": id, "logs": STANDARD.encode(&part.log)});
    Value::Array(parts.iter().map(row).collect())
}

/// `GET /v1/etl/NAME/health`.
pub fn health_json(parts: &BTreeMap<NodeId, EtlPart>) -> Value {
    let row = |(id, part): (&NodeId, &EtlPart)| {
        let status = if part.away.is_empty() { "Running" } else { part.away.as_str() };
        json!({"target_id": id, "health_status": status})
    };
    Value::Array(parts.iter().map(row).collect())
}

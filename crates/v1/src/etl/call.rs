//! Use of a transform: for one object in a request, for many in a job, and by a pulling service.

use forebay_core::error::{Error, Result};
use forebay_core::etl::EtlCall;
use forebay_core::name::{Bucket, ObjectName};
use forebay_core::url::decode_path;
use serde_json::Value;

use super::{duration_ms, text};
use crate::action::lower_keys;
use crate::query::Query;

/// The transform in the query of an object request: `etl_name`, `etl_args`, `etl_pipeline`.
pub fn call_of_query(query: &Query) -> Result<Option<EtlCall>> {
    let Some(name) = query.get("etl_name") else {
        return match query.get("etl_pipeline") {
            None => Ok(None),
            Some(_) => Err(Error::invalid("etl_pipeline goes with etl_name")),
        };
    };
    let pipeline = query.get("etl_pipeline").map(|p| p.split(',').map(str::trim));
    let pipeline: Vec<String> = pipeline.into_iter().flatten().map(str::to_owned).collect();
    let args = query.get("etl_args").unwrap_or_default().to_owned();
    with_names(EtlCall { name: name.to_owned(), args, pipeline }).map(Some)
}

/// The transform of `etl-bck` and `etl-listrange`: `id`, `pipeline`, `request_timeout`.
pub fn call_of_value(value: &Value) -> Result<EtlCall> {
    let value = lower_keys(value.clone());
    let name = text(&value, "id")?.ok_or_else(|| Error::invalid("etl: \"id\" is empty"))?;
    duration_ms(&value, "request_timeout")?;
    let pipeline = match value.get("pipeline") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => serde_json::from_value(list.clone())
            .map_err(|_| Error::invalid("etl: \"pipeline\" must be a list of names"))?,
    };
    with_names(EtlCall { name: name.to_owned(), args: String::new(), pipeline })
}

/// Refuses empty names in the pipeline.
fn with_names(call: EtlCall) -> Result<EtlCall> {
    match call.pipeline.iter().find(|name| name.is_empty()) {
        Some(_) => Err(Error::invalid("etl: the pipeline holds an empty name")),
        None => Ok(call),
    }
}

/// The object that a pulling service requests: `/v1/etl/_object/UNAME`, where clients may put the
/// name of the transform and a secret before the name, which is one segment.
pub fn pulled_object(path: &str) -> Result<(Bucket, ObjectName)> {
    let bad = || Error::invalid(format!("invalid request URI: {path}"));
    let rest = path.strip_prefix("/v1/etl/_object/").ok_or_else(bad)?;
    let last = rest.rsplit('/').find(|part| !part.is_empty()).ok_or_else(bad)?;
    let (bucket, object) = Bucket::parse_uname(&decode_path(last)?)?;
    Ok((bucket, object.ok_or_else(bad)?))
}

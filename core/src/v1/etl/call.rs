//! Use of a transform: for one object in a request, for many in a job, and by a pulling service.

use serde_json::Value;

use super::{duration_ms, text};
use crate::error::{Error, Result};
use crate::etl::EtlCall;
use crate::job::Transform;
use crate::name::{Bucket, ObjectName};
use crate::url::decode_path;
use crate::v1::action::lower_keys;
use crate::v1::query::Query;

impl EtlCall {
    /// The transform in the query of an object request: `etl_name`, `etl_args`, `etl_pipeline`.
    pub fn from_query(query: &Query) -> Result<Option<Self>> {
        let Some(name) = query.get("etl_name") else {
            return match query.get("etl_pipeline") {
                None => Ok(None),
                Some(_) => Err(Error::invalid("etl_pipeline goes with etl_name")),
            };
        };
        let pipeline = query.get("etl_pipeline").map(|p| p.split(',').map(str::trim));
        let pipeline: Vec<String> = pipeline.into_iter().flatten().map(str::to_owned).collect();
        let args = query.get("etl_args").unwrap_or_default().to_owned();
        Self { name: name.to_owned(), args, pipeline }.named().map(Some)
    }

    /// The transform of `etl-bck` and `etl-listrange`: `id`, `pipeline`, `request_timeout`.
    pub fn from_value(value: &Value) -> Result<Self> {
        let value = lower_keys(value.clone());
        let name = text(&value, "id")?.ok_or_else(|| Error::invalid("etl: \"id\" is empty"))?;
        duration_ms(&value, "request_timeout")?;
        let pipeline = match value.get("pipeline") {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => serde_json::from_value(list.clone())
                .map_err(|_| Error::invalid("etl: \"pipeline\" must be a list of names"))?,
        };
        Self { name: name.to_owned(), args: String::new(), pipeline }.named()
    }

    /// The transform for the task of a job.
    pub fn to_task(&self) -> Transform {
        let pipeline = std::iter::once(&self.name).chain(&self.pipeline).cloned().collect();
        Transform { pipeline, timeout_ms: 0 }
    }

    fn named(self) -> Result<Self> {
        match self.pipeline.iter().find(|name| name.is_empty()) {
            Some(_) => Err(Error::invalid("etl: the pipeline holds an empty name")),
            None => Ok(self),
        }
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

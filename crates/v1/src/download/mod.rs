//! The downloader's messages (§14).

mod jobs;
mod request;

use serde_json::Value;

pub use self::jobs::{
    Question, is_unknown, job_json, status_json, still_running, unknown_download,
};
pub use self::request::requested;
use forebay_core::error::{Error, Result};

fn text(value: &Value, key: &str) -> Result<String> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(s)) => Ok(s.clone()),
        Some(other) => Err(Error::invalid(format!("'{key}' must be a string, not {other}"))),
    }
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

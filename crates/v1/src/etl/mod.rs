//! Transforms of v1 clients: registration, use and monitoring (§15).

mod call;
mod monitoring;
mod registration;

use serde_json::Value;

pub use self::call::{call_of_query, call_of_value, pulled_object};
pub use self::monitoring::{details_json, health_json, list_json, logs_json};
pub use self::registration::requested;
use forebay_core::error::{Error, Result};
use forebay_core::size::parse_duration;

fn text<'a>(value: &'a Value, key: &str) -> Result<Option<&'a str>> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) if s.is_empty() => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(other) => Err(Error::invalid(format!("etl: \"{key}\" must be a string, not {other}"))),
    }
}

/// A duration as text, or as a number of nanoseconds. `None` if absent or 0.
fn duration_ms(value: &Value, key: &str) -> Result<Option<u64>> {
    let ms = match value.get(key) {
        None | Some(Value::Null) => 0,
        Some(Value::String(s)) if s.is_empty() || s == "0" => 0,
        Some(Value::String(s)) => u64::try_from(parse_duration(s)?.as_millis()).unwrap_or(u64::MAX),
        Some(Value::Number(n)) => {
            let ns = n.as_u64();
            ns.ok_or_else(|| Error::invalid(format!("etl: \"{key}\" must not be negative")))?
                / 1_000_000
        }
        Some(other) => {
            return Err(Error::invalid(format!("etl: \"{key}\" must be a duration, not {other}")));
        }
    };
    Ok((ms > 0).then_some(ms))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

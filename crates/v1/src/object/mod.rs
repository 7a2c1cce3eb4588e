//! Requests of clients about single objects, besides reads and writes (§7.5–7.13): presence, copy,
//! promote, blob download.

mod blob;
mod copy;
mod presence;
mod promote;

use serde_json::Value;

pub use self::blob::{
    BLOB_CHUNK, BLOB_DOWNLOAD, BLOB_READ_TIMEOUT, BLOB_THRESHOLD, BLOB_WORKERS, BlobArgs,
};
pub use self::copy::CopyArgs;
pub use self::presence::Presence;
pub use self::promote::promote_args;
use forebay_core::error::{Error, Result};

use super::action::lower_keys;

/// An action's value as an object; `null` means an empty one.
fn object(action: &str, value: &Value) -> Result<Value> {
    match value {
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        Value::Object(_) => Ok(lower_keys(value.clone())),
        _ => Err(Error::invalid(format!("{action}: the value must be an object"))),
    }
}

fn switch(action: &str, value: &Value, key: &str) -> Result<bool> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(Error::invalid(format!("{action}: \"{key}\" must be true or false"))),
    }
}

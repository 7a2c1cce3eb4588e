//! Converts failures of the Rust client to the exceptions of `forebay.errors`.

use forebay_client::Error as ClientError;
use forebay_core::{Error, ErrorCode};
use pyo3::prelude::*;
use serde::Serialize;

/// The exception for a failure, ready to be raised.
pub(crate) fn raise(py: Python<'_>, error: impl Into<Failure>) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}

/// The exception for a failure, as an object that is not raised.
pub(crate) fn exception<'py>(
    py: Python<'py>,
    error: impl Into<Failure>,
) -> PyResult<Bound<'py, PyAny>> {
    let Failure(error) = error.into();
    py.import("forebay.errors")?.getattr("from_code")?.call1((
        code_name(error.code),
        error.code.status(),
        error.to_string(),
        error.request_id.map(|id| id.to_string()),
    ))
}

/// A failure from either side of the wire.
pub(crate) struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self(error.into_core())
    }
}

/// The code as it is written on the wire: `object_not_found`.
fn code_name(code: ErrorCode) -> String {
    match code.serialize(serde_json::value::Serializer) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "internal".to_owned(),
    }
}

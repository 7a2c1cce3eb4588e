//! Answers: JSON, text, and failures in the format of the API that was used.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::Error;
use serde::Serialize;

/// A failed request. Handlers return `Result<_, Failure>`; the listener writes the v1 body, because
/// it knows method, path and node.
#[derive(Clone, Debug)]
pub struct Failure(pub Error);

impl<E: Into<Error>> From<E> for Failure {
    fn from(e: E) -> Self {
        Self(e.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        if let Some(seconds) = self.0.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self.0);
        response
    }
}

/// 200 with compact JSON and a newline.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(mut text) => {
            text.push('\n');
            with_type("application/json; charset=utf-8", text)
        }
        Err(e) => {
            Failure(Error::internal(format!("answer does not serialize: {e}"))).into_response()
        }
    }
}

/// 200 with plain text, as it is.
pub fn text(text: impl Into<String>) -> Response {
    with_type("text/plain; charset=utf-8", text.into())
}

/// 200 with a body of the given media type.
pub fn with_type(content_type: &'static str, body: impl Into<Bytes>) -> Response {
    ([(header::CONTENT_TYPE, content_type)], body.into()).into_response()
}

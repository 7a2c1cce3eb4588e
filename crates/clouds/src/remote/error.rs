//! Translates another cluster's error responses into errors of Forebay.

use forebay_core::error::{Error, ErrorCode};
use reqwest::Response;

use crate::bounded::read_error;
use crate::egress::innermost;
use crate::place::{MAX_SHOWN_CHARS, Place, code_of, retry_after};

/// Names for error messages: the bucket and its endpoint.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) place: Place,
}

impl Errors {
    pub(super) fn of_send(&self, e: &reqwest::Error) -> Error {
        self.place.blocked(e).unwrap_or_else(|| self.unavailable(&innermost(e)))
    }

    /// The error of a response above 399.
    pub(super) async fn refused(&self, answer: Response, name: Option<&str>) -> Error {
        let status = answer.status().as_u16();
        let after = answer.headers().get("retry-after").and_then(|v| v.to_str().ok());
        let after = retry_after(after);
        let body = read_error(answer).await;
        let json = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let said = json.as_ref().and_then(|json| json["message"].as_str());
        let said: String = match said {
            Some(said) => said.chars().take(MAX_SHOWN_CHARS).collect(),
            None => format!("HTTP status {status}"),
        };
        match (status, name) {
            (404, Some(name)) => self.place.bucket.object_not_found(name),
            (404, None) => self.bucket_not_found(),
            (401 | 403, _) => self
                .place
                .refused(ErrorCode::AccessDenied, &said, name)
                .hint("that cluster asks who comes: it must be open to the targets of this one"),
            (416, _) => self.place.refused(ErrorCode::RangeNotSatisfiable, &said, name),
            (429, _) => {
                let mut error = self.place.busy(&said);
                error.retry_after_s = after;
                error
            }
            (408 | 500 | 502..=504, _) => {
                let mut error = self.unavailable(&said);
                error.retry_after_s = after;
                error
            }
            _ => self.place.refused(code_of(status), &said, name),
        }
    }

    pub(super) fn of_body(&self, e: &reqwest::Error, name: &str) -> Error {
        self.place.broke_off(name, innermost(e))
    }

    fn bucket_not_found(&self) -> Error {
        let error = self.place.bucket_not_found();
        error.hint(format!("create it at {}, or check its name", self.place.endpoint))
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        self.place
            .unavailable(why)
            .hint("check that the targets can reach that cluster, and the URL it was attached with")
    }
}

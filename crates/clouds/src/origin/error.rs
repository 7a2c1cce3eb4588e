//! Translates an origin's error responses into errors of Forebay.

use forebay_core::error::{Error, ErrorCode};
use reqwest::Response;

use crate::egress::{self, innermost};
use crate::place::{Place, code_of, retry_after};

/// Names for error messages: the bucket and its endpoint.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) place: Place,
}

impl Errors {
    /// The error of a request without a response.
    pub(super) fn of_send(&self, e: &reqwest::Error, name: Option<&str>) -> Error {
        let error = egress::failed(&self.place.endpoint, e);
        match error.code {
            ErrorCode::AccessDenied => Error {
                message: format!("{} cannot be read: {}", self.place.subject(name), error.message),
                ..error
            },
            _ => self.unavailable(&innermost(e)),
        }
    }

    /// The error of a response that rejects the request.
    pub(super) async fn refused(&self, answer: Response, name: Option<&str>) -> Error {
        let status = answer.status().as_u16();
        let header = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok());
        let after = retry_after(header("retry-after"));
        let said = format!("HTTP status {status}");
        match (status, name) {
            (404 | 410, Some(name)) => self.place.bucket.object_not_found(name),
            (401 | 403 | 407, _) => self.place.refused(ErrorCode::AccessDenied, &said, name).hint(
                "the origin asks who reads; Forebay sends it no credentials, so it must be open to \
                 the targets",
            ),
            (412, Some(name)) => self.place.changed(name),
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
            (300..=399, _) => {
                self.place.refused(ErrorCode::Unavailable, "a redirect to nowhere", name)
            }
            _ => self.place.refused(code_of(status), &said, name),
        }
    }

    pub(super) fn of_body(&self, e: &reqwest::Error, name: &str) -> Error {
        self.place.broke_off(name, innermost(e))
    }

    pub(super) fn no_length(&self, name: &str) -> Error {
        let uri = self.place.bucket.object_uri(name);
        Error::unsupported(format!("{} does not state the length of {uri}", self.place.endpoint))
            .hint("only files whose server sends a Content-Length can be read")
    }

    pub(super) fn past_the_end(&self, name: &str, size: u64) -> Error {
        let text = format!("{} has only {size} bytes", self.place.bucket.object_uri(name));
        Error::new(ErrorCode::RangeNotSatisfiable, text)
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        self.place.unavailable(why).hint("check the URL, and that the targets can reach it")
    }
}

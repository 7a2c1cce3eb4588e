//! Translates failures of Google's crate and of plain requests into errors of Forebay: which
//! bucket, which endpoint, what to do.

use std::error::Error as StdError;

use forebay_core::error::{Error, ErrorCode};
use google_cloud_gax::error::CredentialsError;
use google_cloud_storage::Error as CrateError;
use http::HeaderMap;

use crate::bounded::read_error;
use crate::egress::{blocked, innermost};
use crate::place::{MAX_SHOWN_CHARS, Place, code_of, hinting_at_clocks, retry_after};

/// Names for error messages: the bucket and its endpoint.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) place: Place,
}

pub(super) const CREDENTIALS_HINT: &str = "set GOOGLE_APPLICATION_CREDENTIALS in the environment of \
     the targets to the file of a service account's key, or give their machines a service account";

/// Why a call failed, before its object is known.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server rejected the request.
    Refused {
        status: u16,
        said: String,
        retry_after: Option<u32>,
        /// Time of the response, by the server's clock.
        date: Option<String>,
    },
    /// It could not be reached, or did not respond.
    Unreachable(String),
    /// The rule for destinations stopped it.
    Blocked(Error),
    NoCredentials {
        why: String,
        transient: bool,
    },
    /// It responded with something that no such server returns.
    Nonsense(String),
    /// The received bytes differ from the server's own checksum or size.
    Damaged(String),
}

impl Failure {
    pub(super) fn no_credentials(e: &(dyn StdError + 'static), transient: bool) -> Self {
        Self::NoCredentials { why: innermost(e), transient }
    }

    pub(super) fn timeout() -> Self {
        Self::Unreachable("it did not answer in time".into())
    }

    /// The failure of a request without a response, or of a response that broke off.
    pub(super) fn of_http(e: &reqwest::Error) -> Self {
        if let Some(error) = blocked(e) {
            return Self::Blocked(error);
        }
        match () {
            () if e.is_timeout() => Self::timeout(),
            () if e.is_decode() => Self::Nonsense(format!("unreadable: {}", innermost(e))),
            () => Self::Unreachable(innermost(e)),
        }
    }

    /// The failure of a response above 399.
    pub(super) async fn of_answer(answer: reqwest::Response) -> Self {
        let (status, retry_after) = (answer.status().as_u16(), after(answer.headers()));
        let date = text(answer.headers(), "date");
        let body = read_error(answer).await;
        Self::Refused { status, said: said(status, &body), retry_after, date }
    }

    pub(super) fn of_crate(e: &CrateError) -> Self {
        if let Some(status) = e.http_status_code() {
            let body = e.http_payload().map(|b| b.as_ref()).unwrap_or_default();
            let said = e.status().map_or_else(|| said(status, body), |s| s.message.clone());
            let retry_after = e.http_headers().and_then(after);
            let date = e.http_headers().and_then(|headers| text(headers, "date"));
            return Self::Refused { status, said, retry_after, date };
        }
        match () {
            () if e.is_authentication() => {
                let cause = e.source().and_then(|cause| cause.downcast_ref::<CredentialsError>());
                Self::no_credentials(e, cause.is_none_or(CredentialsError::is_transient))
            }
            () if e.is_timeout() => Self::timeout(),
            () if e.is_connect() || e.is_io() || e.is_transport() => {
                Self::Unreachable(innermost(e))
            }
            () => Self::Nonsense(innermost(e)),
        }
    }

    /// A 404 that leaves open whether the object or its bucket is missing.
    pub(super) fn is_vague(&self) -> bool {
        let object = "No such object";
        matches!(self, Self::Refused { status: 404, said, .. } if !said.starts_with(object))
    }
}

fn after(headers: &HeaderMap) -> Option<u32> {
    retry_after(text(headers, "retry-after").as_deref())
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// The message of an error's body: that of Google's JSON, or short plain text.
fn said(status: u16, body: &[u8]) -> String {
    let json = serde_json::from_slice::<serde_json::Value>(body).ok();
    let message = json.as_ref().and_then(|json| json["error"]["message"].as_str());
    let text = message.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    match text.trim() {
        "" => format!("HTTP status {status}"),
        // For people the status is clearer than XML or a proxy's page.
        text if text.starts_with('<') => format!("HTTP status {status}"),
        text => text.chars().take(MAX_SHOWN_CHARS).collect(),
    }
}

impl Errors {
    /// The error of a call for the object `name`, or for the bucket.
    pub(super) fn of(&self, failure: &Failure, name: Option<&str>) -> Error {
        match failure {
            Failure::Refused { status, said, retry_after, date } => {
                let error = self.refused(*status, said, name);
                let mut error = hinting_at_clocks(error, date.as_deref());
                if error.code.is_transient() {
                    error.retry_after_s = *retry_after;
                }
                error
            }
            Failure::Unreachable(why) => self.unavailable(why),
            Failure::Blocked(error) => error.clone(),
            Failure::NoCredentials { why, transient } => self.no_credentials(why, *transient),
            Failure::Nonsense(what) => self.place.refused(ErrorCode::Unavailable, what, name),
            Failure::Damaged(how) => {
                let text = format!("{} came damaged: {how}", self.place.subject(name));
                Error::new(ErrorCode::Corrupt, text).hint("read it again")
            }
        }
    }

    /// The hint of an error about credentials.
    fn hint(&self) -> String {
        self.place.credential_hint(CREDENTIALS_HINT)
    }

    pub(super) fn bucket_not_found(&self) -> Error {
        let error = self.place.bucket_not_found();
        error.hint(format!(
            "create it at {}, or check its name and the endpoint",
            self.place.endpoint
        ))
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        self.place.unavailable(why).hint(
            "check that the targets can reach that endpoint, and STORAGE_EMULATOR_HOST in their \
             environment",
        )
    }

    fn no_credentials(&self, why: &str, transient: bool) -> Error {
        self.place.no_credentials(transient, why).hint(self.hint())
    }

    fn refused(&self, status: u16, said: &str, name: Option<&str>) -> Error {
        match (status, name) {
            (404, Some(name)) if !said.contains("bucket does not exist") => {
                self.place.bucket.object_not_found(name)
            }
            (404, _) => self.bucket_not_found(),
            (401, _) => self.place.refused(ErrorCode::AccessDenied, said, name).hint(self.hint()),
            (403, _) => self
                .place
                .refused(ErrorCode::AccessDenied, said, name)
                .hint(format!("these credentials may not do that, or are none: {}", self.hint())),
            (412, Some(name)) => self.place.changed(name),
            (412, None) => self.place.refused(ErrorCode::Conflict, said, name),
            (416, _) => self.place.refused(ErrorCode::RangeNotSatisfiable, said, name),
            (400, _) if said.contains("doesn't match") => {
                self.place.refused(ErrorCode::ChecksumMismatch, said, name)
            }
            (429 | 503, _) => self.place.busy(said),
            (408 | 500 | 502 | 504, _) => self.unavailable(said),
            (501, _) => self.place.refused(ErrorCode::Unsupported, said, name),
            _ => self.place.refused(code_of(status), said, name),
        }
    }
}

//! Failures of client commands: the message and the exit code.

use std::io::Write;

use forebay_core::{Error, ErrorCode};
use serde_json::json;

/// Exit codes of client commands.
pub(crate) mod exit {
    pub(crate) const OK: u8 = 0;
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const PARTIAL: u8 = 3;
    pub(crate) const NOT_FOUND: u8 = 4;
    pub(crate) const DENIED: u8 = 5;
    pub(crate) const CONFLICT: u8 = 6;
    pub(crate) const UNAVAILABLE: u8 = 7;
    pub(crate) const JOB_FAILED: u8 = 8;
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// The result of a command that did not do all of its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// `None` if all messages are printed already.
    pub(crate) error: Option<Error>,
    /// The word for the failure in JSON, if it differs from that of the error's code.
    word: Option<&'static str>,
}

impl Failure {
    /// Ends with this code after printing the error.
    pub(crate) fn new(code: u8, error: Option<Error>) -> Self {
        Self { code, error, word: None }
    }

    /// Ends with this code, printing nothing more.
    pub(crate) fn silent(code: u8) -> Self {
        Self { code, error: None, word: None }
    }

    /// A command line whose grammar is right but whose arguments do not fit together.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let error = Some(Error::invalid(message).hint(hint));
        Self { code: exit::USAGE, error, word: None }
    }

    /// A local file or stream that cannot be used.
    pub(crate) fn local(what: impl std::fmt::Display, e: &std::io::Error) -> Self {
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            // The reader of the output has closed the pipe.
            return Self::silent(exit::OK);
        }
        let (code, kind) = match e.kind() {
            std::io::ErrorKind::NotFound => (exit::NOT_FOUND, ErrorCode::InvalidArgument),
            std::io::ErrorKind::PermissionDenied => (exit::DENIED, ErrorCode::AccessDenied),
            std::io::ErrorKind::StorageFull => (exit::FAILED, ErrorCode::OutOfSpace),
            _ => (exit::FAILED, ErrorCode::Internal),
        };
        let word = (code == exit::NOT_FOUND).then_some("file_not_found");
        Self { code, error: Some(Error::new(kind, format!("{what}: {e}"))), word }
    }

    /// Prints the error on standard error, for people or as JSON.
    pub(crate) fn report(&self, as_json: bool) {
        let Some(error) = &self.error else { return };
        let word = self.word.map_or_else(|| code_name(error.code), str::to_owned);
        let text = if as_json { to_json(error, &word) } else { to_text(error, &word) };
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: exit_code(error.code), error: Some(error), word: None }
    }
}

impl From<forebay_client::Error> for Failure {
    fn from(error: forebay_client::Error) -> Self {
        Error::from(error).into()
    }
}

/// The exit code for a kind of failure.
pub(crate) fn exit_code(code: ErrorCode) -> u8 {
    use ErrorCode::*;
    match code {
        InvalidArgument | InvalidName | InvalidPart | TooFewTargets => exit::USAGE,
        BucketNotFound | RemoteBucketNotFound | ObjectNotFound | MemberNotFound | JobNotFound
        | NodeNotFound | AccountNotFound | UploadNotFound | Gone => exit::NOT_FOUND,
        Unauthenticated | AccessDenied => exit::DENIED,
        BucketExists | BucketNotEmpty | Conflict | ObjectChanged => exit::CONFLICT,
        TooManyRequests | WrongOwner | Unavailable | Timeout => exit::UNAVAILABLE,
        Unprocessable | ChecksumMismatch | RangeNotSatisfiable | MethodNotAllowed | Unsupported
        | OutOfSpace | QuotaExceeded | Corrupt | CorruptAnswer | Internal => exit::FAILED,
    }
}

/// The word of an error code in JSON output.
pub(crate) fn code_name(code: ErrorCode) -> String {
    match serde_json::to_value(code) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "internal".into(),
    }
}

fn to_text(error: &Error, word: &str) -> String {
    let mut text = format!("error: {} ({word})", error.message);
    if let Some(hint) = &error.hint {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    if let Some(id) = error.request_id {
        text.push_str("\nrequest: ");
        text.push_str(&id.to_string());
    }
    text
}

fn to_json(error: &Error, word: &str) -> String {
    let hint = error.hint.as_deref();
    let mut body = json!({"code": word, "message": error.message, "hint": hint});
    if let Some(id) = error.request_id {
        body["request_id"] = json!(id);
    }
    json!({ "error": body }).to_string()
}

#[cfg(test)]
mod tests {
    use forebay_core::request::RequestId;

    use super::*;

    #[test]
    fn every_kind_of_failure_has_its_exit_code() {
        let cases = [
            (ErrorCode::InvalidName, 2),
            (ErrorCode::ObjectNotFound, 4),
            (ErrorCode::BucketNotFound, 4),
            (ErrorCode::AccessDenied, 5),
            (ErrorCode::BucketExists, 6),
            (ErrorCode::Unavailable, 7),
            (ErrorCode::Timeout, 7),
            (ErrorCode::Internal, 1),
            (ErrorCode::ChecksumMismatch, 1),
        ];
        for (code, want) in cases {
            assert_eq!(exit_code(code), want, "{code:?}");
        }
    }

    #[test]
    fn errors_say_what_which_kind_and_what_to_do() {
        let e = Error::new(ErrorCode::BucketNotFound, "bucket \"ais://b\" does not exist")
            .hint("forebay mb ais://b");
        assert_eq!(
            to_text(&e, "bucket_not_found"),
            "error: bucket \"ais://b\" does not exist (bucket_not_found)\nhint: forebay mb ais://b"
        );
        let json: serde_json::Value =
            serde_json::from_str(&to_json(&e, "bucket_not_found")).unwrap_or_default();
        assert_eq!(json["error"]["code"], "bucket_not_found");
        assert_eq!(json["error"]["hint"], "forebay mb ais://b");
        assert!(json["error"].get("request_id").is_none());
    }

    #[test]
    fn an_error_of_a_node_names_its_request() {
        let e = Error { request_id: Some(RequestId(255)), ..Error::unavailable("later") };
        assert_eq!(
            to_text(&e, "unavailable"),
            "error: later (unavailable)\nrequest: 00000000000000FF"
        );
        let json: serde_json::Value =
            serde_json::from_str(&to_json(&e, "unavailable")).unwrap_or_default();
        assert_eq!(json["error"]["request_id"], "00000000000000FF");
    }

    #[test]
    fn a_local_file_that_is_missing_is_no_invalid_argument() {
        let missing = Failure::local("x.txt", &std::io::ErrorKind::NotFound.into());
        assert_eq!((missing.code, missing.word), (exit::NOT_FOUND, Some("file_not_found")));
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let gone = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let failure = Failure::local("stdout", &gone);
        assert_eq!((failure.code, failure.error.is_none()), (exit::OK, true));
    }
}

//! The error type of the domain: a code from a closed set, a message, and a hint.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::request::RequestId;

/// Result of everything that can fail with a domain [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Closed set of failure kinds; the interfaces (HTTP, command line, Python) depend only on the
/// code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    BucketNotFound,
    RemoteBucketNotFound,
    ObjectNotFound,
    MemberNotFound,
    JobNotFound,
    NodeNotFound,
    /// No such user, role, key or registered cluster.
    AccountNotFound,
    /// The multipart upload does not exist: it never existed, or was completed or aborted.
    UploadNotFound,
    BucketExists,
    BucketNotEmpty,
    Conflict,
    /// It existed, but its only known holder no longer has it.
    Gone,
    InvalidArgument,
    InvalidName,
    /// A part that was never uploaded, or differs from the client's description.
    InvalidPart,
    /// The request needs more targets than the cluster has.
    TooFewTargets,
    /// The request is valid, but the stored data does not fit it.
    Unprocessable,
    ChecksumMismatch,
    RangeNotSatisfiable,
    ObjectChanged,
    Unauthenticated,
    AccessDenied,
    MethodNotAllowed,
    Unsupported,
    TooManyRequests,
    OutOfSpace,
    /// The bucket has as many bytes or objects as its quota allows.
    QuotaExceeded,
    WrongOwner,
    Unavailable,
    Timeout,
    /// Bytes on a disk differ from the bytes that were written.
    Corrupt,
    /// A node's answer cannot be parsed, also after a retry.
    CorruptAnswer,
    Internal,
}

impl ErrorCode {
    /// HTTP status of this kind of failure on every front.
    ///
    /// Permanent failures stay below 500: clients retry 5xx for a long time.
    pub fn status(self) -> u16 {
        use ErrorCode::*;
        match self {
            BucketNotFound | RemoteBucketNotFound | ObjectNotFound | MemberNotFound
            | JobNotFound | NodeNotFound | AccountNotFound | UploadNotFound => 404,
            BucketExists | BucketNotEmpty | Conflict => 409,
            Gone => 410,
            InvalidArgument | InvalidName | InvalidPart | TooFewTargets | ChecksumMismatch => 400,
            RangeNotSatisfiable => 416,
            ObjectChanged => 412,
            Unprocessable => 422,
            Unauthenticated => 401,
            AccessDenied => 403,
            MethodNotAllowed => 405,
            Unsupported => 501,
            TooManyRequests => 429,
            OutOfSpace | QuotaExceeded => 507,
            WrongOwner => 421,
            Unavailable => 503,
            Timeout => 504,
            CorruptAnswer => 502,
            Corrupt | Internal => 500,
        }
    }

    /// The `tcode` of an AIStore v1 error body, if the protocol has one.
    pub fn v1_tcode(self) -> Option<&'static str> {
        use ErrorCode::*;
        Some(match self {
            BucketNotFound => "ErrBckNotFound",
            RemoteBucketNotFound => "ErrRemoteBckNotFound",
            ObjectNotFound | MemberNotFound | JobNotFound | UploadNotFound => "ErrNotFound",
            BucketExists => "ErrBucketAlreadyExists",
            ChecksumMismatch => "ErrBadCksum",
            TooFewTargets => "ErrNotEnoughTargets",
            RangeNotSatisfiable => "ErrRangeNotSatisfiable",
            AccessDenied => "ErrBucketAccessDenied",
            Unsupported => "ErrUnsupp",
            OutOfSpace | QuotaExceeded => "ErrCapExceeded",
            _ => return None,
        })
    }

    /// Whether the same request may succeed later without a change by the user.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::TooManyRequests | Self::WrongOwner | Self::Unavailable | Self::Timeout)
    }

    /// Whether it refuses the sender: it is unknown, or has no right.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Unauthenticated | Self::AccessDenied)
    }

    /// The code of an HTTP status, for an answer without a body.
    pub fn from_status(status: u16) -> Self {
        use ErrorCode::*;
        match status {
            401 => Unauthenticated,
            403 => AccessDenied,
            404 => ObjectNotFound,
            405 => MethodNotAllowed,
            409 => Conflict,
            410 => Gone,
            412 => ObjectChanged,
            416 => RangeNotSatisfiable,
            421 => WrongOwner,
            422 => Unprocessable,
            429 => TooManyRequests,
            501 => Unsupported,
            502 | 503 => Unavailable,
            504 => Timeout,
            507 => OutOfSpace,
            400..=499 => InvalidArgument,
            _ => Internal,
        }
    }
}

/// An error with its message, its kind (`code`), and advice (`hint`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Error {
    pub code: ErrorCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Seconds after which a transient failure can be retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u32>,
    /// The request that failed, as its answer named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

impl Error {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retry_after_s: None, request_id: None }
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// A request that can never succeed in this form.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// An internal failure that the caller cannot repair.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// Something needed is unavailable for now; the answer has a `Retry-After`.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message).retry_after(3)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unsupported, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        match e.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::new(ErrorCode::OutOfSpace, format!("no space left: {e}"))
            }
            _ if is_out_of_descriptors(&e) => Self::out_of_descriptors(&e),
            _ => Self::internal(format!("i/o: {e}")),
        }
    }
}

/// Whether the limit of open files or connections of the process or the machine is reached. That is
/// not a fault of a disk.
pub fn is_out_of_descriptors(e: &std::io::Error) -> bool {
    // ENFILE and EMFILE, on every Unix.
    matches!(e.raw_os_error(), Some(23 | 24))
}

impl Error {
    /// The error when no file can be opened; transient, since connections end.
    pub fn out_of_descriptors(e: &std::io::Error) -> Self {
        Self::unavailable(format!("this node has as many files open as it may: {e}"))
            .retry_after(1)
            .hint("retry later; raise the limit of open files (ulimit -n) of the node")
    }
}

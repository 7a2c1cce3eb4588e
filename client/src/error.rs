//! Failures on the caller's side: an answer with an error, or no answer.

use std::io;
use std::time::Duration;

use forebay_core::{Error as CoreError, ErrorCode};

use crate::tls::TlsProblem;

/// Result of everything that talks to the cluster.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A node answered, and the answer is a failure (or the request made no sense to begin with).
    #[error(transparent)]
    Api(#[from] CoreError),
    /// No connection could be made.
    #[error("cannot connect to {endpoint}: {source}")]
    Connect {
        /// URL of the node.
        endpoint: String,
        /// Whether nothing listens there.
        is_refused: bool,
        /// The system's reason.
        source: Reason,
    },
    /// Every endpoint refused every connection of this client.
    #[error("cannot connect to {}: connection refused for {} s", .endpoints.join(", "), .after.as_secs_f32())]
    Refused {
        /// The endpoints that the client was configured with.
        endpoints: Vec<String>,
        /// How long they were tried.
        after: Duration,
    },
    /// An answer came that cannot be parsed. A retry may succeed.
    #[error("{endpoint}: {source}")]
    Garbled {
        /// URL of the node.
        endpoint: String,
        /// Why it cannot be parsed.
        source: Reason,
    },
    /// The connection broke or stalled before the answer was complete.
    #[error("the connection to {endpoint} broke: {source}")]
    Broken {
        /// URL of the node.
        endpoint: String,
        /// The failure of the connection.
        source: Reason,
    },
    /// TLS failed for a reason that a retry does not change.
    #[error("{0}")]
    Tls(TlsProblem),
    /// All tries until the deadline failed.
    #[error("cluster at {endpoint} did not answer within {} s: {last}", .after.as_secs_f32())]
    Timeout {
        /// The endpoint that the client was configured with.
        endpoint: String,
        /// The deadline.
        after: Duration,
        /// How the last try failed.
        last: Box<Error>,
    },
}

/// The text of a failure below HTTP, with its causes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Reason(pub String);

impl Reason {
    /// Whether an error, or one of its causes, is that nothing listens at an address.
    pub(crate) fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
        let refused = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
        error.downcast_ref::<io::Error>().is_some_and(refused)
            || error.source().is_some_and(Self::is_refusal)
    }

    /// Joins an error with all its causes that add words.
    pub(crate) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(e) = cause {
            let more = e.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = e.source();
        }
        Self(text)
    }
}

impl Error {
    /// The kind of failure, from the closed set that all parts of Forebay share.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Api(e) => e.code,
            Self::Connect { .. }
            | Self::Refused { .. }
            | Self::Broken { .. }
            | Self::Tls(_)
            | Self::Garbled { .. } => ErrorCode::Unavailable,
            Self::Timeout { last, .. } => match last.as_ref() {
                Self::Api(e) => e.code,
                Self::Garbled { .. } => ErrorCode::CorruptAnswer,
                _ => ErrorCode::Timeout,
            },
        }
    }

    /// Converts the failure into a core error, without details that only the client has. A cluster
    /// that could not be reached at all is [`ErrorCode::Unavailable`], which says more than the
    /// timeout.
    pub fn into_core(self) -> CoreError {
        let unreachable = matches!(&self, Self::Timeout { last, .. }
            if matches!(**last, Self::Connect { .. }));
        let mut error = CoreError::from(self);
        if unreachable {
            error.code = ErrorCode::Unavailable;
        }
        error
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Api(e) => e.hint.as_deref(),
            Self::Timeout { last, .. } => last.hint(),
            Self::Tls(problem) => Some(problem.hint),
            Self::Connect { .. } => {
                Some("is the cluster running there? `forebay doctor` checks; set FOREBAY_ENDPOINT")
            }
            Self::Refused { .. } => Some(
                "is the cluster running there? `forebay doctor` checks; set FOREBAY_ENDPOINT, or \
                 `endpoint` in ~/.config/forebay/config.toml, to its address",
            ),
            Self::Broken { .. } | Self::Garbled { .. } => None,
        }
    }

    /// Whether the same request may succeed later without a change by the user.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Api(e) => e.code.is_transient(),
            Self::Connect { .. } | Self::Broken { .. } | Self::Garbled { .. } => true,
            Self::Timeout { .. } | Self::Refused { .. } | Self::Tls(_) => false,
        }
    }

    /// Whether the request may have been carried out although no answer confirms it.
    pub(crate) fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    pub(crate) fn broken(endpoint: &str, what: impl Into<String>) -> Self {
        Self::Broken { endpoint: endpoint.to_owned(), source: Reason(what.into()) }
    }

    pub(crate) fn garbled(endpoint: &str, what: impl Into<String>) -> Self {
        Self::Garbled { endpoint: endpoint.to_owned(), source: Reason(what.into()) }
    }
}

impl From<Error> for CoreError {
    fn from(e: Error) -> Self {
        match e {
            Error::Api(e) => e,
            other => {
                let mut core = CoreError::new(other.code(), other.message());
                core.hint = other.hint().map(str::to_owned);
                core
            }
        }
    }
}

impl Error {
    /// The sentence that says what happened, without the hint.
    pub fn message(&self) -> String {
        match self {
            Self::Api(e) => e.message.clone(),
            Self::Timeout { endpoint, after, last } => format!(
                "cluster at {endpoint} did not answer within {} s: {}",
                after.as_secs_f32(),
                last.message()
            ),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_names_the_endpoint_and_keeps_code_and_hint() {
        let owner = CoreError::unavailable("target t1 is down").hint("wait");
        let e = Error::Timeout {
            endpoint: "http://h:7400".into(),
            after: Duration::from_secs(60),
            last: Box::new(Error::Api(owner)),
        };
        assert_eq!(
            e.message(),
            "cluster at http://h:7400 did not answer within 60 s: target t1 is down"
        );
        let core = CoreError::from(e);
        assert_eq!((core.code, core.hint.as_deref()), (ErrorCode::Unavailable, Some("wait")));
    }
}

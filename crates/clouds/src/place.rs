//! Names of a bucket and its server, and the error messages that all kinds of backends share.

use std::error::Error as StdError;
use std::fmt::Display;
use std::sync::Arc;

use forebay_core::date::parse_http;
use forebay_core::error::{Error, ErrorCode};
use forebay_core::name::Bucket;
use forebay_core::shown_url;

use crate::account::{NamedAccount, credential_hint};
use crate::egress;

/// Retry-After in seconds if credentials could not be renewed.
const CREDENTIALS_PAUSE_S: u32 = 2;

/// Longest part of a response that errors show.
pub(super) const MAX_SHOWN_CHARS: usize = 300;

/// Seconds by which clocks may differ: the limit of the strictest cloud.
const FORGIVEN_S: u64 = 300;

/// Why no credential is sent to an endpoint that a bucket names.
pub(super) const UNTRUSTED: &str = "credentials go to the configured endpoint, to the cloud's own hosts \
     and to hosts that egress.allow of the targets names alone";

/// A bucket and its server, as errors name them. Hints are added by each kind.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) bucket: Bucket,
    /// Its URL, without what may be a secret, and the account of the configuration.
    pub(super) endpoint: String,
    /// The name of that account.
    pub(super) account: Option<Arc<str>>,
}

impl Place {
    pub(super) fn new(bucket: Bucket, endpoint: &str) -> Self {
        Self { bucket, endpoint: shown_url(endpoint), account: None }
    }

    /// The same for an account of the configuration, which errors then name.
    #[must_use]
    pub(super) fn of_account(self, named: Option<&NamedAccount>) -> Self {
        let Some(named) = named else { return self };
        let endpoint = format!("{} (account \"{}\")", self.endpoint, named.name);
        Self { endpoint, account: Some(Arc::clone(&named.name)), ..self }
    }

    /// The hint of an error about credentials; `own` is the one for those of the environment.
    pub(super) fn credential_hint(&self, own: &str) -> String {
        self.account.as_deref().map_or_else(|| own.to_owned(), credential_hint)
    }

    /// The error for a call that the server rejected, about the object `name`, or about the bucket.
    pub(super) fn refused(&self, code: ErrorCode, said: &str, name: Option<&str>) -> Error {
        Error::new(code, format!("{} refused {}: {said}", self.endpoint, self.subject(name)))
    }

    /// The error of a request that the rule for destinations stopped.
    pub(super) fn blocked(&self, e: &(dyn StdError + 'static)) -> Option<Error> {
        let error = egress::blocked(e)?;
        let text = format!("bucket \"{}\" cannot be used: {}", self.bucket, error.message);
        Some(Error { message: text, ..error })
    }

    /// The subject of a call in an error message.
    pub(super) fn subject(&self, name: Option<&str>) -> String {
        match name {
            Some(name) => self.bucket.object_uri(name),
            None => format!("bucket \"{}\"", self.bucket),
        }
    }

    /// The error if the object is no longer the requested version.
    pub(super) fn changed(&self, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        Error::new(ErrorCode::ObjectChanged, format!("{uri} changed at {}", self.endpoint))
            .hint("read it again")
    }

    /// The error for a body that broke off.
    pub(super) fn broke_off(&self, name: &str, why: impl Display) -> Error {
        let uri = self.bucket.object_uri(name);
        let text = format!("reading {uri} from {} broke off: {why}", self.endpoint);
        Error::new(ErrorCode::Unavailable, text)
    }

    /// Without a Retry-After: the retries choose the pause, unless the server gave one.
    pub(super) fn unavailable(&self, why: &str) -> Error {
        let Self { bucket, endpoint, .. } = self;
        let text = format!("{endpoint}, where bucket \"{bucket}\" lives, is unavailable: {why}");
        Error::new(ErrorCode::Unavailable, text)
    }

    /// The error for too many calls, or too many per second: fewer in flight will succeed.
    pub(super) fn busy(&self, said: &str) -> Error {
        let Self { bucket, endpoint, .. } = self;
        let text =
            format!("{endpoint}, where bucket \"{bucket}\" lives, asks to slow down: {said}");
        Error::new(ErrorCode::TooManyRequests, text).hint(
            "calls go on with fewer at once; the bucket's cloud.concurrency and \
             cloud.requests_per_second bound them",
        )
    }

    pub(super) fn bucket_not_found(&self) -> Error {
        Error { code: ErrorCode::RemoteBucketNotFound, ..self.bucket.not_found() }
    }

    /// The error for missing credentials: nothing was sent.
    pub(super) fn no_credentials(&self, transient: bool, why: &str) -> Error {
        let Self { bucket, endpoint, .. } = self;
        let text = format!("no credentials for bucket \"{bucket}\" at {endpoint}: {why}");
        if transient {
            // A pause, so that retries do not overload the credential service.
            Error::new(ErrorCode::Unavailable, text).retry_after(CREDENTIALS_PAUSE_S)
        } else {
            Error::new(ErrorCode::AccessDenied, text)
        }
    }

    /// The error for a response that no such server returns: the fault is not this cluster's.
    pub(super) fn nonsense(&self, what: &str, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        let text = format!("{} answered for {uri} {what}", self.endpoint);
        Error::new(ErrorCode::Unavailable, text)
    }

    /// The error for pages of a listing that do not fit together.
    pub(super) fn out_of_order(&self) -> Error {
        let Self { bucket, endpoint, .. } = self;
        Error::unsupported(format!(
            "{endpoint} lists bucket \"{bucket}\" in an order other than that of names"
        ))
    }
}

/// The code of a status for which a backend has no special case: a failure of the other server is
/// not a failure of this node.
pub(super) fn code_of(status: u16) -> ErrorCode {
    match ErrorCode::from_status(status) {
        ErrorCode::Internal => ErrorCode::Unavailable,
        code => code,
    }
}

/// Adds a hint if the clocks differ so much that a cloud treats the credentials as expired or
/// forged. `date` is the header of its response, because a rejected HEAD has no text.
pub(super) fn hinting_at_clocks(error: Error, date: Option<&str>) -> Error {
    let here = forebay_node::clock::unix_ns() / 1_000_000_000;
    match date.and_then(parse_http) {
        Some(there)
            if error.code == ErrorCode::AccessDenied && here.abs_diff(there) > FORGIVEN_S =>
        {
            error
                .hint("set the clock of the targets' machines right: it is minutes off the cloud's")
        }
        _ => error,
    }
}

/// Seconds, as `Retry-After` may give them.
pub(super) fn retry_after(header: Option<&str>) -> Option<u32> {
    header?.trim().parse().ok()
}

/// The first line of a text, shortened. The lines that follow have ids of the request and times, which
/// do not help people.
pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().chars().take(MAX_SHOWN_CHARS).collect()
}

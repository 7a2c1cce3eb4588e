//! Where a bucket lives, and what is said of it alike for all kinds of backends when a call fails.

use std::fmt::Display;

use forebay_core::date::parse_http;
use forebay_core::error::{Error, ErrorCode};
use forebay_core::name::Bucket;

/// Seconds after which credentials that could not be renewed are worth another call.
const CREDENTIALS_PAUSE_S: u32 = 2;

/// Seconds by which clocks may differ: what the strictest of the clouds takes.
const FORGIVEN_S: u64 = 300;

/// A bucket and the server that has it, as errors name them. Hints are each kind's own.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) bucket: Bucket,
    /// Its URL.
    pub(super) endpoint: String,
}

impl Place {
    /// The server answered, and said no to a call about the object `name`, or about the bucket.
    pub(super) fn refused(&self, code: ErrorCode, said: &str, name: Option<&str>) -> Error {
        Error::new(code, format!("{} refused {}: {said}", self.endpoint, self.subject(name)))
    }

    /// What a call is about.
    pub(super) fn subject(&self, name: Option<&str>) -> String {
        match name {
            Some(name) => self.bucket.object_uri(name),
            None => format!("bucket \"{}\"", self.bucket),
        }
    }

    /// It is no longer the object that was asked for.
    pub(super) fn changed(&self, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        Error::new(ErrorCode::ObjectChanged, format!("{uri} changed at {}", self.endpoint))
            .hint("read it again")
    }

    /// A body that broke off.
    pub(super) fn broke_off(&self, name: &str, why: impl Display) -> Error {
        let uri = self.bucket.object_uri(name);
        let text = format!("reading {uri} from {} broke off: {why}", self.endpoint);
        Error::new(ErrorCode::Unavailable, text)
    }

    /// Without a time to come back: the retries choose theirs, unless the server gave one.
    pub(super) fn unavailable(&self, why: &str) -> Error {
        let Self { bucket, endpoint } = self;
        let text = format!("{endpoint}, where bucket \"{bucket}\" lives, is unavailable: {why}");
        Error::new(ErrorCode::Unavailable, text)
    }

    /// There are too many calls, or calls too quickly: fewer at once will do.
    pub(super) fn busy(&self, said: &str) -> Error {
        let Self { bucket, endpoint } = self;
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

    /// Nothing was sent: there is nothing to sign with, or just now there is not.
    pub(super) fn no_credentials(&self, transient: bool, why: &str) -> Error {
        let Self { bucket, endpoint } = self;
        let text = format!("no credentials for bucket \"{bucket}\" at {endpoint}: {why}");
        if transient {
            // Whoever hands them out is the last one to be hurried.
            Error::new(ErrorCode::Unavailable, text).retry_after(CREDENTIALS_PAUSE_S)
        } else {
            Error::new(ErrorCode::AccessDenied, text)
        }
    }

    /// It answered with something that no such server answers: the fault is not this cluster's.
    pub(super) fn nonsense(&self, what: &str, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        let text = format!("{} answered for {uri} {what}", self.endpoint);
        Error::new(ErrorCode::Unavailable, text)
    }

    /// Its pages cannot be put together.
    pub(super) fn out_of_order(&self) -> Error {
        let Self { bucket, endpoint } = self;
        Error::unsupported(format!(
            "{endpoint} lists bucket \"{bucket}\" in an order other than that of names"
        ))
    }
}

/// The code of a status for which no backend has words of its own: a failure of the other server is
/// not one of this node.
pub(super) fn code_of(status: u16) -> ErrorCode {
    match ErrorCode::from_status(status) {
        ErrorCode::Internal => ErrorCode::Unavailable,
        code => code,
    }
}

/// Says what to do where the clocks differ so much that a cloud takes what proves an identity for
/// expired or forged. `date` is the header of its answer: refusals of HEAD have no words.
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

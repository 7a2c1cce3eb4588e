//! Puts an origin's refusals into the domain's words.

use forebay_core::error::{Error, ErrorCode};
use forebay_core::name::Bucket;
use reqwest::Response;

use crate::egress::{self, innermost};

/// Who is to be named in an error.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) bucket: Bucket,
    /// The origin's URL.
    pub(super) origin: String,
}

impl Errors {
    /// A request that got no answer.
    pub(super) fn of_send(&self, e: &reqwest::Error, name: Option<&str>) -> Error {
        let error = egress::failed(&self.origin, e);
        match error.code {
            ErrorCode::AccessDenied => Error {
                message: format!("{} cannot be read: {}", self.subject(name), error.message),
                ..error
            },
            _ => self.unavailable(&innermost(e)),
        }
    }

    /// An answer that is none.
    pub(super) async fn refused(&self, answer: Response, name: Option<&str>) -> Error {
        let status = answer.status().as_u16();
        let header = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok());
        let after = header("retry-after").and_then(|seconds| seconds.trim().parse().ok());
        let said = format!("HTTP status {status}");
        match (status, name) {
            (404 | 410, Some(name)) => self.bucket.object_not_found(name),
            (401 | 403 | 407, _) => self.error(ErrorCode::AccessDenied, &said, name).hint(
                "the origin asks who reads; Forebay sends it no credentials, so it must be open to \
                 the targets",
            ),
            (412, Some(name)) => self.changed(name),
            (416, _) => self.error(ErrorCode::RangeNotSatisfiable, &said, name),
            (429, _) => {
                let mut error =
                    Error { code: ErrorCode::TooManyRequests, ..self.unavailable(&said) };
                error.retry_after_s = after;
                error
            }
            (408 | 500 | 502..=504, _) => {
                let mut error = self.unavailable(&said);
                error.retry_after_s = after;
                error
            }
            (300..=399, _) => self.error(ErrorCode::Internal, "a redirect to nowhere", name),
            _ => self.error(ErrorCode::from_status(status), &said, name),
        }
    }

    pub(super) fn of_body(&self, e: &reqwest::Error, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        let text = format!("reading {uri} from {} broke off: {}", self.origin, innermost(e));
        Error::new(ErrorCode::Unavailable, text)
    }

    pub(super) fn changed(&self, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        Error::new(ErrorCode::ObjectChanged, format!("{uri} changed at {}", self.origin))
            .hint("read it again")
    }

    pub(super) fn no_length(&self, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        Error::unsupported(format!("{} does not tell how long {uri} is", self.origin))
            .hint("only files whose server sends a Content-Length can be read")
    }

    pub(super) fn past_the_end(&self, name: &str, size: u64) -> Error {
        let text = format!("{} has only {size} bytes", self.bucket.object_uri(name));
        Error::new(ErrorCode::RangeNotSatisfiable, text)
    }

    pub(super) fn other_bytes(&self, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        Error::internal(format!("{} answered for {uri} with other bytes than asked", self.origin))
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        let Self { bucket, origin } = self;
        let text = format!("{origin}, where bucket \"{bucket}\" lives, is unavailable: {why}");
        Error::new(ErrorCode::Unavailable, text)
            .hint("check the URL, and that the targets can reach it")
    }

    fn error(&self, code: ErrorCode, said: &str, name: Option<&str>) -> Error {
        Error::new(code, format!("{} refused {}: {said}", self.origin, self.subject(name)))
    }

    fn subject(&self, name: Option<&str>) -> String {
        match name {
            Some(name) => self.bucket.object_uri(name),
            None => format!("bucket \"{}\"", self.bucket),
        }
    }
}

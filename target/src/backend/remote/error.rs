//! Puts another cluster's refusals into the domain's words.

use forebay_core::error::{Error, ErrorCode};
use forebay_core::name::Bucket;
use reqwest::Response;

use crate::egress::innermost;

/// Longest part of an answer that is shown.
const SHOWN: usize = 300;

/// Who is to be named in an error.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) bucket: Bucket,
    pub(super) endpoint: String,
}

impl Errors {
    pub(super) fn of_send(&self, e: &reqwest::Error) -> Error {
        self.unavailable(&innermost(e))
    }

    /// An answer above 399.
    pub(super) async fn refused(&self, answer: Response, name: Option<&str>) -> Error {
        let status = answer.status().as_u16();
        let after = answer.headers().get("retry-after").and_then(|v| v.to_str().ok());
        let after = after.and_then(|seconds| seconds.trim().parse().ok());
        let body = answer.bytes().await.unwrap_or_default();
        let json = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let said = json.as_ref().and_then(|json| json["message"].as_str());
        let said: String = match said {
            Some(said) => said.chars().take(SHOWN).collect(),
            None => format!("HTTP status {status}"),
        };
        match (status, name) {
            (404, Some(name)) => self.bucket.object_not_found(name),
            (404, None) => self.bucket_not_found(),
            (401 | 403, _) => self
                .error(ErrorCode::AccessDenied, &said, name)
                .hint("that cluster asks who comes: it must be open to the targets of this one"),
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
            _ => self.error(ErrorCode::from_status(status), &said, name),
        }
    }

    pub(super) fn of_body(&self, e: &reqwest::Error, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        let text = format!("reading {uri} from {} broke off: {}", self.endpoint, innermost(e));
        Error::new(ErrorCode::Unavailable, text)
    }

    pub(super) fn changed(&self, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        Error::new(ErrorCode::ObjectChanged, format!("{uri} changed at {}", self.endpoint))
            .hint("read it again")
    }

    pub(super) fn nonsense(&self, what: &str, name: &str) -> Error {
        let uri = self.bucket.object_uri(name);
        Error::internal(format!("{} answered for {uri} with {what}", self.endpoint))
    }

    fn bucket_not_found(&self) -> Error {
        let mut error = self.bucket.not_found();
        error.code = ErrorCode::RemoteBucketNotFound;
        error.hint(format!("create it at {}, or check its name", self.endpoint))
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        let Self { bucket, endpoint } = self;
        let text = format!("{endpoint}, where bucket \"{bucket}\" lives, is unavailable: {why}");
        Error::new(ErrorCode::Unavailable, text)
            .hint("check that the targets can reach that cluster, and the URL it was attached with")
    }

    fn error(&self, code: ErrorCode, said: &str, name: Option<&str>) -> Error {
        let subject = match name {
            Some(name) => self.bucket.object_uri(name),
            None => format!("bucket \"{}\"", self.bucket),
        };
        Error::new(code, format!("{} refused {subject}: {said}", self.endpoint))
    }
}

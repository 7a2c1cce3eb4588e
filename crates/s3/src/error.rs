//! A failed S3 request: code, message, and XML.

use std::borrow::Cow;
use std::fmt;

use forebay_core::error::{Error, ErrorCode};

use super::error_code::S3Code;
use super::xml::{NotInXml, XmlWriter, fits_xml};

/// Result of everything that answers with an S3 error.
pub type S3Result<T> = std::result::Result<T, S3Error>;

/// The error of an S3 request. The message is for people; clients act on the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Error {
    pub code: S3Code,
    pub message: Cow<'static, str>,
    /// Further elements of the answer: `("ArgumentName", "max-keys")`.
    pub details: Vec<(&'static str, String)>,
    /// Seconds after which the same request can be retried.
    pub retry_after_s: Option<u32>,
}

impl S3Error {
    pub fn new(code: S3Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), details: Vec::new(), retry_after_s: None }
    }

    /// Adds one element to the answer.
    #[must_use]
    pub fn detail(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.details.push((name, value.into()));
        self
    }

    /// The detail of this name.
    pub fn detail_of(&self, name: &str) -> Option<&str> {
        self.details.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// An argument (query parameter or header) with an invalid value.
    pub fn argument(name: &str, value: &str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(S3Code::InvalidArgument, message)
            .detail("ArgumentName", name)
            .detail("ArgumentValue", value)
    }

    /// An operation or feature that is not supported; `what` is its name in S3.
    pub fn not_implemented(what: &str) -> Self {
        Self::new(S3Code::NotImplemented, format!("{what} is not implemented"))
            .detail("Operation", what)
    }

    pub fn status(&self) -> u16 {
        self.code.status()
    }

    /// The body of the answer. `resource` is the path as received.
    pub fn to_xml(&self, resource: &str, request_id: &str) -> String {
        let mut w = XmlWriter::document();
        w.open("Error");
        w.text("Code", self.code.as_str());
        w.text("Message", &self.message);
        // A key that XML cannot represent would become another key.
        for (name, value) in self.details.iter().filter(|(_, value)| fits_xml(value)) {
            w.text(name, value);
        }
        w.text("Resource", resource);
        w.text("RequestId", request_id);
        w.close("Error");
        w.finish()
    }
}

impl fmt::Display for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for S3Error {}

impl From<S3Code> for S3Error {
    fn from(code: S3Code) -> Self {
        Self::new(code, code.message())
    }
}

/// Maps Forebay's errors to S3. Forebay's message is kept if it says more.
impl From<NotInXml> for S3Error {
    fn from(_: NotInXml) -> Self {
        Self::argument(
            "encoding-type",
            "",
            "the answer names characters that XML cannot hold: send encoding-type=url",
        )
    }
}

impl From<Error> for S3Error {
    fn from(e: Error) -> Self {
        use ErrorCode as E;
        let code = match e.code {
            E::BucketNotFound | E::RemoteBucketNotFound => return S3Code::NoSuchBucket.into(),
            E::ObjectNotFound | E::Gone => return S3Code::NoSuchKey.into(),
            E::UploadNotFound => return S3Code::NoSuchUpload.into(),
            E::InvalidPart => return S3Code::InvalidPart.into(),
            E::BucketExists => return S3Code::BucketAlreadyOwnedByYou.into(),
            E::BucketNotEmpty => return S3Code::BucketNotEmpty.into(),
            E::RangeNotSatisfiable => return S3Code::InvalidRange.into(),
            E::ObjectChanged => return S3Code::PreconditionFailed.into(),
            E::MemberNotFound | E::JobNotFound | E::NodeNotFound | E::AccountNotFound => {
                S3Code::NoSuchKey
            }
            E::Conflict => S3Code::OperationAborted,
            E::InvalidArgument | E::InvalidName | E::TooFewTargets => S3Code::InvalidArgument,
            E::Unprocessable => S3Code::InvalidRequest,
            E::ChecksumMismatch => S3Code::BadDigest,
            E::Unauthenticated | E::AccessDenied => S3Code::AccessDenied,
            E::MethodNotAllowed => S3Code::MethodNotAllowed,
            E::Unsupported => S3Code::NotImplemented,
            E::TooManyRequests => S3Code::SlowDown,
            E::OutOfSpace => S3Code::StorageFull,
            E::QuotaExceeded => S3Code::QuotaExceeded,
            E::WrongOwner | E::Unavailable | E::Timeout => S3Code::ServiceUnavailable,
            E::Corrupt | E::CorruptAnswer | E::Internal => S3Code::InternalError,
        };
        Self { retry_after_s: e.retry_after_s, ..Self::new(code, e.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_code_argument_and_resource() {
        let e = S3Error::argument("max-keys", "a<b", "not an integer");
        assert_eq!(
            e.to_xml("/s3/b/a&b", "0F1"),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidArgument</Code>\
             <Message>not an integer</Message><ArgumentName>max-keys</ArgumentName>\
             <ArgumentValue>a&lt;b</ArgumentValue><Resource>/s3/b/a&amp;b</Resource>\
             <RequestId>0F1</RequestId></Error>"
        );
    }

    #[test]
    fn our_own_failures_have_the_codes_that_clients_look_for() {
        let of = |code| S3Error::from(Error::new(code, "x")).code;
        assert_eq!(of(ErrorCode::ObjectNotFound), S3Code::NoSuchKey);
        assert_eq!(of(ErrorCode::BucketNotFound), S3Code::NoSuchBucket);
        assert_eq!(of(ErrorCode::Unavailable).status(), 503);
    }
}

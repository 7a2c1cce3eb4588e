//! Translates failures of the SDK into errors of Forebay: which bucket, which endpoint, what to do.

use std::error::Error as StdError;
use std::sync::{Arc, OnceLock};

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use forebay_core::error::{Error, ErrorCode};

use crate::egress::innermost;
use crate::place::{Place, code_of, hinting_at_clocks, retry_after};

/// Names for error messages: the bucket, its endpoint and its region.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) place: Place,
    /// The region that requests are signed for.
    region: String,
    /// Whether the bucket's property has the region.
    pub(super) is_set: bool,
    /// Set by an answer that the bucket is in another region, with that region if the answer has it.
    elsewhere: Arc<OnceLock<Option<String>>>,
}

const CREDENTIALS_HINT: &str =
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the targets";

impl Errors {
    pub(super) fn new(place: Place, region: &str) -> Self {
        let region = region.to_owned();
        Self { place, region, is_set: false, elsewhere: Arc::default() }
    }

    /// Whether an answer was that the bucket is in another region.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere.get().is_some()
    }

    /// The region in such an answer.
    pub(super) fn region_elsewhere(&self) -> Option<String> {
        self.elsewhere.get()?.clone()
    }

    /// The error for an answer that the bucket is in another region.
    fn in_other_region(&self, raw: &HttpResponse, said: &str) -> Error {
        let found = region_in(raw).filter(|region| *region != self.region);
        let _ = self.elsewhere.set(found.clone());
        let Place { bucket, endpoint, .. } = &self.place;
        let there = found.as_deref().unwrap_or("another region");
        let text = format!(
            "bucket \"{bucket}\" is not served by {endpoint} in the region {}: it is in {there} ({said})",
            self.region
        );
        Error::invalid(text).hint(match (found, self.is_set) {
            (Some(found), _) => format!("forebay bucket set {bucket} region={found}"),
            (None, true) => format!("forebay bucket set {bucket} region= has the region found out"),
            (None, false) => format!("forebay bucket set {bucket} region=NAME sets the right one"),
        })
    }

    /// The error of a listing call.
    pub(super) fn of_bucket<E>(&self, e: SdkError<E, HttpResponse>) -> Error
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        self.convert(e, "s3:ListBucket", None)
    }

    /// The error of a call for an object that needs the given right.
    pub(super) fn of_object<E>(
        &self,
        e: SdkError<E, HttpResponse>,
        right: &str,
        name: &str,
    ) -> Error
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        self.convert(e, right, Some(name))
    }

    /// The error for a body that broke off.
    pub(super) fn of_body(&self, e: &(dyn StdError + 'static), name: &str) -> Error {
        self.place.broke_off(name, DisplayErrorContext(e))
    }

    fn convert<E>(&self, e: SdkError<E, HttpResponse>, right: &str, name: Option<&str>) -> Error
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        match &e {
            SdkError::ServiceError(service) => {
                let said = service.err();
                let error = self.answered(service.raw(), said.code(), said.message(), right, name);
                hinting_at_clocks(error, service.raw().headers().get("date"))
            }
            SdkError::ResponseError(response) => self.unavailable(
                &format!("its answer cannot be read: {}", DisplayErrorContext(&e)),
                Some(response.raw()),
            ),
            SdkError::TimeoutError(_) => self.unavailable("it did not answer in time", None),
            SdkError::DispatchFailure(failure) => {
                let why = innermost(&e);
                if let Some(error) = self.place.blocked(&e) {
                    error
                } else if failure.as_connector_error().is_some_and(|c| c.is_timeout()) {
                    self.unavailable("it did not answer in time", None)
                } else if is_about_credentials(&e) {
                    self.no_credentials(&e)
                } else {
                    self.unavailable(&why, None)
                }
            }
            _ if is_about_credentials(&e) => self.no_credentials(&e),
            _ => Error::invalid(format!(
                "cannot make the request about {} to {}: {}",
                self.place.subject(name),
                self.place.endpoint,
                innermost(&e)
            )),
        }
    }

    /// The error for a response that rejects the request.
    fn answered(
        &self,
        raw: &HttpResponse,
        code: Option<&str>,
        message: Option<&str>,
        right: &str,
        name: Option<&str>,
    ) -> Error {
        let status = raw.status().as_u16();
        let said = match (code, message) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            _ => format!("HTTP status {status}"),
        };
        match (code.unwrap_or_default(), status) {
            ("NoSuchBucket", _) => self.bucket_not_found(),
            ("NoSuchKey" | "NotFound", _) | (_, 404) => match name {
                Some(name) => self.place.bucket.object_not_found(name),
                None => self.bucket_not_found(),
            },
            ("PermanentRedirect" | "AuthorizationHeaderMalformed", _) | (_, 301 | 307) => {
                self.in_other_region(raw, &said)
            }
            // A HEAD has no body with a code.
            ("", 400) if names_region(raw) => self.in_other_region(raw, &said),
            ("RequestTimeTooSkewed", _) => self
                .place
                .refused(ErrorCode::AccessDenied, &said, name)
                .hint("set the clock of the targets' machines right"),
            // A credential service may be late with the next credentials.
            ("ExpiredToken", _)
                if self.place.account.is_none()
                    && std::env::var_os("AWS_SESSION_TOKEN").is_none() =>
            {
                self.place.no_credentials(true, &said).hint(CREDENTIALS_HINT)
            }
            (
                "ExpiredToken" | "InvalidToken" | "InvalidAccessKeyId" | "SignatureDoesNotMatch",
                _,
            )
            | (_, 401) => self.denied(&said),
            (_, 403) => self.place.refused(ErrorCode::AccessDenied, &said, name).hint(format!(
                "these credentials lack the right {right}, or are wrong: {}",
                self.place.credential_hint(CREDENTIALS_HINT)
            )),
            (_, 412) => match name {
                Some(name) => self.place.changed(name),
                None => self.place.refused(ErrorCode::Conflict, &said, name),
            },
            (_, 416) => self.place.refused(ErrorCode::RangeNotSatisfiable, &said, name),
            ("BadDigest" | "InvalidDigest", _) => {
                self.place.refused(ErrorCode::ChecksumMismatch, &said, name)
            }
            ("SlowDown", _) | (_, 429 | 503) => {
                let mut error = self.place.busy(&said);
                error.retry_after_s = retry_after(raw.headers().get("retry-after"));
                error
            }
            ("RequestTimeout", _) | (_, 408 | 500 | 502 | 504) => {
                self.unavailable(&said, Some(raw))
            }
            (_, 501) => self.place.refused(ErrorCode::Unsupported, &said, name),
            (_, 507) => self.place.refused(ErrorCode::OutOfSpace, &said, name),
            _ => self.place.refused(code_of(status), &said, name),
        }
    }

    fn bucket_not_found(&self) -> Error {
        let error = self.place.bucket_not_found();
        error.hint(format!(
            "create it at {}, or check its name and the endpoint",
            self.place.endpoint
        ))
    }

    fn denied(&self, why: &str) -> Error {
        let hint = self.place.credential_hint(CREDENTIALS_HINT);
        self.place.refused(ErrorCode::AccessDenied, why, None).hint(hint)
    }

    fn no_credentials(&self, e: &(dyn StdError + 'static)) -> Error {
        let hint = self.place.credential_hint(CREDENTIALS_HINT);
        self.place.no_credentials(may_pass(e), &innermost(e)).hint(hint)
    }

    /// Without a Retry-After unless the server gave one: the retries choose the pause.
    fn unavailable(&self, why: &str, raw: Option<&HttpResponse>) -> Error {
        let mut error = self.place.unavailable(why).hint("check that the targets can reach that endpoint, and AWS_ENDPOINT_URL in their environment");
        let after = raw.and_then(|raw| raw.headers().get("retry-after"));
        error.retry_after_s = retry_after(after);
        error
    }
}

/// Whether the answer to a HEAD is about the region: Amazon names the right one, MinIO the code.
fn names_region(raw: &HttpResponse) -> bool {
    let header = |name: &str| raw.headers().get(name);
    header("x-amz-bucket-region").is_some()
        || header("x-minio-error-code") == Some("AuthorizationHeaderMalformed")
}

/// The region of the bucket in an answer: in a header, or in the body of an error.
fn region_in(raw: &HttpResponse) -> Option<String> {
    let in_body = || {
        let body = std::str::from_utf8(raw.body().bytes()?).ok()?;
        let (_, rest) = body.split_once("<Region>")?;
        Some(rest.split_once("</Region>")?.0)
    };
    let region = raw.headers().get("x-amz-bucket-region").or_else(in_body)?;
    is_region(region).then(|| region.to_owned())
}

/// Whether a server's text has the form of a region. It becomes part of the name of a host: no dot.
pub(super) fn is_region(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=64).contains(&text.len()) && text.chars().all(is_allowed)
}

/// Whether missing credentials may be available in a moment: the credential service was found, and
/// did not reject this identity.
fn may_pass(e: &(dyn StdError + 'static)) -> bool {
    const FINAL: [&str; 10] = [
        "AccessDenied",
        "ExpiredToken",
        "IDPRejectedClaim",
        // A metadata service that responds, but has no credentials at all.
        "IMDS is disabled",
        "InvalidClientTokenId",
        "InvalidIdentityToken",
        "MalformedPolicyDocument",
        "No such file",
        "SignatureDoesNotMatch",
        "ValidationError",
    ];
    let failure = causes(e).find_map(|cause| cause.downcast_ref::<CredentialsError>());
    let found = match failure {
        Some(CredentialsError::ProviderError(_) | CredentialsError::ProviderTimedOut(_)) => true,
        Some(_) => false,
        // The SDK's identity cache has its own message.
        None => causes(e).any(|cause| cause.to_string().contains("timed out")),
    };
    let said = DisplayErrorContext(e).to_string();
    found && !FINAL.iter().any(|code| said.contains(code))
}

fn causes<'e>(
    e: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(e), |e| (*e).source())
}

/// The SDK has no public error for "no credentials found" at this level.
fn is_about_credentials(e: &(dyn StdError + 'static)) -> bool {
    let said = |e: &dyn StdError| e.to_string().to_ascii_lowercase();
    causes(e).any(|e| said(e).contains("credential") || said(e).contains("identity resolver"))
}

//! Translates failures of Microsoft's crate into errors of Forebay: which bucket, which endpoint,
//! which right or setting, and never a secret.

use azure_core::error::ErrorKind;
use azure_core::http::RawResponse;
use forebay_core::error::{Error, ErrorCode};

use super::token::is_transient;
use crate::account::credential_hint;
use crate::egress::innermost;
use crate::place::{Place, code_of, first_line, hinting_at_clocks, retry_after};

pub(super) const CREDENTIALS_HINT: &str = "set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, \
     AZURE_STORAGE_SAS_TOKEN or the variables of an Entra identity in the environment of the targets";

/// Names for error messages: the bucket and its endpoint.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) place: Place,
    /// Whether requests carry credentials.
    pub(super) signed: bool,
}

/// The right that a call needs.
#[derive(Clone, Copy)]
pub(super) enum Right {
    Read,
    List,
    Write,
    Delete,
}

impl Right {
    /// The permission in a shared access signature, and a role of Entra that has it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Read => ("read (r)", "Storage Blob Data Reader"),
            Self::List => ("list (l)", "Storage Blob Data Reader"),
            Self::Write => ("create and write (cw)", "Storage Blob Data Contributor"),
            Self::Delete => ("delete (d)", "Storage Blob Data Contributor"),
        }
    }
}

impl Errors {
    /// The error of a call about the object `name`, or about the bucket.
    pub(super) fn of(&self, e: &azure_core::Error, right: Right, name: Option<&str>) -> Error {
        match e.kind() {
            ErrorKind::HttpResponse { status, error_code, raw_response } => {
                let code = error_code.as_deref().unwrap_or_default();
                let raw = raw_response.as_deref();
                let error = self.answered(u16::from(*status), code, raw, right, name);
                hinting_at_clocks(error, raw.and_then(|raw| header(raw, "date")))
            }
            ErrorKind::Credential => {
                let why = first_line(&e.to_string());
                self.place.no_credentials(is_transient(e), &why).hint(self.hint())
            }
            ErrorKind::Connection | ErrorKind::Io => {
                self.place.blocked(e).unwrap_or_else(|| self.unavailable(&innermost(e)))
            }
            // For example a response that cannot be parsed.
            _ => self.place.refused(ErrorCode::Unavailable, &innermost(e), name),
        }
    }

    /// The error for a response that rejects the request.
    fn answered(
        &self,
        status: u16,
        code: &str,
        raw: Option<&RawResponse>,
        right: Right,
        name: Option<&str>,
    ) -> Error {
        let body = raw.map(|raw| raw.body().as_ref()).unwrap_or_default();
        let body = String::from_utf8_lossy(body);
        let said = match (element(&body, "Message"), code) {
            (Some(message), "") => first_line(&message),
            (Some(message), code) => format!("{code}: {}", first_line(&message)),
            (None, "") => format!("HTTP status {status}"),
            (None, code) => code.to_owned(),
        };
        match (code, status) {
            ("ContainerNotFound" | "ContainerBeingDeleted", _) => self.bucket_not_found(),
            ("AuthenticationFailed", _) if body.contains("date header too old") => self
                .place
                .refused(ErrorCode::AccessDenied, "the time of the request is too old", name)
                .hint("set the clock of the targets' machines right"),
            ("AuthenticationFailed", _) if body.contains("Signature not valid in the") => self
                .place
                .refused(
                    ErrorCode::AccessDenied,
                    "the shared access signature is not valid now",
                    name,
                )
                .hint(match &self.place.account {
                    Some(account) => credential_hint(account),
                    None => {
                        "give AZURE_STORAGE_SAS_TOKEN a new one, or set the targets' clocks right"
                            .to_owned()
                    }
                }),
            ("AuthenticationFailed" | "InvalidAuthenticationInfo", _) | (_, 401) => {
                self.place.refused(ErrorCode::AccessDenied, &said, name).hint(self.hint())
            }
            ("PublicAccessNotPermitted", _) => {
                self.place.refused(ErrorCode::AccessDenied, &said, name).hint(self.hint())
            }
            (_, 403) => {
                let (permission, role) = right.words();
                let error = self.place.refused(ErrorCode::AccessDenied, &said, name);
                error.hint(format!(
                    "these credentials lack a right, or are wrong: needed is the permission \
                     {permission} of a shared access signature, or the role {role}; \
                     {}",
                    self.hint()
                ))
            }
            (_, 404) => match name {
                Some(name) => self.place.bucket.object_not_found(name),
                None => self.bucket_not_found(),
            },
            (_, 412) => match name {
                Some(name) => self.place.changed(name),
                None => self.place.refused(ErrorCode::Conflict, &said, name),
            },
            (_, 416) => self.place.refused(ErrorCode::RangeNotSatisfiable, &said, name),
            ("BlobArchived" | "BlobBeingRehydrated", _) => self
                .place
                .refused(ErrorCode::Unsupported, &said, name)
                .hint("move the blob to the hot or cool tier first"),
            ("Md5Mismatch" | "Crc64Mismatch", _) => {
                self.place.refused(ErrorCode::ChecksumMismatch, &said, name)
            }
            (_, 429 | 503) => after(self.place.busy(&said), raw),
            (_, 408 | 500 | 502 | 504) => after(self.unavailable(&said), raw),
            (_, 501) => self.place.refused(ErrorCode::Unsupported, &said, name),
            _ => self.place.refused(code_of(status), &said, name),
        }
    }

    /// The hint of an error about credentials.
    fn hint(&self) -> String {
        self.place.credential_hint(CREDENTIALS_HINT)
    }

    /// The error for a body that broke off.
    pub(super) fn of_body(&self, e: &azure_core::Error, name: &str) -> Error {
        self.place.broke_off(name, innermost(e))
    }

    fn bucket_not_found(&self) -> Error {
        let error = self.place.bucket_not_found();
        let hint =
            format!("create it at {}, or check its name and the endpoint", self.place.endpoint);
        match self.signed {
            true => error.hint(hint),
            // Azure reports private containers as missing to anonymous callers.
            false => error.hint(format!("{hint}; there are no credentials: {}", self.hint())),
        }
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        self.place.unavailable(why).hint(
            "check that the targets can reach that endpoint, and AZURE_STORAGE_ACCOUNT and \
             AZURE_STORAGE_ENDPOINT in their environment",
        )
    }
}

fn after(mut error: Error, raw: Option<&RawResponse>) -> Error {
    error.retry_after_s = retry_after(raw.and_then(|raw| header(raw, "retry-after")));
    error
}

fn header<'r>(raw: &'r RawResponse, name: &'static str) -> Option<&'r str> {
    raw.headers().get_optional_str(&name.into())
}

/// The text of an element of an error's XML.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
}

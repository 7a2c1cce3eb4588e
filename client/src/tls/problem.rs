//! Why a TLS connection failed, in words that name the remedy.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError, Error as TlsError};

/// A TLS connection that failed for a reason that a retry does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsProblem {
    /// The failure, with the host.
    pub text: String,
    /// The remedy.
    pub hint: &'static str,
}

const TRUST: &str = "set FOREBAY_CA_FILE (Python: ca_file=) to the PEM file with the certificate of the CA \
                     that issued it";
const NAME: &str = "use one of the names of the certificate in the endpoint, or issue a certificate for this \
                    name; `forebay tls show` lists the names";
const TIME: &str = "replace the certificate at the server, which needs no restart, or set the clock of this \
                    machine";
const PLAIN: &str = "is TLS configured there? Without TLS, the endpoint begins with http://";
const CLIENT: &str =
    "set FOREBAY_CLIENT_CERT and FOREBAY_CLIENT_KEY to a certificate that the server accepts";
const OTHER: &str = "the log of the server has the other side's reason at level debug";

impl TlsProblem {
    /// The problem of a failed connection to the node at `base`, if TLS is the reason.
    pub fn of(base: &str, error: &(dyn StdError + 'static)) -> Option<Self> {
        let host = base.split_once("://").map_or(base, |(_, rest)| rest);
        let (text, hint) = match find(error)? {
            TlsError::InvalidCertificate(e) => certificate(host, e),
            TlsError::InvalidMessage(_) => (format!("{host} does not speak TLS"), PLAIN),
            TlsError::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied,
            ) => (format!("{host} requires a client certificate that it trusts"), CLIENT),
            other => (format!("TLS with {host} failed: {other}"), OTHER),
        };
        Some(Self { text, hint })
    }
}

fn certificate(host: &str, error: &CertificateError) -> (String, &'static str) {
    let of = |what: &str| format!("the certificate of {host} {what}");
    match error {
        CertificateError::UnknownIssuer => (of("is not trusted: its issuer is unknown"), TRUST),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            (of("is not valid for this name"), NAME)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            (of("has expired"), TIME)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            (of("is not valid yet"), TIME)
        }
        other => (of(&format!("is not trusted: {other}")), TRUST),
    }
}

/// The error of TLS among an error and its causes.
fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a TlsError> {
    if let Some(found) = error.downcast_ref::<TlsError>() {
        return Some(found);
    }
    // The source of an I/O error is the cause of its inner error, not the inner error.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    if let Some(found) = inner.and_then(|inner| find(inner)) {
        return Some(found);
    }
    error.source().and_then(find)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found_below_other_errors_and_names_the_remedy() {
        let of = |e: TlsError| {
            let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, e));
            TlsProblem::of("https://h:1", &nested).unwrap()
        };
        let unknown = of(TlsError::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(unknown.text.starts_with("the certificate of h:1 is not trusted"), "{unknown}");
        assert!(unknown.hint.contains("FOREBAY_CA_FILE"));
        let expired = of(TlsError::InvalidCertificate(CertificateError::Expired));
        assert_eq!(expired.text, "the certificate of h:1 has expired");
        let name = of(TlsError::InvalidCertificate(CertificateError::NotValidForName));
        assert!(name.text.contains("not valid for this name"), "{name}");
        let required = of(TlsError::AlertReceived(AlertDescription::CertificateRequired));
        assert!(required.hint.contains("FOREBAY_CLIENT_CERT"), "{required}");
        assert_eq!(TlsProblem::of("https://h", &io::Error::other("reset")), None);
    }
}

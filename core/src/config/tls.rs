//! Settings of TLS.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// TLS for clients and between nodes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// PEM file with the certificate of the node, followed by the certificates that lead to its CA.
    /// Empty: no TLS. The node reads this file and the other files of this section again after they
    /// change.
    pub cert: String,
    /// PEM file with the private key of `tls.cert`. Users other than its owner must not be
    /// able to read it.
    pub key: String,
    /// PEM file with the CAs by which this node verifies other nodes. Empty: the CAs of the system, and
    /// the certificates in `tls.cert`.
    pub ca: String,
    /// PEM file with the CAs by which this node verifies the certificates of clients and of other
    /// nodes. Empty: the node asks for no certificate.
    pub client_ca: String,
    /// Rejects connections without a certificate that `tls.client_ca` verifies.
    pub require_client_cert: bool,
    /// Serves plain HTTP on `listen.http` beside HTTPS: for a migration. Without it, a request in plain
    /// HTTP gets status 400.
    pub http: bool,
}

impl TlsConfig {
    /// Whether the node serves HTTPS.
    pub fn is_on(&self) -> bool {
        !self.cert.is_empty()
    }

    /// Whether the node serves plain HTTP.
    pub fn serves_http(&self) -> bool {
        !self.is_on() || self.http
    }

    pub(super) fn validate(&self) -> Result<()> {
        if self.cert.is_empty() != self.key.is_empty() {
            return Err(Error::invalid("tls.cert and tls.key must be set together"));
        }
        let depends =
            [("tls.ca", !self.ca.is_empty()), ("tls.client_ca", !self.client_ca.is_empty())];
        if let Some((key, _)) = depends.iter().find(|(_, is_set)| *is_set && !self.is_on()) {
            return Err(Error::invalid(format!(
                "{key} has no effect without tls.cert and tls.key"
            )));
        }
        if self.require_client_cert && self.client_ca.is_empty() {
            return Err(Error::invalid("tls.require_client_cert needs tls.client_ca"));
        }
        if self.require_client_cert && self.http {
            let text = "tls.http would serve clients without a certificate, which \
                        tls.require_client_cert refuses";
            return Err(
                Error::invalid(text).hint("set tls.http = false when the migration is over")
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_depend_on_others_are_refused_without_them() {
        let on = TlsConfig { cert: "c".into(), key: "k".into(), ..TlsConfig::default() };
        assert!(TlsConfig::default().validate().is_ok() && on.validate().is_ok());
        assert!(!on.serves_http() && TlsConfig::default().serves_http());
        for bad in [
            TlsConfig { key: String::new(), ..on.clone() },
            TlsConfig { ca: "ca".into(), ..TlsConfig::default() },
            TlsConfig { client_ca: "ca".into(), ..TlsConfig::default() },
            TlsConfig { require_client_cert: true, ..on.clone() },
            TlsConfig {
                require_client_cert: true,
                client_ca: "ca".into(),
                http: true,
                ..on.clone()
            },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}

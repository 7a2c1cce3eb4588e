//! TLS of a client: the CAs that it trusts, its own certificate, and its connections.

mod problem;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use forebay_core::{Error, Result};

pub use self::problem::TlsProblem;
pub(crate) use self::stream::Connector;
pub use self::stream::{ClientStream, PooledConnector};

/// The only protocol inside TLS.
pub const ALPN_HTTP: &[u8] = b"http/1.1";

/// The certificates of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM file with CAs that are trusted beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client's own certificate, for servers that ask for one.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the key of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// Accepts every certificate: the connection is encrypted, but anybody may be at its other end.
    pub skip_verify: bool,
}

impl TlsOptions {
    /// The options that the environment names: `FOREBAY_CA_FILE`, `FOREBAY_CLIENT_CERT`,
    /// `FOREBAY_CLIENT_KEY`, `FOREBAY_TLS_SKIP_VERIFY`, else the variables of AIStore's clients.
    pub fn from_env() -> Self {
        Self::from(|name| std::env::var(name).ok())
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |names: [&str; 2]| {
            let mut values = names.iter().filter_map(|name| variable(name));
            values.find(|value| !value.trim().is_empty())
        };
        let skip = set(["FOREBAY_TLS_SKIP_VERIFY", "AIS_SKIP_VERIFY_CRT"]);
        let is_off = |value: &str| matches!(value, "0" | "off" | "no" | "false");
        Self {
            ca_file: set(["FOREBAY_CA_FILE", "AIS_CLIENT_CA"]).map(PathBuf::from),
            cert_file: set(["FOREBAY_CLIENT_CERT", "AIS_CRT"]).map(PathBuf::from),
            key_file: set(["FOREBAY_CLIENT_KEY", "AIS_CRT_KEY"]).map(PathBuf::from),
            skip_verify: skip.is_some_and(|v| !is_off(&v.trim().to_ascii_lowercase())),
        }
    }

    /// The configuration of TLS with these options.
    fn config(&self) -> Result<ClientConfig> {
        let mut roots = system_roots();
        if let Some(path) = &self.ca_file {
            add_roots(&mut roots, &certificates(path)?, path)?;
        }
        let identity = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Some((certificates(cert)?, private_key(key)?)),
            (None, None) => None,
            _ => {
                return Err(Error::invalid(
                    "a client certificate needs its key, and a key needs it",
                )
                .hint("set both FOREBAY_CLIENT_CERT and FOREBAY_CLIENT_KEY"));
            }
        };
        let mut config = client_config(roots, identity)?;
        if self.skip_verify {
            use std::io::Write;
            let _ = writeln!(
                std::io::stderr(),
                "warning: certificates are not verified (FOREBAY_TLS_SKIP_VERIFY): anybody on the \
                 network can read and change the data"
            );
            config.dangerous().set_certificate_verifier(Arc::new(AcceptAll(provider())));
        }
        Ok(config)
    }
}

/// The TLS side of a client: its configuration, made at the first use. Cheap to clone; clones share
/// the configuration and resumable sessions.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<TlsSource>);

#[derive(Debug)]
enum TlsSource {
    Options { options: TlsOptions, made: OnceLock<Result<Arc<ClientConfig>>> },
    Replaceable(ArcSwap<ClientConfig>),
}

impl TlsClient {
    /// TLS with these options. Files are read at the first connection, or by [`Self::config`].
    pub fn new(options: TlsOptions) -> Self {
        Self(Arc::new(TlsSource::Options { options, made: OnceLock::new() }))
    }

    /// TLS with a configuration that [`Self::replace`] changes.
    pub fn replaceable(config: ClientConfig) -> Self {
        Self(Arc::new(TlsSource::Replaceable(ArcSwap::from_pointee(config))))
    }

    /// TLS that accepts every certificate: for questions whose answers need no trust, such as
    /// whether a node listens, or which certificate it has.
    pub fn unverified() -> Result<Self> {
        let mut config = client_config(RootCertStore::empty(), None)?;
        config.dangerous().set_certificate_verifier(Arc::new(AcceptAll(provider())));
        Ok(Self::replaceable(config))
    }

    /// Opens a connection of its own to the host and port of `url`, at most within `timeout` for
    /// TCP; returns it with the value of `Host`.
    pub async fn connect(
        &self,
        url: &str,
        timeout: Duration,
    ) -> std::io::Result<(ClientStream, String)> {
        let url: http::Uri = url.parse().map_err(std::io::Error::other)?;
        let host = url.authority().map_or_else(String::new, |a| a.as_str().to_owned());
        Ok((Connector { tls: self.clone(), timeout }.connect(&url).await?, host))
    }

    /// Uses this configuration for new connections. Without effect unless the client was made by
    /// [`Self::replaceable`].
    pub fn replace(&self, config: ClientConfig) {
        if let TlsSource::Replaceable(current) = &*self.0 {
            current.store(Arc::new(config));
        }
    }

    /// The configuration; an error names the file that cannot be used.
    pub fn config(&self) -> Result<Arc<ClientConfig>> {
        match &*self.0 {
            TlsSource::Replaceable(current) => Ok(current.load_full()),
            TlsSource::Options { options, made } => {
                made.get_or_init(|| options.config().map(Arc::new)).clone()
            }
        }
    }
}

impl Default for TlsClient {
    /// TLS as the environment has it.
    fn default() -> Self {
        Self::new(TlsOptions::from_env())
    }
}

/// The cryptography of all connections. AES-128 comes first: it takes less CPU time than AES-256.
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let is_first = |suite: &rustls::SupportedCipherSuite| {
        suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256
    };
    provider.cipher_suites.sort_by_key(|suite| !is_first(suite));
    Arc::new(provider)
}

/// A configuration that trusts these CAs. `identity`: the own certificate, with those that lead to
/// its CA, and its key.
pub fn client_config(
    roots: RootCertStore,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig> {
    let unusable = |e: rustls::Error| Error::invalid(format!("TLS cannot be used: {e}"));
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(unusable)?,
    };
    config.alpn_protocols = vec![ALPN_HTTP.to_vec()];
    Ok(config)
}

/// The CAs of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for e in &found.errors {
        tracing::debug!(error = %e, "a CA of the system cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    roots
}

/// Adds the certificates of a file to the CAs that are trusted.
pub fn add_roots(
    roots: &mut RootCertStore,
    certificates: &[CertificateDer<'static>],
    path: &Path,
) -> Result<()> {
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|e| {
            Error::invalid(format!("{} has a certificate that is no CA: {e}", path.display()))
        })?;
    }
    Ok(())
}

/// The certificates of a PEM file; at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
    parse_certificates(&pem, path)
}

/// The certificates in the bytes of a PEM file; at least one.
pub fn parse_certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|e| Error::invalid(format!("{} is no PEM file: {e}", path.display())))?;
    if found.is_empty() {
        return Err(Error::invalid(format!("{} has no certificate", path.display()))
            .hint("the file must be PEM and contain -----BEGIN CERTIFICATE-----"));
    }
    Ok(found)
}

/// The private key of a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let pem = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
    parse_private_key(&pem, path)
}

/// The private key in the bytes of a PEM file.
pub fn parse_private_key(pem: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|e| {
        Error::invalid(format!("{} has no private key: {e}", path.display()))
            .hint("the key must be PEM, without a password")
    })
}

fn unreadable(path: &Path, e: &std::io::Error) -> Error {
    Error::invalid(format!("cannot read {}: {e}", path.display()))
}

/// Accepts every certificate, but verifies that the server has its key.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_variables_come_before_those_of_aistore() {
        let of = |set: &[(&str, &str)]| {
            TlsOptions::from(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[("FOREBAY_CA_FILE", " ")]), TlsOptions::default());
        let both = of(&[("FOREBAY_CA_FILE", "/own"), ("AIS_CLIENT_CA", "/theirs")]);
        assert_eq!(both.ca_file, Some("/own".into()));
        let theirs =
            of(&[("AIS_CRT", "/c"), ("AIS_CRT_KEY", "/k"), ("AIS_SKIP_VERIFY_CRT", "true")]);
        assert_eq!((theirs.cert_file, theirs.key_file), (Some("/c".into()), Some("/k".into())));
        assert!(theirs.skip_verify);
        assert!(!of(&[("FOREBAY_TLS_SKIP_VERIFY", "False")]).skip_verify);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let missing = TlsOptions { ca_file: Some("/nowhere/ca.pem".into()), ..Default::default() };
        let e = TlsClient::new(missing).config().map(drop).unwrap_err();
        assert!(e.message.contains("/nowhere/ca.pem"), "{e}");
        let e = parse_certificates(b"no PEM", Path::new("x.pem")).map(drop).unwrap_err();
        assert!(e.message.contains("x.pem has no certificate"), "{e}");
        let half = TlsOptions { key_file: Some("/k".into()), ..Default::default() };
        assert!(half.config().is_err());
    }
}

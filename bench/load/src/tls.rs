//! TLS of the load generator: version 1.3 with one cipher suite, so that all servers use the same.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Encrypted bytes per read: TLS itself reads 4 KiB at a time.
const READ_BYTES: usize = 256 << 10;

/// Makes connections inside TLS to one server.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

/// A connection inside TLS.
pub(crate) type Encrypted = TlsStream<BufReader<TcpStream>>;

impl Tls {
    /// Trusts the CA in a PEM file; `suite` is the name of the only cipher suite, `address` that of
    /// the server, as HOST:PORT.
    pub(crate) fn new(ca: &Path, suite: &str, address: &str) -> Result<Self, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca)?)?;
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|known| known.suite().as_str() == Some(suite));
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = ServerName::try_from(host.to_owned())?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), host })
    }

    pub(crate) async fn handshake(&self, stream: TcpStream) -> io::Result<Encrypted> {
        let stream = BufReader::with_capacity(READ_BYTES, stream);
        self.connector.connect(self.host.clone(), stream).await
    }
}

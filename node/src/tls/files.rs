//! The files of `[tls]`, and the configurations of TLS that they result in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_client::tls::{
    ALPN_HTTP, add_roots, certificates, client_config, parse_certificates, parse_private_key,
    provider, system_roots,
};
use forebay_core::certificate::CertificateInfo;
use forebay_core::config::TlsConfig;
use forebay_core::{Error, Result};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::secret_file;

/// The files that the configuration names.
pub(super) struct Files {
    cert: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    require_client_cert: bool,
}

/// The configurations that the files result in.
pub(super) struct Loaded {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: ClientConfig,
    /// The node's own certificate, unless its form is not understood.
    pub(super) certificate: Option<CertificateInfo>,
}

impl Files {
    pub(super) fn new(config: &TlsConfig) -> Self {
        let optional = |path: &String| (!path.is_empty()).then(|| PathBuf::from(path));
        Self {
            cert: config.cert.clone().into(),
            key: config.key.clone().into(),
            ca: optional(&config.ca),
            client_ca: optional(&config.client_ca),
            require_client_cert: config.require_client_cert,
        }
    }

    /// The bytes of all files; `None` while one of them cannot be read, as in the middle of its
    /// replacement.
    pub(super) fn content(&self) -> Option<Vec<Vec<u8>>> {
        let paths = [Some(&self.cert), Some(&self.key), self.ca.as_ref(), self.client_ca.as_ref()];
        paths.into_iter().flatten().map(|path| std::fs::read(path).ok()).collect()
    }

    /// Reads the files.
    pub(super) fn load(&self) -> Result<Loaded> {
        let chain = parse_certificates(&read("tls.cert", &self.cert)?, &self.cert)?;
        let key = parse_private_key(&secret_file::read("tls.key", &self.key)?, &self.key)?;
        let unusable = |e: rustls::Error| {
            let (cert, key) = (self.cert.display(), self.key.display());
            Error::invalid(format!("{cert} and {key} cannot be used for TLS: {e}"))
                .hint("the key must be that of the first certificate in the file")
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(self.verifier(path)?),
        };
        let server = builder.with_single_cert(chain.clone(), key.clone_key());
        let mut server = server.map_err(unusable)?;
        server.alpn_protocols = vec![ALPN_HTTP.to_vec()];
        server.ticketer = Ticketer::new().map_err(unusable)?;
        let certificate = chain.first().and_then(|der| CertificateInfo::read(der));
        let client = client_config(self.roots(&chain)?, Some((chain, key)))?;
        Ok(Loaded { server: Arc::new(server), client, certificate })
    }

    fn verifier(&self, path: &Path) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>> {
        let mut roots = RootCertStore::empty();
        add_roots(&mut roots, &certificates(path)?, path)?;
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
        let builder = match self.require_client_cert {
            true => builder,
            false => builder.allow_unauthenticated(),
        };
        builder
            .build()
            .map_err(|e| Error::invalid(format!("{} cannot be used: {e}", path.display())))
    }

    /// The CAs by which other nodes are verified.
    fn roots(&self, chain: &[CertificateDer<'static>]) -> Result<RootCertStore> {
        if let Some(path) = &self.ca {
            let mut roots = RootCertStore::empty();
            add_roots(&mut roots, &certificates(path)?, path)?;
            return Ok(roots);
        }
        let mut roots = system_roots();
        roots.add_parsable_certificates(chain.iter().cloned());
        Ok(roots)
    }
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>> {
    let unreadable = |e| Error::invalid(format!("{setting}: cannot read {}: {e}", path.display()));
    std::fs::read(path).map_err(unreadable)
}

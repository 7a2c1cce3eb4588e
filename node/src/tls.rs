//! TLS of a node: its certificate, the connections of clients, and its connections to other nodes.
//!
//! [`NodeTls`] is made from `[tls]` of the configuration when the node starts. It reads the files
//! again after they change, and the listener accepts TLS connections by it.

mod accept;
mod files;
mod metrics;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use forebay_client::PeerClient;
use forebay_client::tls::TlsClient;
use forebay_core::Result;
use forebay_core::certificate::CertificateInfo;
use forebay_core::config::NodeConfig;
use rustls::ServerConfig;

pub(crate) use self::accept::Accepted;
use self::files::{Files, Loaded};
pub(crate) use self::metrics::PREFIX;
pub use self::metrics::TlsMetrics;
use crate::connections::Connections;
use crate::identity::over_https;
use crate::lifecycle::Lifecycle;
use crate::maps::Maps;

/// Interval between checks whether the files changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of handshakes in progress. Above it, the oldest ends.
const MAX_HANDSHAKES: usize = 512;

/// Chooses the provider of cryptography for the process. One TLS stack serves all, but the crates of
/// its clients do not choose it, and panic without a choice: call this before one is built. A choice
/// that was made earlier stays.
pub fn choose_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// TLS of one node; cheap to clone.
#[derive(Clone)]
pub struct NodeTls(Arc<TlsState>);

struct TlsState {
    files: Files,
    server: ArcSwap<ServerConfig>,
    client: TlsClient,
    /// Whether plain HTTP is served on the same port.
    serves_http: bool,
    handshakes: Connections,
    metrics: OnceLock<TlsMetrics>,
    /// The certificate when the node started.
    certificate: Option<CertificateInfo>,
    /// Content of the files when the node started.
    content: Content,
}

/// The bytes of each file.
type Content = Option<Vec<Vec<u8>>>;

impl NodeTls {
    /// Reads the files that the configuration names; `None` without `tls.cert`.
    pub fn load(config: &NodeConfig) -> Result<Option<Self>> {
        if !config.tls.is_on() {
            return Ok(None);
        }
        let files = Files::new(&config.tls);
        let content = files.content();
        let Loaded { server, client, certificate } = files.load()?;
        log_certificate("TLS certificate is in use", certificate.as_ref());
        Ok(Some(Self(Arc::new(TlsState {
            files,
            server: ArcSwap::new(server),
            client: TlsClient::replaceable(client),
            serves_http: config.tls.serves_http(),
            handshakes: Connections::new(MAX_HANDSHAKES),
            metrics: OnceLock::new(),
            certificate,
            content,
        }))))
    }

    /// Makes `peer` reach nodes over TLS: those whose HTTPS URL the map has, and all nodes if this
    /// node serves no plain HTTP.
    #[must_use]
    pub fn secure(&self, peer: PeerClient, maps: &Maps) -> PeerClient {
        let (maps, always) = (maps.clone(), !self.0.serves_http);
        peer.secured(self.0.client.clone(), move |url| {
            if url.starts_with("https://") {
                return None;
            }
            let state = maps.load();
            let known = state.nodes.values().find(|node| node.url == url);
            match known.filter(|node| !node.https.is_empty()) {
                Some(node) => Some(node.https.clone()),
                None => always.then(|| over_https(url)),
            }
        })
    }

    /// Counts handshakes, and the time until the certificate expires, in these metrics.
    pub fn count_in(&self, metrics: &TlsMetrics) {
        let _ = self.0.metrics.set(metrics.clone());
        if let Some(info) = &self.0.certificate {
            metrics.certificate(info);
        }
    }

    /// Uses changed files for new connections until the node stops.
    pub fn watch(&self, lifecycle: &Lifecycle) {
        let (tls, stop) = (self.clone(), lifecycle.token());
        lifecycle.spawn(async move {
            let mut seen = tls.0.content.clone();
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(CHECK_INTERVAL) => {}
                }
                let (tls, former) = (tls.clone(), seen.clone());
                let checked = tokio::task::spawn_blocking(move || tls.check(former));
                seen = checked.await.unwrap_or(seen);
            }
        });
    }

    /// Reloads the files if their content is not the former one; returns their content.
    fn check(&self, former: Content) -> Content {
        let Some(content) = self.0.files.content() else { return former };
        if former.as_ref() != Some(&content) {
            self.reload();
        }
        Some(content)
    }

    /// Reads the files; if they cannot be used, the current certificate stays.
    fn reload(&self) {
        match self.0.files.load() {
            Ok(Loaded { server, client, certificate }) => {
                self.0.server.store(server);
                self.0.client.replace(client);
                log_certificate("TLS certificate was replaced", certificate.as_ref());
                if let (Some(metrics), Some(info)) = (self.0.metrics.get(), certificate) {
                    metrics.certificate(&info);
                }
            }
            Err(e) => {
                let what = "the changed TLS files cannot be used; the former certificate stays";
                tracing::error!(error = %e, "{what}");
            }
        }
    }

    fn count(&self, result: &str) {
        if let Some(metrics) = self.0.metrics.get() {
            metrics.handshake(result);
        }
    }
}

fn log_certificate(what: &str, certificate: Option<&CertificateInfo>) {
    let Some(info) = certificate else { return tracing::info!("{what}") };
    let days = info.days_left(crate::clock::unix_s().cast_signed());
    tracing::info!(subject = info.subject, issuer = info.issuer, days_left = days, "{what}");
}

#[cfg(test)]
mod tests;

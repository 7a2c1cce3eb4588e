//! Metrics of TLS.

use forebay_core::certificate::CertificateInfo;
use prometheus::{IntCounterVec, IntGaugeVec};

use crate::metric_families::Families;

/// Prefix of the names of these metrics.
pub(crate) const PREFIX: &str = "forebay_tls_";

/// Counters of a node's TLS; cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsMetrics {
    handshakes: IntCounterVec,
    expiry: IntGaugeVec,
}

impl TlsMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        Self {
            handshakes: families.counters(
                "forebay_tls_handshakes_total",
                "TLS handshakes of clients and nodes",
                &["result"],
            ),
            expiry: families.gauges(
                "forebay_tls_certificate_expiry_seconds",
                "Unix time at which the node's certificate expires, in seconds",
                &["subject"],
            ),
        }
    }

    /// Counts a handshake: `ok`, `failed`, `timeout` or `plain` for plain HTTP that was refused.
    pub(crate) fn handshake(&self, result: &str) {
        self.handshakes.with_label_values(&[result]).inc();
    }

    /// Notes the certificate in use.
    pub(crate) fn certificate(&self, info: &CertificateInfo) {
        self.expiry.reset();
        self.expiry.with_label_values(&[&info.subject]).set(info.not_after_s);
    }
}

//! Metrics of the audit log.

use prometheus::{IntCounter, IntCounterVec};

use crate::metric_families::Families;

/// Prefix of the names of these metrics.
pub(crate) const PREFIX: &str = "forebay_audit_";

/// Counters of a node's audit log; cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    records: IntCounterVec,
    lost: IntCounterVec,
}

/// Counters of one sink. They are exported, as 0, from the start of the node.
#[derive(Clone, Debug)]
pub(super) struct SinkMetrics {
    /// Records that the sink has.
    pub(super) records: IntCounter,
    /// Records that the sink does not get.
    pub(super) lost: IntCounter,
}

impl AuditMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        Self {
            records: families.counters(
                "forebay_audit_records_total",
                "Records of the audit log that were written to the file or received by the collector",
                &["sink"],
            ),
            lost: families.counters(
                "forebay_audit_lost_total",
                "Records of the audit log that were lost: the queue was full, or the file could not be written",
                &["sink"],
            ),
        }
    }

    /// The counters of the sink of this name.
    pub(super) fn sink(&self, name: &str) -> SinkMetrics {
        SinkMetrics {
            records: self.records.with_label_values(&[name]),
            lost: self.lost.with_label_values(&[name]),
        }
    }
}

//! Warnings about endpoints of buckets that no rule for destinations has checked.

use std::collections::BTreeSet;
use std::sync::Mutex;

use forebay_core::bucket::{BackendSpec, BucketInfo};
use forebay_core::egress::{AllowEntry, Server};
use forebay_core::locks::MutexExt;

/// Buckets whose endpoints are used only because an earlier version accepted them.
#[derive(Default)]
pub(super) struct AcceptedEndpoints(Mutex<BTreeSet<u64>>);

impl AcceptedEndpoints {
    /// Logs a warning, once for each bucket.
    pub(super) fn warn(&self, info: &BucketInfo, spec: &BackendSpec) {
        let endpoint = spec.endpoint.as_deref().unwrap_or_default();
        if self.0.locked().insert(info.id) {
            let server = Server::of(endpoint);
            let entry = server.map(|s| AllowEntry::exactly(&s.host, s.port).to_string());
            tracing::warn!(
                bucket = %info.bucket,
                endpoint,
                entry,
                "this endpoint was accepted before there was a rule for destinations; put the entry \
                 into egress.allow of all targets"
            );
        }
    }
}

//! Starts the traces of a node: the tasks that send spans to the collector, and marks to other nodes.

use forebay_client::PeerClient;
use forebay_core::Result;
use forebay_core::config::TraceConfig;
use tokio::sync::mpsc;

use super::export::Exporter;
use super::{TraceMetrics, Tracer};
use crate::identity::Identity;
use crate::lifecycle::Lifecycle;
use crate::maps::Maps;

/// Spans that wait for the collector. More are dropped.
const MAX_QUEUED_SPANS: usize = 8_192;

impl Tracer {
    /// Starts the tasks that send spans to the collector, and marks to the other nodes.
    pub fn start(
        config: &TraceConfig,
        identity: &Identity,
        maps: &Maps,
        peer: &PeerClient,
        lifecycle: &Lifecycle,
        metrics: &TraceMetrics,
    ) -> Result<Self> {
        if !config.enabled {
            return Ok(Self::default());
        }
        let mut queue = None;
        if !config.endpoint.is_empty() {
            let exporter = Exporter::new(config, identity, metrics.clone())?;
            let (sender, spans) = mpsc::channel(MAX_QUEUED_SPANS);
            lifecycle.spawn(exporter.run(spans, lifecycle.token()));
            queue = Some(sender);
        }
        let tracer = Self::of(config, identity.id.as_str(), queue, metrics);
        let followed = tracer.clone();
        lifecycle.on_reload(move |config| {
            if let Some(inner) = &followed.0 {
                inner.choice.set(&config.trace);
            }
        });
        let (sender, maps, peer) = (tracer.clone(), maps.clone(), peer.clone());
        let (me, stop) = (identity.id.clone(), lifecycle.token());
        lifecycle.spawn(async move {
            let Some(inner) = &sender.0 else { return };
            inner.marks.send(&me, &maps, &peer, &stop).await;
        });
        Ok(tracer)
    }
}

//! The state that all connections of a node share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use forebay_core::config::HttpConfig;

use crate::edge::Edge;
use crate::lifecycle::Lifecycle;
use crate::stall::ClientPace;

/// Answers the requests of all connections by one handler.
pub(crate) struct Server<H> {
    pub(crate) handler: H,
    pub(crate) edge: Edge,
    pub(super) lifecycle: Lifecycle,
    /// For connections that begin from now on.
    pub(super) pace: Arc<ArcSwap<ClientPace>>,
    pub(super) http: HttpConfig,
}

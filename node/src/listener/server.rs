//! The state that all connections of a node share.

use forebay_core::config::HttpConfig;

use crate::edge::Edge;
use crate::lifecycle::Lifecycle;
use crate::stall::ClientPace;

/// Answers the requests of all connections by one handler.
pub(crate) struct Server<H> {
    pub(crate) handler: H,
    pub(crate) edge: Edge,
    pub(super) lifecycle: Lifecycle,
    pub(super) pace: ClientPace,
    pub(super) http: HttpConfig,
}

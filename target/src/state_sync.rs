//! The version of the cluster's state that a request needs: a handler acts by a state at least as
//! new as the one that the sender used.

use axum::http::{HeaderMap, HeaderName, Uri};
use forebay_core::Result;
use forebay_core::intra::MAP_HEADER;
use forebay_node::auth::REDIRECT_VERSION;
use forebay_node::maps::Maps;
use forebay_node::membership::Refresher;
use forebay_v1::query::Query;

/// The header with the version of the map that the sender used.
static KNOWN_MAP: HeaderName = HeaderName::from_static(MAP_HEADER);

/// Fetches the state that the sender of a request used; cheap to clone.
#[derive(Clone)]
pub(crate) struct StateSync {
    pub(crate) maps: Maps,
    pub(crate) refresher: Refresher,
}

impl StateSync {
    /// Waits until this node has at least the state that the sender used.
    pub(crate) async fn catch_up(&self, headers: &HeaderMap, uri: &Uri) -> Result<()> {
        match self.newer(headers, uri) {
            Some(version) => self.refresher.at_least(version).await.map(drop),
            None => Ok(()),
        }
    }

    /// The version of the state that the sender used, if it is newer than this node's.
    pub(crate) fn newer(&self, headers: &HeaderMap, uri: &Uri) -> Option<u64> {
        let header = headers.get(&KNOWN_MAP).and_then(|v| v.to_str().ok()?.parse().ok());
        let known = header.or_else(|| {
            let query = uri.query().filter(|q| q.contains(REDIRECT_VERSION))?;
            Query::parse(Some(query)).get(REDIRECT_VERSION).and_then(|v| v.parse().ok())
        });
        known.filter(|version| *version > self.maps.version())
    }
}

//! The node's snapshot of the cluster's state: a request reads it once and acts by that version.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use forebay_core::NodeId;
use forebay_core::state::ClusterState;
use tokio::sync::watch;

/// Shared snapshot; cheap to clone and to read.
#[derive(Clone, Debug)]
pub struct Maps(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: ArcSwap<ClusterState>,
    primary: ArcSwapOption<NodeId>,
    version: watch::Sender<u64>,
}

impl Default for Maps {
    fn default() -> Self {
        Self(Arc::new(Inner {
            state: ArcSwap::default(),
            primary: ArcSwapOption::empty(),
            version: watch::channel(0).0,
        }))
    }
}

impl Maps {
    pub fn load(&self) -> Arc<ClusterState> {
        self.0.state.load_full()
    }

    /// Version of the snapshot; 0 before the first one came.
    pub fn version(&self) -> u64 {
        *self.0.version.borrow()
    }

    /// Takes a state if it is newer than the one here; whether it was.
    pub fn offer(&self, state: ClusterState) -> bool {
        let version = state.version;
        let mut state = Some(Arc::new(state));
        // The watch's lock orders writers; readers never wait for it.
        self.0.version.send_if_modified(|current| {
            let newer = version > *current;
            if newer && let Some(state) = state.take() {
                self.0.state.store(state);
                *current = version;
            }
            newer
        })
    }

    /// Sees every change of version.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// The gateway that leads, or the last one that was heard to.
    pub fn primary(&self) -> Option<NodeId> {
        self.0.primary.load().as_deref().cloned()
    }

    pub fn set_primary(&self, id: NodeId) {
        self.0.primary.store(Some(Arc::new(id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_state_never_replaces_a_newer_one() {
        let maps = Maps::default();
        let state = |version| {
            let mut state = ClusterState::default();
            state.version = version;
            state
        };
        assert!(maps.offer(state(5)));
        assert!(!maps.offer(state(4)));
        assert!(!maps.offer(state(5)));
        assert_eq!((maps.load().version, maps.version()), (5, 5));
    }
}

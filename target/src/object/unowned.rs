//! Copies of backends' objects that another target owns now. Nothing reads them, so this target drops them
//! some time after ownership moved; then the warmth of a bucket counts each object once.

use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::intra::ListRequest;
use forebay_core::list_page::Detail;
use forebay_core::state::ClusterState;
use forebay_core::{NodeId, Result, placement};
use tokio::time::Instant;

use super::ObjectService;

/// Names taken from a listing at once.
const PAGE: usize = 1000;
/// Time between two looks at the owners.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The targets that own backends' objects: each with its weight and the version since which it is alive,
/// which shows that a target was away even if it is back before the next look.
fn owners(state: &ClusterState) -> Vec<(NodeId, u32, u64)> {
    let owning = state.owning_targets().filter(|node| node.alive);
    owning.map(|node| (node.id.clone(), node.weight, node.alive_since)).collect()
}

impl ObjectService {
    /// Drops copies that this target does not own, each time when the owners are the same for `after`.
    /// Ends with the target.
    pub(crate) async fn watch_unowned(self, after: Duration) {
        let token = self.local().lifecycle.token();
        // Ownership that moved and moved back between two looks changes `owners_left` or `alive_since`.
        let ownership = || (owners(&self.state()), self.local().maps.owners_left());
        let mut known = ownership();
        // The owners may have changed while this target was down.
        let mut due = Some(Instant::now() + after);
        let mut ticks = tokio::time::interval(LOOK_INTERVAL.min(after));
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = token.cancelled() => return,
            }
            let current = ownership();
            if current != known {
                (known, due) = (current, Some(Instant::now() + after));
            }
            if due.is_none_or(|due| Instant::now() < due) {
                continue;
            }
            due = match self.drop_unowned().await {
                Ok((0, _)) => None,
                Ok((objects, bytes)) => {
                    tracing::info!(objects, bytes, "dropped copies of objects of other targets");
                    None
                }
                Err(e) => {
                    tracing::warn!(error = %e, "cannot drop copies of objects of other targets yet");
                    Some(Instant::now() + after)
                }
            };
        }
    }

    /// Drops the copies once; returns their number and bytes.
    async fn drop_unowned(&self) -> Result<(u64, u64)> {
        let (mut objects, mut bytes) = (0, 0);
        let state = self.state();
        for info in state.buckets.values().filter(|info| info.has_backend()) {
            let mut request = ListRequest {
                bucket_id: info.id,
                limit: PAGE,
                detail: Detail::Size,
                ..ListRequest::default()
            };
            loop {
                let page = self.listing().page_of_copies(&request).await?;
                let Some(last) = page.entries.last() else { break };
                request.after.clone_from(&last.name);
                for entry in &page.entries {
                    if let Some(dropped) = self.drop_if_unowned(info, &entry.name).await? {
                        (objects, bytes) = (objects + 1, bytes + dropped);
                    }
                }
                if !page.more {
                    break;
                }
            }
        }
        Ok((objects, bytes))
    }

    async fn drop_if_unowned(&self, info: &BucketInfo, name: &str) -> Result<Option<u64>> {
        let state = self.state();
        let is_of_other =
            placement::owner(&state, info, name).is_ok_and(|node| node.id != *self.me());
        if !is_of_other {
            return Ok(None);
        }
        // The backend does not have a copy that is still to be written back.
        if self.store().find(info.id, name)?.is_some_and(|record| !record.evictable()) {
            return Ok(None);
        }
        self.cold_cache().drop_copy(info, name, "unowned").await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::state::{Command, Role};

    use super::*;

    #[test]
    fn a_target_that_was_away_between_two_looks_changes_the_owners() {
        let mut state = ClusterState::default();
        let id = NodeId::new("target01").unwrap();
        let join = Command::Join {
            id: id.clone(),
            role: Role::Target,
            url: String::new(),
            weight: 1,
            zone: String::new(),
            instance: 0,
            https: String::new(),
            external: String::new(),
        };
        state.apply(1, join).unwrap();
        let before = owners(&state);
        for (index, alive) in [(2, false), (3, true)] {
            let command = Command::SetAlive { id: id.clone(), alive, yields: false };
            state.apply(index, command).unwrap();
        }
        assert_eq!(before.len(), 1);
        assert_ne!(owners(&state), before);
    }
}

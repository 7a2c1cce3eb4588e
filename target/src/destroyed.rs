//! Destroyed buckets: removes their data as soon as this target gets a state without the bucket,
//! also if it was down when the bucket was destroyed.

use std::path::{Path, PathBuf};

use forebay_core::history;
use forebay_core::state::ClusterState;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;

use crate::object::ObjectService;

/// File in the node's folder that names the cluster whose data the disks hold.
const CLUSTER_FILE: &str = "cluster_id";

/// Watches the cluster's state until the node stops.
pub(crate) async fn watch(
    objects: ObjectService,
    maps: Maps,
    node_dir: PathBuf,
    lifecycle: Lifecycle,
) {
    let mut versions = maps.subscribe();
    let stop = lifecycle.token();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = versions.wait_for(|v| *v > 0) => if changed.is_err() { return },
        }
        drop_unknown(&objects, &maps, &node_dir).await;
        tokio::select! {
            () = stop.cancelled() => return,
            changed = versions.changed() => if changed.is_err() { return },
        }
    }
}

/// The cluster that a target recorded in its folder; empty if there is no record.
pub(crate) async fn noted_cluster(node_dir: &Path) -> String {
    let noted = tokio::fs::read_to_string(node_dir.join(CLUSTER_FILE)).await;
    noted.map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// A gateway that lost its metadata knows no bucket: its state must not make a target drop data.
async fn is_our_cluster(node_dir: &Path, state: &ClusterState) -> bool {
    let file = node_dir.join(CLUSTER_FILE);
    match tokio::fs::read_to_string(&file).await {
        Ok(id) if id.trim() == state.cluster_id => true,
        Ok(id) => {
            tracing::error!(
                ours = id.trim(),
                theirs = state.cluster_id,
                "the disks hold data of another cluster; nothing of it is dropped"
            );
            false
        }
        Err(_) => match tokio::fs::write(&file, &state.cluster_id).await {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!(file = %file.display(), error = %e, "cannot note the cluster's id");
                false
            }
        },
    }
}

async fn drop_unknown(objects: &ObjectService, maps: &Maps, node_dir: &Path) {
    let held = match objects.bucket_ids().await {
        Ok(held) => held,
        Err(e) => {
            tracing::warn!(error = %e, "cannot look for data of destroyed buckets");
            return;
        }
    };
    // Only now: an older state would not contain a bucket that was created and written to while
    // this target listed. Ids of buckets are not used again, so a later state does no harm.
    let state = maps.load();
    if !is_our_cluster(node_dir, &state).await {
        return;
    }
    if let Err(e) = objects.note_cluster(&state.cluster_id).await {
        tracing::warn!(error = %e, "cannot note the cluster's id on the disks");
    }
    for id in held.into_iter().filter(|id| state.is_destroyed(history::bucket_id(*id))) {
        if let Err(e) = objects.drop_bucket(id).await {
            tracing::warn!(bucket_id = id, error = %e, "cannot drop a destroyed bucket yet");
        }
    }
}

//! Creates a gateway's file from a backup, as if the group had taken a snapshot of that state.
//!
//! Every gateway of the group gets the same file, so it does not matter which one leads first.
//! Their log begins after the state's version, so versions keep growing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use forebay_core::state::ClusterState;
use forebay_core::{Error, ErrorCode, Result};
use openraft::{BasicNode, CommittedLeaderId, StoredMembership};

use super::file::MetaFile;
use super::member::{group_of, members};
use super::{LogId, SnapshotMeta, SnapshotRecord, Vote};

/// Term of the snapshot; the first election has a later one.
const TERM: u64 = 1;

/// Writes `state` into the file at `path`, which must be empty or missing, for a group of
/// `gateways` (none: of this one alone). Blocks on the disk.
pub(crate) fn restore(
    path: &Path,
    my_url: &str,
    gateways: &[String],
    state: ClusterState,
) -> Result<()> {
    let urls = members(&group_of(gateways, my_url)?);
    let first = urls.keys().next().copied();
    let first = first.ok_or_else(|| Error::internal("a group without a gateway"))?;
    let file = MetaFile::open(path)?;
    if !file.is_blank()? {
        let what = format!("{} holds the metadata of a cluster", path.display());
        return Err(Error::new(ErrorCode::Conflict, what)
            .hint("if it is the one to be replaced, move the file away and restore again"));
    }
    let last = LogId::new(CommittedLeaderId::new(TERM, first), state.version);
    let nodes: BTreeMap<_, _> = urls.iter().map(|(id, url)| (*id, BasicNode::new(url))).collect();
    let voters: BTreeSet<u64> = urls.keys().copied().collect();
    let membership = openraft::Membership::new(vec![voters], nodes);
    let meta = SnapshotMeta {
        last_log_id: Some(last),
        last_membership: StoredMembership::new(Some(last), membership),
        snapshot_id: last.to_string(),
    };
    // Last, so that an incomplete restore is not a usable cluster.
    file.purge(last)?;
    file.set_vote(&Vote::new(TERM, first))?;
    file.set_snapshot(&SnapshotRecord { meta, state })
}

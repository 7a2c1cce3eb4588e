//! A copy of the cluster's state outside of the cluster, and the state that begins from it.
//!
//! The file is one line of JSON that says what it is, then the state as JSON:
//!
//! ```text
//! {"forebay_backup":1,"cluster_id":"…","version":12,"taken_ns":…,"bytes":2048,"crc32c":"1f2e3d4c"}
//! {"cluster_id":"…","version":12,…}
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ClusterState, Role, STATE_FORMAT};
use crate::checksum::crc32c;
use crate::error::{Error, ErrorCode, Result};

/// Layout of the file. A backup with users has the second one, so that a program that would drop them
/// refuses it.
const FORMAT: u32 = 1;
const FORMAT_WITH_USERS: u32 = 2;
/// The format of a state with a bucket that names an account or has a minimum share.
const FORMAT_WITH_ACCOUNTS: u32 = 3;
/// Versions and bucket ids that the lost cluster may have used since the backup. The restored
/// cluster begins after them, so that a node with a later state of the lost cluster treats the
/// restored state as newer.
const VERSION_GAP: u64 = 1_000_000;

/// A backup of a cluster's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Unix nanoseconds at which it was taken.
    pub taken_ns: u64,
    pub state: ClusterState,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    forebay_backup: u32,
    cluster_id: String,
    version: u64,
    taken_ns: u64,
    /// Length of the state's JSON, without the line end.
    bytes: usize,
    crc32c: String,
}

impl Backup {
    /// The bytes of the file.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let failed = |e| Error::internal(format!("the state does not serialize: {e}"));
        // The nodes that start from the backup record their keys again.
        let kept = ClusterState { node_keys: Arc::default(), ..self.state.clone() };
        let state = serde_json::to_vec(&kept).map_err(failed)?;
        let header = Header {
            forebay_backup: match kept.format() {
                0 => FORMAT,
                STATE_FORMAT => FORMAT_WITH_ACCOUNTS,
                _ => FORMAT_WITH_USERS,
            },
            cluster_id: self.state.cluster_id.clone(),
            version: self.state.version,
            taken_ns: self.taken_ns,
            bytes: state.len(),
            crc32c: format!("{:08x}", crc32c(&state)),
        };
        let mut file = serde_json::to_vec(&header).map_err(failed)?;
        file.push(b'\n');
        file.extend_from_slice(&state);
        file.push(b'\n');
        Ok(file)
    }

    /// Decodes the output of [`Self::encode`]. `InvalidArgument`: it is not a backup;
    /// `Unsupported`: a newer version; `Corrupt`: truncated or modified.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let none = || Error::invalid("this is no backup of a cluster");
        let end = file.iter().position(|byte| *byte == b'\n').ok_or_else(none)?;
        let (header, rest) = (&file[..end], &file[end + 1..]);
        let header: serde_json::Value = serde_json::from_slice(header).map_err(|_| none())?;
        let format = header["forebay_backup"].as_u64().ok_or_else(none)?;
        if !(u64::from(FORMAT)..=u64::from(FORMAT_WITH_ACCOUNTS)).contains(&format) {
            let what = format!(
                "the backup has format {format}, this version reads {FORMAT} to {FORMAT_WITH_ACCOUNTS}"
            );
            return Err(Error::new(ErrorCode::Unsupported, what)
                .hint("restore it with the version of forebay that made it"));
        }
        let header: Header = serde_json::from_value(header).map_err(|_| none())?;
        let damaged = |why: &str| {
            Error::new(ErrorCode::Corrupt, format!("the backup is damaged: {why}"))
                .hint("take another one")
        };
        let state = rest.get(..header.bytes).ok_or_else(|| damaged("it is cut short"))?;
        if format!("{:08x}", crc32c(state)) != header.crc32c {
            return Err(damaged("its checksum is another one"));
        }
        let state = serde_json::from_slice(state).map_err(|e| damaged(&e.to_string()))?;
        Ok(Self { taken_ns: header.taken_ns, state })
    }

    /// The state of a cluster that starts from this backup. Targets keep their placement and return
    /// by themselves; gateways join again. The placement of all native objects is checked again.
    pub fn restored(self) -> ClusterState {
        let mut state = self.state;
        state.version += VERSION_GAP;
        let next = state.next_bucket_id + VERSION_GAP;
        state.unlisted_ids.push(state.next_bucket_id..next);
        state.next_bucket_id = next;
        state.nodes.retain(|_, node| node.role == Role::Target);
        let lagging = state.has_copies();
        for node in state.nodes.values_mut() {
            (node.alive, node.lagging) = (false, lagging);
        }
        for info in state.buckets.values_mut() {
            Arc::make_mut(info).created_version = 0;
        }
        let version = state.version;
        state.places_changed(version);
        state
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::{create, join};
    use super::super::{Command, NodeId};
    use super::*;
    use crate::name::{Bucket, Provider};

    fn id_of(state: &ClusterState, name: &str) -> u64 {
        state.bucket(&Bucket::new(Provider::Ais, name).unwrap()).unwrap().id
    }

    fn backup() -> Backup {
        let mut state = ClusterState::default();
        state.apply(1, Command::Init { cluster_id: "c1".into(), now_ns: 1 }).unwrap();
        state.apply(2, join("target-01")).unwrap();
        state.apply(3, create("b")).unwrap();
        let (id, url) = (NodeId::new("gateway1").unwrap(), "http://127.0.0.1:2".into());
        let (role, zone) = (Role::Gateway, String::new());
        state
            .apply(
                4,
                Command::Join {
                    id,
                    role,
                    url,
                    weight: 1,
                    zone,
                    instance: 0,
                    https: String::new(),
                    external: String::new(),
                },
            )
            .unwrap();
        Backup { taken_ns: 5, state }
    }

    #[test]
    fn a_backup_is_read_as_it_was_taken_and_any_changed_byte_of_its_state_is_noticed() {
        let (taken, file) = (backup(), backup().encode().unwrap());
        assert_eq!(Backup::decode(&file).unwrap(), taken);
        let state = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for at in state..file.len() - 1 {
            let mut bad = file.clone();
            bad[at] ^= 1;
            assert_eq!(Backup::decode(&bad).unwrap_err().code, ErrorCode::Corrupt, "byte {at}");
        }
        assert_eq!(Backup::decode(&file[..file.len() - 2]).unwrap_err().code, ErrorCode::Corrupt);
        for other in [&b""[..], b"{}", b"{}\n{}", b"forebay\n"] {
            assert_eq!(Backup::decode(other).unwrap_err().code, ErrorCode::InvalidArgument);
        }
        let newer = String::from_utf8(file).unwrap().replacen("backup\":1", "backup\":4", 1);
        assert_eq!(Backup::decode(newer.as_bytes()).unwrap_err().code, ErrorCode::Unsupported);
    }

    #[test]
    fn a_restored_state_is_newer_than_the_lost_one_and_looks_for_every_object_again() {
        let (lost, state) = (backup().state, backup().restored());
        assert_eq!(state.cluster_id, lost.cluster_id);
        assert!(state.version >= lost.version + VERSION_GAP);
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let info = state.bucket(&bucket).unwrap();
        assert_eq!(info.id, id_of(&lost, "b"));
        assert!(!state.is_rebalance_complete() && !state.is_in_place(info));
        let nodes: Vec<_> = state.nodes.values().map(|n| (n.id.as_str(), n.alive)).collect();
        assert_eq!(nodes, [("target-01", false)], "gateways join anew");
    }

    #[test]
    fn buckets_that_no_backup_tells_of_keep_their_data_and_their_ids() {
        let lost = backup().state;
        let mut state = backup().restored();
        let lost_id = lost.next_bucket_id;
        assert!(lost.is_destroyed(lost_id) && !state.is_destroyed(lost_id));
        assert!(!state.is_destroyed(id_of(&state, "b")));
        let version = state.version + 1;
        state.apply(version, create("new")).unwrap();
        assert_eq!(id_of(&state, "new"), lost_id + VERSION_GAP);
        assert!(state.is_destroyed(lost_id + VERSION_GAP + 1));
    }
}

//! The state that results from the log, in memory; stored as a snapshot at intervals.
//!
//! The version of the state is the index of the last command applied to it. Entries without a
//! command (the first of each leader, and membership changes) do not change it, so versions may
//! skip numbers.

use std::io::Cursor;

use forebay_core::Error;
use forebay_core::state::{ClusterState, STATE_FORMAT};
use forebay_node::maps::Maps;
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, BasicNode, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageError,
    StorageIOError, StoredMembership,
};
use serde::Deserialize;

use super::file::MetaFile;
use super::log_store::on_disk;
use super::record::{damaged, decode, encode};
use super::{Entry, LogId, SnapshotMeta, SnapshotRecord, StorageResult, Types, Verdict};

type Membership = StoredMembership<u64, BasicNode>;

/// The state machine of one gateway. Every applied change is visible in `maps` at once.
pub(crate) struct StateMachine {
    file: MetaFile,
    maps: Maps,
    state: ClusterState,
    applied: Option<LogId>,
    membership: Membership,
}

impl StateMachine {
    /// Starts from the file's snapshot, if it has one. Blocks on the disk.
    pub(crate) fn open(file: MetaFile, maps: Maps) -> forebay_core::Result<Self> {
        let mut machine = Self {
            state: ClusterState::default(),
            applied: None,
            membership: Membership::default(),
            maps,
            file,
        };
        if let Some(snapshot) = machine.file.snapshot()? {
            machine.become_snapshot(snapshot);
        }
        Ok(machine)
    }

    fn become_snapshot(&mut self, snapshot: SnapshotRecord) {
        self.state = snapshot.state;
        self.applied = snapshot.meta.last_log_id;
        self.membership = snapshot.meta.last_membership;
        self.maps.offer(self.state.clone());
    }
}

/// A snapshot as gateways exchange it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Packed {
    /// With users. A gateway that would drop them cannot read this form.
    Formatted {
        format: u32,
        state: Box<ClusterState>,
    },
    Plain(Box<ClusterState>),
}

/// Encodes the snapshot for another gateway.
fn packed(state: &ClusterState) -> forebay_core::Result<Box<Cursor<Vec<u8>>>> {
    let bytes = match state.format() {
        0 => encode(state)?,
        format => encode(&serde_json::json!({"format": format, "state": state}))?,
    };
    Ok(Box::new(Cursor::new(bytes)))
}

/// Decodes the output of [`packed`].
pub(crate) fn unpacked(bytes: &[u8]) -> forebay_core::Result<ClusterState> {
    let what = "the snapshot of another gateway";
    match decode(bytes, what)? {
        Packed::Formatted { format, state } if format <= STATE_FORMAT => Ok(*state),
        Packed::Formatted { format, .. } => Err(damaged(format!("{what} has format {format}"))),
        Packed::Plain(state) => Ok(*state),
    }
}

fn reading(e: Error) -> StorageError<u64> {
    StorageIOError::read_snapshot(None, AnyError::new(&e)).into()
}

fn writing(e: Error) -> StorageError<u64> {
    StorageIOError::write_snapshot(None, AnyError::new(&e)).into()
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> StorageResult<(Option<LogId>, Membership)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> StorageResult<Vec<Verdict>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut verdicts = Vec::new();
        for entry in entries {
            self.applied = Some(entry.log_id);
            verdicts.push(Verdict(match entry.payload {
                EntryPayload::Blank => Ok(()),
                EntryPayload::Membership(members) => {
                    self.membership = Membership::new(Some(entry.log_id), members);
                    Ok(())
                }
                EntryPayload::Normal(command) => self.state.apply(entry.log_id.index, command),
            }));
        }
        // Before the proposers are notified, so that they see their own change.
        if self.state.version > self.maps.version() {
            self.maps.offer(self.state.clone());
        }
        Ok(verdicts)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let id = self.applied.map_or_else(String::new, |id| id.to_string());
        let meta = SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
            snapshot_id: id,
        };
        let record = SnapshotRecord { meta, state: self.state.clone() };
        Builder { file: self.file.clone(), record }
    }

    async fn begin_receiving_snapshot(&mut self) -> StorageResult<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> StorageResult<()> {
        let state = unpacked(snapshot.get_ref()).map_err(reading)?;
        let record = SnapshotRecord { meta: meta.clone(), state };
        let kept = record.clone();
        on_disk(self.file.clone(), move |file| file.set_snapshot(&kept)).await.map_err(writing)?;
        self.become_snapshot(record);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> StorageResult<Option<Snapshot<Types>>> {
        let Some(record) = self.file.snapshot().map_err(reading)? else { return Ok(None) };
        let snapshot = packed(&record.state).map_err(reading)?;
        Ok(Some(Snapshot { meta: record.meta, snapshot }))
    }
}

/// Stores one view of the state as the snapshot.
pub(crate) struct Builder {
    file: MetaFile,
    record: SnapshotRecord,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> StorageResult<Snapshot<Types>> {
        let record = self.record.clone();
        on_disk(self.file.clone(), move |file| file.set_snapshot(&record))
            .await
            .map_err(writing)?;
        let snapshot = packed(&self.record.state).map_err(writing)?;
        Ok(Snapshot { meta: self.record.meta.clone(), snapshot })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

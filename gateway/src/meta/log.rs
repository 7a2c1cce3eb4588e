//! The log of one gateway: commands in a redb file, the state they make in memory.
//!
//! A command is first tried on a copy of the state. One that the state refuses goes back to the
//! proposer and is never logged, so replay cannot fail; one that is accepted is synced to disk
//! before anybody sees the state it makes. A crash between the two loses nothing: the command is
//! replayed. Every so many entries the state is written as a snapshot and the entries it holds go.
//!
//! One thread owns the file. It takes all commands that wait and syncs them together.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use forebay_node::clock::unix_ns;
use forebay_node::maps::Maps;
use redb::{Database, Durability, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use super::MetaLog;
use super::record::{FORMAT, damaged, decode, encode};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const SNAPSHOT: TableDefinition<&str, &[u8]> = TableDefinition::new("snapshot");
const ABOUT: TableDefinition<&str, u64> = TableDefinition::new("about");
/// Entries between two snapshots.
const SNAPSHOT_EVERY: u64 = 1_000;
/// Most commands synced together.
const MAX_GROUP: usize = 128;

struct Proposal {
    command: Command,
    answer: oneshot::Sender<Result<u64>>,
}

/// The log and the state it makes. Dropping it waits for the write in progress.
pub(crate) struct RedbMeta {
    maps: Maps,
    /// `None` only while being dropped.
    proposals: Option<mpsc::Sender<Proposal>>,
    writer: Option<JoinHandle<()>>,
}

impl RedbMeta {
    /// Opens or makes the log and offers its state to `maps`. Blocks on the disk.
    pub(crate) fn open(path: &Path, maps: Maps) -> Result<Self> {
        Self::open_with(path, maps, SNAPSHOT_EVERY)
    }

    fn open_with(path: &Path, maps: Maps, snapshot_every: u64) -> Result<Self> {
        let cannot = |e: redb::DatabaseError| {
            Error::internal(format!("cannot open the metadata log {}: {e}", path.display()))
                .hint("only one gateway may use the folder; check its disk and permissions")
        };
        let db = Database::create(path).map_err(cannot)?;
        let (state, snapshot_at) = load(&db)?;
        let mut writer = Writer { db, state, snapshot_at, snapshot_every, broken: None };
        if writer.state.cluster_id.is_empty() {
            let cluster_id = crate::ids::mint("");
            writer.commit(vec![Command::Init { cluster_id, now_ns: unix_ns() }])?;
        }
        maps.offer(writer.state.clone());
        let (proposals, inbox) = mpsc::channel();
        let published = maps.clone();
        let writer = std::thread::Builder::new()
            .name("meta-log".into())
            .spawn(move || writer.run(&inbox, &published))?;
        Ok(Self { maps, proposals: Some(proposals), writer: Some(writer) })
    }
}

#[async_trait]
impl MetaLog for RedbMeta {
    async fn propose(&self, command: Command) -> Result<u64> {
        let gone = || Error::internal("the metadata log's writer has stopped");
        let (answer, decided) = oneshot::channel();
        let proposals = self.proposals.as_ref().ok_or_else(gone)?;
        proposals.send(Proposal { command, answer }).map_err(|_| gone())?;
        decided.await.map_err(|_| gone())?
    }

    fn state(&self) -> Arc<ClusterState> {
        self.maps.load()
    }
}

impl Drop for RedbMeta {
    fn drop(&mut self) {
        self.proposals = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the metadata log's writer panicked");
        }
    }
}

/// State of the file: the snapshot, then every entry behind it. Returns the snapshot's version too.
fn load(db: &Database) -> Result<(ClusterState, u64)> {
    let mut tx = db.begin_write().map_err(broken)?;
    tx.set_durability(Durability::Immediate).map_err(broken)?;
    let (state, snapshot_at) = {
        let mut about = tx.open_table(ABOUT).map_err(broken)?;
        let format = about.get("format").map_err(broken)?.map(|f| f.value());
        match format {
            None => {
                about.insert("format", FORMAT).map_err(broken)?;
            }
            Some(FORMAT) => {}
            Some(other) => {
                return Err(Error::invalid(format!(
                    "the metadata log has format {other}, this version of forebay reads {FORMAT}"
                ))
                .hint("start the version of forebay that wrote it"));
            }
        }
        let snapshots = tx.open_table(SNAPSHOT).map_err(broken)?;
        let mut state: ClusterState = match snapshots.get("state").map_err(broken)? {
            Some(record) => decode(record.value(), "the snapshot")?,
            None => ClusterState::default(),
        };
        let snapshot_at = state.version;
        let log = tx.open_table(LOG).map_err(broken)?;
        for entry in log.range(snapshot_at + 1..).map_err(broken)? {
            let (index, record) = entry.map_err(broken)?;
            let index = index.value();
            if index != state.version + 1 {
                return Err(damaged(format!("entry {} is missing", state.version + 1)));
            }
            let command: Command = decode(record.value(), &format!("entry {index}"))?;
            state
                .apply(index, command)
                .map_err(|e| damaged(format!("entry {index} does not apply: {e}")))?;
        }
        (state, snapshot_at)
    };
    tx.commit().map_err(broken)?;
    Ok((state, snapshot_at))
}

fn broken(e: impl Into<redb::Error>) -> Error {
    Error::internal(format!("metadata log: {}", e.into()))
}

struct Writer {
    db: Database,
    /// What the log says; never ahead of the disk.
    state: ClusterState,
    snapshot_at: u64,
    snapshot_every: u64,
    /// Set by the first failed write: what the file holds is then uncertain until it is opened
    /// again.
    broken: Option<Error>,
}

impl Writer {
    fn run(mut self, inbox: &mpsc::Receiver<Proposal>, maps: &Maps) {
        while let Ok(first) = inbox.recv() {
            let mut group = vec![first];
            group.extend(inbox.try_iter().take(MAX_GROUP - 1));
            let (commands, answers): (Vec<_>, Vec<_>) =
                group.into_iter().map(|p| (p.command, p.answer)).unzip();
            let results = self.commit(commands);
            maps.offer(self.state.clone());
            match results {
                Ok(results) => {
                    for (answer, result) in answers.into_iter().zip(results) {
                        // A proposer that went away does not need to know.
                        let _ = answer.send(result);
                    }
                }
                Err(e) => {
                    tracing::error!(error = %e, "metadata log failed; it accepts no more changes");
                    for answer in answers {
                        let _ = answer.send(Err(e.clone()));
                    }
                    self.broken = Some(e);
                }
            }
        }
    }

    /// Applies and logs what the state accepts. The outer error is the log's own.
    fn commit(&mut self, commands: Vec<Command>) -> Result<Vec<Result<u64>>> {
        if let Some(e) = &self.broken {
            return Err(e.clone());
        }
        let mut state = self.state.clone();
        let mut records = Vec::new();
        let mut results = Vec::new();
        for command in commands {
            let index = state.version + 1;
            let mut next = state.clone();
            let record = encode(&command)?;
            results.push(next.apply(index, command).map(|()| {
                state = next;
                records.push((index, record));
                index
            }));
        }
        if !records.is_empty() {
            self.append(&records, &state)?;
            self.state = state;
        }
        Ok(results)
    }

    fn append(&mut self, records: &[(u64, Vec<u8>)], state: &ClusterState) -> Result<()> {
        let snapshot = state.version - self.snapshot_at >= self.snapshot_every;
        let mut tx = self.db.begin_write().map_err(broken)?;
        tx.set_durability(Durability::Immediate).map_err(broken)?;
        {
            let mut log = tx.open_table(LOG).map_err(broken)?;
            if snapshot {
                let mut snapshots = tx.open_table(SNAPSHOT).map_err(broken)?;
                snapshots.insert("state", encode(state)?.as_slice()).map_err(broken)?;
                log.retain(|_, _| false).map_err(broken)?;
            } else {
                for (index, record) in records {
                    log.insert(index, record.as_slice()).map_err(broken)?;
                }
            }
        }
        tx.commit().map_err(broken)?;
        if snapshot {
            self.snapshot_at = state.version;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

//! `meta.redb`: the one file of a gateway. It contains the Raft log, the vote, the committed and
//! purged positions, and the newest snapshot, each with a checksum.
//!
//! Every write is one transaction that is on disk when the call returns. All calls block.

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Error, ErrorCode, Result};
use openraft::entry::RaftPayload;
use openraft::{BasicNode, EntryPayload};
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::record::{FORMAT, FORMAT_WITH_USERS, damaged, decode, encode};
use super::{Entry, LogId, SnapshotRecord, Vote};

type Membership = openraft::Membership<u64, BasicNode>;

/// Entries by index.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("raft_log");
/// Single values by name.
const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");
/// The same in every format so far; read first.
const ABOUT: TableDefinition<&str, u64> = TableDefinition::new("about");

const MEMBER: &str = "member";
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";
const SNAPSHOT: &str = "snapshot";

/// The file is small, and its hot part is smaller.
const CACHE_BYTES: usize = 16 << 20;

/// The open file; cheap to clone. It is closed when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct MetaFile(Arc<Open>);

struct Open {
    db: Database,
    /// Dropped after the database, which is closed by then.
    closed: watch::Sender<()>,
}

impl MetaFile {
    /// Opens or creates the file and reads all of it once, so that damage is found at the start.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let db = Builder::new().set_cache_size(CACHE_BYTES).create(path).map_err(|e| {
            Error::internal(format!("cannot open the metadata log {}: {e}", path.display()))
                .hint("only one gateway may use the folder; check its disk and permissions")
        })?;
        let file = Self(Arc::new(Open { db, closed: watch::Sender::new(()) }));
        file.check_format(path)?;
        file.check_contents()?;
        Ok(file)
    }

    fn check_format(&self, path: &Path) -> Result<()> {
        self.write(|tx| {
            let mut about = tx.open_table(ABOUT)?;
            let format = about.get("format")?.map(|f| f.value());
            match format {
                Some(FORMAT | FORMAT_WITH_USERS) => {}
                None => {
                    about.insert("format", FORMAT)?;
                    tx.open_table(LOG)?;
                    tx.open_table(RECORDS)?;
                }
                Some(other) => {
                    let message = format!(
                        "the metadata log {} has format {other}, this version of forebay reads \
                         {FORMAT} and {FORMAT_WITH_USERS}",
                        path.display()
                    );
                    let hint = "start the version of forebay that wrote it, or move the file away \
                                to start a new, empty cluster";
                    return Err(Error::new(ErrorCode::Unsupported, message).hint(hint).into());
                }
            }
            Ok(())
        })
    }

    fn check_contents(&self) -> Result<()> {
        self.vote()?;
        self.committed()?;
        self.snapshot()?;
        let mut next = self.purged()?.map(|id| id.index + 1);
        for entry in self.entries(..)? {
            let index = entry.log_id.index;
            let expected = next.unwrap_or(0);
            if index != expected {
                return Err(damaged(format!("entry {expected} is missing")));
            }
            next = Some(index + 1);
        }
        Ok(())
    }

    /// The gateway's identity in its group, as first recorded.
    pub(crate) fn member<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.read(MEMBER)
    }

    pub(crate) fn set_member(&self, member: &impl Serialize) -> Result<()> {
        self.put(MEMBER, member)
    }

    pub(crate) fn vote(&self) -> Result<Option<Vote>> {
        self.read(VOTE)
    }

    pub(crate) fn set_vote(&self, vote: &Vote) -> Result<()> {
        self.put(VOTE, vote)
    }

    pub(crate) fn committed(&self) -> Result<Option<LogId>> {
        Ok(self.read::<Option<LogId>>(COMMITTED)?.flatten())
    }

    pub(crate) fn set_committed(&self, committed: Option<LogId>) -> Result<()> {
        self.put(COMMITTED, &committed)
    }

    /// The last entry that was purged because a snapshot contains it.
    pub(crate) fn purged(&self) -> Result<Option<LogId>> {
        self.read(PURGED)
    }

    /// The existing entries of `range`, in order.
    pub(crate) fn entries(&self, range: impl RangeBounds<u64>) -> Result<Vec<Entry>> {
        let read = || -> Result<Vec<Entry>, Failure> {
            let log = self.0.db.begin_read()?.open_table(LOG)?;
            let mut entries = Vec::new();
            for row in log.range(range)? {
                let (index, record) = row?;
                entries.push(read_entry(index.value(), record.value())?);
            }
            Ok(entries)
        };
        Ok(read()?)
    }

    /// Id of the last entry, if there is any.
    pub(crate) fn last(&self) -> Result<Option<LogId>> {
        let read = || -> Result<Option<LogId>, Failure> {
            let log = self.0.db.begin_read()?.open_table(LOG)?;
            let last = log.last()?;
            let entry = last.map(|(index, record)| read_entry(index.value(), record.value()));
            Ok(entry.transpose()?.map(|entry| entry.log_id))
        };
        Ok(read()?)
    }

    /// Whether the gateway has never been part of a group with this file.
    pub(crate) fn is_blank(&self) -> Result<bool> {
        Ok(self.vote()?.is_none() && self.last()?.is_none() && self.snapshot()?.is_none())
    }

    /// The latest membership in the file; none before the group was created.
    pub(crate) fn membership(&self) -> Result<Option<Membership>> {
        let entries = self.entries(..)?;
        let logged = entries.iter().rev().find_map(|entry| entry.get_membership());
        if let Some(members) = logged {
            return Ok(Some(members.clone()));
        }
        let kept = self.snapshot()?.map(|s| s.meta.last_membership.membership().clone());
        Ok(kept.filter(|members| members.voter_ids().next().is_some()))
    }

    pub(crate) fn append(&self, entries: &[Entry]) -> Result<()> {
        self.write(|tx| {
            let has_users = |entry: &Entry| match &entry.payload {
                EntryPayload::Normal(command) => command.format() > 0,
                _ => false,
            };
            if entries.iter().any(has_users) {
                note_users(tx)?;
            }
            let mut log = tx.open_table(LOG)?;
            for entry in entries {
                log.insert(entry.log_id.index, encode(entry)?.as_slice())?;
            }
            Ok(())
        })
    }

    /// Removes the entries from `index` on.
    pub(crate) fn truncate(&self, index: u64) -> Result<()> {
        self.write(|tx| {
            tx.open_table(LOG)?.retain_in(index.., |_, _| false)?;
            Ok(())
        })
    }

    /// Removes the entries up to `upto`, which a snapshot contains.
    pub(crate) fn purge(&self, upto: LogId) -> Result<()> {
        self.write(|tx| {
            tx.open_table(LOG)?.retain_in(..=upto.index, |_, _| false)?;
            tx.open_table(RECORDS)?.insert(PURGED, encode(&upto)?.as_slice())?;
            Ok(())
        })
    }

    pub(crate) fn snapshot(&self) -> Result<Option<SnapshotRecord>> {
        self.read(SNAPSHOT)
    }

    /// Stores `snapshot` unless the file has a newer one.
    pub(crate) fn set_snapshot(&self, snapshot: &SnapshotRecord) -> Result<()> {
        let record = encode(snapshot)?;
        self.write(|tx| {
            let mut records = tx.open_table(RECORDS)?;
            let kept: Option<SnapshotRecord> =
                records.get(SNAPSHOT)?.map(|r| decode(r.value(), SNAPSHOT)).transpose()?;
            if kept.is_none_or(|kept| kept.meta.last_log_id <= snapshot.meta.last_log_id) {
                records.insert(SNAPSHOT, record.as_slice())?;
            }
            if snapshot.state.format() > 0 {
                note_users(tx)?;
            }
            Ok(())
        })
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let read = || -> Result<Option<T>, Failure> {
            let records = self.0.db.begin_read()?.open_table(RECORDS)?;
            let record = records.get(name)?;
            Ok(record.map(|r| decode(r.value(), &format!("the {name}"))).transpose()?)
        };
        Ok(read()?)
    }

    fn put(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let record = encode(value)?;
        self.write(|tx| {
            tx.open_table(RECORDS)?.insert(name, record.as_slice())?;
            Ok(())
        })
    }

    fn write(&self, change: impl FnOnce(&WriteTransaction) -> Result<(), Failure>) -> Result<()> {
        let write = || -> Result<(), Failure> {
            let mut tx = self.0.db.begin_write()?;
            tx.set_durability(Durability::Immediate)?;
            change(&tx)?;
            Ok(tx.commit()?)
        };
        Ok(write()?)
    }

    /// Returns a handle that reports when the file is closed.
    pub(crate) fn closing(&self) -> Closing {
        Closing(self.0.closed.subscribe())
    }
}

/// Waits for the last user of the file.
pub(crate) struct Closing(watch::Receiver<()>);

impl Closing {
    /// Waits until the file is closed, so that it can be opened again; returns whether it is.
    pub(crate) async fn done(mut self, within: Duration) -> bool {
        // Nothing is ever sent: the only change is that the sender is dropped.
        tokio::time::timeout(within, self.0.changed()).await.is_ok()
    }
}

/// Marks the file as one with users.
fn note_users(tx: &WriteTransaction) -> Result<(), Failure> {
    tx.open_table(ABOUT)?.insert("format", FORMAT_WITH_USERS)?;
    Ok(())
}

fn read_entry(index: u64, record: &[u8]) -> Result<Entry> {
    let entry: Entry = decode(record, &format!("entry {index}"))?;
    if entry.log_id.index != index {
        return Err(damaged(format!("entry {index} says that it is {}", entry.log_id.index)));
    }
    Ok(entry)
}

/// Why an access failed: the database's reason, or Forebay's.
enum Failure {
    Ours(Error),
    Database(redb::Error),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self::Ours(e)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Ours(e) => e,
            Failure::Database(e) => Self::internal(format!("metadata log: {e}")),
        }
    }
}

/// `From` for each error type that a step of a transaction has.
macro_rules! database_failures {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(e: $error) -> Self {
                Self::Database(e.into())
            }
        })*
    };
}

database_failures!(
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError,
    redb::SetDurabilityError
);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

//! The Raft log and vote in the form that `openraft` requires, on top of [`MetaFile`].

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::{Error, Result};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogState, OptionalSend, RaftLogReader, StorageError, StorageIOError};

use super::file::MetaFile;
use super::{Entry, LogId, StorageResult, Types, Vote};

/// Cheap to clone; `openraft` makes one call at a time that writes.
#[derive(Clone)]
pub(crate) struct LogStore {
    file: MetaFile,
    /// Whether to record how far the log is committed. A group of one does not need this: its whole
    /// log is committed.
    notes_committed: Arc<AtomicBool>,
}

impl LogStore {
    pub(crate) fn new(file: MetaFile, notes_committed: Arc<AtomicBool>) -> Self {
        Self { file, notes_committed }
    }

    async fn write(
        &self,
        write: impl FnOnce(&MetaFile) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        on_disk(self.file.clone(), move |file| write(&file)).await
    }
}

/// Runs blocking disk work on a thread where it delays nothing else.
pub(crate) async fn on_disk<T: Send + 'static>(
    file: MetaFile,
    work: impl FnOnce(MetaFile) -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(move || work(file))
        .await
        .map_err(|e| Error::internal(format!("metadata log: {e}")))?
}

fn reading(e: Error) -> StorageError<u64> {
    StorageIOError::read_logs(AnyError::new(&e)).into()
}

fn writing(e: Error) -> StorageError<u64> {
    StorageIOError::write_logs(AnyError::new(&e)).into()
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> StorageResult<Vec<Entry>> {
        // Nearly always from the page cache: entries are read shortly after they were written.
        self.file.entries(range).map_err(reading)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> StorageResult<LogState<Types>> {
        let last_purged_log_id = self.file.purged().map_err(reading)?;
        let last = self.file.last().map_err(reading)?;
        Ok(LogState { last_purged_log_id, last_log_id: last.or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> StorageResult<()> {
        let vote = *vote;
        let saved = self.write(move |file| file.set_vote(&vote)).await;
        saved.map_err(|e| StorageIOError::write_vote(AnyError::new(&e)).into())
    }

    async fn read_vote(&mut self) -> StorageResult<Option<Vote>> {
        self.file.vote().map_err(|e| StorageIOError::read_vote(AnyError::new(&e)).into())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> StorageResult<()> {
        if !self.notes_committed.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write(move |file| file.set_committed(committed)).await.map_err(writing)
    }

    async fn read_committed(&mut self) -> StorageResult<Option<LogId>> {
        self.file.committed().map_err(reading)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> StorageResult<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let written = self.write(move |file| file.append(&entries)).await;
        callback.log_io_completed(written.map_err(std::io::Error::other));
        Ok(())
    }

    async fn truncate(&mut self, since: LogId) -> StorageResult<()> {
        self.write(move |file| file.truncate(since.index)).await.map_err(writing)
    }

    async fn purge(&mut self, upto: LogId) -> StorageResult<()> {
        self.write(move |file| file.purge(upto)).await.map_err(writing)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

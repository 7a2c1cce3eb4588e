//! Runs openraft's test suite for stores, and tests reopening the file.

use forebay_node::maps::Maps;
use openraft::storage::RaftLogStorageExt;
use openraft::testing::{StoreBuilder, Suite, blank_ent, log_id};

use super::*;
use crate::meta::state_machine::StateMachine;

struct Builder;

impl StoreBuilder<Types, LogStore, StateMachine, tempfile::TempDir> for Builder {
    async fn build(&self) -> StorageResult<(tempfile::TempDir, LogStore, StateMachine)> {
        let dir = tempfile::tempdir().unwrap();
        let file = MetaFile::open(&dir.path().join("meta.redb")).unwrap();
        let machine = StateMachine::open(file.clone(), Maps::default()).unwrap();
        Ok((dir, LogStore::new(file, Arc::new(true.into())), machine))
    }
}

#[test]
fn the_store_passes_the_suite_of_openraft() {
    Suite::test_all(Builder).unwrap();
}

#[tokio::test]
async fn log_vote_and_marks_survive_a_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let vote = Vote::new_committed(3, 7);
    {
        let mut store = LogStore::new(MetaFile::open(&path).unwrap(), Arc::new(true.into()));
        store.save_vote(&vote).await.unwrap();
        let entries: Vec<Entry> = (0..10).map(|i| blank_ent::<Types>(3, 7, i)).collect();
        store.blocking_append(entries).await.unwrap();
        store.purge(log_id(3, 7, 4)).await.unwrap();
        store.truncate(log_id(3, 7, 8)).await.unwrap();
        store.save_committed(Some(log_id(3, 7, 6))).await.unwrap();
    }
    let mut store = LogStore::new(MetaFile::open(&path).unwrap(), Arc::new(true.into()));
    assert_eq!(store.read_vote().await.unwrap(), Some(vote));
    assert_eq!(store.read_committed().await.unwrap(), Some(log_id(3, 7, 6)));
    let state = store.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id(3, 7, 4)));
    assert_eq!(state.last_log_id, Some(log_id(3, 7, 7)));
    let left = store.try_get_log_entries(..).await.unwrap();
    assert_eq!(left.iter().map(|e| e.log_id.index).collect::<Vec<_>>(), [5, 6, 7]);
}

//! Reads without the index return the same as reads by the index.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use proptest::prelude::*;

use super::tests::{cached, open, owned, payload};
use super::*;
use crate::skip;

/// Skips the test: not every kernel and file system can report what is in memory.
fn not_reported() {
    skip::skipped("this kernel or file system does not report what is cached");
}

/// Reads an object on the fast path: at its cached location, else by the index.
fn read(store: &Store, name: &str) -> Option<(Record, Bytes)> {
    match store.known_now(1, name) {
        Ok(found) => Some(found),
        Err(ticket) => {
            let record = store.find(1, name).unwrap()?;
            let payload = store.read_now(&record, Some(ticket))?;
            Some((record, payload))
        }
    }
}

/// As [`read`], for several objects together.
fn read_together(store: &Store, names: &[&str]) -> Vec<Option<Bytes>> {
    let located: Vec<_> =
        names.iter().map(|name| (store.locate(1, name).unwrap(), *name)).collect();
    let there = located.iter().filter_map(|(one, name)| Some((one.as_ref()?, *name)));
    let mut there: Vec<(&Located, &str)> = there.collect();
    there.sort_by_key(|(one, _)| one.position());
    let taken = store.payloads_now(&there).into_iter().zip(&there);
    let by_name: BTreeMap<&str, Bytes> =
        taken.filter_map(|(taken, (_, name))| Some((*name, taken?.payload))).collect();
    names.iter().map(|name| by_name.get(name).cloned()).collect()
}

fn is_known(store: &Store, name: &str) -> bool {
    store.known_now(1, name).is_ok()
}

#[tokio::test]
async fn an_object_that_was_written_or_read_is_found_without_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let put = store.put(1, "o", payload(1000, 1), owned()).await.unwrap();
    let Ok((record, bytes)) = store.known_now(1, "o") else {
        return not_reported();
    };
    assert_eq!((&record, bytes), (&put, payload(1000, 1)));
    drop(store);
    let store = open(dir.path()).await.unwrap();
    assert!(!is_known(&store, "o"), "nothing is known at first");
    assert_eq!(read(&store, "o").unwrap().0, store.get(1, "o").await.unwrap().unwrap());
    assert!(is_known(&store, "o"));
    drop(store);
    let store = open(dir.path()).await.unwrap();
    store.put(1, "p", payload(1000, 2), owned()).await.unwrap();
    let both = [Some(payload(1000, 1)), Some(payload(1000, 2)), None];
    assert_eq!(read_together(&store, &["o", "p", "q"]), both);
    assert!(is_known(&store, "o"));
    assert_eq!(read_together(&store, &["o", "p", "q"]), both);
}

#[tokio::test]
async fn reads_return_metadata_that_changed_only_in_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let put = store.put(1, "o", payload(10, 1), cached()).await.unwrap();
    store.update(&put, |meta| (meta.epoch, meta.validated_ns) = (9, 7_000_000_000)).await.unwrap();
    for _ in 0..2 {
        let Some((record, _)) = read(&store, "o") else { return not_reported() };
        assert_eq!((record.meta.epoch, record.meta.validated_ns), (9, 7_000_000_000));
        let located = store.locate(1, "o").unwrap().unwrap();
        assert_eq!(located.validated(), (9, 7_000_000_000));
    }
    assert!(is_known(&store, "o"));
    let custom = |meta: &mut RecordMeta| drop(meta.custom.insert("k".into(), "v".into()));
    store.update(&put, custom).await.unwrap();
    for _ in 0..2 {
        assert_eq!(read(&store, "o").unwrap().0.meta.custom["k"], "v");
    }
    assert!(!is_known(&store, "o"), "the log does not have it");
    store.touch(&put, 77);
    assert_eq!(read(&store, "o").unwrap().0.meta.atime_ns, 77);
}

#[tokio::test]
async fn reads_return_flushed_access_times() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let put = store.put(1, "o", payload(10, 1), owned()).await.unwrap();
    store.touch(&put, 55);
    store.flush().await.unwrap();
    for _ in 0..2 {
        let Some((record, _)) = read(&store, "o") else { return not_reported() };
        assert_eq!(record.meta.atime_ns, 55);
    }
    assert!(is_known(&store, "o"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_sees_an_older_commit_than_it_saw_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    store.put(1, "o", payload(500, 0), cached()).await.unwrap();
    let (ended, reader) = (Arc::new(AtomicBool::new(false)), store.clone());
    let reading = {
        let ended = ended.clone();
        tokio::task::spawn_blocking(move || {
            let (mut last, mut reads) = (0, 0u32);
            while !ended.load(Ordering::Relaxed) {
                if let Some((record, bytes)) = read(&reader, "o") {
                    assert!(record.generation >= last, "{} after {last}", record.generation);
                    assert_eq!(bytes, payload(500, record.meta.epoch as u8));
                    last = record.generation;
                }
                if let Some(bytes) = read_together(&reader, &["o"]).remove(0) {
                    assert_eq!(bytes.len(), 500);
                }
                reads += 1;
            }
            reads
        })
    };
    for turn in 1..400u32 {
        let meta = RecordMeta { epoch: u64::from(turn), ..cached() };
        store.put(1, "o", payload(500, turn as u8), meta).await.unwrap();
        let now = read(&store, "o").map(|(record, _)| record.meta.epoch);
        assert!(now.is_none_or(|epoch| epoch == u64::from(turn)), "its own writer reads it");
    }
    ended.store(true, Ordering::Relaxed);
    assert!(reading.await.unwrap() > 0);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize),
    Update(u8, u64),
    Remove(u8),
    Touch(u8),
    Flush,
    Compact,
    Read(u8),
    Together,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0u8..4;
    prop_oneof![
        4 => (name.clone(), 0usize..3000).prop_map(|(n, size)| Step::Put(n, size)),
        2 => (name.clone(), 1u64..100).prop_map(|(n, epoch)| Step::Update(n, epoch)),
        1 => name.clone().prop_map(Step::Remove),
        2 => name.clone().prop_map(Step::Touch),
        1 => Just(Step::Flush),
        1 => Just(Step::Compact),
        4 => name.prop_map(Step::Read),
        2 => Just(Step::Together),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_found_without_the_index_is_what_the_index_has(
        steps in proptest::collection::vec(step(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut store = open(dir.path()).await.unwrap();
            let mut contents: BTreeMap<String, Bytes> = BTreeMap::new();
            let names: Vec<String> = (0..4).map(|n| format!("o{n}")).collect();
            for (turn, step) in steps.into_iter().enumerate() {
                let name = |n: u8| names[usize::from(n)].as_str();
                match step {
                    Step::Put(n, size) => {
                        let bytes = payload(size, turn as u8);
                        let meta = if turn % 2 == 0 { owned() } else { cached() };
                        store.put(1, name(n), bytes.clone(), meta).await.unwrap();
                        contents.insert(name(n).to_owned(), bytes);
                    }
                    Step::Update(n, epoch) => {
                        if let Some(record) = store.get(1, name(n)).await.unwrap() {
                            let change = move |meta: &mut RecordMeta| meta.epoch = epoch;
                            store.update(&record, change).await.unwrap();
                        }
                    }
                    Step::Remove(n) => {
                        store.remove(1, name(n)).await.unwrap();
                        contents.remove(name(n));
                    }
                    Step::Touch(n) => {
                        if let Some(record) = store.get(1, name(n)).await.unwrap() {
                            // Time advances.
                            store.touch(&record, 100 + turn as u64);
                        }
                    }
                    Step::Flush => store.flush().await.unwrap(),
                    Step::Compact => {
                        let volumes = store.volumes();
                        blocking(move || volumes[0].compact_all()).await.unwrap();
                    }
                    Step::Read(n) => drop(read(&store, name(n))),
                    Step::Together => {
                        let all: Vec<&str> = names.iter().map(String::as_str).collect();
                        for (name, bytes) in all.iter().zip(read_together(&store, &all)) {
                            assert!(bytes.is_none() || bytes.as_ref() == contents.get(*name));
                        }
                    }
                    Step::Reopen => {
                        drop(store);
                        store = open(dir.path()).await.unwrap();
                    }
                }
                for name in &names {
                    let Ok((known, bytes)) = store.known_now(1, name) else { continue };
                    let mut record = store.get(1, name).await.unwrap().unwrap();
                    record.meta.validated_ns = known.meta.validated_ns;
                    assert_eq!((&known, Some(&bytes)), (&record, contents.get(name)));
                }
            }
        });
    }
}

//! Copies that arrive at a target that has a state of their object.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::checksum::ChecksumKind;
use forebay_core::copies::requests::{Reason, RemoveRequest};
use forebay_core::copies::{CopyHead, Stamp};
use forebay_core::object::ObjectMeta;
use forebay_core::state::{Command, Role};
use forebay_core::{Bucket, ErrorCode, NodeId, Provider, Result, rebalance};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::object::PutRequest;
use crate::object::tests::Bench;

/// A bucket whose objects move, because a second target has joined, and a name that belongs here.
async fn moving() -> (Bench, BucketInfo, String) {
    let bench = Bench::new(1 << 30).await;
    let info = bench.bucket("b", false, Freshness::Never);
    let join = Command::Join {
        id: NodeId::new("target-02").unwrap(),
        role: Role::Target,
        url: "http://127.0.0.1:1".into(),
        weight: 1,
        zone: String::new(),
        instance: 0,
        https: String::new(),
        external: String::new(),
    };
    let state = bench.change(join);
    let here = |name: &String| rebalance::duty(&state, &info, name, bench.service.me()).stays;
    let name = (0..).map(|n| format!("o{n}")).find(here).unwrap();
    (bench, info, name)
}

fn head(bytes: &str, epoch: u64, version: u64) -> CopyHead {
    let mut hasher = ChecksumKind::default().hasher();
    hasher.update(bytes.as_bytes());
    let meta = ObjectMeta {
        size: bytes.len() as u64,
        version: version.to_string(),
        checksum: hasher.finish(),
        ..ObjectMeta::default()
    };
    CopyHead { meta, epoch, ..CopyHead::default() }
}

async fn arrives(
    bench: &Bench,
    (info, name): (&BucketInfo, &str),
    head: CopyHead,
    bytes: &'static str,
) -> Result<()> {
    let body = futures::stream::iter([Ok(Bytes::from_static(bytes.as_bytes()))]).boxed();
    bench.service.replication().receive((info, name, false), head, body).await
}

/// Another target reports that the object was removed.
async fn is_removed(bench: &Bench, object: (&BucketInfo, &str), stamp: Stamp) {
    is_obsolete(bench, object, stamp, Reason::Deleted).await;
}

/// Another target reports that states of the object are obsolete.
async fn is_obsolete(
    bench: &Bench,
    (info, name): (&BucketInfo, &str),
    stamp: Stamp,
    reason: Reason,
) {
    let (bucket, name) = (info.bucket.clone(), name.to_owned());
    let request = RemoveRequest { bucket, name, stamp, by: None, reason, older: false };
    bench.service.replication().remove_older(info, &request).await.unwrap();
}

async fn read(bench: &Bench, info: &BucketInfo, name: &str) -> Option<String> {
    let found = bench.service.reads().get_local(info, name).await.ok()?;
    Some(String::from_utf8(found.read_all().await.unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn an_older_copy_never_replaces_a_newer_one() {
    let (bench, info, name) = moving().await;
    let object = (&info, name.as_str());
    arrives(&bench, object, head("second", 2, 2), "second").await.unwrap();
    arrives(&bench, object, head("first", 2, 1), "first").await.unwrap();
    assert_eq!(read(&bench, &info, &name).await.as_deref(), Some("second"));
    arrives(&bench, object, head("later", 3, 1), "later").await.unwrap();
    assert_eq!(read(&bench, &info, &name).await.as_deref(), Some("later"));
}

#[tokio::test]
async fn a_copy_that_is_older_than_a_removal_stays_away() {
    let (bench, info, name) = moving().await;
    let object = (&info, name.as_str());
    arrives(&bench, object, head("old", 2, 4), "old").await.unwrap();
    is_removed(&bench, (&info, &name), Stamp { epoch: 3, version: 5 }).await;
    assert_eq!(read(&bench, &info, &name).await, None);
    arrives(&bench, object, head("old", 2, 4), "old").await.unwrap();
    assert_eq!(read(&bench, &info, &name).await, None);
    arrives(&bench, object, head("new", 3, 6), "new").await.unwrap();
    assert_eq!(read(&bench, &info, &name).await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_write_that_ends_elsewhere_after_its_object_belongs_here_is_taken_when_it_comes() {
    let (bench, info, name) = moving().await;
    let object = (&info, name.as_str());
    let stamp = Stamp { epoch: 2, version: 5 };
    is_obsolete(&bench, object, stamp, Reason::Superseded).await;
    arrives(&bench, object, head("older", 2, 4), "older").await.unwrap();
    assert_eq!(read(&bench, &info, &name).await, None);
    arrives(&bench, object, head("written", 2, 5), "written").await.unwrap();
    assert_eq!(read(&bench, &info, &name).await.as_deref(), Some("written"));
}

#[tokio::test]
async fn an_old_tombstone_does_not_hide_what_another_target_may_have() {
    let (bench, info, name) = moving().await;
    let before = bench.service.state().targets_changed;
    let gone = |epoch| Stamp { epoch, version: 5 };
    is_removed(&bench, (&info, &name), gone(before - 1)).await;
    assert!(bench.service.replication().newest(&info, &name).await.is_err(), "it may be there");
    is_removed(&bench, (&info, &name), gone(before)).await;
    assert!(bench.service.replication().newest(&info, &name).await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_not_what_its_checksum_is_of_or_belongs_elsewhere_is_refused() {
    let (bench, info, name) = moving().await;
    let e = arrives(&bench, (&info, &name), head("bytes", 2, 1), "bytez").await.unwrap_err();
    assert_eq!(e.code, ErrorCode::ChecksumMismatch, "{e}");
    let e = arrives(&bench, (&info, &name), head("bytes", 2, 1), "byte").await.unwrap_err();
    assert_eq!(e.code, ErrorCode::InvalidArgument, "{e}");
    assert_eq!(read(&bench, &info, &name).await, None);
    let state = bench.service.state();
    let there = |name: &String| !rebalance::duty(&state, &info, name, bench.service.me()).stays;
    let other = (0..).map(|n| format!("o{n}")).find(there).unwrap();
    let e = arrives(&bench, (&info, &other), head("bytes", 2, 1), "bytes").await.unwrap_err();
    assert_eq!(e.code, ErrorCode::Unavailable, "{e}");
}

#[tokio::test]
async fn once_all_is_in_place_no_copy_may_come_back() {
    let (bench, info, name) = moving().await;
    let placed = bench.service.state().targets_changed;
    bench.change(Command::RebalanceComplete { placed, repaired: vec![] });
    let e = arrives(&bench, (&info, &name), head("late", 2, 1), "late").await.unwrap_err();
    assert_eq!(e.code, ErrorCode::Conflict, "{e}");
}

#[tokio::test]
async fn a_removal_that_is_noted_when_all_has_come_to_its_place_leaves_no_note() {
    let (bench, info, name) = moving().await;
    let stop = CancellationToken::new();
    let watching = tokio::spawn(bench.service.replication().clone().watch_tombstones(stop.clone()));
    let noted = || bench.service.replication().tombstone(&info, &name);
    is_removed(&bench, (&info, &name), Stamp { epoch: 2, version: 5 }).await;
    assert!(noted().await.unwrap().is_some());
    let placed = bench.service.state().targets_changed;
    let gone = async || {
        let started = Instant::now();
        while noted().await.unwrap().is_some() {
            assert!(started.elapsed() < Duration::from_secs(10), "a tombstone stays");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    bench.change(Command::RebalanceComplete { placed, repaired: vec![] });
    gone().await;
    // A removal that was decided before the state changed is recorded a moment after it.
    let late = Stamp { epoch: 2, version: 6 };
    bench.service.replication().write_tombstone(&info, &name, late, false).await.unwrap();
    gone().await;
    stop.cancel();
    watching.await.unwrap();
}

#[tokio::test]
async fn what_is_written_after_a_removal_that_stayed_noted_is_there_to_be_removed() {
    let bench = Bench::new(1 << 30).await;
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let info = BucketInfo { copies: 2, ..BucketInfo::requested(bucket.clone(), None) };
    let state = bench.change(Command::CreateBucket { info: info.into(), now_ns: 1 });
    let info = BucketInfo::clone(state.bucket(&bucket).unwrap());
    // As while a disk of this target is out of use, in an otherwise quiescent cluster.
    let removed = Stamp { epoch: state.version, version: 7 };
    bench.service.replication().write_tombstone(&info, "o", removed, false).await.unwrap();
    let put = PutRequest::whole(Bytes::from_static(b"later"));
    bench.service.writes().put(&info, "o", put).await.unwrap();
    let record = bench.service.store().get(info.id, "o").await.unwrap().unwrap();
    assert!(record.stamp() > removed);
    bench.service.writes().delete(&info, "o").await.unwrap();
}

//! Cached listings, alone and over a folder backend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::intra::{BackendListRequest, Change, Changed};
use forebay_core::list_columns::Columns;
use forebay_core::list_page::Detail;
use forebay_core::object::{ListEntry, ObjectMeta};
use forebay_core::{Bucket, NodeId, Provider};
use proptest::prelude::*;

use super::overlay::Overlay;
use super::snapshot::{Progress, Snapshot};
use crate::object::tests::{Bench, put};

fn request(info: BucketInfo, prefix: &str, after: &str, limit: usize) -> BackendListRequest {
    BackendListRequest {
        info: Arc::new(info),
        prefix: prefix.into(),
        after: after.into(),
        limit,
        whole: true,
        to_the_end: false,
        since_ns: 5,
        detail: Detail::All,
    }
}

const LONG: Duration = Duration::from_secs(60);

fn entry(name: &str, size: u64) -> ListEntry {
    let meta =
        ObjectMeta { size, version: format!("v{size}"), etag: "e".into(), ..Default::default() };
    ListEntry { name: name.into(), meta, ..Default::default() }
}

fn there(size: u64) -> Changed {
    Changed::There { size, version: format!("v{size}"), etag: "e".into(), mtime_ns: 0 }
}

proptest! {
    #[test]
    fn pages_of_any_size_are_the_listing_with_what_was_written_since(
        listed in prop::collection::btree_map("[ab/é]{1,4}", 1u64..9, 0..40),
        written in prop::collection::btree_map("[ab/é]{1,4}", prop::option::of(10u64..19), 0..12),
        prefix in "[ab]{0,2}",
        block in 1usize..7,
        limit in 1usize..9,
    ) {
        let bucket = Bucket::new(Provider::Aws, "b").unwrap();
        let asked = request(BucketInfo::requested(bucket, None), "", "", limit);
        let snapshot = Snapshot::new(&asked, 5);
        let node = NodeId::new("target-01").unwrap();
        let mut overlay = Overlay::default();
        let mut now: BTreeMap<String, u64> = listed.clone();
        for (name, size) in &written {
            let changed = size.map_or(Changed::Gone, there);
            overlay.take(&node, "", vec![Change { name: name.clone(), now: changed }]);
            match size {
                Some(size) => { now.insert(name.clone(), *size); }
                None => { now.remove(name); }
            }
        }
        now.retain(|name, _| name.starts_with(&prefix));
        let entries: Vec<ListEntry> = listed.iter().map(|(name, size)| entry(name, *size)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (pages, columns) = runtime.block_on(async {
            snapshot.begin(Overlay::default());
            for rows in entries.chunks(block) {
                let open = async || unreachable!("it is small");
                assert!(snapshot.add(rows, &mut None, open).await.unwrap());
            }
            snapshot.end(Progress::Whole);
            let (mut all, mut columns) = (Vec::new(), Columns::default());
            let mut after = String::new();
            loop {
                let asked = snapshot.page::<Vec<ListEntry>>(&overlay, &prefix, &after, limit, LONG);
                let (page, more) = asked.await.unwrap();
                let asked = snapshot.page::<Columns>(&overlay, &prefix, &after, limit, LONG);
                let (same, also) = asked.await.unwrap();
                assert_eq!((page.len(), more), (same.len(), also));
                assert!(page.len() <= limit);
                columns.append(same, limit);
                all.extend(page);
                match all.last() {
                    Some(last) if more => after.clone_from(&last.name),
                    _ => break,
                }
            }
            (all, columns)
        });
        let got: Vec<(String, u64)> = pages.iter().map(|e| (e.name.clone(), e.meta.size)).collect();
        prop_assert_eq!(&got, &now.into_iter().collect::<Vec<_>>());
        let of_its_size = |e: &ListEntry| e.meta.version == format!("v{}", e.meta.size);
        prop_assert!(pages.iter().all(of_its_size), "versions");
        let same: Vec<(String, u64)> = columns.rows().map(|r| (r.name.to_owned(), r.size)).collect();
        prop_assert_eq!(got, same);
    }
}

#[test]
fn of_two_targets_that_wrote_the_same_object_nobody_knows_who_was_last() {
    let mut overlay = Overlay::default();
    let ids = ["target-01", "target-02"].map(|id| NodeId::new(id).unwrap());
    let gone = || vec![Change { name: "p/x".into(), now: Changed::Gone }];
    overlay.take(&ids[0], "p/", gone());
    overlay.take(&ids[0], "p/", vec![Change { name: "q".into(), now: Changed::Unknown }]);
    assert!(overlay.unknown().is_empty(), "q is no name of the listing");
    overlay.take(&ids[1], "p/", gone());
    assert_eq!(overlay.unknown(), ["p/x"]);
    overlay.learned("p/x", there(7));
    assert!(overlay.unknown().is_empty() && overlay.replaces("p/x"));
}

async fn names(bench: &Bench, info: &BucketInfo, limits: &[usize], since_ns: u64) -> Vec<String> {
    let mut got: Vec<String> = Vec::new();
    for limit in limits.iter().cycle() {
        let after = got.last().cloned().unwrap_or_default();
        let asked = BackendListRequest { since_ns, ..request(info.clone(), "d/", &after, *limit) };
        let (page, more) =
            bench.service.listing().backend_page_as::<Vec<ListEntry>>(&asked).await.unwrap();
        assert!(page.len() <= *limit);
        got.extend(page.into_iter().map(|entry| entry.name));
        if !more {
            break;
        }
    }
    got
}

#[tokio::test]
async fn a_kept_listing_is_read_again_until_it_is_too_old() {
    let bench = Bench::new(1 << 30).await;
    let info = bench.bucket("b", true, Freshness::Never);
    std::fs::create_dir(bench.folder().join("d")).unwrap();
    let mut all: Vec<String> = (0..2500).map(|n| format!("d/{n:04}")).collect();
    for name in &all {
        std::fs::write(bench.folder().join(name), "x").unwrap();
    }
    assert_eq!(names(&bench, &info, &[1, 700, 1000, 333], 5).await, all);
    // Removed without a change through the cluster.
    std::fs::remove_file(bench.folder().join("d/0007")).unwrap();
    assert_eq!(names(&bench, &info, &[900], 5).await, all, "the listing was young enough");
    let later = forebay_node::clock::unix_ns();
    all.remove(7);
    assert_eq!(names(&bench, &info, &[900], later).await, all);

    bench.service.writes().put(&info, "d/0007-new", put(vec![Ok("y".into())])).await.unwrap();
    bench.service.writes().delete(&info, "d/2499").await.unwrap();
    all.insert(7, "d/0007-new".into());
    all.pop();
    std::fs::remove_file(bench.folder().join("d/0100")).unwrap();
    assert_eq!(names(&bench, &info, &[900], later).await, all, "what we wrote is seen at once");
}

#[tokio::test]
async fn a_page_that_does_not_come_says_so_and_comes_later() {
    let bucket = Bucket::new(Provider::Aws, "b").unwrap();
    let asked = request(BucketInfo::requested(bucket, None), "", "", 10);
    let snapshot = Snapshot::new(&asked, 5);
    snapshot.begin(Overlay::default());
    let page = async |after: &str| {
        let timeout = Duration::from_millis(10);
        snapshot.page::<Vec<ListEntry>>(&Overlay::default(), "", after, 10, timeout).await.unwrap()
    };
    let nothing_yet = (Vec::new(), true);
    assert_eq!(page("").await, nothing_yet);
    let open = async || unreachable!("it is small");
    assert!(snapshot.add(&[entry("a", 1), entry("b", 2)], &mut None, open).await.unwrap());
    assert_eq!(page("").await, (vec![entry("a", 1), entry("b", 2)], true), "as far as it came");
    assert_eq!(page("b").await, nothing_yet);
    snapshot.end(Progress::Whole);
    assert_eq!(page("b").await, (Vec::new(), false));
}

//! Guarantees of the scrub, over a real store.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::bucket::{BucketInfo, Freshness};

use super::*;
use crate::object::heal_tests::{content, counted, disk, flip_where};
use crate::object::tests::{Bench, put};

fn scrub(bench: &Bench) -> Scrub {
    Scrub {
        objects: bench.service.clone(),
        number: 0,
        pace: Pace::new(1 << 40),
        orphan_after: Duration::ZERO,
    }
}

async fn put_native(bench: &Bench, info: &BucketInfo, name: &str, data: &[u8]) {
    let body = put(vec![Ok(Bytes::copy_from_slice(data))]);
    bench.service.writes().put(info, name, body).await.unwrap();
}

#[tokio::test]
async fn damage_that_nobody_reads_is_found_and_healed_or_reported() {
    let bench = Bench::new(64 << 20).await;
    let (images, own) = (
        bench.bucket("images", true, Freshness::Never),
        bench.bucket("own", false, Freshness::default()),
    );
    let sizes = [0usize, 700, 200_000, 3_000_001];
    for (i, size) in sizes.iter().enumerate() {
        let (name, data) = (format!("o{i}"), content(i as u64, *size));
        std::fs::write(bench.folder().join(&name), &data).unwrap();
        bench.service.cold_cache().prefetch(&images, &name).await.unwrap();
        put_native(&bench, &own, &name, &content(10 + i as u64, *size)).await;
    }
    let mut progress = Progress::default();
    scrub(&bench).pass(&mut progress).await.unwrap();
    assert_eq!((progress.objects, progress.damaged, progress.orphans), (8, 0, 0));
    assert_eq!(progress.bytes, 2 * sizes.iter().sum::<usize>() as u64);
    assert_eq!(counted(&bench, "scrub", "checked_bytes"), progress.bytes);
    assert_eq!(counted(&bench, "scrub", "checked_blocks"), 2 * (1 + 4 + 46));

    flip_where(&disk(&bench), &content(3, 3_000_001)[2_000_000..2_000_032]);
    flip_where(&disk(&bench), &content(12, 200_000)[199_900..]);
    scrub(&bench).pass(&mut progress).await.unwrap();
    assert_eq!((progress.objects, progress.damaged), (8, 2));
    assert_eq!(progress.lost.len(), 1);
    let counts = ["damaged", "healed", "lost"].map(|name| counted(&bench, "scrub", name));
    assert_eq!(counts, [2, 1, 1]);
    assert_eq!(bench.service.lost_summary(), (1, vec!["ais://own/o2".to_owned()]));
    let (again, result) = bench.read(&images, "o3").await.unwrap();
    assert!(again == content(3, 3_000_001));
    assert_eq!(result, "miss");
    assert_eq!(bench.read(&own, "o2").await.unwrap_err().code, ErrorCode::Corrupt);

    // After a restart the lost objects are known again, and removed from the list once they are
    // written anew.
    let kept = Progress::load(&disk(&bench)).await;
    assert_eq!(kept, progress);
    put_native(&bench, &own, "o2", b"new").await;
    scrub(&bench).pass(&mut progress).await.unwrap();
    assert_eq!((progress.damaged, progress.lost.len()), (0, 0));
    bench.service.remember_lost(kept.lost[0].0, "o2", kept.lost[0].2).await;
    assert_eq!(bench.service.lost_summary().0, 0);
}

#[tokio::test]
async fn a_pass_goes_on_where_it_was() {
    let bench = Bench::new(64 << 20).await;
    let buckets = ["a", "b", "c"].map(|name| bench.bucket(name, false, Freshness::default()));
    for info in &buckets {
        for i in 0..300 {
            put_native(&bench, info, &format!("{i:03}"), b"data").await;
        }
    }
    let mut progress = Progress::default();
    progress.begin(5);
    (progress.bucket_id, progress.name) = (buckets[1].id, "279".into());
    (progress.objects, progress.ended_ns) = (580, 3);
    progress.save(&disk(&bench)).await.unwrap();
    let mut progress = Progress::load(&disk(&bench)).await;
    scrub(&bench).pass(&mut progress).await.unwrap();
    assert_eq!(progress.objects, 580 + 20 + 300);
    assert!(progress.ended_ns > 5 && progress.started_ns == 0);
    // The next one starts at the beginning.
    scrub(&bench).pass(&mut progress).await.unwrap();
    assert_eq!(progress.objects, 900);
    std::fs::write(disk(&bench).join(".forebay/scrub.json"), b"{\"objects\":").unwrap();
    assert_eq!(Progress::load(&disk(&bench)).await, Progress::default());
}

#[tokio::test]
async fn files_that_no_record_names_go_and_others_stay() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("own", false, Freshness::default());
    let data = content(1, 300_000);
    put_native(&bench, &info, "o", &data).await;
    let orphan = disk(&bench).join("objects/ab/00000000000012ab");
    let foreign = disk(&bench).join("objects/ab/README");
    std::fs::write(&orphan, b"bytes").unwrap();
    std::fs::write(&foreign, b"bytes").unwrap();
    let mut progress = Progress::default();
    scrub(&bench).pass(&mut progress).await.unwrap();
    assert_eq!(progress.orphans, 1);
    assert!(!orphan.exists() && foreign.exists());
    assert!(bench.read(&info, "o").await.unwrap().0 == data);
    // A file that appears in the middle of a pass may belong to a write in progress.
    let volume = bench.service.volume(0).unwrap();
    let before = orphans::find(&volume).unwrap();
    std::fs::write(&orphan, b"bytes").unwrap();
    let after = orphans::find(&volume).unwrap();
    assert_eq!((before.len(), after.len()), (0, 1));
}

//! The warmth of buckets equals a scan of what is cached, after all that changes it.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_core::Bucket;
use forebay_core::job::{JobKind, Selection};
use forebay_core::size::RangeSpec;
use forebay_core::warmth::{BucketWarmth, WarmthReply};
use forebay_tests::cluster::{folder_backend, native, run_job};
use forebay_tests::data::{content, fill_folder, names};
use forebay_tests::{Cluster, Options, wait};
use forebay_v1::list::{Entry, ListMsg, entry_flags, flags};

/// Size of an object.
const SIZE: usize = 150_000;
const TIMEOUT: Duration = Duration::from_secs(90);

async fn reply(cluster: &Cluster, bucket: &Bucket) -> WarmthReply {
    cluster.client().bucket_warmth(bucket).await.unwrap()
}

async fn warmth(cluster: &Cluster, bucket: &Bucket) -> BucketWarmth {
    let mut reply = reply(cluster, bucket).await;
    assert!(reply.away.is_empty(), "{reply:?}");
    assert_eq!(reply.buckets.len(), 1);
    reply.buckets.remove(0)
}

/// Counts the cached objects of a bucket by listing them.
async fn scan(cluster: &Cluster, bucket: &Bucket) -> (u64, u64) {
    let flags = flags::CACHED;
    let mut msg = ListMsg { props: "name,size,cached".into(), flags, ..ListMsg::default() };
    let (mut objects, mut bytes) = (0, 0);
    loop {
        let page = cluster.client().list_page(bucket, &msg).await.unwrap();
        // Partial copies are listed, too.
        let is_whole = |entry: &&Entry| entry.flags & entry_flags::PRESENT != 0;
        for entry in page.entries.iter().filter(is_whole) {
            (objects, bytes) = (objects + 1, bytes + entry.size);
        }
        if page.token.is_empty() {
            return (objects, bytes);
        }
        (msg.uuid, msg.token) = (page.uuid, page.token);
    }
}

async fn compare(cluster: &Cluster, bucket: &Bucket, when: &str) -> BucketWarmth {
    let mut before = warmth(cluster, bucket).await;
    for _ in 0..100 {
        let scanned = scan(cluster, bucket).await;
        let after = warmth(cluster, bucket).await;
        if (before.objects, before.bytes) == (after.objects, after.bytes) {
            assert_eq!((after.objects, after.bytes), scanned, "{when}");
            return after;
        }
        // The evictor was at work meanwhile.
        before = after;
    }
    panic!("{when}: never at rest")
}

async fn on_folder(root: &Path, cluster: &Cluster, name: &str) -> Bucket {
    let bucket = native(name);
    cluster.client().create_bucket(&bucket, Some(folder_backend(root))).await.unwrap();
    bucket
}

#[tokio::test]
async fn warmth_equals_a_scan_after_prefetches_reads_evictions_and_kills() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    // So small that not all objects fit.
    let size = Some("8MiB");
    let cluster = Cluster::start(Options { targets: 2, size, folder_roots, ..Options::default() });
    let names = names(150);
    fill_folder(root.path(), &names, SIZE);
    std::fs::write(root.path().join("large"), content("large", 20 << 20)).unwrap();
    let bucket = on_folder(root.path(), &cluster, "warm").await;
    let client = cluster.client();

    let cold = compare(&cluster, &bucket, "before any read").await;
    assert_eq!((cold.objects, cold.listing, cold.object_share()), (0, None, None));
    for name in &names[..20] {
        client.get_bytes(&bucket, name, None).await.unwrap();
        client.get_bytes(&bucket, name, None).await.unwrap();
    }
    let read = compare(&cluster, &bucket, "after reads").await;
    assert_eq!((read.objects, read.bytes), (20, 20 * SIZE as u64));
    let reads = read.hour.reads;
    assert_eq!((reads.hit_objects, reads.miss_objects, reads.hit_bytes), (20, 20, read.bytes));
    assert_eq!((read.day.reads, read.egress_saved_day_bytes), (reads, 0), "a folder bills nothing");
    assert!(read.no_access_before_ns > 0);

    // No listing is made for the answer; the next one that is complete counts.
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), 151);
    let listed = warmth(&cluster, &bucket).await;
    let listing = listed.listing.unwrap();
    assert_eq!((listing.objects, listing.bytes), (151, 150 * SIZE as u64 + (20 << 20)));
    assert_eq!(listed.object_share(), Some(20.0 / 151.0));

    let some = Selection::Names(names[..60].to_vec());
    run_job(&cluster, JobKind::Prefetch, &bucket, some).await;
    let fetched = compare(&cluster, &bucket, "after a prefetch").await;
    assert_eq!(fetched.objects, 60);
    for name in &names {
        client.get_bytes(&bucket, name, None).await.unwrap();
    }
    let full = compare(&cluster, &bucket, "after evictions for space").await;
    assert!((20..150).contains(&full.objects), "{full:?}");
    let evicted = Selection::Names(names[..75].to_vec());
    run_job(&cluster, JobKind::Evict, &bucket, evicted).await;
    let evicted = compare(&cluster, &bucket, "after an eviction").await;
    assert!(evicted.objects < full.objects);

    let range = Some(RangeSpec::From(0, Some(9)));
    client.get_bytes(&bucket, "large", range).await.unwrap();
    let partial = warmth(&cluster, &bucket).await;
    assert_eq!(partial.partial_objects, 1, "{partial:?}");
    assert!((256 << 10..20 << 20).contains(&partial.partial_bytes), "{partial:?}");

    for id in ["target01", "target02"] {
        cluster.kill9(id);
        wait::until("the target counts as dead", TIMEOUT, || !cluster.is_alive(id));
        let reply = reply(&cluster, &bucket).await;
        assert_eq!((reply.targets, reply.away.len()), (1, 1), "the missing target is named");
        assert_eq!(reply.away[0].as_str(), id);
        assert!(!reply.buckets[0].exact, "a part is missing");
        cluster.restart(id);
        wait::until("the target is back", TIMEOUT, || cluster.is_alive(id));
    }
    let after = compare(&cluster, &bucket, "after kills").await;
    assert!(after.exact);
    assert_eq!((after.objects, after.bytes), (evicted.objects, evicted.bytes));
    assert_eq!(after.partial_bytes, partial.partial_bytes);
    let (out, code) = cluster.cli(&["bucket", "ls", "-o", "json"]);
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, rows[0]["objects"].as_u64()), (0, Some(after.objects)), "{out}");
    let (out, code) = cluster.cli(&["bucket", "show", "ais://warm"]);
    assert!(code == 0 && out.contains("cached whole") && out.contains("unknown"), "{out}");
}

#[tokio::test]
async fn warmth_of_a_native_bucket_equals_a_scan_after_writes_removals_and_a_rebalance() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("own"));
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(120);
    for name in &names {
        client.put(&bucket, name, content(name, 2_000), None).await.unwrap();
    }
    for name in &names[..30] {
        client.put(&bucket, name, content(name, 500), None).await.unwrap();
    }
    for name in &names[100..] {
        client.delete(&bucket, name).await.unwrap();
    }
    let before = compare(&cluster, &bucket, "after writes").await;
    assert_eq!((before.objects, before.bytes), (100, 30 * 500 + 70 * 2_000));
    cluster.add_target("target03");
    wait::until("all objects are where they belong", TIMEOUT, || {
        let state = cluster.map().state;
        state.targets().count() == 3 && state.is_rebalance_complete()
    });
    let after = compare(&cluster, &bucket, "after a rebalance").await;
    assert_eq!((after.objects, after.bytes), (before.objects, before.bytes));
    let all = client.warmth(None).await.unwrap();
    assert_eq!((all.targets, all.buckets.len()), (3, 1));
    client.destroy_bucket(&bucket).await.unwrap();
    assert!(client.warmth(None).await.unwrap().buckets.is_empty());
}

#[tokio::test]
async fn warmth_counts_each_cached_object_once_after_targets_came_and_went() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let settings = "[cache]\nunowned_s = 2\n";
    let cluster =
        Cluster::start(Options { targets: 2, folder_roots, settings, ..Options::default() });
    let names = names(100);
    fill_folder(root.path(), &names, 3_000);
    std::fs::write(root.path().join("large"), content("large", 20 << 20)).unwrap();
    let bucket = on_folder(root.path(), &cluster, "moved").await;
    let read_all = || async {
        let client = cluster.client();
        for name in &names {
            client.get_bytes(&bucket, name, None).await.unwrap();
        }
        let range = Some(RangeSpec::From(0, Some(9)));
        client.get_bytes(&bucket, "large", range).await.unwrap();
    };
    let counted_once = |when: &'static str| {
        let (cluster, bucket) = (&cluster, &bucket);
        async move {
            let deadline = Instant::now() + TIMEOUT;
            loop {
                let warmth = warmth(cluster, bucket).await;
                if (warmth.objects, warmth.partial_objects) == (100, 1) {
                    break;
                }
                assert!(Instant::now() < deadline, "{when}: {warmth:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            compare(cluster, bucket, when).await;
        }
    };
    read_all().await;
    cluster.add_target("target03");
    read_all().await;
    counted_once("after a target came").await;
    cluster.kill9("target03");
    wait::until("the target counts as dead", TIMEOUT, || !cluster.is_alive("target03"));
    read_all().await;
    cluster.restart("target03");
    wait::until("the target is back", TIMEOUT, || cluster.is_alive("target03"));
    // Copies of the last seconds before a kill may be lost.
    read_all().await;
    counted_once("after a target was away").await;
    let (out, code) = cluster.cli(&["node", "remove", "target03", "--wait"]);
    assert_eq!(code, 0, "{out}");
    read_all().await;
    counted_once("after a target was removed").await;
}

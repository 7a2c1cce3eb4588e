//! The cost accounting of buckets: requests by class and bytes, equal to the cloud's own counts.

use std::time::Duration;

use forebay_core::Bucket;
use forebay_core::bill::{BucketBill, RequestClass};
use forebay_core::size::RangeSpec;
use forebay_tests::cluster::{cloud, command, google};
use forebay_tests::data::{content, names};
use forebay_tests::{Cluster, FakeGcs, Minio, Options, wait};
use forebay_v1::list::ListMsg;

const TIMEOUT: Duration = Duration::from_secs(30);

async fn bill(cluster: &Cluster, bucket: &Bucket) -> BucketBill {
    cluster.client().bucket_bill(bucket).await.unwrap()
}

fn requests(bill: &BucketBill, class: RequestClass) -> u64 {
    bill.bill.requests.get(&class).copied().unwrap_or(0)
}

/// All requests of a class that the targets have counted, whatever the bucket.
fn exported(cluster: &Cluster, class: &str) -> u64 {
    cluster.metric("forebay_cloud_requests_total", &[&format!("class=\"{class}\"")]) as u64
}

#[tokio::test]
async fn every_request_to_s3_is_on_the_bill_and_no_other() {
    const WRITES: [&str; 5] = [
        "PutObject",
        "ListObjectsV2",
        "NewMultipartUpload",
        "PutObjectPart",
        "CompleteMultipartUpload",
    ];
    const READS: [&str; 3] = ["GetObject", "HeadObject", "HeadBucket"];
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { targets: 2, env: minio.env(), ..Options::default() });
    let (client, bucket) = (cluster.client(), cloud("bill"));
    minio.create_bucket("bill").await;
    let names = names(6);
    for name in &names {
        minio.put("bill", name, content(name, 2000)).await;
    }
    minio.put("bill", "large", content("large", 80 << 20)).await;
    let counted = |kinds: &[&str]| kinds.iter().map(|kind| minio.count(kind)).sum::<u64>();
    wait::until("MinIO has counted what was put past the cluster", TIMEOUT, || {
        counted(&["PutObject"]) == 7
    });

    client.head_bucket(&bucket).await.unwrap();
    client.put(&bucket, "mine", content("mine", 1000), None).await.unwrap();
    client.put(&bucket, "parts", content("parts", 70 << 20), None).await.unwrap();
    for _ in 0..3 {
        for name in &names {
            client.get_bytes(&bucket, name, None).await.unwrap();
        }
        client.get_bytes(&bucket, "mine", None).await.unwrap();
    }
    let sent = 1000 + (70 << 20);
    let bill_now = bill(&cluster, &bucket).await;
    assert_eq!((bill_now.targets, bill_now.away), (2, 0));
    assert_eq!(requests(&bill_now, RequestClass::B), 6, "one read of each: {bill_now:?}");
    assert_eq!(
        (bill_now.bill.fetched_bytes, bill_now.bill.sent_bytes),
        (6 * 2000, sent),
        "{bill_now:?}"
    );
    assert_eq!(
        bill_now.bill.saved_bytes,
        2 * 6 * 2000 + 3 * 1000,
        "all reads but the first of each"
    );

    client.head(&bucket, &names[0]).await.unwrap();
    client.get_bytes(&bucket, "large", None).await.unwrap();
    let range = RangeSpec::From(5, Some(104));
    client.get_bytes(&bucket, &names[1], Some(range)).await.unwrap();
    let msg = ListMsg { props: "name".into(), ..ListMsg::default() };
    assert_eq!(client.list_page(&bucket, &msg).await.unwrap().entries.len(), 9);
    let listed = bill(&cluster, &bucket).await.bill;
    wait::until("MinIO has counted the pages of the listing", TIMEOUT, || {
        minio.count("ListObjectsV2") == listed.listing_pages
    });
    assert!((500..50_000).contains(&listed.listing_bytes), "{listed:?}");
    client.delete(&bucket, "mine").await.unwrap();
    client.delete(&bucket, &names[0]).await.unwrap();

    let bill_now = bill(&cluster, &bucket).await;
    assert_eq!(requests(&bill_now, RequestClass::Free), 2, "deletes cost nothing");
    // Beyond the first range, some bytes arrive before the request is cancelled.
    assert!(bill_now.bill.fetched_bytes >= 6 * 2000 + (80 << 20), "{bill_now:?}");
    assert_eq!(bill_now.bill.saved_bytes, 2 * 6 * 2000 + 3 * 1000 + 100);
    // The request that looked up the bucket before the cluster knew it is accounted separately.
    let (a, b) = (requests(&bill_now, RequestClass::A), requests(&bill_now, RequestClass::B) + 1);
    assert_eq!((a, b), (exported(&cluster, "a"), exported(&cluster, "b")));
    let theirs = || (counted(&WRITES) - 7, counted(&READS));
    wait::until("MinIO has counted them, too", TIMEOUT, || theirs() >= (a, b));
    assert_eq!((a, b), theirs());
}

#[tokio::test]
async fn every_request_to_google_is_on_the_bill_and_no_other() {
    let Some(gcs) = FakeGcs::start() else { return };
    let cluster = Cluster::start(Options { targets: 2, env: gcs.env(), ..Options::default() });
    let (client, bucket) = (cluster.client(), google("bill"));
    gcs.create_bucket("bill");
    let names = names(5);
    for name in &names {
        gcs.put("bill", name, content(name, 3000));
    }
    client.head_bucket(&bucket).await.unwrap();
    for _ in 0..2 {
        for name in &names {
            client.get_bytes(&bucket, name, None).await.unwrap();
        }
    }
    client.put(&bucket, "mine", content("mine", 1000), None).await.unwrap();
    // In one upload of several chunks.
    client.put(&bucket, "chunks", content("chunks", 70 << 20), None).await.unwrap();
    client.delete(&bucket, "mine").await.unwrap();
    let bill_now = bill(&cluster, &bucket).await;
    assert_eq!(requests(&bill_now, RequestClass::A), 2, "an upload is billed once: {bill_now:?}");
    assert_eq!(requests(&bill_now, RequestClass::B), 5, "{bill_now:?}");
    // A small object goes to a host that is not Google's in an upload session, of one chunk.
    assert_eq!(
        requests(&bill_now, RequestClass::Free),
        1 + 1 + 5,
        "a delete, and the chunks: {bill_now:?}"
    );
    let bytes = (bill_now.bill.fetched_bytes, bill_now.bill.sent_bytes, bill_now.bill.saved_bytes);
    assert_eq!(bytes, (15_000, 1000 + (70 << 20), 15_000));
    assert_eq!(gcs.reads("bill"), 5);

    let msg = ListMsg { props: "name".into(), ..ListMsg::default() };
    assert_eq!(client.list_page(&bucket, &msg).await.unwrap().entries.len(), 6);
    let bill_now = bill(&cluster, &bucket).await;
    let (lists, registration) = (gcs.lists("bill"), 1);
    assert_eq!(requests(&bill_now, RequestClass::A) + registration, 2 + lists);
    assert_eq!(bill_now.bill.listing_pages + registration, lists);
    assert!((300..50_000).contains(&bill_now.bill.listing_bytes), "{bill_now:?}");
}

#[test]
fn bucket_info_shows_the_bill_to_people_and_to_programs() {
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { env: minio.env(), ..Options::default() });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        minio.create_bucket("shown").await;
        minio.put("shown", "o", content("o", 4096)).await;
        for _ in 0..3 {
            cluster.client().get_bytes(&cloud("shown"), "o", None).await.unwrap();
        }
    });
    let run = |args: &[&str]| {
        let out = command(args).env("FOREBAY_ENDPOINT", &cluster.endpoint).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let json = run(&["bucket", "info", "s3://shown", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let bill = &json["bill"];
    assert_eq!((&bill["requests"]["b"], &bill["fetched_bytes"]), (&1.into(), &4096.into()));
    assert_eq!(bill["saved_bytes"], 2 * 4096);
    let table = run(&["bucket", "info", "s3://shown"]);
    for line in ["class B requests", "egress saved", "8KiB"] {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }
    run(&["mb", "ais://plain"]);
    let shown = run(&["bucket", "info", "ais://plain"]);
    assert!(!shown.contains("egress"), "nobody bills native objects:\n{shown}");
}

//! Small cold objects of Google Cloud Storage, composed there and read together, on a real
//! fake-gcs-server.

use std::sync::Arc;
use std::time::Duration;

use forebay_client::Client;
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::job::{JobKind, Selection};
use forebay_core::{Bucket, ObjectName};
use forebay_tests::cluster::{google, run_job};
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Cluster, FakeGcs, Options, Shared, http, wait};
use forebay_v1::list::ListMsg;
use futures::StreamExt;
use serde_json::json;

const TIMEOUT: Duration = Duration::from_secs(60);

struct OnGcs {
    cluster: Cluster,
    gcs: FakeGcs,
}

static ON_GCS: Shared<OnGcs> = Shared::new();

fn on_gcs() -> Option<Arc<OnGcs>> {
    ON_GCS.try_get(|| {
        let gcs = FakeGcs::start()?;
        let cluster = Cluster::start(Options { targets: 1, env: gcs.env(), ..Options::default() });
        Some(OnGcs { cluster, gcs })
    })
}

fn object(n: usize) -> (String, Vec<u8>) {
    let name = format!("train/{n:05}");
    let bytes = content(&name, 700 + n % 311);
    (name, bytes)
}

impl OnGcs {
    /// A bucket of so many small objects, which are composed.
    async fn bucket(&self, name: &str, objects: usize) -> Bucket {
        self.gcs.create_bucket(name);
        for (object, bytes) in (0..objects).map(object) {
            self.gcs.put(name, &object, bytes);
        }
        let (client, bucket) = (self.cluster.client(), google(name));
        client.head_bucket(&bucket).await.unwrap();
        client.set_bucket(&bucket, json!({"cloud": {"compose": "on"}})).await.unwrap();
        bucket
    }

    fn temporary(&self, bucket: &str) -> u64 {
        let url = format!("{}/storage/v1/b/{bucket}/o?prefix=.forebay-composed/", self.gcs.url);
        http::get(&url).json()["items"].as_array().map_or(0, Vec::len) as u64
    }
}

async fn read_all(client: &Client, bucket: &Bucket, objects: usize) {
    let entry = |n| BatchEntry::whole(0, ObjectName::new(object(n).0).unwrap());
    let entries = (0..objects).map(entry).collect();
    let request = BatchRequest { buckets: vec![bucket.clone()], entries, ordered: true };
    let mut stream = client.batch(&request).unwrap();
    let mut seen = 0;
    while let Some(item) = stream.next().await {
        let (name, bytes) = object(item.index);
        assert_same(&name, &item.result.unwrap(), &bytes);
        seen += 1;
    }
    assert_eq!(seen, objects);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_1024_cold_objects_takes_a_few_reads_of_google() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("together", 1024).await;
    let client = on.cluster.client();
    read_all(&client, &bucket, 1024).await;
    wait::until("its log has the reads", TIMEOUT, || on.gcs.reads("together") >= 32);
    // Of a machine that is busy some groups are not full.
    let reads = on.gcs.reads("together");
    assert!(reads <= 128, "{reads} reads");
    let composed = ["provider=\"gcp\"", "op=\"compose\"", "result=\"ok\""];
    assert!(on.cluster.metric("forebay_backend_requests_total", &composed) > 24.0);
    wait::until("no temporary object is left", TIMEOUT, || on.temporary("together") == 0);
    // A second epoch reads nothing.
    read_all(&client, &bucket, 1024).await;
    assert_eq!(on.gcs.reads("together"), reads);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefetch_reads_small_objects_together_and_a_listing_shows_no_other() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("ahead", 320).await;
    let done = run_job(&on.cluster, JobKind::Prefetch, &bucket, Selection::Prefix("".into())).await;
    assert_eq!(done, 320);
    let reads = on.gcs.reads("ahead");
    assert!(reads <= 80, "{reads} reads for 320 objects");
    on.gcs.put("ahead", ".forebay-composed/1700000000-left", "left");
    let client = on.cluster.client();
    let msg = ListMsg { props: "name".into(), ..ListMsg::default() };
    assert_eq!(client.list_page(&bucket, &msg).await.unwrap().entries.len(), 320);
    read_all(&client, &bucket, 320).await;
    assert_eq!(on.gcs.reads("ahead"), reads, "all of them are here");

    // The cleanup job removes temporary objects that a dead target left.
    let url = format!("{}/v1/cluster", on.cluster.endpoint);
    let start = json!({"action": "start", "value": {"kind": "cleanup-store"}});
    let started = http::request("PUT", &url).json(&start).send();
    assert_eq!(started.status, 200, "{}", started.text());
    wait::until("what was left is gone", TIMEOUT, || on.temporary("ahead") == 0);
}

#[tokio::test]
async fn only_buckets_of_google_can_be_composed_in() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("here", 1).await;
    let client = on.cluster.client();
    let props = client.head_bucket(&bucket).await.unwrap();
    assert_eq!(props["cloud"]["compose"], "on");
    on.gcs.create_bucket("versions");
    let url = format!("{}/storage/v1/b/versions", on.gcs.url);
    let versioned = http::request("PATCH", &url).json(&json!({"versioning": {"enabled": true}}));
    let answer = versioned.send();
    if answer.status == 200 && answer.json()["versioning"]["enabled"] == true {
        let bucket = google("versions");
        client.head_bucket(&bucket).await.unwrap();
        let set = client.set_bucket(&bucket, json!({"cloud": {"compose": "on"}})).await;
        let error = set.unwrap_err().to_string();
        assert!(error.contains("versions"), "{error}");
        client.set_bucket(&bucket, json!({"cloud": {"compose": "force"}})).await.unwrap();
    }
}

//! Buckets of Google Cloud Storage on a real fake-gcs-server: read once, kept, written through.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::bucket::{BackendKind, BackendSpec};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{google, native};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::{Cluster, FakeGcs, Options, Shared, http, wait};
use forebay_v1::list::{ListMsg, entry_flags};

const TIMEOUT: Duration = Duration::from_secs(20);

struct OnGcs {
    cluster: Cluster,
    gcs: FakeGcs,
}

static ON_GCS: Shared<OnGcs> = Shared::new();

/// The cluster and its fake-gcs-server; `None` where there is none.
fn on_gcs() -> Option<Arc<OnGcs>> {
    ON_GCS.try_get(|| {
        let gcs = FakeGcs::start()?;
        let cluster = Cluster::start(Options { env: gcs.env(), ..Options::default() });
        Some(OnGcs { cluster, gcs })
    })
}

impl OnGcs {
    /// A bucket at the emulator that the cluster knows.
    async fn bucket(&self, name: &str) -> Bucket {
        self.gcs.create_bucket(name);
        let bucket = google(name);
        self.cluster.client().head_bucket(&bucket).await.unwrap();
        bucket
    }

    /// Object reads that the emulator has logged; waits until there are as many as expected.
    fn reads(&self, bucket: &str, expected: u64) -> u64 {
        wait::until("its log has the reads", TIMEOUT, || self.gcs.reads(bucket) >= expected);
        self.gcs.reads(bucket)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_epoch_reads_nothing_from_google() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("epochs").await;
    let names = names(40);
    for name in &names {
        on.gcs.put("epochs", name, content(name, 10_000));
    }
    let client = on.cluster.client();
    for epoch in 1..=2 {
        for name in &names {
            let got = client.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &content(name, 10_000));
        }
        assert_eq!(on.reads("epochs", 40), 40, "after epoch {epoch}");
    }
    let labels = ["provider=\"gcp\"", "op=\"get\"", "result=\"ok\""];
    let counted = on.cluster.metric("forebay_backend_requests_total", &labels);
    assert!(counted >= 40.0, "our own count of backend reads is {counted}");

    let read = || {
        let (client, bucket) = (client.clone(), bucket.clone());
        tokio::spawn(async move { client.get_bytes(&bucket, "new", None).await.unwrap() })
    };
    on.gcs.put("epochs", "new", content("new", 1 << 20));
    let readers: Vec<_> = (0..16).map(|_| read()).collect();
    for reader in readers {
        assert_same("a concurrent reader", &reader.await.unwrap(), &content("new", 1 << 20));
    }
    assert_eq!(on.reads("epochs", 41), 41, "many readers, one fetch");
}

#[tokio::test]
async fn a_range_of_a_cold_object_is_exact() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("cold-range").await;
    let bytes = content("r", 20 << 20);
    on.gcs.put("cold-range", "r", bytes.clone());
    let client = on.cluster.client();
    let range = RangeSpec::From(15_000_000, Some(15_999_999));
    let got = client.get_bytes(&bucket, "r", Some(range)).await.unwrap();
    assert_same("a range", &got, &bytes[15_000_000..16_000_000]);
    assert_same("the whole", &client.get_bytes(&bucket, "r", None).await.unwrap(), &bytes);
}

#[tokio::test]
async fn a_put_is_written_through_and_a_delete_too() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("through").await;
    let client = on.cluster.client();
    // The large one goes up in chunks.
    for (name, size) in [("dir/größe 1%+x?.bin", 300_000), ("large", 70 << 20)] {
        let bytes = content(name, size);
        client.put(&bucket, name, bytes.clone(), None).await.unwrap();
        assert_same("at Google", &on.gcs.get("through", name).unwrap(), &bytes);
        assert_same("read back", &client.get_bytes(&bucket, name, None).await.unwrap(), &bytes);
        assert_eq!(on.gcs.reads("through"), 0, "what was put is cached");

        client.delete(&bucket, name).await.unwrap();
        assert_eq!(on.gcs.get("through", name), None);
        let gone = client.get_bytes(&bucket, name, None).await.unwrap_err();
        assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
    }
}

#[tokio::test]
async fn an_object_replaced_at_google_is_seen_where_freshness_is_always() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("fresh").await;
    let client = on.cluster.client();
    let set = serde_json::json!({ "action": "set-bprops", "value": { "freshness": "always" } });
    let url = format!("{}/v1/buckets/fresh?provider=gcp", on.cluster.endpoint);
    let answer = http::request("PATCH", &url).json(&set).send();
    assert_eq!(answer.status, 200, "{}", answer.text());

    on.gcs.put("fresh", "x", "old");
    for _ in 0..2 {
        assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "old");
    }
    assert_eq!(on.reads("fresh", 1), 1, "a comparison is not a read");
    on.gcs.put("fresh", "x", "new");
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "new");
    assert_eq!(on.reads("fresh", 2), 2);
}

#[tokio::test]
async fn head_and_list_show_what_google_has_without_reading_it() {
    let Some(on) = on_gcs() else { return };
    let bucket = on.bucket("merge").await;
    let client = on.cluster.client();
    for name in ["a/1", "a/2", "b"] {
        on.gcs.put("merge", name, content(name, 1000));
    }
    client.get_bytes(&bucket, "a/1", None).await.unwrap();
    for (name, present) in [("a/1", true), ("a/2", false)] {
        let head = client.head(&bucket, name).await.unwrap();
        assert_eq!((head.size, head.present), (1000, present), "{name}");
    }
    let msg = ListMsg { props: "name,size,cached".into(), ..ListMsg::default() };
    let page = client.list_page(&bucket, &msg).await.unwrap();
    let row =
        |e: &forebay_v1::list::Entry| (e.name.clone(), e.size, e.flags & entry_flags::PRESENT != 0);
    let rows: Vec<_> = page.entries.iter().map(row).collect();
    let expected = [("a/1", true), ("a/2", false), ("b", false)];
    assert_eq!(rows, expected.map(|(name, present)| (name.to_owned(), 1000, present)));
    assert_eq!(on.reads("merge", 1), 1, "only the GET read an object");
}

#[tokio::test]
async fn a_bucket_of_this_cluster_may_stand_for_one_at_google() {
    let Some(on) = on_gcs() else { return };
    on.gcs.create_bucket("far-away");
    on.gcs.put("far-away", "x", "there");
    let bucket = native("near");
    let backend = BackendSpec {
        endpoint: Some(on.gcs.url.clone()),
        ..BackendSpec::new(BackendKind::Gcs, "far-away")
    };
    let client = on.cluster.client();
    client.create_bucket(&bucket, Some(backend)).await.unwrap();
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "there");
    client.put(&bucket, "y", "back", None).await.unwrap();
    assert_eq!(on.gcs.get("far-away", "y").unwrap(), b"back");
}

#[tokio::test]
async fn things_missing_at_google_are_404() {
    let Some(on) = on_gcs() else { return };
    on.bucket("exists").await;
    // All names of the provider mean the same.
    for provider in ["gcp", "gs", "gcs"] {
        let url = |path: &str| format!("{}/v1/objects/{path}", on.cluster.endpoint);
        let url = |path: &str| format!("{}?provider={provider}", url(path));
        let no_object = http::request("GET", &url("exists/nothing")).follow();
        assert_eq!(no_object.status, 404, "{}", no_object.text());
        let message = no_object.message();
        assert!(message.contains("gs://exists/nothing does not exist"), "{message}");
        let no_bucket = http::request("GET", &url("no-such-bucket/x")).follow();
        assert_eq!(no_bucket.status, 404, "{}", no_bucket.text());
        assert_eq!(no_bucket.message(), "gcp bucket \"gs://no-such-bucket\" does not exist");
    }
}

#[tokio::test]
async fn without_credentials_google_is_403_and_the_answer_says_what_to_set() {
    let missing = "/nonexistent/key.json".to_owned();
    let env = vec![("GOOGLE_APPLICATION_CREDENTIALS".to_owned(), missing)];
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let url = format!("{}/v1/objects/guarded/x?provider=gcp", cluster.endpoint);
    let refused = http::request("GET", &url).follow();
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("GOOGLE_APPLICATION_CREDENTIALS"), "{}", refused.text());
}

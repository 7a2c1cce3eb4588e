//! Cloud buckets on a real MinIO: read once, kept, written through.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::job::{JobKind, Selection};
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{cloud, run_job};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::{Cluster, Minio, Options, Proxy, Shared, http, minio, ports, wait};
use forebay_v1::list::{ListMsg, entry_flags, flags};
use tokio::sync::Mutex;

const TIMEOUT: Duration = Duration::from_secs(20);

struct OnMinio {
    cluster: Cluster,
    minio: Minio,
}

static ON_MINIO: Shared<OnMinio> = Shared::new();

/// Held by every test that reads from MinIO, as its counters are one for all buckets.
static TURN: Mutex<()> = Mutex::const_new(());

/// The cluster and its MinIO; `None` where there is no MinIO.
fn on_minio() -> Option<Arc<OnMinio>> {
    ON_MINIO.try_get(|| {
        let minio = Minio::start()?;
        let cluster = Cluster::start(Options { env: minio.env(), ..Options::default() });
        Some(OnMinio { cluster, minio })
    })
}

impl OnMinio {
    /// A bucket at MinIO that the cluster knows.
    async fn bucket(&self, name: &str) -> Bucket {
        self.minio.create_bucket(name).await;
        let bucket = cloud(name);
        self.cluster.client().head_bucket(&bucket).await.unwrap();
        bucket
    }

    /// Object reads that MinIO has counted; waits until there are as many as expected.
    fn reads_since(&self, before: u64, expected: u64) -> u64 {
        wait::until("MinIO has counted its reads", TIMEOUT, || {
            self.minio.count("GetObject") >= before + expected
        });
        self.minio.count("GetObject") - before
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_get_fetches_once_for_many_readers() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    let bucket = on.bucket("once").await;
    let bytes = content("x", 1 << 20);
    on.minio.put("once", "dir/x", bytes.clone()).await;
    let client = on.cluster.client();
    let before = on.minio.count("GetObject");

    let read = || {
        let (client, bucket) = (client.clone(), bucket.clone());
        tokio::spawn(async move { client.get_bytes(&bucket, "dir/x", None).await.unwrap() })
    };
    let readers: Vec<_> = (0..24).map(|_| read()).collect();
    for reader in readers {
        assert_same("a concurrent reader", &reader.await.unwrap(), &bytes);
    }
    assert_eq!(on.reads_since(before, 1), 1);

    for _ in 0..3 {
        assert_same("a warm read", &read().await.unwrap(), &bytes);
    }
    assert_eq!(on.reads_since(before, 1), 1, "warm reads do not reach MinIO");
}

#[tokio::test]
async fn a_second_epoch_reads_nothing_from_the_cloud() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    let bucket = on.bucket("epochs").await;
    let names = names(60);
    for name in &names {
        on.minio.put("epochs", name, content(name, 10_000)).await;
    }
    let client = on.cluster.client();
    let before = on.minio.count("GetObject");
    let hits = || on.cluster.metric("forebay_get_bytes_total", &["result=\"hit\""]);
    for epoch in 1..=2 {
        let hits_before = hits();
        for name in &names {
            let got = client.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &content(name, 10_000));
        }
        assert_eq!(on.reads_since(before, 60), 60, "after epoch {epoch}");
        if epoch == 2 {
            assert_eq!(hits() - hits_before, 600_000.0, "hit bytes equal the data's bytes");
        }
    }
    let counted =
        on.cluster.metric("forebay_backend_requests_total", &["op=\"get\"", "result=\"ok\""]);
    assert!(counted >= 60.0, "our own count of backend reads is {counted}");
}

#[tokio::test]
async fn a_range_of_a_cold_object_is_exact() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    let bucket = on.bucket("cold-range").await;
    let bytes = content("r", 20 << 20);
    on.minio.put("cold-range", "r", bytes.clone()).await;
    let client = on.cluster.client();
    let range = forebay_core::size::RangeSpec::From(15_000_000, Some(15_999_999));
    let got = client.get_bytes(&bucket, "r", Some(range)).await.unwrap();
    assert_same("a range", &got, &bytes[15_000_000..16_000_000]);
    assert_same("the whole", &client.get_bytes(&bucket, "r", None).await.unwrap(), &bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_breaks_leaves_nothing_and_the_next_one_is_whole() {
    let Some(minio) = Minio::start() else { return };
    let proxy = Proxy::start(&minio.url);
    let env = minio::env(&proxy.url, "minioadmin", "minioadmin");
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    minio.create_bucket("breaks").await;
    let bucket = cloud("breaks");
    let bytes = content("x", 3 << 20);
    minio.put("breaks", "x", bytes.clone()).await;
    minio.put("breaks", "resumed", bytes.clone()).await;
    let impatient = cluster.client_with_deadline(Duration::from_secs(2));
    assert_eq!(impatient.head(&bucket, "x").await.unwrap().size, 3 << 20);

    // An interrupted connection costs another request, not the object.
    proxy.cut_after(2 << 20);
    let got = cluster.client().get_bytes(&bucket, "resumed", None).await.unwrap();
    assert_same("resumed", &got, &bytes);
    assert!(proxy.cuts() > 0);

    // The beginning arrives, and then nothing more.
    let before = proxy.cuts();
    proxy.cut_after(64 << 10);
    let reading = tokio::spawn({
        let (client, bucket) = (impatient.clone(), bucket.clone());
        async move { client.get_bytes(&bucket, "x", None).await.map(|got| got.len()) }
    });
    wait::until("some of it has come", TIMEOUT, || proxy.cuts() > before + 1);
    proxy.cut_after(0);
    let broken = reading.await.unwrap();
    assert!(broken.is_err(), "{broken:?}");
    proxy.heal();
    assert!(!impatient.head(&bucket, "x").await.unwrap().present, "nothing of it is kept");
    proxy.cut_after(0);
    // A foreign client sees an error or a body that ends early, never a short body that looks
    // complete.
    let url = cluster.object_url("breaks", "x?provider=aws");
    match http::request("GET", &url).send().header("location") {
        Some(there) => {
            let answer = http::request("GET", there).try_send();
            assert!(answer.is_err() || answer.unwrap().status >= 500);
        }
        None => panic!("no redirect"),
    }

    proxy.heal();
    let client = cluster.client();
    assert_same("healed", &client.get_bytes(&bucket, "x", None).await.unwrap(), &bytes);
    assert!(client.head(&bucket, "x").await.unwrap().present);
    proxy.cut_after(0);
    assert_same("cached", &client.get_bytes(&bucket, "x", None).await.unwrap(), &bytes);

    // The cloud accepts a PUT, but its response is lost: the PUT fails, and the cluster never
    // serves an older version than the cloud.
    let refused = impatient.put(&bucket, "x", "other", None).await.unwrap_err();
    assert!(refused.code().status() >= 500, "{refused}");
    proxy.heal();
    let there = minio.get("breaks", "x").await.unwrap();
    assert_same("here as there", &client.get_bytes(&bucket, "x", None).await.unwrap(), &there);
}

#[tokio::test]
async fn a_put_is_written_through_and_a_delete_too() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    let bucket = on.bucket("through").await;
    let client = on.cluster.client();
    let name = "dir/größe 1%+x?.bin";
    let bytes = content(name, 300_000);
    client.put(&bucket, name, bytes.clone(), None).await.unwrap();
    // In this order, because MinIO counts a read some time after its response.
    let before = on.minio.count("GetObject");
    assert_same("read back", &client.get_bytes(&bucket, name, None).await.unwrap(), &bytes);
    assert_eq!(on.minio.count("GetObject"), before, "what was put is cached");
    assert_same("in MinIO", &on.minio.get("through", name).await.unwrap(), &bytes);

    client.delete(&bucket, name).await.unwrap();
    assert_eq!(on.minio.get("through", name).await, None);
    let gone = client.get_bytes(&bucket, name, None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
}

#[tokio::test]
async fn head_and_list_show_what_the_cloud_has_without_reading_it() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    let bucket = on.bucket("merge").await;
    let client = on.cluster.client();
    for name in ["a/1", "a/2", "b"] {
        on.minio.put("merge", name, content(name, 1000)).await;
    }
    let before = on.minio.count("GetObject");
    let head = client.head(&bucket, "a/2").await.unwrap();
    assert_eq!((head.size, head.present), (1000, false));
    client.get_bytes(&bucket, "a/1", None).await.unwrap();
    let head = client.head(&bucket, "a/1").await.unwrap();
    assert_eq!((head.size, head.present), (1000, true));

    let msg = ListMsg { props: "name,size,cached".into(), ..ListMsg::default() };
    let page = client.list_page(&bucket, &msg).await.unwrap();
    let rows: Vec<_> = page
        .entries
        .iter()
        .map(|e| (e.name.as_str(), e.size, e.flags & entry_flags::PRESENT != 0))
        .collect();
    assert_eq!(rows, [("a/1", 1000, true), ("a/2", 1000, false), ("b", 1000, false)]);
    let cached = ListMsg { flags: flags::CACHED, ..msg };
    let page = client.list_page(&bucket, &cached).await.unwrap();
    assert_eq!(page.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["a/1"]);
    assert_eq!(on.minio.count("GetObject") - before, 1, "only the GET read an object");
}

#[tokio::test]
async fn what_was_evicted_is_read_from_the_cloud_again() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    let bucket = on.bucket("evict").await;
    let client = on.cluster.client();
    let names = names(20);
    for name in &names {
        on.minio.put("evict", name, content(name, 5000)).await;
    }
    let before = on.minio.count("GetObject");
    let whole = || Selection::Prefix(String::new());
    assert_eq!(run_job(&on.cluster, JobKind::Prefetch, &bucket, whole()).await, 20);
    assert_eq!(on.reads_since(before, 20), 20, "the prefetch read each object once");
    for name in &names {
        assert_same(
            name,
            &client.get_bytes(&bucket, name, None).await.unwrap(),
            &content(name, 5000),
        );
    }
    assert_eq!(on.reads_since(before, 20), 20, "after a prefetch nothing is cold");

    let some = Selection::Names(names[..5].to_vec());
    assert_eq!(run_job(&on.cluster, JobKind::Evict, &bucket, some).await, 5);
    assert!(!client.head(&bucket, &names[0]).await.unwrap().present);
    // The cloud's content changed while no copy was here.
    on.minio.put("evict", &names[0], b"new".to_vec()).await;
    assert_eq!(client.get_bytes(&bucket, &names[0], None).await.unwrap(), "new");
    for name in &names[1..] {
        assert_same(
            name,
            &client.get_bytes(&bucket, name, None).await.unwrap(),
            &content(name, 5000),
        );
    }
    assert_eq!(on.reads_since(before, 25), 25);

    client.evict_bucket(&bucket, false).await.unwrap();
    assert!(on.minio.get("evict", &names[1]).await.is_some(), "evicting leaves the cloud alone");
    let got = client.get_bytes(&bucket, &names[1], None).await.unwrap();
    assert_same("the bucket is known again on first use", &got, &content(&names[1], 5000));
}

#[tokio::test]
async fn things_missing_in_the_cloud_are_404() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    on.bucket("exists").await;
    let url = |path: &str| format!("{}/v1/objects/{path}?provider=aws", on.cluster.endpoint);
    let no_object = http::request("GET", &url("exists/nothing")).follow();
    assert_eq!(no_object.status, 404, "{}", no_object.text());
    let message = no_object.message();
    assert!(message.contains("s3://exists/nothing does not exist"), "{message}");
    let no_bucket = http::request("GET", &url("no-such-bucket/x")).follow();
    assert_eq!(no_bucket.status, 404, "{}", no_bucket.text());
    assert_eq!(no_bucket.message(), "aws bucket \"s3://no-such-bucket\" does not exist");
}

#[tokio::test]
async fn wrong_credentials_are_403_and_the_answer_says_what_to_set() {
    let Some(on) = on_minio() else { return };
    let _turn = TURN.lock().await;
    on.minio.create_bucket("guarded").await;
    on.minio.put("guarded", "x", b"secret".to_vec()).await;
    let env = minio::env(&on.minio.url, "minioadmin", "not-the-password");
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let url = format!("{}/v1/objects/guarded/x?provider=aws", cluster.endpoint);
    let refused = http::request("GET", &url).follow();
    assert_eq!(refused.status, 403, "{}", refused.text());
    let said = refused.text();
    assert!(said.contains("AWS_ACCESS_KEY_ID"), "{said}");
    assert!(!said.contains("not-the-password"), "{said}");
    assert!(!said.contains("<?xml"), "{said}");
}

#[tokio::test]
async fn an_unreachable_cloud_is_503_and_names_the_address() {
    let port = ports::free(1);
    let endpoint = format!("http://127.0.0.1:{port}");
    let env = minio::env(&endpoint, "a", "b");
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let url = format!("{}/v1/buckets/far?provider=aws", cluster.endpoint);
    let create = serde_json::json!({"action": "create-bck"});
    let registered =
        http::request("POST", &format!("{url}&dont_head_remote_bck=true")).json(&create);
    assert_eq!(registered.send().status, 200, "registered without a look at the cloud");
    let url = format!("{}/v1/objects/far/x?provider=aws", cluster.endpoint);
    let refused = http::request("GET", &url).follow();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert!(refused.text().contains(&port.to_string()), "{}", refused.text());
}

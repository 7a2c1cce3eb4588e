//! Containers of Azure Blob Storage on a real Azurite: read once, kept, written through.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::bucket::{BackendKind, BackendSpec};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::azure::{ACCOUNT, SAS};
use forebay_tests::cluster::{azure, native};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::{Azurite, Cluster, Options, Shared, http, s3, wait};

const TIMEOUT: Duration = Duration::from_secs(20);

struct OnAzure {
    cluster: Cluster,
    azurite: Azurite,
}

static ON_AZURE: Shared<OnAzure> = Shared::new();

/// The cluster and its Azurite; `None` where there is none.
fn on_azure() -> Option<Arc<OnAzure>> {
    ON_AZURE.try_get(|| {
        let azurite = Azurite::start()?;
        let cluster = Cluster::start(Options { env: azurite.env(), ..Options::default() });
        Some(OnAzure { cluster, azurite })
    })
}

impl OnAzure {
    /// A container at the emulator that the cluster knows.
    async fn bucket(&self, name: &str) -> Bucket {
        self.azurite.create_container(name);
        let bucket = azure(name);
        self.cluster.client().head_bucket(&bucket).await.unwrap();
        bucket
    }

    /// Object reads that the emulator has logged; waits until there are as many as expected.
    fn reads(&self, bucket: &str, expected: u64) -> u64 {
        wait::until("its log has the reads", TIMEOUT, || self.azurite.reads(bucket) >= expected);
        self.azurite.reads(bucket)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_epoch_reads_nothing_from_azure() {
    let Some(on) = on_azure() else { return };
    let bucket = on.bucket("epochs").await;
    let names = names(40);
    for name in &names {
        on.azurite.put("epochs", name, content(name, 10_000));
    }
    let client = on.cluster.client();
    for epoch in 1..=2 {
        for name in &names {
            let got = client.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &content(name, 10_000));
        }
        assert_eq!(on.reads("epochs", 40), 40, "after epoch {epoch}");
    }
    let labels = ["provider=\"azure\"", "op=\"get\"", "result=\"ok\""];
    let counted = on.cluster.metric("forebay_backend_requests_total", &labels);
    assert!(counted >= 40.0, "our own count of backend reads is {counted}");
}

#[tokio::test]
async fn a_range_of_a_cold_object_is_exact() {
    let Some(on) = on_azure() else { return };
    let bucket = on.bucket("cold-range").await;
    let bytes = content("r", 20 << 20);
    on.azurite.put("cold-range", "r", bytes.clone());
    let client = on.cluster.client();
    let range = RangeSpec::From(15_000_000, Some(15_999_999));
    let got = client.get_bytes(&bucket, "r", Some(range)).await.unwrap();
    assert_same("a range", &got, &bytes[15_000_000..16_000_000]);
    assert_same("the whole", &client.get_bytes(&bucket, "r", None).await.unwrap(), &bytes);
}

#[tokio::test]
async fn a_put_is_written_through_and_a_delete_too() {
    let Some(on) = on_azure() else { return };
    let bucket = on.bucket("through").await;
    let client = on.cluster.client();
    // The large one goes up in blocks.
    for (name, size) in [("small.bin", 300_000), ("large", 70 << 20)] {
        let bytes = content(name, size);
        client.put(&bucket, name, bytes.clone(), None).await.unwrap();
        assert_same("at Azure", &on.azurite.get("through", name).unwrap().body, &bytes);
        assert_same("read back", &client.get_bytes(&bucket, name, None).await.unwrap(), &bytes);
        assert_eq!(on.azurite.reads("through"), 0, "what was put is cached");

        client.delete(&bucket, name).await.unwrap();
        assert!(on.azurite.get("through", name).is_none());
        let gone = client.get_bytes(&bucket, name, None).await.unwrap_err();
        assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
    }
}

#[tokio::test]
async fn what_s3_says_of_an_object_goes_to_azure_and_comes_back() {
    let Some(on) = on_azure() else { return };
    let bucket = on.bucket("labels").await;
    let node = &on.cluster.endpoint;
    let put = s3::request("PUT", node, "labels/cat.png").header("content-type", "image/png");
    let put = put.header("x-amz-meta-label", "cat no. 7").body("a cat").send_as(s3::OWNER);
    assert_eq!(put.status, 200, "{}", put.text());
    let there = on.azurite.get("labels", "cat.png").unwrap();
    assert_eq!(there.header("content-type"), Some("image/png"));
    assert_eq!(there.header("x-ms-meta-label"), Some("cat no. 7"));

    on.cluster.client().evict_bucket(&bucket, true).await.unwrap();
    let get = s3::request("GET", node, "labels/cat.png").send_as(s3::OWNER);
    assert_eq!(get.text(), "a cat");
    assert_eq!(get.header("content-type"), Some("image/png"), "from Azure again");
    assert_eq!(get.header("x-amz-meta-label"), Some("cat no. 7"));
}

#[tokio::test]
async fn a_listing_of_many_pages_is_whole() {
    let Some(on) = on_azure() else { return };
    let bucket = on.bucket("pages").await;
    let mut names: Vec<_> = (0..120).map(|n| format!("n{n:03}")).collect();
    for name in &names {
        on.azurite.put("pages", name, "x");
    }
    names.sort();
    let client = on.cluster.client();
    let mut msg = forebay_v1::list::ListMsg { page_size: 50, ..Default::default() };
    let mut listed = Vec::new();
    loop {
        let page = client.list_page(&bucket, &msg).await.unwrap();
        listed.extend(page.entries.into_iter().map(|e| e.name));
        if page.token.is_empty() {
            break;
        }
        (msg.uuid, msg.token) = (page.uuid, page.token);
    }
    assert_eq!(listed, names);
}

#[tokio::test]
async fn a_bucket_of_this_cluster_may_stand_for_one_at_azure() {
    let Some(on) = on_azure() else { return };
    on.azurite.create_container("far-away");
    on.azurite.put("far-away", "x", "there");
    let bucket = native("near");
    let backend = BackendSpec {
        endpoint: Some(on.azurite.url.clone()),
        ..BackendSpec::new(BackendKind::Azure, "far-away")
    };
    let client = on.cluster.client();
    client.create_bucket(&bucket, Some(backend)).await.unwrap();
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "there");
    client.put(&bucket, "y", "back", None).await.unwrap();
    assert_eq!(on.azurite.get("far-away", "y").unwrap().body, b"back");
}

#[tokio::test]
async fn things_missing_at_azure_are_404() {
    let Some(on) = on_azure() else { return };
    on.bucket("exists").await;
    // Both names of the provider mean the same.
    for provider in ["azure", "az"] {
        let url =
            |path: &str| format!("{}/v1/objects/{path}?provider={provider}", on.cluster.endpoint);
        let no_object = http::request("GET", &url("exists/nothing")).follow();
        assert_eq!(no_object.status, 404, "{}", no_object.text());
        let message = no_object.message();
        assert!(message.contains("az://exists/nothing does not exist"), "{message}");
        let no_bucket = http::request("GET", &url("no-such-bucket/x")).follow();
        assert_eq!(no_bucket.status, 404, "{}", no_bucket.text());
        assert_eq!(no_bucket.message(), "azure bucket \"az://no-such-bucket\" does not exist");
    }
}

#[tokio::test]
async fn a_shared_access_signature_is_enough_and_none_says_what_to_set() {
    let Some(on) = on_azure() else { return };
    on.azurite.create_container("guarded");
    on.azurite.put("guarded", "x", "seen");
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let account = set("AZURE_STORAGE_ACCOUNT", ACCOUNT);
    let endpoint = set("AZURE_STORAGE_ENDPOINT", &on.azurite.url);
    let read = |env: Vec<(String, String)>| {
        let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
        let url = format!("{}/v1/objects/guarded/x?provider=azure", cluster.endpoint);
        http::request("GET", &url).follow()
    };
    let sas = vec![account.clone(), endpoint.clone(), set("AZURE_STORAGE_SAS_TOKEN", SAS)];
    let with = read(sas);
    assert_eq!((with.status, with.text().as_str()), (200, "seen"));
    let without = read(vec![account, endpoint]);
    assert!(matches!(without.status, 403 | 404), "{}", without.text());
    assert!(without.text().contains("AZURE_STORAGE_KEY"), "{}", without.text());
    assert!(without.text().contains("az://guarded"), "{}", without.text());
}

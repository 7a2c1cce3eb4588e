//! Buckets of another cluster, attached by an alias: read once, kept, written through.

use forebay_core::job::{JobKind, Selection};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{folder_backend, native, run_job};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::{Cluster, Options, http};
use forebay_v1::list::ListMsg;

/// A cluster that has the data, and one that accesses it as `far`.
struct Two {
    far: Cluster,
    near: Cluster,
}

async fn two() -> Two {
    let small = || Cluster::start(Options { targets: 2, ..Options::default() });
    let (far, near) = (small(), small());
    near.client().attach_cluster("far", &far.endpoint).await.unwrap();
    Two { far, near }
}

fn attached(name: &str) -> Bucket {
    Bucket::parse_uri(&format!("ais://@far/{name}")).unwrap().0
}

#[tokio::test]
async fn a_second_epoch_asks_the_other_cluster_for_nothing() {
    let Two { far, near } = two().await;
    let (there, here) = (far.client(), near.client());
    there.create_bucket(&native("epochs"), None).await.unwrap();
    let names = names(20);
    for name in &names {
        there.put(&native("epochs"), name, content(name, 10_000), None).await.unwrap();
    }
    let bucket = attached("epochs");
    let reads = || far.metric("forebay_http_requests_total", &["op=\"get\"", "result=\"ok\""]);
    let before = reads();
    for _ in 0..2 {
        for name in &names {
            let got = here.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &content(name, 10_000));
        }
    }
    let labels = ["provider=\"ais\"", "op=\"get\"", "result=\"ok\""];
    assert_eq!(near.metric("forebay_backend_requests_total", &labels), 20.0);
    assert!(reads() > before, "the reads were those of the other cluster");

    let large = content("large", 20 << 20);
    there.put(&native("epochs"), "large", large.clone(), None).await.unwrap();
    let range = RangeSpec::From(15_000_000, Some(15_999_999));
    let got = here.get_bytes(&bucket, "large", Some(range)).await.unwrap();
    assert_same("a range", &got, &large[15_000_000..16_000_000]);
}

#[tokio::test]
async fn writes_deletes_and_listings_are_those_of_the_other_cluster() {
    let Two { far, near } = two().await;
    let (there, here) = (far.client(), near.client());
    there.create_bucket(&native("through"), None).await.unwrap();
    let bucket = attached("through");
    for (name, size) in [("dir/größe 1%+x?.bin", 300_000), ("empty", 0)] {
        let bytes = content(name, size);
        here.put(&bucket, name, bytes.clone(), None).await.unwrap();
        let got = there.get_bytes(&native("through"), name, None).await.unwrap();
        assert_same("there", &got, &bytes);
    }
    there.put(&native("through"), "z", "made there", None).await.unwrap();
    let mut msg = ListMsg { page_size: 2, ..ListMsg::default() };
    let mut listed = Vec::new();
    loop {
        let page = here.list_page(&bucket, &msg).await.unwrap();
        listed.extend(page.entries.into_iter().map(|e| (e.name, e.size)));
        if page.token.is_empty() {
            break;
        }
        (msg.uuid, msg.token) = (page.uuid, page.token);
    }
    let expected = [("dir/größe 1%+x?.bin", 300_000), ("empty", 0), ("z", 10)];
    assert_eq!(listed, expected.map(|(name, size)| (name.to_owned(), size)));

    here.delete(&bucket, "z").await.unwrap();
    let gone = there.get_bytes(&native("through"), "z", None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
    let gone = here.get_bytes(&bucket, "z", None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
}

#[tokio::test]
async fn an_object_replaced_there_is_seen_where_freshness_is_always() {
    let Two { far, near } = two().await;
    let (there, here) = (far.client(), near.client());
    there.create_bucket(&native("fresh"), None).await.unwrap();
    let bucket = attached("fresh");
    there.put(&native("fresh"), "x", "old", None).await.unwrap();
    assert_eq!(here.get_bytes(&bucket, "x", None).await.unwrap(), "old");
    let set = serde_json::json!({ "action": "set-bprops", "value": { "freshness": "always" } });
    let url = format!("{}/v1/buckets/fresh?provider=ais&namespace=%40far%23", near.endpoint);
    let answer = http::request("PATCH", &url).json(&set).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    // A new object there begins with a new version.
    there.delete(&native("fresh"), "x").await.unwrap();
    there.put(&native("fresh"), "x", "new", None).await.unwrap();
    assert_eq!(here.get_bytes(&bucket, "x", None).await.unwrap(), "new");
}

/// The ETag by HEAD, and the version by HEAD, with the bytes, and in a listing: v1 sends the first in answer
/// to HEAD alone.
async fn described(near: &Cluster, bucket: &Bucket, name: &str) -> [(String, String); 3] {
    let url = format!("{}/v1/objects/{}/{name}?namespace=%40far%23", near.endpoint, bucket.name);
    let of = |method: &str| {
        let answer = http::request(method, &url).follow();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
        (header("etag"), header("ais-version"))
    };
    let head = of("HEAD");
    let msg = ListMsg { props: "name,version".into(), ..ListMsg::default() };
    let page = near.client().list_page(bucket, &msg).await.unwrap();
    let row = page.entries.into_iter().find(|row| row.name == name).unwrap();
    let listed = (head.0.clone(), row.version);
    let read = (head.0.clone(), of("GET").1);
    [head, read, listed]
}

#[tokio::test]
async fn an_object_has_one_etag_before_and_after_the_other_cluster_caches_it() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("behind");
    std::fs::create_dir(&folder).unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let far = Cluster::start(Options { targets: 2, folder_roots, ..Options::default() });
    let near = Cluster::start(Options { targets: 2, ..Options::default() });
    near.client().attach_cluster("far", &far.endpoint).await.unwrap();
    far.client().create_bucket(&native("behind"), Some(folder_backend(&folder))).await.unwrap();
    let bucket = attached("behind");
    std::fs::write(folder.join("x"), "first").unwrap();
    near.client().head_bucket(&bucket).await.unwrap();
    near.client().set_bucket(&bucket, serde_json::json!({ "freshness": "always" })).await.unwrap();
    let here = near.client();
    let fetched =
        || near.metric("forebay_backend_requests_total", &["provider=\"ais\"", "op=\"get\""]);

    let head = |name: &str| {
        let url = format!("{}/v1/objects/behind/{name}?namespace=%40far%23", near.endpoint);
        let answer = http::request("HEAD", &url).follow();
        answer.header("etag").unwrap_or_default().to_owned()
    };
    let cold = head("x");
    assert!(!cold.is_empty());
    // Now both clusters have a copy, the other one with a checksum of its own.
    assert_eq!(here.get_bytes(&bucket, "x", None).await.unwrap(), "first");
    assert_eq!(far.client().get_bytes(&native("behind"), "x", None).await.unwrap(), "first");
    let first = described(&near, &bucket, "x").await;
    for (etag, version) in &first {
        assert_eq!((etag, version), (&cold, &first[0].1), "{first:?}");
    }
    assert_eq!(fetched(), 1.0, "what the other cluster keeps does not make it another object");

    // A copy that the other cluster drops, and one that it never had, change nothing.
    let selection = Selection::Names(vec!["x".into()]);
    assert_eq!(run_job(&far, JobKind::Evict, &native("behind"), selection).await, 1);
    assert_eq!(described(&near, &bucket, "x").await, first);
    assert_eq!(fetched(), 1.0);

    std::fs::write(folder.join("x"), "second").unwrap();
    let selection = Selection::Names(vec!["x".into()]);
    run_job(&far, JobKind::Evict, &native("behind"), selection).await;
    assert_eq!(here.get_bytes(&bucket, "x", None).await.unwrap(), "second");
    assert_ne!(head("x"), cold);
}

#[tokio::test]
async fn what_is_missing_is_named_and_what_to_do() {
    let Two { far, near } = two().await;
    let here = near.client();
    far.client().create_bucket(&native("exists"), None).await.unwrap();
    let missing = here.get_bytes(&attached("exists"), "x", None).await.unwrap_err();
    assert_eq!(missing.code(), ErrorCode::ObjectNotFound, "{missing}");
    assert!(missing.to_string().contains("ais://@far/exists/x"), "{missing}");
    let url = format!("{}/v1/objects/nothing/x?namespace=%40far%23", near.endpoint);
    let missing = http::request("GET", &url).follow();
    assert_eq!(missing.status, 404, "{}", missing.text());
    assert_eq!(missing.message(), "remote bucket \"ais://@far/nothing\" does not exist");

    let stranger = Bucket::parse_uri("ais://@stranger/b").unwrap().0;
    let unknown = here.get_bytes(&stranger, "x", None).await.unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::RemoteBucketNotFound, "{unknown}");
    assert!(unknown.to_string().contains("remote attach stranger"), "{unknown}");
}

#[tokio::test]
async fn a_cluster_is_attached_listed_and_detached_as_aistores_clients_do() {
    let Two { far, near } = two().await;
    let listed = || http::get(&format!("{}/v1/cluster?what=remote", near.endpoint)).json();
    assert_eq!(listed()["a"][0]["alias"], "far");
    assert_eq!(listed()["a"][0]["url"].as_str(), Some(far.endpoint.as_str()));
    let attach = http::request("PUT", &format!("{}/v1/cluster/attach?what=remote", near.endpoint));
    let attach = attach.header("Ais-Remote-Ais-Alias", "again");
    let attach = attach.header("Ais-Remote-Ais-Url", &far.endpoint).send();
    assert_eq!(attach.status, 200, "{}", attach.text());
    assert_eq!(listed()["a"].as_array().unwrap().len(), 2);

    far.client().create_bucket(&native("b"), None).await.unwrap();
    near.client().head_bucket(&attached("b")).await.unwrap();
    near.client().detach_cluster("far").await.unwrap();
    assert_eq!(listed()["a"].as_array().unwrap().len(), 1);
    let gone = near.client().head_bucket(&attached("b")).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::RemoteBucketNotFound, "{gone}");
    let twice = near.client().detach_cluster("far").await.unwrap_err();
    assert!(twice.to_string().contains("far"), "{twice}");
}

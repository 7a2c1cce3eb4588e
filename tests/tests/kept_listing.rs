//! Cached listings of cloud buckets. The next listing costs no request to the cloud, changes by the
//! cluster are visible immediately, changes by others after the configured age. A sync removes
//! cached copies of objects that the cloud no longer has.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_client::{Client, ClientConfig};
use forebay_core::Bucket;
use forebay_core::cloud_rules::FRESH_LISTING;
use forebay_core::job::{JobKind, JobState, Selection};
use forebay_tests::cluster::{cloud, folder_backend, native, run_job};
use forebay_tests::data::content;
use forebay_tests::{Cluster, Gate, Minio, Options, minio, wait};
use forebay_v1::list::{ListMsg, flags};
use futures::{StreamExt, stream};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_secs(60);

async fn names(client: &Client, bucket: &Bucket, prefix: &str) -> Vec<String> {
    let listed = client.list_all(bucket, prefix).await.unwrap();
    listed.into_iter().map(|(name, _)| name).collect()
}

fn whole() -> Selection {
    Selection::Prefix(String::new())
}

/// A cluster with a bucket at MinIO whose listings may be ten minutes old.
async fn kept(name: &str, objects: usize) -> Option<(Cluster, Minio, Bucket, Vec<String>)> {
    let minio = Minio::start()?;
    let cluster = Cluster::start(Options { gateways: 2, env: minio.env(), ..Options::default() });
    minio.create_bucket(name).await;
    let objects: Vec<String> = (0..objects).map(|n| format!("d/{n:05}")).collect();
    let put = |object: &String| {
        let (minio, object) = (&minio, object.clone());
        async move { minio.put(name, &object, content(&object, 100)).await }
    };
    stream::iter(&objects).map(put).buffer_unordered(16).collect::<Vec<_>>().await;
    let (client, bucket) = (cluster.client(), cloud(name));
    client.head_bucket(&bucket).await.unwrap();
    client.set_bucket(&bucket, json!({"cloud": {"list_max_age_ms": "10m"}})).await.unwrap();
    Some((cluster, minio, bucket, objects))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_listing_asks_the_cloud_nothing_and_has_what_we_wrote_since() {
    let Some((cluster, minio, bucket, mut all)) = kept("kept", 2300).await else { return };
    let client = cluster.client();
    assert_eq!(names(&client, &bucket, "").await, all);
    let lists = || cluster.metric("forebay_backend_requests_total", &["op=\"list\""]);
    let before = (lists(), minio.count("ListObjectsV2"));
    assert!(before.0 >= 3.0);

    // By the other gateway, too, and of a part.
    let other = Client::new(ClientConfig::new(&cluster.gateways[1].url)).unwrap();
    assert_eq!(names(&other, &bucket, "").await, all);
    assert_eq!(names(&client, &bucket, "d/01").await, all[1000..2000]);
    // Changes by the cluster are visible immediately, at both gateways.
    for (put, gone) in [("d/00000-new", 7), ("e", 2290), ("a", 0)] {
        client.put(&bucket, put, content(put, 50), None).await.unwrap();
        client.delete(&bucket, &all.remove(gone)).await.unwrap();
        all.push(put.to_owned());
        all.sort();
        assert_eq!(names(&client, &bucket, "").await, all, "{put}");
        assert_eq!(names(&other, &bucket, "").await, all, "{put}");
    }
    assert_eq!(run_job(&cluster, JobKind::Prefetch, &bucket, whole()).await, 2297);
    let page = ListMsg { prefix: "d/00".into(), ..ListMsg::default() };
    let page = client.list_page(&bucket, &page).await.unwrap();
    assert!(page.entries.iter().all(|entry| entry.flags & 64 != 0), "all is cached by now");
    assert_eq!((lists(), minio.count("ListObjectsV2")), before, "nobody asked the cloud");

    // Changes by others are visible in a fresh listing, or when the cached one is too old.
    minio.put("kept", "d/00000-theirs", b"theirs".to_vec()).await;
    assert_eq!(names(&client, &bucket, "").await, all);
    let fresh = ClientConfig {
        cloud_retry: Some(FRESH_LISTING.into()),
        ..ClientConfig::new(&cluster.endpoint)
    };
    let fresh = names(&Client::new(fresh).unwrap(), &bucket, "").await;
    assert!(fresh.contains(&"d/00000-theirs".to_owned()));
    minio.put("kept", "d/00001-theirs", b"theirs".to_vec()).await;
    // The same with the command line.
    let theirs = |args: &[&str]| {
        let (text, code) = cluster.cli(&[&["ls", "s3://kept/d/0000", "-o", "name"], args].concat());
        assert_eq!(code, 0, "{text}");
        text.lines().filter(|name| name.ends_with("theirs")).count()
    };
    assert_eq!((theirs(&[]), theirs(&["--fresh"])), (1, 2));
    minio.put("kept", "d/00002-theirs", b"theirs".to_vec()).await;
    client.set_bucket(&bucket, json!({"cloud": {"list_max_age_ms": 700}})).await.unwrap();
    wait::until_async("the listing is too old", TIMEOUT, || async {
        names(&client, &bucket, "").await.contains(&"d/00002-theirs".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_names_in_one_hot_folder_are_listed_once_and_in_order() {
    let root = tempfile::tempdir().unwrap();
    let mut all = BTreeSet::new();
    for n in 0..100_000 {
        let name = match n % 50 {
            0 => format!("cold-{n:06}/x"),
            1 => format!("é/{n}"),
            _ => format!("hot/{n:x}"),
        };
        let path = root.path().join(&name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::File::create(path).unwrap();
        all.insert(name);
    }
    let all: Vec<String> = all.into_iter().collect();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("hot"));
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    client.set_bucket(&bucket, json!({"cloud": {"list_max_age_ms": "1h"}})).await.unwrap();
    assert!(names(&client, &bucket, "").await == all, "complete, sorted, each once");
    let lists = || cluster.metric("forebay_backend_requests_total", &["op=\"list\""]);
    let before = lists();
    assert!(names(&client, &bucket, "").await == all);
    assert_eq!(names(&client, &bucket, "é/").await.len(), 2000);
    assert_eq!(lists(), before);
    // The targets that kept the listing restart: it is fetched again.
    for target in &cluster.targets {
        cluster.kill9(&target.id);
        cluster.restart(&target.id);
    }
    assert!(names(&client, &bucket, "").await == all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_drops_copies_of_what_is_gone_and_fetches_what_changed() {
    let Some((cluster, minio, bucket, all)) = kept("sync", 60).await else { return };
    let client = cluster.client();
    // Only the sync compares versions.
    client.set_bucket(&bucket, json!({"freshness": "never"})).await.unwrap();
    assert_eq!(run_job(&cluster, JobKind::Prefetch, &bucket, whole()).await, 60);
    for name in &all[..10] {
        minio.s3().delete_object().bucket("sync").key(name).send().await.unwrap();
    }
    for name in &all[10..15] {
        minio.put("sync", name, b"changed".to_vec()).await;
    }
    client.set_bucket(&bucket, json!({"cloud": {"list_max_age_ms": 0}})).await.unwrap();
    assert_eq!(client.get_bytes(&bucket, &all[12], None).await.unwrap(), content(&all[12], 100));
    let before = minio.count("GetObject");

    let id = client.start_sync(&bucket, &whole()).await.unwrap();
    wait::until_async("the sync is over", TIMEOUT, || async {
        client.job(&id).await.unwrap().is_over()
    })
    .await;
    let status = client.job(&id).await.unwrap();
    assert_eq!((status.state, status.errors), (JobState::Done, 0), "{:?}", status.messages);
    assert_eq!((status.objects, status.present), (5, 45));
    let cached = ListMsg { flags: flags::CACHED, page_size: 1000, ..ListMsg::default() };
    let page = client.list_page(&bucket, &cached).await.unwrap();
    let here: Vec<&str> = page.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(here, all[10..].iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(client.get_bytes(&bucket, &all[12], None).await.unwrap(), "changed");
    wait::until("MinIO has counted its reads", TIMEOUT, || minio.count("GetObject") >= before + 5);
    assert_eq!(minio.count("GetObject") - before, 5, "only what changed was read again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_takes_longer_to_list_than_a_client_waits_in_silence_is_listed() {
    let Some(minio) = Minio::start() else { return };
    let waits = Duration::from_secs(12);
    let gate = Gate::start(&minio.url, None, move |request| {
        if request.target.contains("list-type=2") {
            std::thread::sleep(waits);
        }
        Ok(())
    });
    let env = minio::env(&gate.url, "minioadmin", "minioadmin");
    let cluster = Cluster::start(Options { env, ..Options::default() });
    minio.create_bucket("slow").await;
    minio.put("slow", "a", content("a", 10)).await;
    let impatient =
        ClientConfig { idle_timeout: waits * 2 / 3, ..ClientConfig::new(&cluster.endpoint) };
    let client = Client::new(impatient).unwrap();
    assert_eq!(names(&client, &cloud("slow"), "").await, ["a"]);
    assert_eq!(minio.count("ListObjectsV2"), 1, "nobody had to ask again");
}

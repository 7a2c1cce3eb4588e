//! Targets that die and come back: buckets with a backend stay available, native ones return an
//! error that names the wait.

use std::time::Duration;

use forebay_client::Client;
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode, ObjectName};
use forebay_tests::cluster::{cloud, folder_backend, native};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::{Cluster, Minio, Options, http, wait};
use futures::StreamExt;

const SIZE: usize = 20_000;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reads all samples once, in batches of 32; calls `at_half` in the middle of a batch.
async fn epoch(client: &Client, bucket: &Bucket, names: &[String], at_half: impl FnOnce()) {
    let mut at_half = Some(at_half);
    let mut seen = 0;
    for chunk in names.chunks(32) {
        let entry = |name: &String| BatchEntry::whole(0, ObjectName::new(name).unwrap());
        let request = BatchRequest {
            buckets: vec![bucket.clone()],
            entries: chunk.iter().map(entry).collect(),
            ordered: true,
        };
        let mut stream = client.batch(&request).unwrap();
        let mut next = 0;
        while let Some(item) = stream.next().await {
            assert_eq!(item.index, next);
            let name = &chunk[next];
            assert_same(name, &item.result.unwrap(), &content(name, SIZE));
            (next, seen) = (next + 1, seen + 1);
            if seen == names.len() / 2
                && let Some(act) = at_half.take()
            {
                act();
            }
        }
        assert_eq!(next, chunk.len(), "every sample of the batch");
    }
    assert_eq!(seen, names.len(), "every sample exactly once");
}

/// Kills a target in the middle of epoch 2, starts it again after, and reads once more.
async fn survives_a_kill(cluster: &Cluster, bucket: &Bucket, names: &[String]) {
    let client = cluster.client();
    epoch(&client, bucket, names, || {}).await;
    // The target that owns the last sample, so that some of its samples are still to come.
    let victim = cluster.owner(bucket, names.last().unwrap()).id;
    epoch(&client, bucket, names, || cluster.kill9(&victim)).await;
    wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(&victim));
    epoch(&client, bucket, names, || {}).await;

    cluster.restart(&victim);
    let owned: Vec<_> = names.iter().filter(|n| cluster.owner(bucket, n).id == victim).collect();
    assert!(!owned.is_empty(), "it owns samples again");
    let url = format!("{}/v1/objects/{}/{}", cluster.target(&victim).url, bucket.name, owned[0]);
    let served = http::get(&format!("{url}?provider={}", bucket.provider));
    assert_eq!(served.status, 200, "{}", served.text());
    assert_same(owned[0], &served.body, &content(owned[0], SIZE));
    epoch(&client, bucket, names, || {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_on_a_folder_bucket_survives_the_death_of_a_target() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let bucket = native("folder");
    let names = names(600);
    fill_folder(root.path(), &names, SIZE);
    cluster.client().create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    survives_a_kill(&cluster, &bucket, &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_on_a_cloud_bucket_survives_the_death_of_a_target() {
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { env: minio.env(), ..Options::default() });
    minio.create_bucket("epoch").await;
    let names = names(200);
    for name in &names {
        minio.put("epoch", name, content(name, SIZE)).await;
    }
    survives_a_kill(&cluster, &cloud("epoch"), &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_objects_of_a_dead_target_are_503_until_it_is_back() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("native");
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(60);
    for name in &names {
        client.put(&bucket, name, content(name, SIZE), None).await.unwrap();
    }
    let victim = cluster.owner(&bucket, &names[0]).id;
    let (lost, kept): (Vec<_>, Vec<_>) =
        names.iter().partition(|name| cluster.owner(&bucket, name).id == victim);
    assert!(!lost.is_empty() && !kept.is_empty());
    cluster.kill9(&victim);
    wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(&victim));

    for name in &kept {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, SIZE));
    }
    for (method, name) in
        [("GET", lost[0]), ("HEAD", lost[0]), ("PUT", lost[0]), ("DELETE", lost[0])]
    {
        let answer = http::request(method, &cluster.object_url("native", name)).follow();
        assert_eq!(answer.status, 503, "{method}: {}", answer.text());
        assert!(answer.header("retry-after").is_some(), "{method}");
    }
    // A name that never existed, but would belong to the dead target: no target can answer for it.
    let unknown = (0..).map(|n| format!("unknown-{n}"));
    let state = cluster.map().state;
    let info = state.bucket(&bucket).unwrap();
    let unknown = unknown
        .into_iter()
        .find(|name| forebay_core::placement::owner(&state, info, name).is_err())
        .unwrap();
    let answer = http::request("GET", &cluster.object_url("native", &unknown)).follow();
    assert_eq!(answer.status, 503, "{}", answer.text());
    let list = serde_json::json!({"action": "list", "value": {}});
    let listed =
        http::request("GET", &format!("{}/v1/buckets/native", cluster.endpoint)).json(&list);
    let listed = listed.send();
    assert_eq!(listed.status, 503, "a listing is whole or refused: {}", listed.text());
    assert!(listed.header("retry-after").is_some());
    // Forebay's own client waits for the owner up to its deadline, and then reports the wait.
    let impatient = cluster.client_with_deadline(Duration::from_secs(1));
    let error = impatient.get_bytes(&bucket, lost[0], None).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");

    let patient = tokio::spawn({
        let (client, bucket, name) = (client.clone(), bucket.clone(), lost[0].clone());
        async move { client.get_bytes(&bucket, &name, None).await }
    });
    cluster.restart(&victim);
    let got = patient.await.unwrap().unwrap();
    assert_same("read while its owner was away", &got, &content(lost[0], SIZE));
    for name in &names {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, SIZE));
    }
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), names.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_a_stand_in_overtook_is_not_served_after_the_return() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let client = cluster.client();
    let bucket = native("overtaken");
    std::fs::write(root.path().join("x"), b"old").unwrap();
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "old");
    let victim = cluster.owner(&bucket, "x").id;
    cluster.kill9(&victim);
    wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(&victim));
    // A stand-in owner accepts the write, and forwards it to the backend.
    client.put(&bucket, "x", "newer", None).await.unwrap();
    assert_eq!(std::fs::read(root.path().join("x")).unwrap(), b"newer");
    cluster.restart(&victim);
    assert_eq!(cluster.owner(&bucket, "x").id, victim, "the old owner is the owner again");
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "newer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_stand_in_is_not_served_when_it_stands_in_again_after_a_write() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let client = cluster.client();
    let bucket = native("twice");
    let large = content("old", 20 << 20);
    std::fs::write(root.path().join("x"), b"old").unwrap();
    std::fs::write(root.path().join("large"), &large).unwrap();
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let range = Some(RangeSpec::From(5, Some(99)));
    for name in ["x", "large"] {
        let victim = cluster.owner(&bucket, name).id;
        let read = || client.get_bytes(&bucket, name, range.filter(|_| name == "large"));
        cluster.kill9(&victim);
        wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(&victim));
        let stand_in = cluster.owner(&bucket, name).id;
        let old = read().await.unwrap();
        assert_eq!(read().await.unwrap(), old, "from the stand-in's copy");
        cluster.restart(&victim);
        wait::until("the owner is back", TIMEOUT, || cluster.is_alive(&victim));
        let new = content("new", if name == "large" { large.len() } else { 4 });
        client.put(&bucket, name, new.clone(), None).await.unwrap();
        cluster.kill9(&victim);
        wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(&victim));
        assert_eq!(cluster.owner(&bucket, name).id, stand_in);
        let expected = if name == "large" { &new[5..=99] } else { &new[..] };
        assert_eq!(read().await.unwrap(), expected, "{name}");
        cluster.restart(&victim);
        wait::until("the owner is back", TIMEOUT, || cluster.is_alive(&victim));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_from_before_another_owner_are_not_served_after_it_was_killed_or_drained() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { targets: 2, folder_roots, ..Options::default() });
    let client = cluster.client();
    let bucket = native("visited");
    let names = names(24);
    let write = |value: &'static str| {
        let (client, bucket, names) = (client.clone(), bucket.clone(), names.clone());
        async move {
            for name in &names {
                client.put(&bucket, name, value, None).await.unwrap();
            }
        }
    };
    let check = |value: &'static str| {
        let (client, bucket, names) = (client.clone(), bucket.clone(), names.clone());
        async move {
            for name in &names {
                assert_eq!(client.get_bytes(&bucket, name, None).await.unwrap(), value, "{name}");
            }
        }
    };
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    write("before").await;
    check("before").await;
    cluster.add_target("target03");
    write("joined").await;
    cluster.kill9("target03");
    wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive("target03"));
    check("joined").await;
    cluster.restart("target03");
    wait::until("it is back", TIMEOUT, || cluster.is_alive("target03"));
    write("returned").await;
    let maintain = |on: bool| {
        let verb = if on { "drain" } else { "uncordon" };
        let (out, code) = cluster.cli(&["node", verb, "target03"]);
        assert_eq!(code, 0, "{out}");
    };
    maintain(true);
    check("returned").await;
    maintain(false);
    write("uncordoned").await;
    maintain(true);
    check("uncordoned").await;
}

//! Batches: many objects by one request, over all targets, by our own stream and as v1's TAR.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::origin::Origin;
use forebay_core::{Bucket, ErrorCode, ObjectName, Provider};
use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::web::{Reply, Web};
use forebay_tests::{Cluster, Options, http};
use futures::StreamExt;

const SIZE: usize = 3000;

/// A cluster with 500 native objects and 500 files that nobody has read yet.
struct Loaded {
    cluster: Cluster,
    _root: tempfile::TempDir,
    buckets: Vec<Bucket>,
    entries: Vec<BatchEntry>,
}

async fn loaded() -> Loaded {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let client = cluster.client();
    let (own, files) = (native("own"), native("files"));
    client.create_bucket(&own, None).await.unwrap();
    client.create_bucket(&files, Some(folder_backend(root.path()))).await.unwrap();
    let names = names(500);
    fill_folder(root.path(), &names, SIZE);
    futures::stream::iter(&names)
        .map(|name| client.put(&own, name, content(name, SIZE), None))
        .buffer_unordered(16)
        .for_each(|put| async move {
            put.unwrap();
        })
        .await;
    // Own and cold ones in turn.
    let entry = |bucket, name: &String| BatchEntry::whole(bucket, ObjectName::new(name).unwrap());
    let entries = names.iter().flat_map(|name| [entry(0, name), entry(1, name)]).collect();
    Loaded { cluster, _root: root, buckets: vec![own, files], entries }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_a_thousand_over_three_targets_has_every_entry_once_and_in_order() {
    let loaded = loaded().await;
    let client = loaded.cluster.client();
    let map = loaded.cluster.map();
    let request =
        BatchRequest { buckets: loaded.buckets, entries: loaded.entries.clone(), ordered: true };
    let plan = forebay_core::batch::plan(&map.state, &request, 0..request.entries.len());
    assert_eq!(plan.by_owner.len(), 3, "the data lies on all three targets");

    for temperature in ["half of it cold", "all of it warm"] {
        let mut stream = client.batch(&request).unwrap();
        let mut next = 0;
        while let Some(item) = stream.next().await {
            assert_eq!(item.index, next, "{temperature}: request order");
            let name = loaded.entries[item.index].name.as_str();
            assert_same(name, &item.result.unwrap(), &content(name, SIZE));
            next += 1;
        }
        assert_eq!(next, 1000, "{temperature}");
    }

    let unordered = BatchRequest { ordered: false, ..request };
    let mut stream = client.batch(&unordered).unwrap();
    let mut seen = BTreeSet::new();
    while let Some(item) = stream.next().await {
        let name = loaded.entries[item.index].name.as_str();
        assert_same(name, &item.result.unwrap(), &content(name, SIZE));
        assert!(seen.insert(item.index), "entry {} came twice", item.index);
    }
    assert_eq!(seen.len(), 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_entries_are_marked_and_the_others_come() {
    let loaded = loaded().await;
    let client = loaded.cluster.client();
    let mut entries = loaded.entries[..60].to_vec();
    for (at, bucket) in [(0, 0), (20, 1), (59, 0)] {
        entries[at] = BatchEntry::whole(bucket, ObjectName::new("not/there").unwrap());
    }
    // A name twice is answered twice.
    entries[30] = entries[31].clone();
    let request = BatchRequest { buckets: loaded.buckets, entries, ordered: true };
    let all = client.batch_all(&request).await.unwrap();
    assert_eq!(all.len(), 60);
    for (at, (result, entry)) in all.into_iter().zip(&request.entries).enumerate() {
        let name = entry.name.as_str();
        if matches!(at, 0 | 20 | 59) {
            let error = result.unwrap_err();
            assert_eq!(error.code, ErrorCode::ObjectNotFound, "{error}");
            assert!(error.message.contains("/not/there"), "{error}");
        } else {
            assert_same(name, &result.unwrap(), &content(name, SIZE));
        }
    }
}

#[tokio::test]
async fn an_unknown_bucket_fails_its_entries() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let own = native("own");
    client.create_bucket(&own, None).await.unwrap();
    client.put(&own, "x", "bytes", None).await.unwrap();
    let entry = |bucket| BatchEntry::whole(bucket, ObjectName::new("x").unwrap());
    let request = BatchRequest {
        buckets: vec![own, native("nowhere")],
        entries: vec![entry(0), entry(1)],
        ordered: true,
    };
    let mut all = client.batch_all(&request).await.unwrap();
    let error = all.pop().unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::BucketNotFound, "{error}");
    assert_eq!(all.pop().unwrap().unwrap(), "bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_v1_stream_is_a_tar_of_every_entry_in_request_order() {
    let loaded = loaded().await;
    let asked: Vec<(&str, &str)> = loaded
        .entries
        .iter()
        .take(200)
        .map(|e| (["own", "files"][e.bucket as usize], e.name.as_str()))
        .chain([("own", "not/there"), ("files", "not/there")])
        .chain([("own", loaded.entries[0].name.as_str())])
        .collect();
    let entries: Vec<_> = asked
        .iter()
        .map(|(bucket, name)| {
            serde_json::json!({"objname": name, "bucket": bucket, "provider": "ais"})
        })
        .collect();
    let body = serde_json::json!({
        "in": entries, "mime": ".tar", "coer": true, "onob": false, "strm": true
    });
    let url = format!("{}/v1/ml/moss/own?provider=ais", loaded.cluster.endpoint);
    let request = http::request("GET", &url).json(&body);
    assert_eq!(request.clone().send().status, 307);
    let answer = request.follow();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-tar"));

    let mut archive = tar::Archive::new(answer.body.as_slice());
    let mut members = archive.entries().unwrap();
    for (bucket, name) in asked {
        let mut member = members.next().expect("as many members as entries").unwrap();
        let path = String::from_utf8(member.path_bytes().into_owned()).unwrap();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        if name == "not/there" {
            assert_eq!((path, bytes.len()), (format!("__404__/{bucket}/{name}"), 0));
        } else {
            assert_eq!(path, format!("{bucket}/{name}"));
            assert_same(name, &bytes, &content(name, SIZE));
        }
    }
    assert!(members.next().is_none(), "nothing after the last entry");
}

#[tokio::test]
async fn v1_batches_that_make_no_sense_are_400_and_unknown_buckets_404() {
    let cluster = Cluster::plain();
    cluster.client().create_bucket(&native("own"), None).await.unwrap();
    let ask = |bucket: &str, body: serde_json::Value| {
        let url = format!("{}/v1/ml/moss/{bucket}?provider=ais", cluster.endpoint);
        http::request("GET", &url).json(&body).follow()
    };
    let empty = ask("own", serde_json::json!({"in": [], "strm": true}));
    assert_eq!(empty.status, 400, "{}", empty.text());
    let odd = serde_json::json!({"in": [{"objname": "x"}], "mime": ".rar", "strm": true});
    assert_eq!(ask("own", odd).status, 400);
    let nowhere = ask("nowhere", serde_json::json!({"in": [{"objname": "x"}], "strm": true}));
    assert_eq!(nowhere.status, 404, "{}", nowhere.text());
    assert_eq!(nowhere.message(), "bucket \"ais://nowhere\" does not exist");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_objects_of_a_batch_are_fetched_concurrently_up_to_the_limit_of_a_target() {
    const OBJECTS: usize = 600;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let bytes = content("far away", 100 << 10);
    let web = Web::start({
        let (now, most, bytes) = (Arc::clone(&now), Arc::clone(&most), bytes.clone());
        move |_| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(100));
            now.fetch_sub(1, Ordering::SeqCst);
            Reply::new(200, &bytes[..]).header("etag", "\"v1\"")
        }
    });
    let open = ("FOREBAY_DOWNLOAD__ALLOW_PRIVATE".to_owned(), "true".to_owned());
    let cluster = Cluster::start(Options { targets: 1, env: vec![open], ..Options::default() });
    let client = cluster.client();
    let bucket = Bucket::new(Provider::Ht, "far").unwrap();
    let origin = Origin::parse(&format!("{}/data", web.url)).unwrap();
    client.create_bucket(&bucket, Some(origin.backend())).await.unwrap();
    let entry = |name: &String| BatchEntry::whole(0, ObjectName::new(name).unwrap());
    let entries = names(OBJECTS).iter().map(entry).collect();
    let request = BatchRequest { buckets: vec![bucket], entries, ordered: true };
    let all = client.batch_all(&request).await.unwrap();
    assert_eq!(all.len(), OBJECTS);
    for got in all {
        assert_same("an object", &got.unwrap(), &bytes);
    }
    let most = most.load(Ordering::SeqCst);
    assert!((48..=64).contains(&most), "{most} at once");
}

//! Objects in slices on several targets beside the whole on one: as many targets may die as there are
//! parity slices, and everything is made again.

use std::time::Duration;

use forebay_client::Client;
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{Cluster, Options, command, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::history::History;
use forebay_tests::{http, wait};
use serde_json::{Value, json};

use crate::bit_rot::{damage_at, scrubbed};
use crate::copies::holders;

/// Repair and rebalance are slow on a busy machine.
const MENDED: Duration = Duration::from_secs(120);
/// Of small objects there are copies.
const LIMIT: usize = 16 << 10;
/// Small ones, some whose slices lie in the log, some in files, of one stripe and of many.
const SIZES: [usize; 6] = [0, 3_000, LIMIT, LIMIT + 1, 150_001, 1_500_000];

/// Objects by name and size.
type Objects = Vec<(String, usize)>;

fn objects(count: usize) -> Objects {
    (0..count).map(|n| (format!("o/{n:04}"), SIZES[n % SIZES.len()])).collect()
}

fn set(cluster: &Cluster, bucket: &str, change: &str) {
    let mut set = command(["bucket", "set", &format!("ais://{bucket}")]);
    let done =
        set.args(change.split(' ')).args(["--endpoint", &cluster.endpoint]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn coded(cluster: &Cluster, name: &str, slices: &str) -> Bucket {
    let bucket = native(name);
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    set(cluster, name, &format!("ec={slices},16KiB"));
    wait::until("the bucket is coded", MENDED, || cluster.map().state.is_rebalance_complete());
    bucket
}

async fn fill(client: &Client, bucket: &Bucket, objects: &Objects) {
    for (name, size) in objects {
        client.put(bucket, name, content(name, *size), None).await.unwrap();
    }
}

/// How many records targets have of these objects.
fn records(objects: &Objects, data: usize, parity: usize) -> u64 {
    let of = |size: usize| if size <= LIMIT { parity + 1 } else { 1 + data + parity };
    objects.iter().map(|(_, size)| of(*size) as u64).sum()
}

/// Waits until no holder lacks a slice or copy, and until targets report this many records.
async fn mended(cluster: &Cluster, client: &Client, records: u64) {
    wait::until("nobody misses anything", MENDED, || cluster.map().state.is_quiescent());
    there_are(client, records).await;
}

async fn there_are(client: &Client, records: u64) {
    wait::until_async(&format!("{records} records in all"), MENDED, || {
        let client = client.clone();
        async move {
            let info = client.cluster_info().await.unwrap();
            let alive = info.nodes.iter().filter(|n| n.alive);
            alive.map(|n| n.usage.objects).sum::<u64>() == records
        }
    })
    .await;
}

async fn check(client: &Client, bucket: &Bucket, objects: &Objects, when: &str) {
    for (name, size) in objects {
        let got = client.get_bytes(bucket, name, None).await;
        let got = got.unwrap_or_else(|e| panic!("{when}: {name}: {e}"));
        assert_same(&format!("{when}: {name}"), &got, &content(name, *size));
    }
    let listed = client.list_all(bucket, "").await.unwrap();
    let wanted: Vec<_> = objects.iter().map(|(name, size)| (name.clone(), *size as u64)).collect();
    assert_eq!(listed, wanted, "{when}");
}

fn act(cluster: &Cluster, bucket: &str, action: &str, value: Value) -> http::Answer {
    let message = json!({"action": action, "value": value});
    http::request("POST", &format!("{}/v1/buckets/{bucket}", cluster.endpoint))
        .json(&message)
        .send()
}

fn targets(targets: u16) -> Cluster {
    Cluster::start(Options { targets, ..Options::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_the_death_of_as_many_targets_as_there_are_parity_slices() {
    let cluster = targets(5);
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = coded(&cluster, "survives", "2+2").await;
    let objects = objects(48);
    fill(&client, &bucket, &objects).await;
    there_are(&client, records(&objects, 2, 2)).await;
    let (name, size) = objects.iter().find(|(_, size)| *size > 1_000_000).unwrap();
    let of = holders(&cluster, &bucket, name);
    // The owner, and the next target that takes over its objects.
    cluster.kill9(of[0].as_str());
    cluster.kill9(of[1].as_str());
    let range = RangeSpec::From(700_001, Some(900_000));
    let got = client.get_bytes(&bucket, name, Some(range)).await.unwrap();
    assert_same("a range", &got, &content(name, *size)[700_001..=900_000]);
    check(&client, &bucket, &objects, "two are dead").await;

    client.put(&bucket, "z/written", content("w", 200_000), None).await.unwrap();
    client.delete(&bucket, "o/0004").await.unwrap();
    client.put(&bucket, name, content("newer", *size), None).await.unwrap();
    cluster.restart(of[0].as_str());
    cluster.restart(of[1].as_str());
    let mut left = objects.clone();
    left.retain(|(name, _)| name != "o/0004");
    left.push(("z/written".into(), 200_000));
    mended(&cluster, &client, records(&left, 2, 2)).await;
    // Two others die: the first target has its missed slices by now.
    cluster.kill9(of[2].as_str());
    cluster.kill9(of[3].as_str());
    for (other, size) in &left {
        let got = client.get_bytes(&bucket, other, None).await.unwrap();
        let seed = match other.as_str() {
            "z/written" => "w",
            other if other == name => "newer",
            other => other,
        };
        assert_same(other, &got, &content(seed, *size));
    }
    let gone = client.get_bytes(&bucket, "o/0004", None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_and_as_many_slices_as_there_is_parity_may_be_lost_of_a_large_object() {
    let cluster = targets(5);
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = coded(&cluster, "beyond", "2+2").await;
    let size = 1_500_000;
    client.put(&bucket, "x", content("x", size), None).await.unwrap();
    let of = holders(&cluster, &bucket, "x");
    for dies in [&of[0], &of[3], &of[4]] {
        cluster.kill9(dies.as_str());
    }
    assert_same("x", &client.get_bytes(&bucket, "x", None).await.unwrap(), &content("x", size));
    // One more target dies: reads fail with a clear error, and succeed again once one of them is
    // back.
    cluster.kill9(of[2].as_str());
    wait::until("the map has it dead", MENDED, || !cluster.is_alive(of[2].as_str()));
    cluster.restart(of[3].as_str());
    assert_same("x", &client.get_bytes(&bucket, "x", None).await.unwrap(), &content("x", size));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_continue_while_a_target_dies_and_no_acknowledged_write_is_lost() {
    let cluster = targets(4);
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = coded(&cluster, "busy", "2+1").await;
    let history = History::default();
    let clients = (0..3).map(|_| cluster.client_with_deadline(Duration::from_secs(60)));
    let writers = history.writers(clients, &bucket, 11);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let victim = cluster.targets[1].id.clone();
    cluster.kill9(&victim);
    client.put(&bucket, "zz", "while it is dead", None).await.unwrap();
    client.delete(&bucket, "zz").await.unwrap();
    writers.assert_none_failed();
    assert!(writers.stop().await.iter().all(|count| *count > 0));
    history.check(&client, &bucket, "while it is dead").await;
    cluster.restart(&victim);
    history.check(&client, &bucket, "when it is back").await;
    wait::until("nobody misses anything", MENDED, || cluster.map().state.is_quiescent());
    let listed: Objects = client
        .list_all(&bucket, "")
        .await
        .unwrap()
        .into_iter()
        .map(|(name, size)| (name, size as usize))
        .collect();
    mended(&cluster, &client, records(&listed, 2, 1)).await;
    cluster.kill9(&cluster.targets[2].id);
    history.check(&client, &bucket, "when another is dead").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_are_made_again_when_a_target_is_lost_and_when_one_joins() {
    let cluster = targets(5);
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = coded(&cluster, "again", "2+1").await;
    let objects = objects(36);
    fill(&client, &bucket, &objects).await;
    let all = records(&objects, 2, 1);
    there_are(&client, all).await;
    let lost = cluster.targets[3].id.clone();
    cluster.kill9(&lost);
    wait::until("the map has it dead", MENDED, || !cluster.is_alive(&lost));
    let (text, code) = cluster.cli(&["node", "remove", &lost, "--lost"]);
    assert_eq!(code, 0, "{text}");
    check(&client, &bucket, &objects, "while slices are made").await;
    mended(&cluster, &client, all).await;
    cluster.add_target("target-06");
    check(&client, &bucket, &objects, "while slices move").await;
    mended(&cluster, &client, all).await;
    check(&client, &bucket, &objects, "one target more").await;
    // Rebuilt slices and copies are as good as the lost ones.
    cluster.kill9(&cluster.targets[0].id);
    check(&client, &bucket, &objects, "another one is dead").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_bucket_changes_its_scheme_and_nothing_is_left_over() {
    let cluster = targets(5);
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = native("changes");
    client.create_bucket(&bucket, None).await.unwrap();
    let objects = objects(24);
    fill(&client, &bucket, &objects).await;
    let copies = |n: u64| n * objects.len() as u64;
    for (change, wanted) in [
        ("copies=2", copies(2)),
        ("copies=1 ec=2+1,16KiB", records(&objects, 2, 1)),
        ("ec=1+3,16KiB", records(&objects, 1, 3)),
        ("ec=off copies=3", copies(3)),
        ("copies=1 ec=3+1,16KiB", records(&objects, 3, 1)),
        ("ec=off", copies(1)),
    ] {
        set(&cluster, "changes", change);
        check(&client, &bucket, &objects, &format!("towards {change}")).await;
        mended(&cluster, &client, wanted).await;
        check(&client, &bucket, &objects, change).await;
    }
    // The v1 job changes the scheme; without a value it checks all objects again.
    for value in
        [json!("{\"data_slices\":2,\"parity_slices\":2}"), json!({"data_slices": 1}), json!(null)]
    {
        let answer = act(&cluster, "changes", "ec-encode", value);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let job = answer.text();
        wait::until_async("the job is over", MENDED, || {
            let (client, job) = (client.clone(), job.clone());
            async move { client.job(&job).await.unwrap().is_over() }
        })
        .await;
    }
    mended(&cluster, &client, records(&objects, 1, 2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_of_an_object_becomes_of_its_slices() {
    let cluster = targets(4);
    let client = cluster.client();
    let bucket = coded(&cluster, "becomes", "2+1").await;
    let large = |seed: &str| content(seed, 300_000);
    for seed in ["first", "second", "third"] {
        client.put(&bucket, "x", large(seed), None).await.unwrap();
        there_are(&client, 4).await;
    }
    client.put(&bucket, "x", "small", None).await.unwrap();
    there_are(&client, 2).await;
    client.put(&bucket, "x", large("fourth"), None).await.unwrap();
    there_are(&client, 4).await;

    let url = cluster.object_url("becomes", "x");
    let append = |handle: &str, kind: &str, body: &[u8]| {
        let url = format!("{url}?append_type={kind}&append_handle={handle}");
        let done = http::request("PUT", &url).body(body).follow();
        assert_eq!(done.status, 200, "{}", done.text());
        done.header("ais-append-handle").unwrap_or_default().to_owned()
    };
    let handle = append("", "append", b"and more");
    append(&handle.replace('|', "%7C"), "flush", b"");
    let part = |n: u32, id: &str, seed: &str| {
        let url = cluster.object_url("becomes", "parts");
        let url = format!("{url}?partNumber={n}&uploadId={id}");
        assert_eq!(http::request("PUT", &url).body(large(seed)).follow().status, 200);
    };
    let parts = cluster.object_url("becomes", "parts");
    let begin = json!({"action": "mpt-upload", "name": "", "value": null});
    let id = http::request("POST", &parts).json(&begin).follow().text();
    part(1, &id, "one");
    part(2, &id, "two");
    let value = json!([{"part-number": 1, "etag": ""}, {"part-number": 2, "etag": ""}]);
    let complete = json!({"action": "mpt-complete", "name": "", "value": value});
    let done = http::request("POST", &format!("{parts}?uploadId={id}")).json(&complete).follow();
    assert_eq!(done.status, 200, "{}", done.text());
    there_are(&client, 8).await;

    // They follow their bucket to another name, where other targets own them.
    let to = json!({"action": "move-bck", "value": null});
    let url = format!("{}/v1/buckets/becomes?bck_to=ais/@%23/renamed/", cluster.endpoint);
    let moved = http::request("POST", &url).json(&to).send();
    assert_eq!(moved.status, 200, "{}", moved.text());
    let bucket = native("renamed");
    mended(&cluster, &client, 8).await;
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    cluster.kill9(&cluster.owner(&bucket, "x").id);
    let appended = [large("fourth"), b"and more".to_vec()].concat();
    assert_same("x", &client.get_bytes(&bucket, "x", None).await.unwrap(), &appended);
    let uploaded = [large("one"), large("two")].concat();
    assert_same("parts", &client.get_bytes(&bucket, "parts", None).await.unwrap(), &uploaded);
    client.delete(&bucket, "x").await.unwrap();
    client.delete(&bucket, "parts").await.unwrap();
    assert_eq!(client.list_all(&bucket, "").await.unwrap(), vec![]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_be_are_refused_and_slices_are_seen_nowhere() {
    let cluster = Cluster::plain();
    let (client, bucket) = (cluster.client(), native("settings"));
    client.create_bucket(&bucket, None).await.unwrap();
    let ec = |data: u32, parity: u32| json!({"enabled": true, "data_slices": data, "parity_slices": parity});
    let patch = |value: Value| {
        let message = json!({"action": "set-bprops", "value": value});
        http::request("PATCH", &format!("{}/v1/buckets/settings", cluster.endpoint))
            .json(&message)
            .send()
    };
    for (value, word) in [
        (json!({"ec": ec(2, 1)}), "need 4 targets, and there are 3"),
        (json!({"ec": ec(9, 1)}), "9 data slices"),
        (json!({"ec": ec(1, 0)}), "parity_slices"),
        (json!({"ec": ec(1, 1), "mirror": {"enabled": true, "copies": 2}}), "copies"),
    ] {
        let answer = patch(value);
        let text = answer.text();
        assert!((400..500).contains(&answer.status) && text.contains(word), "{word}: {text}");
    }
    let answer = act(&cluster, "settings", "ec-encode", ec(2, 2));
    assert!(answer.status == 400 && answer.text().contains("5 targets"), "{}", answer.text());
    let answer = act(&cluster, "settings", "ec-encode", json!([1]));
    assert_eq!(answer.status, 400, "{}", answer.text());

    assert_eq!(patch(json!({"ec": ec(1, 1)})).status, 200);
    wait::until("the bucket is coded", MENDED, || cluster.map().state.is_rebalance_complete());
    let versions = patch(json!({"mirror": {"enabled": true}}));
    assert!(versions.status == 400 && versions.text().contains("coded"), "{}", versions.text());
    client.put(&bucket, "large", content("large", 400_000), None).await.unwrap();
    client.put(&bucket, "small", content("small", 400), None).await.unwrap();
    there_are(&client, 3 + 2).await;
    let listed = client.list_all(&bucket, "").await.unwrap();
    assert_eq!(listed, [("large".to_owned(), 400_000), ("small".to_owned(), 400)]);
    for (name, replicated) in [("large", "false"), ("small", "true")] {
        let head = http::request("HEAD", &cluster.object_url("settings", name)).follow();
        let header = |name: &str| head.header(name).unwrap_or_default().to_owned();
        assert_eq!((header("ais-ec-data"), header("ais-ec-parity")), ("1".into(), "1".into()));
        assert_eq!(header("ais-ec-replicated"), replicated);
        assert!(header("ais-ec-generation").parse::<u64>().unwrap() > 0);
    }
    let head = http::request("HEAD", &format!("{}/v1/buckets/settings", cluster.endpoint)).send();
    let props: Value = serde_json::from_str(head.header("ais-bucket-props").unwrap()).unwrap();
    assert_eq!((&props["ec"]["enabled"], &props["ec"]["data_slices"]), (&json!(true), &json!(1)));
    client.delete(&bucket, "large").await.unwrap();
    client.delete(&bucket, "small").await.unwrap();
    there_are(&client, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_slice_is_never_used_and_a_scrub_has_it_made_again() {
    let cluster = targets(4);
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = coded(&cluster, "damaged", "2+1").await;
    // The first block of an object is the first of its first slice, the next that of its second.
    let damage = |name: &str, size: usize, slice: usize| {
        let at = slice * (64 << 10) + 500;
        let holder = holders(&cluster, &bucket, name)[1 + slice].to_string();
        assert!(damage_at(&cluster, &holder, &content(name, size)[at..at + 64]), "{name}");
    };
    let size = 700_000;
    let names = ["read", "lost", "scrubbed", "whole"];
    for name in names {
        client.put(&bucket, name, content(name, size), None).await.unwrap();
    }
    there_are(&client, 4 * names.len() as u64).await;

    // A read that finds a damaged whole object rebuilds it from slices.
    let owner = holders(&cluster, &bucket, "whole")[0].to_string();
    assert!(damage_at(&cluster, &owner, &content("whole", size)[400_000..400_064]));
    let got = client.get_bytes(&bucket, "whole", None).await.unwrap();
    assert_same("whole", &got, &content("whole", size));

    damage("scrubbed", size, 0);
    scrubbed(&cluster, &bucket).await;
    damage("read", size, 0);
    damage("lost", size, 0);
    damage("lost", size, 1);
    let owner = holders(&cluster, &bucket, "read")[0].to_string();
    cluster.kill9(&owner);
    let got = client.get_bytes(&bucket, "read", None).await.unwrap();
    assert_same("read", &got, &content("read", size));
    cluster.restart(&owner);
    wait::until("nobody misses anything", MENDED, || cluster.map().state.is_quiescent());
    cluster.kill9(holders(&cluster, &bucket, "lost")[0].as_str());
    let impatient = cluster.client_with_deadline(Duration::from_secs(8));
    let e = impatient.get_bytes(&bucket, "lost", None).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::Unavailable, "{e}");
}

//! Targets that come and go: their objects move while they are read and written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_client::Client;
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{Cluster, Options, command, folder_backend, is_running, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::history::{History, Random};
use forebay_tests::{http, wait};

/// Rebalances are slow on a busy machine.
const MOVED: Duration = Duration::from_secs(90);
const SIZE: usize = 3_000;

fn four() -> Cluster {
    Cluster::start(Options { targets: 4, ..Options::default() })
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("still/{n:04}")).collect()
}

async fn filled(client: &Client, bucket: &str, names: &[String], size: usize) -> Bucket {
    let bucket = native(bucket);
    client.create_bucket(&bucket, None).await.unwrap();
    for name in names {
        client.put(&bucket, name, content(name, size), None).await.unwrap();
    }
    bucket
}

fn wait_rebalanced(cluster: &Cluster) {
    wait::until("all objects are where they belong", MOVED, || {
        cluster.map().state.is_rebalance_complete()
    });
}

/// Objects on all targets, or on one of them if `only` names it, as they report.
async fn held(client: &Client, only: Option<&str>) -> u64 {
    let info = client.cluster_info().await.unwrap();
    let nodes = info.nodes.iter().filter(|n| only.is_none_or(|only| n.id.as_str() == only));
    nodes.map(|n| n.usage.objects).sum()
}

/// A GET as a foreign client makes it: redirects are followed, nothing is tried again.
fn foreign_get(url: &str) -> http::Answer {
    let mut url = url.to_owned();
    for _ in 0..4 {
        let answer = http::get(&url);
        match answer.header("location") {
            Some(next) if matches!(answer.status, 301 | 307) => url = next.to_owned(),
            _ => return answer,
        }
    }
    panic!("{url}: redirected in a circle");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_joins_under_load_without_a_failed_request_and_gets_its_share() {
    let cluster = four();
    let client = cluster.client();
    let still = names(500);
    let bucket = filled(&client, "join", &still, SIZE).await;
    let busy = native("busy");
    client.create_bucket(&busy, None).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let history = History::default();
    let writers = history.writers((0..3).map(|_| cluster.client()), &busy, 7);
    let reads = Arc::new(AtomicUsize::new(0));
    let reader = {
        let urls: Vec<_> =
            still.iter().map(|name| (name.clone(), cluster.object_url("join", name))).collect();
        let (stop, reads) = (stop.clone(), reads.clone());
        std::thread::spawn(move || {
            let mut random = Random::new(3);
            while !stop.load(Ordering::Relaxed) {
                let (name, url) = &urls[random.below(urls.len() as u64) as usize];
                let answer = foreign_get(url);
                assert_eq!(answer.status, 200, "{name}: {}", answer.text());
                assert_same(name, &answer.body, &content(name, SIZE));
                reads.fetch_add(1, Ordering::Relaxed);
            }
        })
    };

    let fifth = cluster.add_target("target-05").id;
    let placed = cluster.map().state.targets_changed;
    wait_rebalanced(&cluster);
    let after = reads.load(Ordering::Relaxed);
    wait::until("reads go on", MOVED, || reads.load(Ordering::Relaxed) > after + 20);
    writers.assert_none_failed();
    stop.store(true, Ordering::Relaxed);
    reader.join().expect("no read fails");
    assert!(writers.stop().await.iter().all(|count| *count > 0));

    let state = cluster.map().state;
    assert_eq!(state.targets_changed, placed, "nothing else moved");
    let info = state.bucket(&bucket).unwrap();
    let owner = |name: &str| forebay_core::placement::owner(&state, info, name).unwrap().id.clone();
    let share = still.iter().filter(|name| owner(name).as_str() == fifth).count();
    assert!((60..=140).contains(&share), "about a fifth of 500: {share}");
    let job = client.job(&format!("g{placed}")).await.unwrap();
    assert_eq!((job.errors, job.kind.as_str()), (0, "rebalance"), "{:?}", job.messages);
    // No object lies in two places, so none but those of the fifth can have moved.
    history.check(&client, &busy, "after the join").await;
    let there = (client.list_all(&busy, "").await.unwrap().len() + still.len()) as u64;
    wait::until_async("each object lies in one place", MOVED, || {
        let client = client.clone();
        async move { held(&client, None).await == there }
    })
    .await;
}

/// The last change of each name: its bytes, or nothing if it was deleted.
type Last = BTreeMap<String, Option<Vec<u8>>>;

async fn check_one(client: &Client, bucket: &Bucket, last: &Last, name: &str, when: &str) {
    match (client.get_bytes(bucket, name, None).await, &last[name]) {
        (Ok(got), Some(bytes)) => assert_same(&format!("{when}: {name}"), &got, bytes),
        (Err(e), None) => assert_eq!(e.code(), ErrorCode::ObjectNotFound, "{when}: {name}: {e}"),
        (got, _) => panic!("{when}: {name}: {:?}", got.map(|bytes| bytes.len())),
    }
}

async fn check(client: &Client, bucket: &Bucket, last: &Last, when: &str) {
    for name in last.keys() {
        check_one(client, bucket, last, name, when).await;
    }
    let listed = client.list_all(bucket, "").await.unwrap();
    let there: Vec<_> = last
        .iter()
        .filter_map(|(name, bytes)| Some((name.clone(), bytes.as_ref()?.len() as u64)))
        .collect();
    assert_eq!(listed, there, "{when}: the list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_and_overwrites_while_objects_move_stay_as_they_were_done() {
    let cluster = four();
    let client = cluster.client();
    let names = names(300);
    let bucket = filled(&client, "changing", &names, SIZE).await;
    cluster.add_target("target-05");
    assert!(!cluster.map().state.is_rebalance_complete());
    let mut last = Last::new();
    for (n, name) in names.iter().enumerate() {
        let new = content(&format!("{name}, again"), 5_000);
        match n % 5 {
            0 => client.delete(&bucket, name).await.map(drop).unwrap(),
            1 | 2 => drop(client.put(&bucket, name, new.clone(), None).await.unwrap()),
            3 => {
                client.delete(&bucket, name).await.unwrap();
                client.put(&bucket, name, new.clone(), None).await.unwrap();
            }
            _ => {}
        }
        let is = match n % 5 {
            0 => None,
            4 => Some(content(name, SIZE)),
            _ => Some(new),
        };
        last.insert(name.clone(), is);
        if n % 5 == 0 {
            let again = client.delete(&bucket, name).await.unwrap_err();
            assert_eq!(again.code(), ErrorCode::ObjectNotFound, "{name}");
        }
    }
    // Half of the objects that no client touched are left to the rebalance.
    for (n, name) in names.iter().enumerate().filter(|(n, _)| n % 10 != 4) {
        check_one(&client, &bucket, &last, name, &format!("while objects move, {n}")).await;
    }
    let job = format!("g{}", cluster.map().state.targets_changed);
    wait_rebalanced(&cluster);
    let job = client.job(&job).await.unwrap();
    assert!(job.objects > 0, "some of 30 objects belong to the fifth target");
    check(&client, &bucket, &last, "after they moved").await;
    for id in [cluster.targets[0].id.as_str(), "target-05"] {
        cluster.kill9(id);
        cluster.restart(id);
    }
    check(&cluster.client(), &bucket, &last, "after a restart").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalance_goes_on_after_a_target_was_killed_in_the_middle() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let client = cluster.client();
    let names = names(160);
    let size = 600 << 10;
    let bucket = filled(&client, "killed", &names, size).await;
    cluster.add_target("target-03");
    let job = format!("g{}", cluster.map().state.targets_changed);
    let moved = async || client.job(&job).await.map_or(0, |job| job.objects);
    let started = std::time::Instant::now();
    while moved().await < 3 {
        assert!(started.elapsed() < MOVED, "nothing moves");
    }
    let victim = cluster.targets[0].id.clone();
    cluster.kill9(&victim);
    assert!(!cluster.map().state.is_rebalance_complete(), "it was over before the kill");
    cluster.restart(&victim);
    wait_rebalanced(&cluster);
    let last: Last = names.iter().map(|name| (name.clone(), Some(content(name, size)))).collect();
    check(&client, &bucket, &last, "after the end").await;
    let all = names.len() as u64;
    wait::until_async("each object lies in one place", MOVED, || {
        let client = client.clone();
        async move { held(&client, None).await == all }
    })
    .await;
}

fn node(cluster: &Cluster, words: &[&str]) {
    let mut command = command(["node"]);
    command.args(words).args(["--endpoint", &cluster.endpoint]);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_object_gets_another_owner_while_it_comes_is_sent_on() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = filled(&client, "sent-on", &[], 0).await;
    let (name, bytes) = ("o", content("sent on", 400_000));
    let owner = cluster.owner(&bucket, name);
    let sent_away = http::request("PUT", &cluster.object_url(&bucket.name, name)).send();
    assert_eq!(sent_away.status, 307);
    let there = sent_away.header("location").unwrap().to_owned();
    assert!(there.starts_with(&owner.url), "{there}");
    let read = format!("{}/v1/objects/{}/{name}", owner.url, bucket.name);
    let put = http::request("PUT", &there).body(bytes.clone());
    let answer = put.clone().send_in_halves(|| {
        node(&cluster, &["drain", &owner.id]);
        wait::until("the former owner knows", MOVED, || http::get(&read).status == 301);
    });
    let answer = answer.unwrap();
    assert_eq!(answer.status, 307, "{}", answer.text());
    let next = answer.header("location").unwrap();
    assert!(next.starts_with(&cluster.owner(&bucket, name).url) && !next.starts_with(&owner.url));
    let done = http::request("PUT", next).body(bytes.clone()).send();
    assert_eq!(done.status, 200, "{}", done.text());
    assert_same(name, &client.get_bytes(&bucket, name, None).await.unwrap(), &bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_to_a_backend_whose_object_gets_another_owner_while_it_comes_is_sent_on() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { targets: 2, folder_roots, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("through"));
    std::fs::write(root.path().join("o"), "old").unwrap();
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let (name, bytes) = ("o", content("sent on", 400_000));
    let owner = cluster.owner(&bucket, name);
    let sent_away = http::request("PUT", &cluster.object_url("through", name)).send();
    let there = sent_away.header("location").unwrap();
    assert!(there.starts_with(&owner.url), "{there}");
    let put = http::request("PUT", there);
    let read = || http::get(&cluster.object_url("through", name));
    let answer = put.body(bytes.clone()).send_in_halves(|| {
        node(&cluster, &["drain", &owner.id]);
        wait::until("another target owns it", MOVED, || {
            cluster.owner(&bucket, name).id != owner.id
        });
        let url = cluster.owner(&bucket, name).url;
        let read = http::get(&format!("{url}/v1/objects/through/{name}"));
        assert_eq!(read.text(), "old", "the new owner has a copy of the old version");
    });
    let answer = answer.unwrap();
    assert_eq!(answer.status, 307, "{}", answer.text());
    assert_eq!(std::fs::read(root.path().join("o")).unwrap(), b"old", "nothing was written yet");
    let next = answer.header("location").unwrap();
    let done = http::request("PUT", next).body(bytes.clone()).send();
    assert_eq!(done.status, 200, "{}", done.text());
    assert_same(name, &client.get_bytes(&bucket, name, None).await.unwrap(), &bytes);
    assert_eq!(read().status, 301, "a gateway sends readers to the new owner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_is_drained_given_back_and_removed_with_nothing_lost() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let names = names(200);
    let bucket = filled(&client, "drained", &names, SIZE).await;
    let last: Last = names.iter().map(|name| (name.clone(), Some(content(name, SIZE)))).collect();
    let id = cluster.targets[1].id.as_str();
    let empty = async |so: bool| {
        wait::until_async("it reports what it has", MOVED, || {
            let client = client.clone();
            async move { (held(&client, Some(id)).await == 0) == so }
        })
        .await;
    };
    empty(false).await;

    node(&cluster, &["drain", id, "--wait"]);
    empty(true).await;
    assert!(cluster.is_alive(id), "it runs on");
    check(&client, &bucket, &last, "drained").await;
    let state = cluster.map().state;
    assert!(state.owning_targets().all(|n| n.id.as_str() != id));

    node(&cluster, &["uncordon", id]);
    wait_rebalanced(&cluster);
    empty(false).await;
    check(&client, &bucket, &last, "given back").await;

    let pid = cluster.pid(id);
    node(&cluster, &["remove", id, "--wait"]);
    wait::until("its process has ended", MOVED, || !is_running(pid));
    let state = cluster.map().state;
    assert!(state.nodes.keys().all(|n| n.as_str() != id) && state.is_rebalance_complete());
    check(&client, &bucket, &last, "removed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_target_cannot_be_drained_and_a_dead_one_is_given_up_only_on_request() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let client = cluster.client();
    let names = names(40);
    filled(&client, "given-up", &names, 10).await;
    let (stays, dies) = (cluster.targets[0].id.as_str(), cluster.targets[1].id.as_str());
    cluster.kill9(dies);
    wait::until("the map has it dead", MOVED, || !cluster.is_alive(dies));
    let act = |action: &str, value: serde_json::Value| {
        http::request("PUT", &format!("{}/v1/cluster", cluster.endpoint))
            .json(&serde_json::json!({ "action": action, "value": value }))
            .send()
    };
    let answer = act("decommission-node", serde_json::json!({ "sid": dies }));
    assert_eq!(answer.status, 409, "{}", answer.text());
    node(&cluster, &["remove", dies, "--lost"]);
    assert_eq!(cluster.map().state.targets().count(), 1);
    let answer = act("start-maintenance", serde_json::json!({ "sid": stays }));
    assert_eq!(answer.status, 409, "{}", answer.text());
    wait_rebalanced(&cluster);
    let left = client.list_all(&native("given-up"), "").await.unwrap();
    assert!(!left.is_empty() && left.len() < names.len(), "{}", left.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalance_has_no_errors_when_buckets_are_renamed_or_destroyed_meanwhile() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let client = cluster.client();
    let names = names(200);
    filled(&client, "name-0", &names, 100 << 10).await;
    let doomed = filled(&client, "doomed", &names, 100 << 10).await;
    cluster.add_target("target-03");
    for n in 0..8 {
        let to = serde_json::json!({"action": "move-bck", "value": null});
        let path = format!("/v1/buckets/name-{n}?bck_to=ais/@%23/name-{}/", n + 1);
        let url = format!("{}{path}", cluster.endpoint);
        let renamed = http::request("POST", &url).json(&to).send();
        assert_eq!(renamed.status, 200, "{}", renamed.text());
        tokio::time::sleep(Duration::from_millis(150)).await;
        if n == 4 {
            client.destroy_bucket(&doomed).await.unwrap();
        }
    }
    wait_rebalanced(&cluster);
    for job in client.jobs().await.unwrap().iter().filter(|job| job.kind.as_str() == "rebalance") {
        assert_eq!(job.errors, 0, "{}: {:?}", job.id, job.messages);
    }
    let renamed = native("name-8");
    assert_eq!(client.list_all(&renamed, "").await.unwrap().len(), names.len());
    for name in &names {
        let bytes = client.get_bytes(&renamed, name, None).await.unwrap();
        assert_same(name, &bytes, &content(name, 100 << 10));
    }
}

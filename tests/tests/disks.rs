//! Disks that come and go while a cluster runs: by command, and by themselves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::intra::{DiskAction, DiskCommand, DiskStatus};
use forebay_core::{Bucket, ErrorCode, NodeId};
use forebay_tests::cluster::native;
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Cluster, Options, http, wait};
use serde_json::{Value, json};

use crate::copies::{SIZE, holders, names, with_two_disks};

const TIMEOUT: Duration = Duration::from_secs(30);
const OBJECTS: usize = 40;

fn one_target() -> Cluster {
    Cluster::start(Options { targets: 1, ..Options::default() })
}

fn name(n: usize) -> String {
    format!("object-{n:03}")
}

/// Content that is in part stored in a disk's log and in part in files.
fn bytes(n: usize) -> Vec<u8> {
    content(&name(n), 2_000 + n % 4 * 70_000)
}

async fn fill(cluster: &Cluster, bucket: &Bucket, numbers: std::ops::Range<usize>) {
    for n in numbers {
        put(cluster, bucket, n).await;
    }
}

async fn put(cluster: &Cluster, bucket: &Bucket, n: usize) {
    let url = cluster.object_url(&bucket.name, &name(n));
    let answer = http::request("PUT", &url).body(bytes(n)).follow();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn get(cluster: &Cluster, bucket: &Bucket, n: usize) -> http::Answer {
    http::request("GET", &cluster.object_url(&bucket.name, &name(n))).follow()
}

fn all_there(cluster: &Cluster, bucket: &Bucket) {
    for n in 0..OBJECTS {
        let answer = get(cluster, bucket, n);
        assert_eq!(answer.status, 200, "{}: {}", name(n), answer.text());
        assert_same(&name(n), &answer.body, &bytes(n));
    }
}

/// A command of v1 about the disks of the only target.
fn act(cluster: &Cluster, method: &str, action: &str, path: &Path, query: &str) -> http::Answer {
    let url = format!("{}/v1/reverse/daemon/mountpaths{query}", cluster.endpoint);
    http::request(method, &url)
        .header("Ais-Node-Id", &cluster.targets[0].id)
        .json(&json!({"action": action, "value": path}))
        .send()
}

fn mountpaths(cluster: &Cluster) -> Value {
    let url = format!("{}/v1/reverse/daemon?what=mountpaths", cluster.endpoint);
    http::request("GET", &url).header("Ais-Node-Id", &cluster.targets[0].id).send().json()
}

fn shows(cluster: &Cluster, what: &str, paths: &[&Path]) {
    wait::until(&format!("{what}: {paths:?}"), TIMEOUT, || {
        mountpaths(cluster)[what] == json!(paths)
    });
}

fn new_folder(cluster: &Cluster, name: &str) -> PathBuf {
    let path = cluster.dir().join(name);
    std::fs::create_dir(&path).unwrap();
    path
}

/// Another name for the folder of a disk that is unplugged.
fn aside(disk: &Path) -> PathBuf {
    disk.with_extension("unplugged")
}

/// Unplugs a disk of the first target.
fn unplug(cluster: &Cluster, disk: &Path) {
    std::fs::rename(disk, aside(disk)).unwrap();
    std::fs::write(disk, "no folder").unwrap();
    wait::until("the disk is away", TIMEOUT, || away(cluster) == 1.0);
}

/// Plugs it in again.
fn plug_in(cluster: &Cluster, disk: &Path) {
    std::fs::remove_file(disk).unwrap();
    std::fs::rename(aside(disk), disk).unwrap();
    wait::until("the disk is back", TIMEOUT, || away(cluster) == 0.0);
}

/// How many disks of the first target are away.
fn away(cluster: &Cluster) -> f64 {
    let metrics = http::get(&format!("{}/metrics", cluster.targets[0].url)).text();
    http::metric(&metrics, "forebay_disks", &["state=\"away\""])
}

fn first_disk(cluster: &Cluster) -> PathBuf {
    cluster.dir().join(&cluster.targets[0].id).join("disk1")
}

#[tokio::test]
async fn disks_are_changed_by_commands_of_v1_and_stay_changed_after_a_restart() {
    let cluster = one_target();
    let bucket = native("moved");
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    fill(&cluster, &bucket, 0..OBJECTS / 2).await;
    let (old, new) = (first_disk(&cluster), new_folder(&cluster, "new-disk"));
    shows(&cluster, "available", &[&old]);

    let only = act(&cluster, "DELETE", "detach-mp", &old, "");
    assert_eq!(only.status, 409, "{}", only.text());
    assert_eq!(act(&cluster, "PUT", "attach-mp", &new, "").status, 200);
    let twice = act(&cluster, "PUT", "attach-mp", &new, "");
    assert_eq!(twice.status, 409, "{}", twice.text());
    shows(&cluster, "available", &[&old, &new]);
    fill(&cluster, &bucket, OBJECTS / 2..OBJECTS).await;

    let gone = act(&cluster, "DELETE", "detach-mp", &old, "");
    assert_eq!(gone.status, 200, "{}", gone.text());
    shows(&cluster, "available", &[&new]);
    assert_eq!(mountpaths(&cluster)["disabled"], json!([]));
    all_there(&cluster, &bucket);

    let target = cluster.targets[0].id.clone();
    cluster.kill9(&target);
    cluster.restart(&target);
    wait::until("the target is back", TIMEOUT, || cluster.is_alive(&target));
    shows(&cluster, "available", &[&new]);
    all_there(&cluster, &bucket);
}

#[tokio::test]
async fn a_disk_is_disabled_and_enabled_by_the_command_line() {
    let cluster = one_target();
    let bucket = native("resting");
    let client = cluster.client();
    client.create_bucket(&bucket, None).await.unwrap();
    let (old, new) = (first_disk(&cluster), new_folder(&cluster, "new-disk"));
    let target = cluster.targets[0].id.as_str();
    let (old, path) = (old.to_str().unwrap(), new.to_str().unwrap());
    let (text, code) = cluster.cli(&["disk", "attach", target, path, "--size", "1GiB"]);
    assert_eq!(code, 0, "{text}");
    fill(&cluster, &bucket, 0..OBJECTS).await;

    let (text, code) = cluster.cli(&["disk", "disable", target, old]);
    assert_eq!(code, 0, "{text}");
    all_there(&cluster, &bucket);
    shows(&cluster, "disabled", &[Path::new(old)]);
    let (text, code) = cluster.cli(&["disk", "ls"]);
    let line = text.lines().find(|line| line.contains(old)).unwrap_or_default();
    assert!(code == 0 && line.contains("disabled"), "{text}");
    let (text, code) = cluster.cli(&["disk", "enable", target, old]);
    assert_eq!(code, 0, "{text}");
    all_there(&cluster, &bucket);

    let (text, code) = cluster.cli(&["disk", "detach", target, "/no/such/disk"]);
    assert!(code == 4 && text.contains("no disk of this target"), "{code}: {text}");
    let (text, code) = cluster.cli(&["disk", "detach", target, path, "--force"]);
    assert!(code == 2 && text.contains("--yes"), "{code}: {text}");
    let node = NodeId::new(target).unwrap();
    let show = DiskCommand::new(DiskAction::Show, "");
    let disks = client.act_on_disk(&node, &show).await.unwrap();
    assert!(disks.iter().all(|disk| disk.state == DiskStatus::InUse), "{disks:?}");
}

#[tokio::test]
async fn an_unplugged_disk_is_reported_and_its_objects_are_not_answered_with_404() {
    let cluster = one_target();
    let bucket = native("waiting");
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    let new = new_folder(&cluster, "new-disk");
    assert_eq!(act(&cluster, "PUT", "attach-mp", &new, "").status, 200);
    fill(&cluster, &bucket, 0..OBJECTS).await;
    let list = || {
        let url = format!("{}/v1/buckets/{}", cluster.endpoint, bucket.name);
        http::request("GET", &url).json(&json!({"action": "list", "value": {}})).send()
    };
    assert_eq!(list().status, 200);

    unplug(&cluster, &new);
    let (mut found, mut waits) = (0, 0);
    for n in 0..OBJECTS {
        let answer = get(&cluster, &bucket, n);
        match answer.status {
            200 => found += 1,
            503 => {
                assert!(answer.header("retry-after").is_some(), "{}", answer.text());
                waits += 1;
            }
            other => panic!("{other}: {}", answer.text()),
        }
    }
    assert!(found > 4 && waits > 4, "{found} found, {waits} wait");
    let listed = list();
    assert_eq!(listed.status, 503, "{}", listed.text());
    let summed = http::get(&format!("{}/metrics", cluster.endpoint)).text();
    assert_eq!(
        http::metric(&summed, "forebay_cluster_disks", &["state=\"away\""]),
        1.0,
        "{summed}"
    );
    shows(&cluster, "disabled", &[&new]);
    let (text, code) = cluster.cli(&["doctor"]);
    let line = text.lines().find(|line| line.contains("not in use")).unwrap_or_default();
    assert!(code == 1 && line.contains("FAIL") && line.contains("new-disk"), "{code}: {text}");

    plug_in(&cluster, &new);
    all_there(&cluster, &bucket);
    assert_eq!(list().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_are_removed_while_a_disk_is_away_do_not_come_back_with_it() {
    let names = names(40);
    let (removed, kept) = names.split_at(25);
    let (cluster, bucket, disk) = with_two_disks(&names).await;
    let client = cluster.client_with_deadline(TIMEOUT);
    unplug(&cluster, &disk);
    for name in removed {
        client.delete(&bucket, name).await.unwrap();
    }
    plug_in(&cluster, &disk);
    // Until then the target does not know that objects do not exist.
    let jobs = || cluster.cli(&["job", "ls"]).0;
    let is_done = |line: &str| line.contains("resilver") && line.contains("done");
    wait::until("it has all copies again", TIMEOUT, || jobs().lines().any(is_done));
    // From now on the first target replies alone for all objects of which it has copies.
    let [first, others @ ..] = &cluster.targets[..] else { panic!("three targets") };
    let is_holder = |name: &&String| {
        holders(&cluster, &bucket, name).iter().any(|holder| holder.as_str() == first.id)
    };
    let [removed, kept]: [Vec<_>; 2] =
        [removed, kept].map(|n| n.iter().filter(is_holder).collect());
    assert!(removed.len() > 6 && kept.len() > 3, "{removed:?} {kept:?}");
    for other in others {
        cluster.kill9(&other.id);
        wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(&other.id));
    }
    for name in removed {
        let e = client.get_bytes(&bucket, name, None).await.unwrap_err();
        assert_eq!(e.code(), ErrorCode::ObjectNotFound, "{name}: {e}");
    }
    for name in kept {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, SIZE));
    }
}

#[tokio::test]
async fn names_that_are_too_long_take_no_disk_out_of_use() {
    let cluster = one_target();
    let bucket = native("long-names");
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    put(&cluster, &bucket, 1).await;
    // An append in progress keeps its disk in use.
    let append =
        format!("{}?append_type=append&append_handle=", cluster.object_url("long-names", "log"));
    assert_eq!(http::request("PUT", &append).body("begun").follow().status, 200);
    let long = |n: usize| "x".repeat(70_000 + n);
    let url = format!("{}/v1/buckets/long-names", cluster.endpoint);
    let names: Vec<_> = (0..6).map(long).collect();
    let delete = json!({"action": "delete-listrange", "value": {"objnames": names}});
    let answer = http::request("DELETE", &url).json(&delete).send();
    assert!(answer.status < 500, "{}: {}", answer.status, answer.text());
    for value in [json!({"prefix": long(0)}), json!({"start_after": long(0)})] {
        let list = json!({"action": "list", "value": value});
        let answer = http::request("GET", &url).json(&list).send();
        assert!(answer.status < 500, "{}: {}", answer.status, answer.text());
    }
    let answer = get(&cluster, &bucket, 1);
    assert_same(&name(1), &answer.body, &bytes(1));
    let in_use = cluster.metric("forebay_disks", &["state=\"in_use\""]);
    assert!(in_use >= 1.0 && cluster.metric("forebay_disks", &["state=\"away\""]) == 0.0);
    assert_eq!(cluster.metric("forebay_disks", &["state=\"mending\""]), 0.0);
    shows(&cluster, "available", &[&first_disk(&cluster)]);
}

//! Objects with copies on several targets: one of those may die without a loss or a long wait.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_client::Client;
use forebay_core::intra::{DiskAction, DiskCommand};
use forebay_core::job::JobState;
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode, NodeId, placement};
use forebay_tests::cluster::{Cluster, Options, command, native, signal};
use forebay_tests::data::{assert_same, content};
use forebay_tests::history::History;
use forebay_tests::{http, wait};

use crate::bit_rot::{counted, damage_at, scrubbed};

/// Repair and rebalance are slow on a busy machine.
const MENDED: Duration = Duration::from_secs(120);
/// Limit for failover after a target's death; far more than it should take.
const GAP: Duration = Duration::from_secs(20);
pub(crate) const SIZE: usize = 3_000;

pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("still/{n:04}")).collect()
}

fn set_copies(cluster: &Cluster, bucket: &str, copies: u32) {
    let (bucket, copies) = (format!("ais://{bucket}"), format!("copies={copies}"));
    let mut command = command(["bucket", "set", &bucket, &copies]);
    let done = command.args(["--endpoint", &cluster.endpoint]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn with_copies(cluster: &Cluster, name: &str, copies: u32) -> Bucket {
    let bucket = native(name);
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    set_copies(cluster, name, copies);
    bucket
}

async fn fill(client: &Client, bucket: &Bucket, names: &[String]) {
    for name in names {
        client.put(bucket, name, content(name, SIZE), None).await.unwrap();
    }
}

/// Gives up a disk of the first target on which about half of its copies lie.
async fn lose_a_disk(cluster: &Cluster, path: &Path) {
    let target = NodeId::new(&cluster.targets[0].id).unwrap();
    let path = path.display().to_string();
    let command = DiskCommand { force: true, ..DiskCommand::new(DiskAction::Detach, &path) };
    cluster.client().act_on_disk(&target, &command).await.unwrap();
}

/// Three targets, the first of which has a second disk; a bucket with two copies of what `names` are.
pub(crate) async fn with_two_disks(names: &[String]) -> (Cluster, Bucket, PathBuf) {
    let cluster = Cluster::start(Options { targets: 3, ..Options::default() });
    let target = NodeId::new(&cluster.targets[0].id).unwrap();
    let disk = cluster.dir().join("second-disk");
    std::fs::create_dir(&disk).unwrap();
    let attach = DiskCommand::new(DiskAction::Attach, disk.display().to_string());
    cluster.client().act_on_disk(&target, &attach).await.unwrap();
    let bucket = with_copies(&cluster, "on-disks", 2).await;
    fill(&cluster.client(), &bucket, names).await;
    mended(&cluster, &cluster.client(), 2 * names.len()).await;
    (cluster, bucket, disk)
}

async fn check(client: &Client, bucket: &Bucket, names: &[String], when: &str) {
    for name in names {
        let got = client.get_bytes(bucket, name, None).await;
        let got = got.unwrap_or_else(|e| panic!("{when}: {name}: {e}"));
        assert_same(&format!("{when}: {name}"), &got, &content(name, SIZE));
    }
    assert_eq!(client.list_all(bucket, "").await.unwrap().len(), names.len(), "{when}");
}

/// Waits until no holder lacks a copy, and until targets report this many objects.
async fn mended(cluster: &Cluster, client: &Client, objects: usize) {
    wait::until("nobody misses anything", MENDED, || cluster.map().state.is_quiescent());
    wait::until_async(&format!("{objects} copies in all"), MENDED, || {
        let client = client.clone();
        async move {
            let info = client.cluster_info().await.unwrap();
            info.nodes.iter().map(|n| n.usage.objects).sum::<u64>() == objects as u64
        }
    })
    .await;
}

/// Targets that hold something of an object, by rank.
pub(crate) fn holders(cluster: &Cluster, bucket: &Bucket, name: &str) -> Vec<NodeId> {
    let state = cluster.map().state;
    let info = state.bucket(bucket).unwrap();
    let digest = placement::object_digest(&info.bucket.uname(), name);
    placement::holders(&state, info, digest).iter().map(|n| n.id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_copies_the_death_of_a_target_loses_nothing_and_is_a_short_gap() {
    let cluster = Cluster::start(Options { targets: 4, ..Options::default() });
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = with_copies(&cluster, "twice", 2).await;
    let busy = with_copies(&cluster, "busy", 2).await;
    let names = names(120);
    fill(&client, &bucket, &names).await;
    // No loss is guaranteed once every object of the bucket has all its copies.
    mended(&cluster, &client, 2 * names.len()).await;
    let history = History::default();
    let clients = (0..3).map(|_| cluster.client_with_deadline(Duration::from_secs(60)));
    let writers = history.writers(clients, &busy, 11);
    tokio::time::sleep(Duration::from_secs(1)).await;

    let victim = cluster.owner(&bucket, &names[0]).id;
    let (its, others): (Vec<_>, Vec<_>) =
        names.iter().partition(|name| cluster.owner(&bucket, name).id == victim);
    assert!(its.len() > 5 && others.len() > 5);
    cluster.kill9(&victim);
    let died = Instant::now();
    let got = client.get_bytes(&bucket, others[0], None).await.unwrap();
    assert_same(others[0], &got, &content(others[0], SIZE));
    let got = client.get_bytes(&bucket, its[0], None).await.unwrap();
    assert_same(its[0], &got, &content(its[0], SIZE));
    client.put(&busy, "zz-written", "while it is dead", None).await.unwrap();
    assert!(died.elapsed() < GAP, "{:?}", died.elapsed());
    check(&client, &bucket, &names, "while it is dead").await;
    writers.assert_none_failed();
    client.delete(&busy, "zz-written").await.unwrap();
    assert!(writers.stop().await.iter().all(|count| *count > 0));
    history.check(&client, &busy, "while it is dead").await;

    cluster.restart(&victim);
    history.check(&client, &busy, "when it is back").await;
    let there = names.len() + client.list_all(&busy, "").await.unwrap().len();
    mended(&cluster, &client, 2 * there).await;
    // Another target dies: the first one has its missed copies by now.
    let next = cluster.targets.iter().find(|t| t.id != victim).unwrap().id.clone();
    cluster.kill9(&next);
    check(&client, &bucket, &names, "when another is dead").await;
    history.check(&client, &busy, "when another is dead").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_does_not_wait_for_a_target_that_hangs_where_there_is_another_copy() {
    let cluster = Cluster::start(Options { targets: 3, ..Options::default() });
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = with_copies(&cluster, "hangs", 2).await;
    let names = names(40);
    fill(&client, &bucket, &names).await;
    mended(&cluster, &client, 2 * names.len()).await;
    let before = cluster.map().state;
    let victim = cluster.owner(&bucket, &names[0]).id;
    signal(cluster.pid(&victim), "STOP");
    let name = &names[0];
    let got = client.get_bytes(&bucket, name, None).await.unwrap();
    assert_same(name, &got, &content(name, SIZE));
    let part = client.get_bytes(&bucket, name, Some(RangeSpec::From(100, Some(199)))).await;
    assert_eq!(part.unwrap(), content(name, SIZE)[100..200]);
    assert_eq!(client.head(&bucket, name).await.unwrap().size, SIZE as u64);
    let now = cluster.map().state;
    assert_eq!(now.version, before.version, "nobody was taken for dead meanwhile");
    // Only the owner can answer that an object does not exist.
    signal(cluster.pid(&victim), "CONT");
    let e = client.get_bytes(&bucket, "nothing", None).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::ObjectNotFound, "{e}");
    client.put(&bucket, name, "newer", None).await.unwrap();
    assert_eq!(client.get_bytes(&bucket, name, None).await.unwrap(), "newer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_missed_something_says_nothing_about_it_alone() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = with_copies(&cluster, "missed", 2).await;
    let names = names(20);
    fill(&client, &bucket, &names).await;
    let [behind, ahead] = [&cluster.targets[0].id, &cluster.targets[1].id];
    cluster.kill9(behind);
    client.put(&bucket, &names[0], "newer", None).await.unwrap();
    client.delete(&bucket, &names[1]).await.unwrap();
    cluster.restart(behind);
    cluster.kill9(ahead);
    wait::until("the map has it dead", MENDED, || !cluster.is_alive(ahead));
    let state = cluster.map().state;
    assert!(state.needs_repair(), "there was no time for it");
    let impatient = cluster.client_with_deadline(Duration::from_secs(1));
    for name in &names[..3] {
        let e = impatient.get_bytes(&bucket, name, None).await.unwrap_err();
        assert_eq!(e.code(), ErrorCode::Unavailable, "{name}: {e}");
    }
    assert!(impatient.list_all(&bucket, "").await.is_err());
    cluster.restart(ahead);
    // Both are alive again, and both may have missed writes.
    let got = client.get_bytes(&bucket, &names[0], None).await.unwrap();
    assert_eq!(got, "newer");
    let e = client.get_bytes(&bucket, &names[1], None).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::ObjectNotFound, "{e}");
    mended(&cluster, &client, 2 * (names.len() - 1)).await;
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), names.len() - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_that_were_away_one_after_the_other_list_nothing_that_was_removed_meanwhile() {
    let cluster = Cluster::start(Options { targets: 3, ..Options::default() });
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    let bucket = with_copies(&cluster, "listed", 2).await;
    let mut left = names(60);
    fill(&client, &bucket, &left).await;
    mended(&cluster, &client, 2 * left.len()).await;
    // Repair is off, so that two of three holders have missed writes in the end.
    cluster.configure("rebalance.enabled=false");
    let [first, second] = [0, 1].map(|n| cluster.targets[n].id.clone());
    let mut newer = Vec::new();
    for (away, other) in [(&first, &second), (&second, &first)] {
        let are = |name: &String, id: &String| {
            holders(&cluster, &bucket, name).iter().any(|holder| holder.as_str() == id)
        };
        let mut its: Vec<_> =
            left.iter().filter(|name| are(name, away) && !are(name, other)).cloned().collect();
        assert!(its.len() > 4, "{its:?}");
        cluster.kill9(away);
        newer.extend(its.pop());
        client.put(&bucket, newer.last().unwrap(), "newer", None).await.unwrap();
        for name in &its {
            client.delete(&bucket, name).await.unwrap();
        }
        left.retain(|name| !its.contains(name));
        cluster.restart(away);
    }
    let state = cluster.map().state;
    assert_eq!(state.holding_targets().filter(|n| n.alive && n.lagging).count(), 2);
    for prefix in ["", "still/003"] {
        let size = |name: &String| if newer.contains(name) { 5 } else { SIZE as u64 };
        let wanted = left.iter().filter(|name| name.starts_with(prefix));
        let wanted: Vec<_> = wanted.map(|name| (name.clone(), size(name))).collect();
        assert_eq!(client.list_all(&bucket, prefix).await.unwrap(), wanted, "{prefix:?}");
    }
    cluster.configure("rebalance.enabled=true");
    mended(&cluster, &client, 2 * left.len()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_made_and_dropped_when_their_number_changes() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = with_copies(&cluster, "number", 1).await;
    let names = names(60);
    fill(&client, &bucket, &names).await;
    for copies in [2, 3, 1] {
        set_copies(&cluster, "number", copies);
        check(&client, &bucket, &names, &format!("towards {copies}")).await;
        mended(&cluster, &client, copies as usize * names.len()).await;
        assert_eq!(holders(&cluster, &bucket, &names[0]).len(), copies as usize);
        check(&client, &bucket, &names, &format!("{copies} copies")).await;
    }
    let value = serde_json::json!({"action": "make-n-copies", "value": 2});
    let answer = http::request("POST", &format!("{}/v1/buckets/number", cluster.endpoint));
    let answer = answer.json(&value).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let job = answer.text();
    wait::until_async("the job is over", MENDED, || {
        let (client, job) = (client.clone(), job.clone());
        async move { client.job(&job).await.unwrap().is_over() }
    })
    .await;
    mended(&cluster, &client, 2 * names.len()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_follow_targets_that_come_and_go() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = with_copies(&cluster, "follow", 2).await;
    let names = names(80);
    fill(&client, &bucket, &names).await;
    cluster.add_target("target-04");
    check(&client, &bucket, &names, "while copies move").await;
    mended(&cluster, &client, 2 * names.len()).await;
    check(&client, &bucket, &names, "one target more").await;
    let leaves = cluster.targets[2].id.as_str();
    let mut remove = command(["node", "remove", leaves, "--wait"]);
    let done = remove.args(["--endpoint", &cluster.endpoint]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    mended(&cluster, &client, 2 * names.len()).await;
    check(&client, &bucket, &names, "one target less").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_over_copies_that_went_with_a_disk_is_newer_than_those_of_others() {
    let names = names(60);
    let (cluster, bucket, disk) = with_two_disks(&names).await;
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    // Several versions of each, all under one state of the cluster.
    fill(&client, &bucket, &names).await;
    fill(&client, &bucket, &names).await;
    lose_a_disk(&cluster, &disk).await;
    let (removed, written) = names.split_at(20);
    for name in &names {
        client.put(&bucket, name, content(name, 2 * SIZE), None).await.unwrap();
    }
    for name in removed {
        client.delete(&bucket, name).await.unwrap();
        let again = client.delete(&bucket, name).await.unwrap_err();
        assert_eq!(again.code(), ErrorCode::ObjectNotFound, "{name}: {again}");
    }
    cluster.kill9(&cluster.targets[0].id);
    for name in written {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, 2 * SIZE));
    }
    for name in removed {
        let gone = client.get_bytes(&bucket, name, None).await.unwrap_err();
        assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{name}: {gone}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_went_with_a_disk_are_made_again_without_being_asked_for() {
    let names = names(60);
    let (cluster, bucket, disk) = with_two_disks(&names).await;
    let client = cluster.client_with_deadline(Duration::from_secs(60));
    lose_a_disk(&cluster, &disk).await;
    let jobs = || cluster.cli(&["job", "ls"]).0;
    wait::until("a job for it", MENDED, || jobs().contains("resilver"));
    mended(&cluster, &client, 2 * names.len()).await;
    cluster.kill9(&cluster.targets[1].id);
    check(&client, &bucket, &names, "another target is dead").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_copy_is_mended_from_another_target_in_the_request_that_meets_it() {
    let cluster = Cluster::start(Options { targets: 3, ..Options::default() });
    let client = cluster.client();
    let bucket = with_copies(&cluster, "mended", 2).await;
    let objects: Vec<(String, usize)> = [300, 70_000, 200_000, 1_500_000, 4_000_000]
        .iter()
        .flat_map(|size| ["whole", "range"].map(|way| (format!("{way}/{size}"), *size)))
        .collect();
    for (name, size) in &objects {
        client.put(&bucket, name, content(name, *size), None).await.unwrap();
    }
    let damage = |name: &str, size: usize, holder: usize| {
        let bytes = &content(name, size)[size / 2..size / 2 + 64];
        let id = holders(&cluster, &bucket, name)[holder].to_string();
        assert!(damage_at(&cluster, &id, bytes), "{name} lies on {id}");
    };
    for (name, size) in &objects {
        damage(name, *size, 0);
        let (all, part) = (content(name, *size), *size / 2 - 100..*size / 2 + 100);
        let range = RangeSpec::From(part.start as u64, Some(part.end as u64 - 1));
        if name.starts_with("range") {
            let got = client.get_bytes(&bucket, name, Some(range)).await.unwrap();
            assert_same(name, &got, &all[part]);
        }
        assert_same(name, &client.get_bytes(&bucket, name, None).await.unwrap(), &all);
    }
    let count = objects.len() as f64;
    let read = |what: &str| counted(&cluster, what, "read");
    assert_eq!((read("damaged"), read("healed"), read("lost")), (count, count, 0.0));

    // A scrub finds damage of copies that no request reads.
    for (name, size) in &objects {
        damage(name, *size, 1);
    }
    let (state, _, errors) = scrubbed(&cluster, &bucket).await;
    assert_eq!((state, errors), (JobState::Done, 0));
    assert_eq!(counted(&cluster, "healed", "scrub"), count);
    for (name, size) in &objects {
        damage(name, *size, 0);
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, *size));
    }

    // With no sound copy left it is an error, and never wrong bytes.
    let (name, size) = &objects[0];
    damage(name, *size, 0);
    damage(name, *size, 1);
    let e = client.get_bytes(&bucket, name, None).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::Corrupt, "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreplicated_write_is_not_read_before_the_other_holder_counts_as_dead() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let bucket = with_copies(&cluster, "unsettled", 2).await;
    let client = cluster.client();
    client.put(&bucket, "x", "old", None).await.unwrap();
    mended(&cluster, &client, 2).await;
    let owner = cluster.owner(&bucket, "x").id;
    let other = cluster.targets.iter().find(|target| target.id != owner).unwrap();
    let paused = cluster.pid(&other.id);
    signal(paused, "STOP");
    let write = tokio::spawn({
        let (client, bucket) = (client.clone(), bucket.clone());
        async move { client.put(&bucket, "x", "new", None).await }
    });
    let reader = cluster.client();
    loop {
        let read = reader.get_bytes(&bucket, "x", None).await.unwrap();
        if read == "new" {
            break;
        }
        assert_eq!(read, "old");
    }
    // No target that has the previous version is left to answer.
    assert!(!cluster.is_alive(&other.id));
    write.await.unwrap().unwrap();
    signal(paused, "CONT");
    mended(&cluster, &client, 2).await;
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "new");
}

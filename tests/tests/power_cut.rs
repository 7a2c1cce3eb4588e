//! The power of a target's disk is cut under load: data that was not synced is lost, and no
//! acknowledged write may be.
//!
//! The disk is an ext4 image on a loop device, which `FS_IOC_SHUTDOWN` stops without writing its
//! journal. That needs root and loop devices; elsewhere these tests say so and skip, unless
//! `FOREBAY_REQUIRE_LOOP` is set. `FOREBAY_SEEDS` says how often the power is cut.

use std::path::PathBuf;
use std::time::Duration;

use forebay_tests::Options;
use forebay_tests::cluster::{self, Cluster, native};
use forebay_tests::history::{History, Random, rounds};
use forebay_tests::loop_disk::LoopDisk;

const WRITERS: u64 = 6;

/// Where the only target keeps its objects.
fn disk_folder(cluster: &Cluster) -> PathBuf {
    let text = std::fs::read_to_string(cluster.dir().join("dev.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["targets"][0]["disks"][0].as_str().unwrap().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_under_load_loses_nothing_that_was_acknowledged() {
    let size = Some("96MiB");
    let cluster = Cluster::start(Options { targets: 1, size, ..Options::default() });
    let folder = disk_folder(&cluster);
    cluster.kill9("target01");
    // It holds nothing yet: the target starts empty on the file system that is mounted over it.
    let Some(disk) = LoopDisk::mount(cluster.dir().join("disk.img"), &folder) else { return };
    cluster.restart("target01");
    let client = cluster.client();
    let bucket = native("own");
    client.create_bucket(&bucket, None).await.unwrap();
    let history = History::default();
    let seeds = rounds("FOREBAY_SEEDS", 3);
    let mut acknowledged = 0;
    for seed in 0..seeds {
        let clients = (0..WRITERS).map(|_| cluster.client_with_deadline(Duration::from_secs(1)));
        let writers = history.writers(clients, &bucket, seed);
        let load = 300 + Random::new(seed).below(1700);
        tokio::time::sleep(Duration::from_millis(load)).await;
        disk.cut();
        cluster::signal(cluster.pid("target01"), "KILL");
        let count: u64 = writers.stop().await.iter().sum();
        cluster.kill9("target01");
        disk.power_on();
        cluster.restart("target01");
        history.check(&client, &bucket, &format!("seed {seed}")).await;
        println!("seed {seed}: {count} acknowledged writes in {load} ms, all there");
        acknowledged += count;
    }
    assert!(acknowledged > seeds, "it was under load");
    drop(cluster);
    drop(disk);
}

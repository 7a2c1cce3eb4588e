//! Disks that die and clocks that are wrong.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_tests::figures::success;
use forebay_tests::lab_cluster::LabNode;
use forebay_tests::ledger::Micros;
use forebay_tests::loop_disk::LoopDisk;
use forebay_tests::{LabCluster, Shape, http, skip, wait};

use super::{Fixture, SECOND, TWO_COPIES};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Where packages put the library that shifts a process's clock.
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
];

fn disks(target: &LabNode, state: &str) -> f64 {
    let url = format!("{}/metrics", target.url);
    let answer = http::request("GET", &url).within(Duration::from_secs(2)).try_send();
    let label = format!("state=\"{state}\"");
    answer.map_or(0.0, |a| http::metric(&a.text(), "forebay_disks", &[&label]))
}

fn micros(time: Duration) -> Micros {
    time.as_micros() as Micros
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_10_a_dead_disk_is_noticed_and_another_in_its_place_is_used_without_a_restart() {
    let shape = Shape { disks: 2, ..Shape::default() };
    let Some(cluster) = tokio::task::block_in_place(|| LabCluster::prepare(&shape)) else { return };
    let at = cluster.disks(&cluster.targets[0], 2).remove(1);
    let Some(disk) = LoopDisk::mount(cluster.dir().join("disk.img"), &at) else { return };
    tokio::task::block_in_place(|| cluster.start_all(4));
    let Some(fixture) = Fixture::quiet_on(cluster, TWO_COPIES).await else { return };
    let target = &fixture.cluster.targets[0];
    let fault = fixture.load.now();
    let noticed = tokio::task::block_in_place(|| {
        let started = Instant::now();
        disk.cut();
        wait::until("the disk is out of use", TIMEOUT, || disks(target, "in_use") == 1.0);
        started.elapsed()
    });
    fixture.until_quarter(2).await;
    let replaced = fixture.load.now();
    let back = tokio::task::block_in_place(|| {
        let started = Instant::now();
        disk.replace();
        wait::until("the new disk is in use", TIMEOUT, || disks(target, "in_use") == 2.0);
        started.elapsed()
    });
    let scenario = fixture.end().await;
    let mut figures = scenario.figures("10 a disk dies and is replaced", fault);
    figures.add_seconds("noticed after s", micros(noticed));
    figures.add_seconds("new one in use after s", micros(back));
    figures.add_service("without the disk", &scenario.samples, &(fault..replaced));
    let (own, others) = scenario.by_owner(0);
    let (reads, writes) = super::gaps(&own, &(fault..replaced));
    figures.add_seconds("gap of its reads s", reads);
    figures.add_seconds("gap of its writes s", writes);
    figures.add_service("others", &others, &(fault..replaced));
    figures.write();
    drop(scenario);
    drop(disk);
}

/// Command prefix of a program whose clock is set by `file`.
fn with_clock(library: &str, file: &Path) -> Vec<String> {
    let file = file.display();
    vec![
        "env".into(),
        format!("LD_PRELOAD={library}"),
        format!("FAKETIME_TIMESTAMP_FILE={file}"),
        "FAKETIME_CACHE_DURATION=1".into(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_16_clocks_that_jump_break_no_rule() {
    let Some(library) = FAKETIME.iter().find(|path| Path::new(path).exists()) else {
        return skip::skipped("clocks are shifted by libfaketime, which is not here");
    };
    let shape = Shape::default();
    let Some(cluster) = tokio::task::block_in_place(|| LabCluster::prepare(&shape)) else { return };
    let files = [cluster.dir().join("clock-of-a-gateway"), cluster.dir().join("clock-of-a-target")];
    let set = |shifts: [&str; 2]| {
        for (file, shift) in files.iter().zip(shifts) {
            std::fs::write(file, shift).unwrap();
        }
    };
    set(["-10s", "+10s"]);
    cluster.gateways[0].run_behind(with_clock(library, &files[0]));
    cluster.targets[0].run_behind(with_clock(library, &files[1]));
    tokio::task::block_in_place(|| cluster.start_all(4));
    let Some(fixture) = Fixture::quiet_on(cluster, TWO_COPIES).await else { return };
    set(["+10s", "-10s"]);
    fixture.until_quarter(2).await;
    let fault = fixture.load.now();
    // No node accepts the signatures of a node whose clock is a day off: it is as if cut off.
    set(["-1d", "+1d"]);
    tokio::time::sleep(super::length() / 8).await;
    set(["+1d", "-1d"]);
    tokio::time::sleep(super::length() / 8).await;
    set(["+0", "+0"]);
    let right = fixture.load.now();
    tokio::task::block_in_place(|| {
        fixture.cluster.is_in(&fixture.cluster.gateways[0]);
        fixture.cluster.is_in(&fixture.cluster.targets[0]);
    });
    let healed = fixture.load.now();
    let scenario = fixture.end().await;
    let mut figures = scenario.figures("16 clocks jump by a day", fault);
    figures.add_seconds("heal s", healed - right);
    figures.write();
    assert!(success(&scenario.samples, &(SECOND..fault - SECOND)) > 95.0, "seconds do no harm");
}

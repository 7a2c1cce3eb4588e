//! A fifth target among four that are full of objects, and a new version among old ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::job::JobState;
use forebay_tests::data::content;
use forebay_tests::figures::{percentile, success};
use forebay_tests::{LabCluster, LabNode, Shape, cluster, skip};

use super::{Fixture, SECOND, TWO_COPIES};

/// Objects a second that are put before the load begins, if the time allows.
const FILLERS: usize = 24;
const SIZE: usize = 1_000;

/// Puts so many small objects.
async fn fill(cluster: &LabCluster, bucket: &forebay_core::Bucket, count: usize) {
    let client = cluster.client(super::PATIENT);
    let fillers: Vec<_> = (0..FILLERS)
        .map(|filler| {
            let (client, bucket) = (client.clone(), bucket.clone());
            tokio::spawn(async move {
                for n in (filler..count).step_by(FILLERS) {
                    let name = format!("still/{n:06}");
                    let bytes = content(&name, SIZE);
                    client.put(&bucket, &name, bytes, None).await.unwrap();
                }
            })
        })
        .collect();
    for filler in fillers {
        filler.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_03_a_fifth_target_gets_a_fifth_of_the_copies_and_nobody_notices() {
    let count = if super::length() >= Duration::from_secs(60) { 100_000 } else { 3_000 };
    let shape = Shape { spare: 1, ..Shape::default() };
    let Some(cluster) = tokio::task::block_in_place(|| LabCluster::start(&shape)) else { return };
    let still = cluster.bucket("still", TWO_COPIES).await;
    fill(&cluster, &still, count).await;
    let Some(fixture) = Fixture::quiet_on(cluster, TWO_COPIES).await else { return };
    let cluster: &Arc<LabCluster> = &fixture.cluster;
    let fault = fixture.load.now();
    let started = Instant::now();
    let (placed, took) = tokio::task::block_in_place(|| {
        cluster.start_node(&cluster.targets[4]);
        let placed = cluster.map().state.targets_changed;
        cluster.quiescent();
        (placed, started.elapsed())
    });
    let rebalanced = fixture.load.now();
    let client = cluster.client(super::PATIENT);
    let job = client.job(&format!("g{placed}")).await.unwrap();
    assert_eq!((job.state, job.errors), (JobState::Done, 0), "{:?}", job.messages);
    let info = client.cluster_info().await.unwrap();
    let copies: u64 = info.nodes.iter().map(|node| node.usage.objects).sum();
    let scenario = fixture.end().await;
    // Objects move only to the fifth target (`core/src/rebalance.rs`): its objects are those that
    // moved.
    let fifth = info.nodes.iter().find(|node| node.id.as_str() == scenario.cluster.targets[4].id);
    let moved = fifth.unwrap().usage.objects as f64 * 100.0 / copies as f64;
    let mut figures = scenario.figures("3 a fifth target joins", fault);
    figures.add("copies", copies);
    figures.add("moved copies %", (moved * 100.0).round() / 100.0);
    figures.add_service("while they move", &scenario.samples, &(fault..rebalanced));
    figures.add_seconds("settled after s", took.as_micros() as u64);
    figures.write();
    assert!(moved <= 21.0, "{moved} % of the copies moved");
    assert_eq!(success(&scenario.samples, &(fault..rebalanced)), 100.0, "no request fails");
}

/// Runs another program at each of these nodes, one after the other.
fn roll(cluster: &LabCluster, nodes: &[&LabNode], program: &Path) {
    for node in nodes {
        tokio::task::block_in_place(|| {
            cluster.stop(node);
            node.run_program(program);
            cluster.start_node(node);
            cluster.quiescent();
        });
    }
}

/// The formats of disks and batches that a program reads and writes.
fn formats(program: &Path) -> serde_json::Value {
    let version = Command::new(program).args(["version", "-o", "json"]).output().unwrap();
    let version: serde_json::Value = serde_json::from_slice(&version.stdout).unwrap();
    version["formats"].clone()
}

/// `make upgrade-test` names an older program; without one this says so and does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make upgrade-test"]
async fn a_rolling_upgrade_and_the_way_back_keep_every_object_and_serve_meanwhile() {
    let Some(older) = std::env::var_os("FOREBAY_OLDER_BIN").filter(|v| !v.is_empty()) else {
        return skip::skipped("FOREBAY_OLDER_BIN names no older program");
    };
    let (older, newer) = (PathBuf::from(older), cluster::forebay());
    let shape = Shape { program: older.clone(), ..Shape::default() };
    let Some(fixture) = Fixture::quiet(&shape, TWO_COPIES).await else { return };
    let started = fixture.load.now();
    let cluster = fixture.cluster.clone();
    // Followers first: the leader is the last to be upgraded and to use new commands.
    let leader = tokio::task::block_in_place(|| cluster.leader());
    let mut order: Vec<_> = cluster.targets.iter().collect();
    order.extend(cluster.gateways.iter().enumerate().filter(|(at, _)| *at != leader).map(|g| g.1));
    order.push(&cluster.gateways[leader]);
    roll(&cluster, &order, &newer);
    let up = fixture.load.now();
    // A newer format of disks has no way back, as docs/operations.md says.
    let has_way_back = formats(&older) == formats(&newer);
    if has_way_back {
        order.reverse();
        roll(&cluster, &order, &older);
    } else {
        println!("no way back: the formats differ, {} and {}", formats(&older), formats(&newer));
    }
    let down = fixture.load.now();
    let scenario = fixture.end().await;
    let mut figures = scenario.figures("20 rolling upgrade", started);
    figures.add_service("upgrade", &scenario.samples, &(started..up));
    figures.add_seconds("upgrade s", up - started);
    if has_way_back {
        figures.add_service("way back", &scenario.samples, &(up..down));
        figures.add_seconds("way back s", down - up);
    }
    figures.write();
    assert_eq!(success(&scenario.samples, &(down..scenario.end)), 100.0, "all alike");
    assert!(percentile(&scenario.samples, &(started..up), 0.5) < SECOND);
}

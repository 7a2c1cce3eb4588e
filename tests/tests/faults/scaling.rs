//! A fifth target among four that are full of objects, and a new version among old ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::job::JobState;
use forebay_tests::data::content;
use forebay_tests::figures::{percentile, success};
use forebay_tests::{LabCluster, Shape, cluster, skip};

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

/// `make upgrade-test` names an older program; without one this says so and does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make upgrade-test"]
async fn a_rolling_upgrade_from_an_older_program_keeps_every_object_and_serves_meanwhile() {
    let Some(older) = std::env::var_os("FOREBAY_OLDER_BIN").filter(|v| !v.is_empty()) else {
        return skip::skipped("FOREBAY_OLDER_BIN names no older program");
    };
    let shape = Shape { program: older.into(), ..Shape::default() };
    let Some(fixture) = Fixture::quiet(&shape, TWO_COPIES).await else { return };
    let started = fixture.load.now();
    let cluster = fixture.cluster.clone();
    // Followers first: the leader is the last to be upgraded and to use new commands.
    let leader = tokio::task::block_in_place(|| cluster.leader());
    let mut order: Vec<_> = cluster.targets.iter().collect();
    order.extend(cluster.gateways.iter().enumerate().filter(|(at, _)| *at != leader).map(|g| g.1));
    order.push(&cluster.gateways[leader]);
    for node in order {
        tokio::task::block_in_place(|| {
            cluster.stop(node);
            node.run_program(&cluster::forebay());
            cluster.start_node(node);
            cluster.quiescent();
        });
    }
    let over = fixture.load.now();
    let scenario = fixture.end().await;
    let mut figures = scenario.figures("20 rolling upgrade", started);
    figures.add_service("upgrade", &scenario.samples, &(started..over));
    figures.add_seconds("upgrade s", over - started);
    figures.write();
    assert_eq!(success(&scenario.samples, &(over..scenario.end)), 100.0, "all new");
    assert!(percentile(&scenario.samples, &(started..over), 0.5) < SECOND);
}

//! Targets that die, pause, join and leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{Bucket, ObjectName};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::figures::{Figures, percentile, success};
use forebay_tests::{LabCluster, Shape, wait};
use futures::StreamExt;

use super::{ERASURE_CODING, Fixture, PATIENT, SECOND, TWO_COPIES, gaps};

/// Objects that batches ask for.
const BATCHED: usize = 400;
const SIZE: usize = 8_000;

/// Kills a target of a bucket with these properties with SIGKILL, and starts it again.
async fn kill_and_restart(properties: &[&str], row: &'static str) {
    let Some(fixture) = Fixture::quiet(&Shape::default(), properties).await else { return };
    let victim = &fixture.cluster.targets[1];
    let fault = fixture.load.now();
    tokio::task::block_in_place(|| fixture.cluster.kill9(victim));
    fixture.until_quarter(3).await;
    let back = fixture.load.now();
    tokio::task::block_in_place(|| fixture.cluster.start_node(victim));
    let scenario = fixture.end().await;
    let (own, others) = scenario.by_owner(1);
    let away = fault..back;
    let mut figures = scenario.figures(row, fault);
    let (reads, writes) = gaps(&own, &away);
    figures.add_seconds("gap of its reads s", reads);
    figures.add_seconds("gap of its writes s", writes);
    let (other_reads, other_writes) = gaps(&others, &away);
    figures.add_seconds("gap of others' reads s", other_reads);
    figures.add_seconds("gap of others' writes s", other_writes);
    figures.write();
    assert!(reads.max(writes) < 15 * SECOND, "another target answers");
    assert!(other_reads < 10 * SECOND, "others are not held up");
    assert!(success(&scenario.samples, &(0..scenario.end)) > 70.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_01_a_killed_target_loses_nothing_that_was_acknowledged() {
    kill_and_restart(TWO_COPIES, "1 a target is killed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_01_a_killed_target_loses_nothing_that_was_acknowledged_with_erasure_coding() {
    kill_and_restart(ERASURE_CODING, "1 a target is killed, with erasure coding").await;
}

/// Asks for batches of 64 all the time, with the bytes of each compared; returns their times.
async fn batches(
    cluster: Arc<LabCluster>,
    bucket: Bucket,
    names: Vec<String>,
    stop: Arc<AtomicBool>,
) -> Vec<Duration> {
    let client = cluster.client(PATIENT);
    let mut times = Vec::new();
    let mut from = 0;
    while !stop.load(Ordering::SeqCst) {
        let asked: Vec<&String> = (0..64).map(|n| &names[(from + n * 7) % names.len()]).collect();
        from += 31;
        let entry = |name: &&String| BatchEntry::whole(0, ObjectName::new(name.as_str()).unwrap());
        let entries = asked.iter().map(entry).collect();
        let request = BatchRequest { buckets: vec![bucket.clone()], entries, ordered: true };
        let started = Instant::now();
        let mut stream = client.batch(&request).unwrap();
        let mut next = 0;
        while let Some(item) = stream.next().await {
            assert_eq!(item.index, next, "request order");
            let bytes = item.result.unwrap_or_else(|e| panic!("{}: {e:?}", asked[next]));
            assert_same(asked[next], &bytes, &content(asked[next], SIZE));
            next += 1;
        }
        assert_eq!(next, asked.len(), "every entry of the batch");
        times.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_02_every_batch_is_whole_and_in_order_while_a_target_is_killed() {
    let Some(fixture) = Fixture::quiet(&Shape::default(), TWO_COPIES).await else { return };
    let bucket = fixture.cluster.bucket("batches", TWO_COPIES).await;
    let client = fixture.cluster.client(PATIENT);
    let names = names(BATCHED);
    for name in &names {
        client.put(&bucket, name, content(name, SIZE), None).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let names = names.clone();
            tokio::spawn(batches(fixture.cluster.clone(), bucket.clone(), names, stop.clone()))
        })
        .collect();
    fixture.until_quarter(2).await;
    let fault = fixture.load.now();
    let victim = &fixture.cluster.targets[2];
    tokio::task::block_in_place(|| fixture.cluster.kill9(victim));
    fixture.until_quarter(4).await;
    tokio::task::block_in_place(|| fixture.cluster.start_node(victim));
    stop.store(true, Ordering::SeqCst);
    let mut times = Vec::new();
    for reader in readers {
        times.extend(reader.await.expect("no batch fails"));
    }
    let scenario = fixture.end().await;
    times.sort_unstable();
    let mut figures = scenario.figures("2 a target is killed: batches of 64", fault);
    figures.add("batches", times.len());
    figures.add("failed batches", 0);
    let p99 = times[(times.len() * 99 / 100).min(times.len() - 1)];
    figures.add_seconds("batch p99 s", p99.as_micros() as u64);
    figures.add_seconds("longest batch s", times[times.len() - 1].as_micros() as u64);
    figures.write();
    assert!(times.len() > 20, "{} batches", times.len());
    assert!(times[times.len() - 1] < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_03_no_request_fails_while_a_target_joins_and_leaves_and_all_nodes_restart() {
    let shape = Shape { spare: 1, ..Shape::default() };
    let Some(fixture) = Fixture::quiet(&shape, TWO_COPIES).await else { return };
    let fault = fixture.load.now();
    let cluster = &fixture.cluster;
    let fifth = &cluster.targets[4];
    tokio::task::block_in_place(|| {
        cluster.start_node(fifth);
        cluster.quiescent();
    });
    let joined = fixture.load.now();
    let remove = |id: &str| {
        let endpoint = &cluster.gateways[0].url;
        let words = ["node", "remove", id, "--wait", "--endpoint", endpoint];
        let done = forebay_tests::cluster::command(words).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    tokio::task::block_in_place(|| remove(&fifth.id));
    let left = fixture.load.now();
    // A gateway that is stopped does not respond: clients should use another one meanwhile.
    let mut shut = Vec::new();
    for (at, node) in cluster.gateways.iter().chain(&cluster.targets[..4]).enumerate() {
        let begin = fixture.load.now();
        tokio::task::block_in_place(|| {
            cluster.stop(node);
            cluster.start_node(node);
            cluster.quiescent();
        });
        shut.push((at, begin..fixture.load.now()));
    }
    let restarted = fixture.load.now();
    let mut scenario = fixture.end().await;
    scenario.samples.retain(|sample| {
        let started_at_a_shut_one = |(at, times): &(usize, std::ops::Range<u64>)| {
            sample.via == *at && times.contains(&sample.begin)
        };
        !shut[..3].iter().any(started_at_a_shut_one)
    });
    let mut figures: Figures = scenario.figures("3 join, leave, rolling restart", fault);
    for (name, within) in
        [("join", fault..joined), ("leave", joined..left), ("restart", left..restarted)]
    {
        figures.add_service(name, &scenario.samples, &within);
        figures.add_seconds(&format!("{name} s"), within.end - within.start);
    }
    figures.write();
    let failed = scenario.samples.iter().filter(|sample| sample.begin > fault && !sample.is_ok());
    for sample in failed.take(10) {
        eprintln!("failed: {sample:?}; {fault}..{joined}..{left}, restarts: {shut:?}");
    }
    assert_eq!(success(&scenario.samples, &(fault..left)), 100.0, "join and leave");
    assert_eq!(success(&scenario.samples, &(left..restarted)), 100.0, "rolling restart");
    assert_eq!(success(&scenario.own, &(fault..restarted)), 100.0, "our own client");
    assert!(percentile(&scenario.samples, &(fault..restarted), 0.5) < SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_11_a_paused_target_stales_nothing_and_holds_nobody_up_for_long() {
    let Some(fixture) = Fixture::quiet(&Shape::default(), TWO_COPIES).await else { return };
    let fault = fixture.load.now();
    let victim = &fixture.cluster.targets[0];
    victim.pause();
    tokio::task::block_in_place(|| {
        wait::until("it is found dead", PATIENT, || !fixture.cluster.is_alive(&victim.id));
    });
    let dead = fixture.load.now();
    tokio::time::sleep(Duration::from_secs(10).min(super::length() / 2)).await;
    victim.resume();
    let back = fixture.load.now();
    tokio::task::block_in_place(|| fixture.cluster.is_in(victim));
    let healed = fixture.load.now();
    let scenario = fixture.end().await;
    let (own, others) = scenario.by_owner(0);
    let away = fault..back;
    // These keys are not overwritten. A write of other keys may still wait for the paused target.
    let still: Vec<_> =
        scenario.own.iter().filter(|sample| sample.key.starts_with("once/")).cloned().collect();
    let mut figures = scenario.figures("11 a target is paused", fault);
    let (reads, writes) = gaps(&own, &away);
    figures.add_seconds("gap of its reads s", reads);
    figures.add_seconds("gap of its writes s", writes);
    figures.add_service("others", &others, &away);
    figures.add_service("our client's reads while it is not dead", &still, &(fault..dead));
    figures.add_seconds("dead after s", dead - fault);
    figures.add_seconds("heal s", healed - back);
    figures.write();
    assert!(dead - fault > 5 * SECOND, "a pause of five seconds moves nothing");
    assert_eq!(success(&scenario.own, &(fault..back)), 100.0, "our client reads another copy");
    let slowest = percentile(&still, &(fault..dead), 0.99);
    assert!(slowest < 3 * SECOND, "it does not wait for the end of the pause: {slowest} µs");
    let slowest = scenario
        .own
        .iter()
        .filter(|s| s.begin < back)
        .map(|s| s.end.saturating_sub(s.begin.max(dead)));
    let slowest = slowest.max().unwrap_or_default();
    assert!(slowest < 3 * SECOND, "nor does anybody once it is found dead: {slowest} µs");
    assert!(reads.max(writes) < 9 * SECOND, "the next copy answers");
}

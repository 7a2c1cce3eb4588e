//! Gateways that die or are cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_core::intra::LeaderReply;
use forebay_tests::cluster::native;
use forebay_tests::figures::success;
use forebay_tests::lab_cluster::LabNode;
use forebay_tests::ledger::{Kind, Micros};
use forebay_tests::load::Sample;
use forebay_tests::{LabCluster, Shape, http, wait};

use super::{Fixture, SECOND, TWO_COPIES};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Status of a bucket's creation, and whether the answer says when to come again; 0: no answer.
fn create(gateway: &LabNode, bucket: &str) -> (u16, bool) {
    let body = serde_json::json!({"action": "create-bck"});
    let url = format!("{}/v1/buckets/{bucket}", gateway.url);
    let answer = http::request("POST", &url).within(Duration::from_secs(12)).json(&body).try_send();
    answer.map_or((0, false), |answer| (answer.status, answer.header("retry-after").is_some()))
}

fn knows(gateway: &LabNode, bucket: &str) -> bool {
    let url = format!("{}/v1/buckets/{bucket}", gateway.url);
    let answer = http::request("HEAD", &url).within(Duration::from_secs(5)).try_send();
    answer.is_ok_and(|answer| answer.status == 200)
}

/// Asks all gateways for the leader repeatedly, until stopped. Returns the first second leader: a
/// gateway that still leads in an earlier term after another gateway led in a later one.
fn second_leader(cluster: &LabCluster, stop: &AtomicBool) -> Option<String> {
    let latest = std::sync::Mutex::new((0, String::new()));
    let follow = |gateway: &LabNode| {
        let url = format!("{}/api/v1/leader", gateway.url);
        while !stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
            let (before, by) = latest.lock().unwrap().clone();
            let asked = http::request("GET", &url).within(Duration::from_secs(1)).try_send();
            let Ok(answer) = asked else { continue };
            let said: LeaderReply = serde_json::from_slice(&answer.body).unwrap();
            let Some(term) = said.term else { continue };
            if term < before {
                return Some(format!("{} in term {term} after {by} in {before}", gateway.id));
            }
            let mut latest = latest.lock().unwrap();
            *latest = std::mem::take(&mut *latest).max((term, gateway.id.clone()));
        }
        None
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            cluster.gateways.iter().map(|gateway| scope.spawn(|| follow(gateway))).collect();
        threads.into_iter().find_map(|thread| thread.join().unwrap())
    })
}

/// Tries to create a bucket through a gateway until it succeeds; returns the time that took.
fn until_created(gateway: &LabNode, bucket: &str) -> Duration {
    let started = Instant::now();
    wait::until("a bucket can be made", TIMEOUT, || matches!(create(gateway, bucket).0, 200 | 409));
    started.elapsed()
}

fn others(cluster: &LabCluster, but: usize) -> Vec<usize> {
    (0..cluster.gateways.len()).filter(|at| *at != but).collect()
}

fn micros(time: Duration) -> Micros {
    time.as_micros() as Micros
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_04_the_death_of_the_leader_fails_nothing_that_goes_through_others() {
    let Some(fixture) = Fixture::quiet(&Shape::default(), TWO_COPIES).await else { return };
    let cluster = &fixture.cluster;
    let leader = tokio::task::block_in_place(|| cluster.leader());
    let left = others(cluster, leader);
    let (made, resumed, fault) = tokio::task::block_in_place(|| {
        let made: Vec<String> = (0..5).map(|n| format!("before-{n}")).collect();
        for bucket in &made {
            assert_eq!(create(&cluster.gateways[leader], bucket).0, 200);
        }
        let fault = fixture.load.now();
        cluster.kill9(&cluster.gateways[leader]);
        (made, until_created(&cluster.gateways[left[0]], "after"), fault)
    });
    fixture.until_quarter(3).await;
    tokio::task::block_in_place(|| {
        cluster.start_node(&cluster.gateways[leader]);
        for bucket in made.iter().map(String::as_str).chain(["after"]) {
            assert!(cluster.gateways.iter().all(|gateway| knows(gateway, bucket)), "{bucket}");
        }
    });
    let scenario = fixture.end().await;
    let through_others: Vec<Sample> =
        scenario.samples.iter().filter(|sample| sample.via != leader).cloned().collect();
    let mut figures = scenario.figures("4 the leader is killed", fault);
    figures.add_service("others", &through_others, &(fault..scenario.end));
    figures.add_seconds("buckets again after s", micros(resumed));
    figures.write();
    // On a busy machine an election may take longer than the leases of targets last.
    assert!(success(&through_others, &(fault..scenario.end)) > 95.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_05_a_minority_acknowledges_nothing_after_its_lease_and_heals_by_itself() {
    let Some(fixture) = Fixture::quiet(&Shape::default(), TWO_COPIES).await else { return };
    let cluster = &fixture.cluster;
    let leader = tokio::task::block_in_place(|| cluster.leader());
    let victim = &cluster.targets[0];
    let minority = [cluster.gateways[leader].at, victim.at];
    let majority: Vec<u8> =
        cluster.nodes().map(|node| node.at).filter(|at| !minority.contains(at)).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let watch = std::thread::spawn({
        let (cluster, stop) = (cluster.clone(), stop.clone());
        move || second_leader(&cluster, &stop)
    });
    let fault = fixture.load.now();
    let resumed = tokio::task::block_in_place(|| {
        cluster.lab.cut(&minority, &majority);
        until_created(&cluster.gateways[others(cluster, leader)[0]], "by-majority")
    });
    let old = &cluster.gateways[leader];
    let (mut refusals, mut attempt) = (0, 0);
    while fixture.load.now() < fault + 2 * SECOND {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while fixture.load.now() < (micros(super::length()) * 3 / 4).max(fault + 5 * SECOND) {
        attempt += 1;
        let (status, comes_again) =
            tokio::task::block_in_place(|| create(old, &format!("by-minority-{attempt}")));
        assert_eq!((status, comes_again), (503, true), "the minority makes no bucket");
        refusals += 1;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let healed = fixture.load.now();
    let heal = tokio::task::block_in_place(|| {
        let started = Instant::now();
        cluster.lab.heal();
        wait::until("all are one cluster again", TIMEOUT, || {
            let maps: Vec<_> = cluster.gateways.iter().map(|g| cluster.map_of(g)).collect();
            let first = maps[0].as_ref().map(|map| &map.primary);
            maps.iter().all(|map| map.as_ref().map(|map| &map.primary) == first)
                && first.is_some()
                && knows(old, "by-majority")
        });
        let heal = started.elapsed();
        assert!(!knows(&cluster.gateways[0], "by-minority-1"));
        cluster.is_in(victim);
        heal
    });
    stop.store(true, Ordering::SeqCst);
    let second = watch.join().unwrap();
    let scenario = fixture.end().await;
    let address = http::split(&scenario.cluster.targets[0].url).0.to_owned();
    let late: Vec<&Sample> = scenario
        .samples
        .iter()
        .filter(|s| s.by == address && s.kind != Kind::Get && (200..300).contains(&s.status))
        .filter(|s| s.begin > fault + 2 * SECOND && s.end < healed)
        .collect();
    let mut figures = scenario.figures("5 the leader and a target are cut off", fault);
    figures.add_seconds("buckets again after s", micros(resumed));
    figures.add("refused by the minority", refusals);
    figures.add("writes by the minority after 2 s", late.len());
    figures.add_seconds("heal s", micros(heal));
    figures.write();
    assert_eq!(second, None, "two gateways led at once");
    assert!(late.is_empty(), "the cut-off target acknowledged {:?}", late.first());
    assert!(success(&scenario.samples, &(0..scenario.end)) > 40.0);
}

/// The state of the cluster as a gateway has it, once all three have the same.
fn same_state(cluster: &LabCluster) {
    wait::until("all gateways have the same state", TIMEOUT, || {
        let states: Vec<_> =
            cluster.gateways.iter().map(|g| cluster.map_of(g).map(|map| map.state)).collect();
        states[0].is_some() && states.iter().all(|state| *state == states[0])
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_19_a_gateway_that_loses_its_disk_under_changes_gets_all_of_them_again() {
    let Some(fixture) = Fixture::quiet(&Shape::default(), TWO_COPIES).await else { return };
    let cluster = fixture.cluster.clone();
    let fault = fixture.load.now();
    let stop = Arc::new(AtomicBool::new(false));
    let changes = std::thread::spawn({
        let (cluster, stop) = (cluster.clone(), stop.clone());
        move || {
            let mut made = Vec::new();
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let bucket = format!("change-{n}");
                // A refused creation may have been applied: only acknowledged ones count.
                if create(&cluster.gateways[n % 3], &bucket).0 == 200 {
                    made.push(bucket);
                }
            }
            made
        }
    });
    let (lost, recovered) = tokio::task::block_in_place(|| {
        let leader = cluster.leader();
        let lost = others(&cluster, leader)[0];
        cluster.kill9(&cluster.gateways[lost]);
        std::fs::remove_dir_all(cluster.home(&cluster.gateways[lost]).join("state")).unwrap();
        std::fs::create_dir(cluster.home(&cluster.gateways[lost]).join("state")).unwrap();
        let started = Instant::now();
        cluster.start_node(&cluster.gateways[lost]);
        same_history(&cluster, lost);
        let recovered = started.elapsed();
        // With the one that came back empty, two are a majority.
        cluster.kill9(&cluster.gateways[leader]);
        until_created(&cluster.gateways[lost], "by-the-two");
        cluster.start_node(&cluster.gateways[leader]);
        (lost, recovered)
    });
    fixture.until_quarter(4).await;
    stop.store(true, Ordering::SeqCst);
    let made = changes.join().unwrap();
    tokio::task::block_in_place(|| {
        same_state(&cluster);
        let state = cluster.map_of(&cluster.gateways[lost]).unwrap().state;
        let kept = |name: &String| state.bucket(&native(name)).is_ok();
        let missing: Vec<&String> = made.iter().filter(|name| !kept(name)).collect();
        assert!(missing.is_empty(), "{} of {} are lost: {missing:?}", missing.len(), made.len());
    });
    let scenario = fixture.end().await;
    let mut figures = scenario.figures("19 a gateway loses its metadata", fault);
    figures.add("changes meanwhile", made.len());
    figures.add_seconds("it has all again after s", micros(recovered));
    figures.write();
    assert!(made.len() > 20, "{} changes", made.len());
}

/// Waits until a gateway has caught up with what another one had.
fn same_history(cluster: &LabCluster, gateway: usize) {
    let version = cluster.map().state.version;
    wait::until("it has what the others had", TIMEOUT, || {
        cluster.map_of(&cluster.gateways[gateway]).is_some_and(|map| map.state.version >= version)
    });
}

//! Networks that lose packets, deliver them late, carry one direction only, or come and go.

use std::time::Duration;

use forebay_tests::Shape;
use forebay_tests::figures::success;
use forebay_tests::lab::Carry;

use super::{ERASURE_CODING, Fixture, Scenario, TWO_COPIES};

/// Causes a fault for half of the time, ends the fault, and ends the load.
async fn while_it_lasts(
    properties: &[&str],
    begin: impl FnOnce(&Fixture),
    end: impl FnOnce(&Fixture),
) -> Option<(Scenario, u64)> {
    let fixture = Fixture::quiet(&Shape::default(), properties).await?;
    let fault = fixture.load.now();
    tokio::task::block_in_place(|| begin(&fixture));
    fixture.until_quarter(3).await;
    tokio::task::block_in_place(|| {
        end(&fixture);
        for node in fixture.cluster.gateways.iter().chain(&fixture.cluster.targets) {
            fixture.cluster.is_in(node);
        }
    });
    Some((fixture.end().await, fault))
}

/// Cuts links in one direction: between two targets, and from a target to the leader.
async fn lose_one_way(properties: &[&str], row: &'static str) {
    let begin = |fixture: &Fixture| {
        let cluster = &fixture.cluster;
        let (from, to) = (&cluster.targets[0], &cluster.targets[1]);
        cluster.lab.cut_one_way(from.at, to.at);
        let leader = cluster.leader();
        cluster.lab.cut_one_way(cluster.targets[2].at, cluster.gateways[leader].at);
    };
    let ended = while_it_lasts(properties, begin, |s| s.cluster.lab.heal()).await;
    let Some((scenario, fault)) = ended else { return };
    scenario.figures(row, fault).write();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_06_one_way_loss_breaks_no_rule() {
    lose_one_way(TWO_COPIES, "6 loss one way").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_06_one_way_loss_breaks_no_rule_with_erasure_coding() {
    lose_one_way(ERASURE_CODING, "6 loss one way, with erasure coding").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_06_a_fifth_of_lost_packets_breaks_no_rule() {
    let carry = Carry { lost_percent: 20, ..Carry::default() };
    let Some((scenario, fault)) = carried(carry).await else { return };
    scenario.figures("6 20 % of packets lost", fault).write();
    assert!(success(&scenario.samples, &(fault..scenario.end)) > 70.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_06_jitter_of_a_tenth_of_a_second_breaks_no_rule() {
    let carry = Carry { jitter_ms: 100, ..Carry::default() };
    let Some((scenario, fault)) = carried(carry).await else { return };
    scenario.figures("6 jitter of 100 ms", fault).write();
    assert!(success(&scenario.samples, &(fault..scenario.end)) > 70.0);
}

/// The leading gateway and one target have a bad cable.
async fn carried(how: Carry) -> Option<(Scenario, u64)> {
    let begin = |fixture: &Fixture| {
        let cluster = &fixture.cluster;
        cluster.lab.carry(cluster.gateways[cluster.leader()].at, how);
        cluster.lab.carry(cluster.targets[0].at, how);
    };
    let end = |fixture: &Fixture| {
        fixture.cluster.nodes().for_each(|n| fixture.cluster.lab.carry_well(n.at))
    };
    while_it_lasts(TWO_COPIES, begin, end).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_06_a_link_that_comes_and_goes_does_not_shake_the_cluster() {
    let Some(fixture) = Fixture::quiet(&Shape::default(), TWO_COPIES).await else { return };
    let fault = fixture.load.now();
    let cluster = &fixture.cluster;
    let flapping = [cluster.targets[0].at];
    let steady: Vec<u8> =
        cluster.nodes().map(|n| n.at).filter(|at| !flapping.contains(at)).collect();
    let until = super::length() * 3 / 4;
    while Duration::from_micros(fixture.load.now()) < until {
        tokio::task::block_in_place(|| cluster.lab.cut(&flapping, &steady));
        tokio::time::sleep(Duration::from_secs(2)).await;
        tokio::task::block_in_place(|| cluster.lab.heal());
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    tokio::task::block_in_place(|| cluster.is_in(&cluster.targets[0]));
    let scenario = fixture.end().await;
    let figures = scenario.figures("6 a link flaps every 2 s", fault);
    figures.write();
    let most = 2 + 2 * (super::length().as_secs() as usize / 10);
    assert!(
        super::changes(&scenario.seen) <= most,
        "{} map changes",
        super::changes(&scenario.seen)
    );
}

//! The leader and the targets together, with a model of what is stored.

use serde_json::json;

use super::*;
use crate::lease::HEARTBEAT_MS;
use crate::name::{Bucket, NodeId, Provider};
use crate::state::{ClusterState, Command, Role};

const MIB: u64 = 1 << 20;

/// A cluster of targets that store nothing but numbers.
struct Cluster {
    state: ClusterState,
    ledger: Ledger,
    targets: Vec<(NodeId, QuotaGate, Amount)>,
    bucket: u64,
    now_ms: u64,
}

impl Cluster {
    fn new(targets: usize, quota: &serde_json::Value) -> Self {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        info.set_quota(quota).unwrap();
        let mut state = ClusterState::default();
        let create = Command::CreateBucket { info: Box::new(info), now_ns: 1 };
        state.apply(1, create).unwrap();
        let mut all = Vec::new();
        for n in 0..targets {
            let id = NodeId::new(&format!("target-{n:02}")).unwrap();
            let join = Command::Join {
                id: id.clone(),
                role: Role::Target,
                url: format!("http://127.0.0.1:{}", 7000 + n),
                weight: 1,
                zone: String::new(),
                instance: 0,
                https: String::new(),
                external: String::new(),
            };
            state.apply(2 + n as u64, join).unwrap();
            all.push((id, QuotaGate::default(), Amount::default()));
        }
        let bucket = state.buckets.values().next().unwrap().id;
        Self { state, ledger: Ledger::default(), targets: all, bucket, now_ms: 0 }
    }

    /// One target samples, reports, and gets its grants.
    fn beat(&mut self, n: usize) {
        let (id, gate, stored) = &mut self.targets[n];
        gate.follow(&self.state);
        for mark in gate.begin_sample(self.now_ms) {
            gate.end_sample(&mark, StoredPart { copies: *stored, ..StoredPart::default() });
        }
        let grants =
            self.ledger.report(&self.state, id, Some(gate.reports(self.now_ms)), self.now_ms);
        gate.granted(&grants, self.now_ms);
    }

    fn beat_all(&mut self) {
        self.now_ms += HEARTBEAT_MS;
        (0..self.targets.len()).for_each(|n| self.beat(n));
    }

    /// A write that waits for a grant for some heartbeats, as in a node. Returns whether it was stored.
    fn write(&mut self, n: usize, bytes: u64) -> bool {
        let need = Amount { bytes, objects: 1 };
        let (bucket, now) = (self.bucket, self.now_ms);
        let mut done = self.targets[n].1.try_reserve(bucket, need, now) == Attempt::Reserved;
        self.targets[n].1.wait(bucket, need, true);
        for _ in 0..3 {
            if !done {
                self.beat(n);
                self.beat_all();
                let now = self.now_ms;
                done = self.targets[n].1.try_reserve(bucket, need, now) == Attempt::Reserved;
            }
        }
        let (_, gate, stored) = &mut self.targets[n];
        gate.wait(bucket, need, false);
        if done {
            *stored += need;
            gate.release(bucket, need, true);
        }
        done
    }

    fn stored(&self) -> Amount {
        self.targets.iter().fold(Amount::default(), |sum, (_, _, stored)| sum.plus(stored))
    }
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn a_bucket_is_filled_up_to_its_quota_and_never_beyond() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let mut cluster = Cluster::new(3, &json!({"bytes": 100 * MIB}));
        cluster.beat_all();
        for _ in 0..400 {
            let target = dice.roll(3) as usize;
            cluster.write(target, 1 + dice.roll(3 * MIB));
            if dice.roll(4) == 0 {
                cluster.beat(dice.roll(3) as usize);
            }
            assert!(cluster.stored().bytes <= 100 * MIB, "seed {seed}: {:?}", cluster.stored());
        }
        assert!(cluster.stored().bytes > 96 * MIB, "seed {seed}: {:?}", cluster.stored());
    }
}

#[test]
fn the_last_object_fits_at_any_target_and_one_more_nowhere() {
    let mut cluster = Cluster::new(5, &json!({"objects": 7}));
    cluster.beat_all();
    for n in 0..7 {
        assert!(cluster.write(n % 5, 10), "object {n}");
    }
    for n in 0..5 {
        assert!(!cluster.write(n, 10));
    }
    cluster.targets[3].2 = Amount::default();
    assert!(cluster.write(0, 10), "what was deleted at another target counts");
}

#[test]
fn a_write_larger_than_an_even_share_fits_if_the_bucket_has_space() {
    let mut cluster = Cluster::new(4, &json!({"bytes": 100}));
    cluster.beat_all();
    assert!(cluster.write(2, 100));
    assert!(!cluster.write(2, 1) && !cluster.write(0, 1));
}

#[test]
fn nothing_is_granted_until_every_target_that_is_alive_has_reported() {
    let mut cluster = Cluster::new(2, &json!({"bytes": 100}));
    cluster.beat(0);
    let need = Amount { bytes: 1, objects: 1 };
    let attempt = cluster.targets[0].1.try_reserve(cluster.bucket, need, 0);
    assert!(matches!(attempt, Attempt::Insufficient { known_ms: None, .. }));
    cluster.beat(1);
    cluster.beat(0);
    assert_eq!(cluster.targets[0].1.try_reserve(cluster.bucket, need, 0), Attempt::Reserved);
    assert!(matches!(
        cluster.targets[0].1.try_reserve(cluster.bucket, need, GRANT_VALID_MS),
        Attempt::Insufficient { .. }
    ));
}

#[test]
fn a_new_leader_and_a_failed_write_give_away_nothing() {
    let mut cluster = Cluster::new(2, &json!({"bytes": 100}));
    cluster.beat_all();
    assert!(cluster.write(0, 60));
    cluster.ledger = Ledger::default();
    cluster.beat_all();
    cluster.beat_all();
    let need = Amount { bytes: 40, objects: 1 };
    cluster.targets[1].1.wait(cluster.bucket, need, true);
    cluster.beat_all();
    cluster.beat_all();
    let now = cluster.now_ms;
    let gate = &mut cluster.targets[1].1;
    assert_eq!(gate.try_reserve(cluster.bucket, need, now), Attempt::Reserved);
    gate.release(cluster.bucket, need, false);
    gate.wait(cluster.bucket, need, false);
    assert!(cluster.write(0, 40) && !cluster.write(1, 1));
}

#[test]
fn writes_that_add_nothing_always_pass() {
    let mut cluster = Cluster::new(1, &json!({"bytes": 0}));
    cluster.beat_all();
    let gate = &mut cluster.targets[0].1;
    assert_eq!(gate.try_reserve(cluster.bucket, Amount::default(), 0), Attempt::Unlimited);
    assert_eq!(gate.try_reserve(99, Amount { bytes: 9, objects: 9 }, 0), Attempt::Unlimited);
}

//! Faults of machines, disks and networks, against a cluster of three gateways and four targets in
//! network namespaces, under a load whose whole history is checked.
//!
//! Each test is one fault. They need root and are run by `make faults` only (`ci/faults.sh`);
//! `FOREBAY_FAULT_SECONDS` (20) says how long the load of one lasts. Tests hold what is
//! right or wrong and generous deadlines; times and rates go to `FOREBAY_FIGURES`.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

mod gateways;
mod limits;
mod machines;
mod networks;
mod scaling;
mod targets;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::state::ClusterState;
use forebay_core::{Bucket, placement};
use forebay_tests::figures::{Figures, longest_gap};
use forebay_tests::lab_cluster::LabNode;
use forebay_tests::ledger::Micros;
use forebay_tests::load::{Load, Outcome, Pace, Plan, Sample};
use forebay_tests::{LabCluster, Shape};

/// Deadline of requests that have to wait for nodes that restart.
const PATIENT: Duration = Duration::from_secs(60);
const SECOND: Micros = 1_000_000;
/// Properties of a bucket whose objects have two copies.
const TWO_COPIES: &[&str] = &["copies=2"];
/// The same with erasure coding: of each object a whole and three slices, any two of which suffice;
/// of objects up to 2 KiB two copies. The load has objects of 8 bytes to 300 KiB.
const ERASURE_CODING: &[&str] = &["ec=2+1,2KiB"];

/// How long the load of a test lasts; the fault comes after a quarter of it.
fn length() -> Duration {
    let seconds = std::env::var("FOREBAY_FAULT_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

/// A cluster under load.
struct Fixture {
    cluster: Arc<LabCluster>,
    bucket: Bucket,
    load: Load,
    watch: Watch,
}

impl Fixture {
    /// Starts with a bucket of these properties, and runs the load without a fault for a quarter of
    /// the time. `None`: not possible on this machine.
    async fn quiet(shape: &Shape, properties: &[&str]) -> Option<Self> {
        let cluster = tokio::task::block_in_place(|| LabCluster::start(shape))?;
        Self::quiet_on(cluster, properties).await
    }

    async fn quiet_on(cluster: LabCluster, properties: &[&str]) -> Option<Self> {
        let cluster = Arc::new(cluster);
        let bucket = cluster.bucket("faults", properties).await;
        let plan = Plan {
            gateways: cluster.gateways.iter().map(|gateway| gateway.url.clone()).collect(),
            bucket: bucket.clone(),
            pace: Pace::PerSecond(200),
            keys: 64,
            seed: seed(),
        };
        let load = Load::start(plan, cluster.client(Duration::from_secs(20)));
        let watch = Watch::start(cluster.clone());
        tokio::time::sleep(length() / 4).await;
        Some(Self { cluster, bucket, load, watch })
    }

    /// Lets the load run until this many quarters of the time are over.
    async fn until_quarter(&self, quarters: u32) {
        let due = length() * quarters / 4;
        let now = Duration::from_micros(self.load.now());
        tokio::time::sleep(due.saturating_sub(now)).await;
    }

    /// Ends the load once the cluster is whole again, and checks its history.
    async fn end(self) -> Scenario {
        self.until_quarter(4).await;
        let end = self.load.now();
        let client = self.cluster.client(PATIENT);
        let Outcome { samples, own, ledger } = self.load.finish(&client).await;
        let seen = self.watch.end();
        let violations = ledger.violations();
        let first = violations.first().cloned().unwrap_or_default();
        assert!(violations.is_empty(), "{} violations; the first: {first}", violations.len());
        assert!(!ledger.listings.is_empty(), "it was listed");
        Scenario { cluster: self.cluster, bucket: self.bucket, samples, own, seen, end }
    }
}

/// The seed of the load.
fn seed() -> u64 {
    std::env::var("FOREBAY_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// A load that has ended, and whose history was right.
struct Scenario {
    cluster: Arc<LabCluster>,
    bucket: Bucket,
    samples: Vec<Sample>,
    /// Reads by Forebay's own client.
    own: Vec<Sample>,
    /// The nodes that were alive by the newest map, one entry for each look.
    seen: Vec<BTreeSet<String>>,
    end: Micros,
}

impl Scenario {
    /// Positions of the targets that hold an object.
    fn holders(&self, state: &ClusterState, key: &str) -> Vec<usize> {
        let info = state.bucket(&self.bucket).unwrap();
        let digest = placement::object_digest(&info.bucket.uname(), key);
        let holders = placement::holders(state, info, digest);
        let position = |id: &str| self.cluster.targets.iter().position(|t| t.id == id).unwrap();
        holders.iter().map(|node| position(node.id.as_str())).collect()
    }

    /// Requests about objects that this target answers for, and about all others.
    fn by_owner(&self, target: usize) -> (Vec<Sample>, Vec<Sample>) {
        let state = self.cluster.map().state;
        let keys: BTreeSet<&String> = self.samples.iter().map(|sample| &sample.key).collect();
        let own: BTreeSet<String> = keys
            .into_iter()
            .filter(|key| self.holders(&state, key).first() == Some(&target))
            .cloned()
            .collect();
        self.samples.iter().cloned().partition(|sample| own.contains(&sample.key))
    }

    /// Success and times before the fault and after, and how often the map changed.
    fn figures(&self, row: &'static str, fault: Micros) -> Figures {
        let mut figures = Figures::of(row);
        figures.add("requests", self.samples.len());
        figures.add_service("quiet", &self.samples, &(SECOND..fault));
        figures.add_service("fault", &self.samples, &(fault..self.end));
        figures.add_service("our client's reads", &self.own, &(fault..self.end));
        figures.add("map changes", changes(&self.seen));
        figures
    }
}

/// Longest time without a success, of reads and of writes.
fn gaps(samples: &[Sample], within: &Range<Micros>) -> (Micros, Micros) {
    (longest_gap(samples.iter(), within, true), longest_gap(samples.iter(), within, false))
}

/// A thread that polls the gateways' maps.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Vec<BTreeSet<String>>>>,
}

impl Watch {
    fn start(cluster: Arc<LabCluster>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let ask = |g: &LabNode| cluster.map_of(g);
                let maps: Vec<_> = cluster.gateways.iter().map(ask).collect();
                let newest = maps.iter().flatten().max_by_key(|map| map.state.version);
                let nodes = newest.iter().flat_map(|map| map.state.nodes.values());
                seen.push(nodes.filter(|n| n.alive).map(|n| n.id.to_string()).collect());
                std::thread::sleep(Duration::from_millis(100));
            }
            seen
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> Vec<BTreeSet<String>> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Watch {
    // A test that fails leaves no thread that keeps the cluster running.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How often nodes became alive or dead.
fn changes(seen: &[BTreeSet<String>]) -> usize {
    let known: Vec<_> = seen.iter().filter(|alive| !alive.is_empty()).collect();
    known.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

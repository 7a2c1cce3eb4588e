//! One run of a seed: a phase with faults and rules that hold at every step, then a phase without
//! faults in which the cluster must recover.

use forebay_core::state::ClusterState;
use forebay_core::{Result, placement};
use serde::Serialize;

use crate::broken::Broken;
use crate::exec::{Micros, SECOND};
use crate::plan::Plan;
use crate::target::Target;
use crate::world::{CLIENTS, NEMESIS, W, World, at_of, info_in};

/// For how long nothing may change at the end.
const STABLE: Micros = 15 * SECOND;

/// The result of a seed.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub seed: u64,
    /// Number of polls of tasks.
    pub steps: u64,
    pub virtual_seconds: f64,
    pub faults: u64,
    /// Requests of clients, and those that were answered.
    pub requests: u64,
    pub answered: u64,
    /// Changes that were acknowledged although ownership moved while they were in progress.
    pub passed_on: u64,
    /// Entries of the gateways' log.
    pub versions: usize,
    /// Seconds from the last fault to full recovery.
    pub converged_after: f64,
    pub events: u64,
    /// Digest of all events: equal runs have equal digests.
    pub digest: u64,
    pub failure: Option<Failure>,
}

/// A rule that was broken.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub step: u64,
    pub why: String,
    pub last_events: Vec<String>,
}

/// Events that a failure prints, unless more are requested.
pub const LAST: usize = 40;

/// Runs a seed to its end, or to the first rule that does not hold.
pub fn run(seed: u64, broken: Option<Broken>) -> Outcome {
    run_and_tell(seed, broken, LAST)
}

/// The same; a failure prints this many events.
pub fn run_and_tell(seed: u64, broken: Option<Broken>, last: usize) -> Outcome {
    let world = World::new(Plan::of(seed), seed, broken, last);
    let mut converged_after = 0;
    let failure = safety(&world)
        .or_else(|| liveness(&world, &mut converged_after))
        .map(|why| Failure { step: world.exec.steps(), why, last_events: world.last_events() });
    let (digest, events) = world.trace();
    let outcome = Outcome {
        seed,
        steps: world.exec.steps(),
        virtual_seconds: world.exec.now() as f64 / 1e6,
        faults: world.faults.get(),
        requests: world.seen.acts.get(),
        answered: world.seen.answered.get(),
        passed_on: world.seen.passed_on.get(),
        versions: world.group.len(),
        converged_after: converged_after as f64 / 1e6,
        events,
        digest,
        failure,
    };
    // Breaks the reference cycle between the world and its tasks.
    let owners = 0..world.gateways.len() + world.targets.len();
    owners.chain(NETWORK_AND_CLIENTS).for_each(|owner| world.exec.kill(owner));
    outcome
}

/// All owners that are not nodes.
const NETWORK_AND_CLIENTS: std::ops::Range<usize> = 900..1_016;

/// Runs until `until`; returns the first rule that was broken.
fn run_until(world: &World, until: Micros) -> Option<String> {
    while world.exec.step(until) {
        world.check_step();
        if let Some(why) = world.failure() {
            return Some(why);
        }
    }
    None
}

fn safety(world: &W) -> Option<String> {
    for at in 0..world.gateways.len() + world.plan.targets {
        world.start(at);
    }
    for n in 0..world.plan.clients {
        world.exec.spawn(CLIENTS + n, world.clone().client(n));
    }
    world.exec.spawn(NEMESIS, world.clone().break_things());
    run_until(world, world.plan.safety)
}

fn liveness(world: &W, converged_after: &mut Micros) -> Option<String> {
    world.heal_all();
    let started = world.exec.now();
    loop {
        if let Some(why) = run_until(world, world.exec.now() + SECOND) {
            return Some(why);
        }
        let unrest = unrest(world);
        if unrest.is_none() {
            break;
        }
        if world.exec.now() - started > world.plan.liveness {
            let limit = world.plan.liveness / SECOND;
            let what = unrest.unwrap_or_default();
            return Some(format!("{limit} s after the last fault {what}"));
        }
    }
    *converged_after = world.exec.now() - started;
    // Reads complete the replication of writes whose writer gave up.
    let read = std::rc::Rc::new(std::cell::RefCell::new(None));
    let (outcome, reader) = (read.clone(), world.clone());
    world.exec.spawn(CLIENTS, async move { *outcome.borrow_mut() = Some(reader.read_all().await) });
    let version = world.group.newest().version;
    if let Some(why) = run_until(world, world.exec.now() + STABLE) {
        return Some(why);
    }
    let read: Option<Result<()>> = read.borrow().clone();
    match read {
        Some(Ok(())) => {}
        Some(Err(e)) => return Some(format!("all has converged, and {}", e.message)),
        None => return Some("all has converged, and reads do not end".to_owned()),
    }
    if world.group.newest().version != version {
        return Some(format!("all had converged at version {version}, and the map changed"));
    }
    let mut wrong = world.seen.violations();
    wrong.extend(misplaced(world));
    wrong.extend(world.misplaced_versions(&world.group.newest()));
    wrong.extend(other_maps(world));
    (!wrong.is_empty()).then(|| wrong.join("\n"))
}

/// Returns the first thing that has not recovered yet; `None` if all has.
fn unrest(world: &World) -> Option<String> {
    let state = world.group.newest();
    if !state.is_rebalance_complete() {
        return Some("objects still move".to_owned());
    }
    let away = |target: &&Target| {
        let (is_up, node) = (target.up.get(), state.node(&target.id));
        let joined = is_up && node.is_some_and(|n| n.alive) && target.process().joined.get();
        (is_up || node.is_some()) && !joined
    };
    if let Some(target) = world.targets.iter().find(away) {
        return Some(format!("target {} is not let in", target.at));
    }
    // A drained target may keep missing writes: it makes up for them when it is enabled again.
    if let Some(node) = state.holding_targets().find(|n| !n.alive || n.lagging) {
        let what = if node.alive { "lags" } else { "is dead" };
        return Some(format!("target {} {what}", node.id));
    }
    let lost = world.targets.iter().find(|t| t.up.get() && t.has_lost_objects());
    lost.map(|target| format!("target {} has not got again what it lost", target.at))
}

/// Objects whose copies are misplaced or differ, and tombstones that are not needed any more.
fn misplaced(world: &World) -> Vec<String> {
    let state = world.group.newest();
    let mut wrong = Vec::new();
    for key in world.seen.keys() {
        let Some(info) = info_in(&state, key.0) else { continue };
        let digest = placement::digest_in(&info.bucket, &key.1);
        let holders = placement::holders(&state, &info, digest);
        let mut belongs: Vec<usize> = holders.iter().map(|n| at_of(&n.id)).collect();
        belongs.sort_unstable();
        // A write whose writer got no response is not visible before it is replicated: skip such
        // keys.
        let waits = |t: &&Target| t.process().engine.pending().has(&info, &key.1);
        if world.targets.iter().any(|t| waits(&t)) {
            continue;
        }
        if info.erasure.is_some() {
            wrong.extend(world.misplaced_forms(&state, &info, &key));
        }
        let there = || {
            let targets = world.targets.iter().filter(|_| info.erasure.is_none());
            targets.filter_map(|t| Some((t.at, t.get(&key)?)))
        };
        let (at, stamps): (Vec<usize>, Vec<_>) = there().map(|(at, r)| (at, r.stamp)).unzip();
        if !at.is_empty() && at != belongs {
            wrong.push(format!("{key:?} lies on {at:?} and belongs on {belongs:?}"));
        }
        if stamps.windows(2).any(|two| two[0] != two[1]) {
            wrong.push(format!("{key:?} has copies that differ: {stamps:?} on {at:?}"));
        }
        let tombstone = world.targets.iter().filter(|t| t.tombstone(&key).is_some());
        wrong.extend(tombstone.map(|t| format!("target {} keeps a tombstone of {key:?}", t.at)));
    }
    wrong
}

/// Targets whose map is not the newest, and a map that differs after it is serialized and read
/// again.
fn other_maps(world: &World) -> Vec<String> {
    let state = world.group.newest();
    let behind = world.targets.iter().filter(|t| t.up.get() && *t.map() != *state);
    let mut wrong: Vec<String> = behind
        .map(|t| format!("target {} has another map of version {}", t.at, t.map().version))
        .collect();
    let text = serde_json::to_vec(&*state).ok();
    let read: Option<ClusterState> = text.and_then(|text| serde_json::from_slice(&text).ok());
    if read.as_ref() != Some(&*state) {
        wrong.push(format!("the state of version {} is another one as it is sent", state.version));
    }
    wrong
}

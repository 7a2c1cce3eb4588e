//! The work of a target when the map changes: it reads the new map, and decides for each of its
//! copies whether the copy moves. No other node plans for it: a target's rebalance goes by its own
//! objects (`target/src/job/rebalance.rs`).

use std::error::Error;

use forebay_core::bucket::BucketInfo;
use forebay_core::name::NodeId;
use forebay_core::rebalance::{duty, plan};
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Result, placement};
use serde::Serialize;

use crate::cluster::{Shape, bucket, change, name, nth};
use crate::cost::{self, Begin};
use crate::progress::Make;

/// Names that are placed to measure the share of a fifth target.
const GROWTH_NAMES: u64 = 200_000;

/// The plan of one target after one change of the map.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlanCost {
    pub(crate) change: &'static str,
    /// Copies that were checked, each at a target that has it.
    pub(crate) looked_at: u64,
    /// Copies that a target has on average.
    pub(crate) copies: u64,
    pub(crate) us_per_copy: f64,
    /// Time of the command, the serialization of the map by a gateway, and its parsing by the
    /// target.
    pub(crate) map_ms: f64,
    /// Seconds of the whole plan, for the average number of copies of a target.
    pub(crate) seconds: f64,
    /// Share of the checked copies that move.
    pub(crate) moved: f64,
    /// The minimum that must move for every target to have its share.
    pub(crate) least: f64,
}

/// The share that a fifth target takes over from four.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) copies: u32,
    pub(crate) objects: u64,
    pub(crate) moved: f64,
}

/// A change, and the cluster that it applies to.
struct Case {
    change: &'static str,
    shape: Shape,
    copies: u32,
    /// True: a target joins; false: one is drained.
    joins: bool,
}

impl Case {
    /// The state before the change, the change, and the state after it.
    fn states(&self) -> Result<(ClusterState, Command, ClusterState)> {
        let before = self.shape.build()?;
        let command = if self.joins {
            self.shape.target(self.shape.targets)?
        } else {
            Command::SetMaintenance { id: nth(&before, 0)?, on: true }
        };
        let mut after = before.clone();
        change(&mut after, command.clone())?;
        Ok((before, command, after))
    }
}

/// A copy and the target that has it.
struct Copy {
    name: String,
    at: NodeId,
}

/// Makes the plans of a target with `looked_at` copies for each kind of change.
pub(crate) fn measure(
    targets: u64,
    objects: u64,
    looked_at: u64,
    progress: Make<'_>,
) -> std::result::Result<Vec<PlanCost>, Box<dyn Error>> {
    let plain = Shape::plain(targets);
    let case = |change, shape, copies, joins| Case { change, shape, copies, joins };
    let cases = [
        case("a target joins", plain, 1, true),
        case("a target is drained", plain, 1, false),
        case("joins, 2 copies", plain, 2, true),
        case("joins, 2 copies in 20 zones", Shape { zones: true, ..plain }, 2, true),
        case("joins, unequal weights", Shape { unequal: true, ..plain }, 1, true),
    ];
    let progress = progress("plans", 2 * looked_at * cases.len() as u64);
    let mut costs = Vec::new();
    for case in cases {
        let copies = (objects * u64::from(case.copies)).div_ceil(targets);
        costs.push(one(&case, copies, looked_at, &|steps| progress.add(steps))?);
    }
    Ok(costs)
}

fn one(
    case: &Case,
    copies: u64,
    looked_at: u64,
    done: &dyn Fn(u64),
) -> std::result::Result<PlanCost, Box<dyn Error>> {
    let info = bucket(case.copies)?;
    let (before, command, after) = case.states()?;
    let had = lie(&before, &info, looked_at, done);
    let json = serde_json::to_vec(&after)?;
    let map_s = cost::each(|| {
        let mut state = before.clone();
        change(&mut state, command.clone())?;
        serde_json::to_vec(&state)?;
        serde_json::from_slice::<ClusterState>(&json)?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    // The state in the form that a target has it.
    let after: ClusterState = serde_json::from_slice(&json)?;

    let (mut seconds, mut going) = (0.0, 0_u64);
    for part in had.chunks(10_000) {
        let begin = Begin::now();
        going += part.iter().filter(|c| !duty(&after, &info, &c.name, &c.at).stays).count() as u64;
        seconds += begin.elapsed().as_secs_f64();
        done(part.len() as u64);
    }
    check(&after, &info, &had)?;
    let per_copy = seconds / had.len() as f64;
    Ok(PlanCost {
        change: case.change,
        looked_at,
        copies,
        us_per_copy: per_copy * 1e6,
        map_ms: map_s * 1e3,
        seconds: map_s + per_copy * copies as f64,
        moved: going as f64 / had.len() as f64,
        least: least(case, &after)?,
    })
}

/// Copies at their places in `state`, one of each object: the first copy of the first object, the
/// second of the second, and so on in turns.
fn lie(state: &ClusterState, info: &BucketInfo, count: u64, done: &dyn Fn(u64)) -> Vec<Copy> {
    let uname = info.bucket.uname();
    let copy = |n| {
        let name = name(n);
        let holders = placement::holders(state, info, placement::object_digest(&uname, &name));
        if n.is_multiple_of(10_000) {
            done(10_000.min(count));
        }
        let at = holders.get(n as usize % holders.len().max(1))?.id.clone();
        Some(Copy { name, at })
    };
    (0..count).filter_map(copy).collect()
}

/// Checks that the plan is stable: each moved copy belongs to its new target, and does not move
/// from there.
fn check(state: &ClusterState, info: &BucketInfo, had: &[Copy]) -> Result<()> {
    for copy in had {
        let plan = duty(state, info, &copy.name, &copy.at);
        for other in plan.others.iter().filter(|_| !plan.stays) {
            if !duty(state, info, &copy.name, &other.id).stays {
                let text = format!("{} would go on from {}", copy.name, other.id);
                return Err(forebay_core::Error::internal(text));
            }
        }
    }
    Ok(())
}

/// The weight of the target that joins or leaves, as a share of all weights.
fn least(case: &Case, after: &ClusterState) -> Result<f64> {
    let all: u32 = after.owning_targets().map(|n| n.weight).sum();
    if !case.joins {
        return Ok(1.0 / f64::from(all + 1));
    }
    let new = nth(after, case.shape.targets as usize)?;
    let weight = after.node(&new).map_or(0, |n| n.weight);
    Ok(f64::from(weight) / f64::from(all))
}

/// Adds a fifth target to four, for one to three copies of each object.
pub(crate) fn growth(progress: Make<'_>) -> Result<Vec<Growth>> {
    let progress_bar = progress("a fifth target", 3 * GROWTH_NAMES);
    (1..=3).map(|copies| grow(copies, GROWTH_NAMES, &|steps| progress_bar.add(steps))).collect()
}

fn grow(copies: u32, objects: u64, done: &dyn Fn(u64)) -> Result<Growth> {
    let four = Shape::plain(4);
    let (before, info) = (four.build()?, bucket(copies)?);
    let mut after = before.clone();
    change(&mut after, four.target(4)?)?;
    let mut moves = 0;
    for n in 0..objects {
        moves += plan(&before, &after, &info, &name(n)).len();
        if n.is_multiple_of(10_000) {
            done(10_000);
        }
    }
    Ok(Growth { copies, objects, moved: moves as f64 / (objects * u64::from(copies)) as f64 })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::progress::Progress;

    #[test]
    fn a_fifth_target_takes_at_most_21_percent_of_the_copies() {
        for copies in 1..=3 {
            let growth = grow(copies, 20_000, &|_| {}).unwrap();
            assert!((0.19..=0.21).contains(&growth.moved), "{growth:?}");
        }
    }

    #[test]
    fn every_change_moves_what_it_must_and_little_more() {
        let quiet = |what: &str, of| Progress::new(what, of, true);
        for cost in measure(20, 4_000, 4_000, &quiet).unwrap() {
            let near = 0.8 * cost.least..=1.2 * cost.least;
            assert!(near.contains(&cost.moved), "{cost:?}");
            assert!(cost.seconds > 0.0 && cost.looked_at == 4_000, "{cost:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_plan_of_any_cluster_is_stable(
            targets in 2u64..40, copies in 1u32..4, zones: bool, unequal: bool, joins: bool,
        ) {
            let shape = Shape { zones, unequal, ..Shape::plain(targets) };
            let case = Case { change: "any", shape, copies, joins };
            let info = bucket(copies).unwrap();
            let (before, _, after) = case.states().unwrap();
            let had = lie(&before, &info, 100, &|_| {});
            prop_assert_eq!(had.len(), 100);
            let stable = check(&after, &info, &had);
            prop_assert!(stable.is_ok(), "{:?}", stable);
        }
    }
}

//! How evenly objects are spread over targets: places names one by one, as a client does.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;

use forebay_core::bucket::BucketInfo;
use forebay_core::name::NodeId;
use forebay_core::state::ClusterState;
use forebay_core::{Error, Result, placement};
use serde::Serialize;

use crate::cluster::{Shape, bucket, name};
use crate::cost::Begin;
use crate::progress::{Make, Progress};

/// Names between two checks of the clock.
const NAMES_PER_CLOCK_CHECK: u64 = 10_000;

/// The distribution of objects over targets.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Balance {
    /// Objects that were placed one by one.
    pub(crate) placed: u64,
    pub(crate) us_per_object: f64,
    pub(crate) fewest: u64,
    pub(crate) most: u64,
    /// The largest distance of a target from the mean, as a share of the mean.
    pub(crate) worst: f64,
    /// The same, if objects were placed at random.
    pub(crate) worst_by_chance: f64,
    /// The spread over all targets as a multiple of that of random placement, by the chi-square
    /// statistic.
    pub(crate) spread: f64,
    /// One standard deviation of that multiple.
    pub(crate) spread_error: f64,
    /// The largest distance from the mean of all objects: measured if all were placed, else
    /// computed from the measured spread.
    pub(crate) worst_of_all: f64,
}

/// Places `placed` of `objects` over equal targets, with several threads.
pub(crate) fn measure(
    targets: u64,
    objects: u64,
    placed: u64,
    threads: u8,
    progress: Make<'_>,
) -> Result<Balance> {
    let (state, info) = (Shape::plain(targets).build()?, bucket(1)?);
    let progress = progress("balance", placed);
    let part = placed.div_ceil(u64::from(threads));
    let parts =
        (0..u64::from(threads)).map(|n| (n * part).min(placed)..(n * part + part).min(placed));
    let counted: Vec<Result<(Vec<u64>, f64)>> = thread::scope(|scope| {
        let (state, info, progress) = (&state, &info, &progress);
        let works: Vec<_> =
            parts.map(|part| scope.spawn(move || count(state, info, part, progress))).collect();
        let failed = || Err(Error::internal("a thread that places objects ended early"));
        works.into_iter().map(|work| work.join().unwrap_or_else(|_| failed())).collect()
    });
    let (mut counts, mut seconds) = (vec![0; targets as usize], 0.0);
    for part in counted {
        let (part, took) = part?;
        counts.iter_mut().zip(part).for_each(|(all, n)| *all += n);
        seconds += took;
    }
    Ok(Balance { us_per_object: seconds / placed as f64 * 1e6, ..judge(&counts, objects) })
}

/// Places the objects of these numbers: returns the count of each target, and the seconds it took.
fn count(
    state: &ClusterState,
    info: &BucketInfo,
    numbers: Range<u64>,
    progress: &Progress,
) -> Result<(Vec<u64>, f64)> {
    let places: BTreeMap<&NodeId, usize> = state.targets().map(|n| &n.id).zip(0..).collect();
    let (uname, mut counts) = (info.bucket.uname(), vec![0; places.len()]);
    let begin = Begin::now();
    for n in numbers.clone() {
        let name = name(n);
        let digest = placement::object_digest(&uname, &name);
        let owner = placement::owner_by_digest(state, info, digest, &name)?;
        counts[places[&owner.id]] += 1;
        if (n + 1 - numbers.start).is_multiple_of(NAMES_PER_CLOCK_CHECK) {
            progress.add(NAMES_PER_CLOCK_CHECK);
        }
    }
    Ok((counts, begin.elapsed().as_secs_f64()))
}

fn judge(counts: &[u64], objects: u64) -> Balance {
    let (targets, placed) = (counts.len() as f64, counts.iter().sum::<u64>());
    let mean = placed as f64 / targets;
    let far = |n: &u64| (*n as f64 - mean).abs() / mean;
    let worst = counts.iter().map(far).fold(0.0, f64::max);
    let chi: f64 = counts.iter().map(|n| (*n as f64 - mean).powi(2) / mean).sum();
    let spread = (chi / (targets - 1.0)).sqrt();
    let rest = by_chance(targets, objects as f64) * spread.max(1.0);
    Balance {
        placed,
        us_per_object: 0.0,
        fewest: counts.iter().copied().min().unwrap_or(0),
        most: counts.iter().copied().max().unwrap_or(0),
        worst,
        worst_by_chance: by_chance(targets, placed as f64),
        spread,
        // Chi-square over its degrees of freedom varies by sqrt(2 / degrees); its root by half of that.
        spread_error: (2.0 / (targets - 1.0)).sqrt() / 2.0,
        worst_of_all: if placed >= objects { worst } else { rest },
    }
}

/// The expected largest distance from the mean with random placement: the standard deviation, times
/// the mean of the largest of 2 × `targets` normal numbers.
fn by_chance(targets: f64, objects: f64) -> f64 {
    let root = (2.0 * (2.0 * targets).ln()).sqrt();
    let correction = ((2.0 * targets).ln().ln() + (4.0 * std::f64::consts::PI).ln()) / (2.0 * root);
    const EULER: f64 = 0.577_215_664_9;
    ((targets - 1.0) / objects).sqrt() * (root - correction + EULER / root)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn objects_lie_as_evenly_as_chance_would_have_it_however_many_threads_place_them() {
        let quiet = |what: &str, of| Progress::new(what, of, true);
        let one = measure(50, 100_000_000, 100_000, 1, &quiet).unwrap();
        let three = measure(50, 100_000_000, 100_000, 3, &quiet).unwrap();
        assert_eq!((one.fewest, one.most, one.placed), (three.fewest, three.most, 100_000));
        assert!((one.spread - 1.0).abs() < 4.0 * one.spread_error, "{one:?}");
        assert!(one.worst < 1.5 * one.worst_by_chance, "{one:?}");
    }

    #[test]
    fn what_is_uneven_is_seen() {
        let even = judge(&[1_000; 100], 100_000);
        assert_eq!((even.worst, even.worst_of_all, even.spread), (0.0, 0.0, 0.0));
        let mut counts = [1_000; 100];
        counts[7] = 1_500;
        let uneven = judge(&counts, 100_000_000);
        assert!(uneven.spread > 1.0 + 5.0 * uneven.spread_error, "{uneven:?}");
        assert!(uneven.worst > 0.49 && uneven.worst_by_chance < 0.12, "{uneven:?}");
    }

    #[test]
    fn a_hundred_million_objects_on_a_thousand_targets_differ_by_one_percent_by_chance() {
        let worst = by_chance(1_000.0, 100_000_000.0);
        assert!((0.010..0.012).contains(&worst), "{worst}");
    }
}

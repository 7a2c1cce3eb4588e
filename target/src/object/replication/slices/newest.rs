//! Chooses the newest version of an object that is available, from the looks of several targets.

use std::collections::{BTreeMap, BTreeSet};

use forebay_core::copies::{CopyLook, Stamp};
use forebay_core::erasure::Slice;

/// The chosen version.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Newest {
    /// `None` if all are removed, or no target has anything.
    pub(super) stamp: Option<Stamp>,
    /// The looks with the whole object, by index.
    pub(super) whole: Vec<usize>,
    /// The looks with a slice, and which one, of one coding; enough of them, or none.
    pub(super) slices: Vec<(usize, Slice)>,
    /// Newer versions whose writes were not completed and not acknowledged.
    pub(super) undone: Vec<Stamp>,
    /// The number of available and of needed slices, if there are too few.
    pub(super) short: Option<(usize, usize)>,
    /// The missing ones are on no target.
    pub(super) lost: bool,
}

/// Chooses by the looks. `undone`: whether a version with too few slices was certainly never
/// acknowledged.
pub(super) fn newest(looks: &[CopyLook], undone: impl Fn(Stamp) -> bool) -> Newest {
    let removed = looks.iter().filter_map(|look| look.removed).max();
    let stamps: BTreeSet<Stamp> = looks
        .iter()
        .flat_map(|look| look.there.into_iter().chain(look.slices.iter().map(|s| s.stamp)))
        .filter(|stamp| Some(*stamp) > removed)
        .collect();
    let mut newest = Newest::default();
    for stamp in stamps.into_iter().rev() {
        let has = |look: &CopyLook| look.there == Some(stamp) && !look.damaged;
        let whole: Vec<usize> = (0..looks.len()).filter(|at| has(&looks[*at])).collect();
        let (slices, best) = slices_of(looks, stamp);
        if !whole.is_empty() || !slices.is_empty() {
            return Newest { stamp: Some(stamp), whole, slices, ..newest };
        }
        // A damaged copy is no reason to return to an older version.
        if looks.iter().any(|look| look.there == Some(stamp)) || !undone(stamp) {
            return Newest { stamp: Some(stamp), short: Some(best), ..newest };
        }
        newest.undone.push(stamp);
    }
    newest
}

/// The slices of one version if they are enough; and the numbers of available and of needed ones.
pub(super) fn slices_of(looks: &[CopyLook], stamp: Stamp) -> (Vec<(usize, Slice)>, (usize, usize)) {
    let mut kinds: BTreeMap<(u8, u8), BTreeMap<u8, (usize, Slice)>> = BTreeMap::new();
    for (at, look) in looks.iter().enumerate() {
        for here in look.slices.iter().filter(|here| here.stamp == stamp) {
            let Slice { data, parity, number } = here.slice;
            kinds.entry((data, parity)).or_default().entry(number).or_insert((at, here.slice));
        }
    }
    let mut best = (0, 1);
    for ((data, _), found) in kinds {
        let (there, needed) = (found.len(), usize::from(data));
        if there >= needed {
            return (found.into_values().collect(), (there, needed));
        }
        // Compared as fractions, without division.
        if there * best.1 >= best.0 * needed {
            best = (there, needed);
        }
    }
    (Vec::new(), best)
}

#[cfg(test)]
mod tests {
    use forebay_core::copies::SliceLook;

    use super::*;

    fn stamp(version: u64) -> Stamp {
        Stamp { epoch: 1, version }
    }

    fn slices(of: &[(u8, u64)]) -> CopyLook {
        let look = |(number, version): &(u8, u64)| SliceLook {
            slice: Slice { data: 2, parity: 1, number: *number },
            stamp: stamp(*version),
        };
        CopyLook { slices: of.iter().map(look).collect(), ..CopyLook::default() }
    }

    fn whole(version: u64) -> CopyLook {
        CopyLook { there: Some(stamp(version)), ..CopyLook::default() }
    }

    #[test]
    fn slices_of_different_states_never_make_an_object() {
        let looks = [slices(&[(0, 1)]), slices(&[(1, 2)]), CopyLook::default()];
        let found = newest(&looks, |_| false);
        assert_eq!((found.stamp, found.short), (Some(stamp(2)), Some((1, 2))));
        let looks = [slices(&[(0, 1), (0, 2)]), slices(&[(1, 2)]), slices(&[(2, 1)])];
        let found = newest(&looks, |_| false);
        assert_eq!(found.stamp, Some(stamp(2)));
        assert_eq!(
            found.slices.iter().map(|(at, s)| (*at, s.number)).collect::<Vec<_>>(),
            [(0, 0), (1, 1)]
        );
    }

    #[test]
    fn a_write_that_nobody_was_told_of_is_passed_over_and_no_other() {
        let looks = [slices(&[(0, 1), (0, 2)]), slices(&[(1, 1)])];
        let found = newest(&looks, |_| true);
        assert_eq!((found.stamp, &found.undone[..]), (Some(stamp(1)), &[stamp(2)][..]));
        assert_eq!(found.slices.len(), 2);
        let found = newest(&looks, |_| false);
        assert_eq!((found.stamp, found.short), (Some(stamp(2)), Some((1, 2))));
    }

    #[test]
    fn a_whole_object_serves_and_a_removed_one_does_not() {
        let found = newest(&[slices(&[(0, 2)]), whole(2)], |_| false);
        assert_eq!((found.whole, found.short), (vec![1], None));
        let damaged = CopyLook { damaged: true, ..whole(2) };
        let found = newest(&[whole(1), damaged], |_| true);
        assert_eq!((found.stamp, found.short), (Some(stamp(2)), Some((0, 1))));
        let removed = CopyLook { removed: Some(stamp(2)), ..CopyLook::default() };
        assert_eq!(newest(&[whole(2), slices(&[(0, 2), (1, 2)]), removed], |_| true).stamp, None);
        assert_eq!(newest(&[], |_| true), Newest::default());
    }

    #[test]
    fn slices_of_two_kinds_of_coding_are_not_mixed() {
        let mut looks = [slices(&[(0, 1)]), slices(&[(1, 1)])];
        looks[1].slices[0].slice.parity = 2;
        let found = newest(&looks, |_| false);
        assert_eq!((found.slices.len(), found.short), (0, Some((1, 2))));
    }
}

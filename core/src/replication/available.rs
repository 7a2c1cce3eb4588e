//! Chooses the newest version of an object that is available, from the looks at several targets.

use std::collections::{BTreeMap, BTreeSet};

use super::command::SliceSource;
use crate::copies::{CopyLook, Stamp};
use crate::erasure::Slice;
use crate::name::NodeId;

/// A target's state of an object; the target may be this one.
pub(super) type FormLook = (NodeId, CopyLook);

/// The chosen version.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Available {
    /// `None` if all versions are removed, or no target has any.
    pub(super) stamp: Option<Stamp>,
    /// The targets with the whole object.
    pub(super) whole: Vec<NodeId>,
    /// Slices of one scheme: enough of them, or none.
    pub(super) slices: Vec<SliceSource>,
    /// Newer versions that were passed over: their writes were not completed.
    pub(super) unacknowledged: Vec<Stamp>,
    /// The numbers of available and of needed slices, if there are too few.
    pub(super) too_few: Option<(usize, usize)>,
}

/// Chooses by the looks. `is_unacknowledged`: whether the write of a version with too few slices was
/// certainly never acknowledged.
pub(super) fn newest_available(
    looks: &[FormLook],
    is_unacknowledged: impl Fn(Stamp) -> bool,
) -> Available {
    let removed = looks.iter().filter_map(|(_, look)| look.removed).max();
    let stamps: BTreeSet<Stamp> = looks
        .iter()
        .flat_map(|(_, look)| look.there.into_iter().chain(look.slices.iter().map(|s| s.stamp)))
        .filter(|stamp| Some(*stamp) > removed)
        .collect();
    let mut unacknowledged = Vec::new();
    for stamp in stamps.into_iter().rev() {
        let there = || looks.iter().filter(move |(_, look)| look.there == Some(stamp));
        let whole = there().filter(|(_, look)| !look.damaged).map(|(id, _)| id.clone());
        let whole: Vec<NodeId> = whole.collect();
        let (slices, found) = slices_of(looks, stamp);
        let is_available = !whole.is_empty() || !slices.is_empty();
        // A damaged copy is no reason to return to an older version.
        if is_available || there().next().is_some() || !is_unacknowledged(stamp) {
            let too_few = (!is_available).then_some(found);
            return Available { stamp: Some(stamp), whole, slices, unacknowledged, too_few };
        }
        unacknowledged.push(stamp);
    }
    Available { unacknowledged, ..Available::default() }
}

/// Whether a version is available that is older than this stamp.
pub(super) fn has_available_before(looks: &[FormLook], stamp: Stamp) -> bool {
    let older = looks.iter().map(|(id, look)| {
        let mut look = look.clone();
        look.there = look.there.filter(|there| *there < stamp);
        look.slices.retain(|here| here.stamp < stamp);
        (id.clone(), look)
    });
    let available = newest_available(&older.collect::<Vec<_>>(), |_| true);
    available.stamp.is_some() && available.too_few.is_none()
}

/// The slices of one version if they are enough; and the numbers of available and of needed ones.
pub(super) fn slices_of(looks: &[FormLook], stamp: Stamp) -> (Vec<SliceSource>, (usize, usize)) {
    let mut schemes: BTreeMap<(u8, u8), BTreeMap<u8, SliceSource>> = BTreeMap::new();
    for (target, look) in looks {
        for here in look.slices.iter().filter(|here| here.stamp == stamp) {
            let Slice { data, parity, number } = here.slice;
            let source = || SliceSource { target: target.clone(), slice: here.slice };
            schemes.entry((data, parity)).or_default().entry(number).or_insert_with(source);
        }
    }
    let mut best = (0, 1);
    for ((data, _), found) in schemes {
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::copies::SliceLook;

    fn stamp(version: u64) -> Stamp {
        Stamp { epoch: 1, version }
    }

    /// The looks at as many targets.
    fn at(looks: Vec<CopyLook>) -> Vec<FormLook> {
        let id = |n: usize| NodeId::new(&format!("target-{n:02}")).unwrap();
        looks.into_iter().enumerate().map(|(n, look)| (id(n), look)).collect()
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

    fn numbers(found: &Available) -> Vec<u8> {
        found.slices.iter().map(|source| source.slice.number).collect()
    }

    #[test]
    fn slices_of_different_versions_are_not_combined() {
        let looks = at(vec![slices(&[(0, 1)]), slices(&[(1, 2)]), CopyLook::default()]);
        let found = newest_available(&looks, |_| false);
        assert_eq!((found.stamp, found.too_few), (Some(stamp(2)), Some((1, 2))));
    }

    #[test]
    fn the_newest_version_with_enough_slices_is_chosen() {
        let looks = at(vec![slices(&[(0, 1), (0, 2)]), slices(&[(1, 2)]), slices(&[(2, 1)])]);
        let found = newest_available(&looks, |_| false);
        assert_eq!((found.stamp, found.too_few), (Some(stamp(2)), None));
        assert_eq!(numbers(&found), [0, 1]);
    }

    #[test]
    fn a_version_with_too_few_slices_is_passed_over_only_if_its_write_was_not_acknowledged() {
        let looks = at(vec![slices(&[(0, 1), (0, 2)]), slices(&[(1, 1)])]);
        let found = newest_available(&looks, |_| true);
        assert_eq!((found.stamp, &found.unacknowledged[..]), (Some(stamp(1)), &[stamp(2)][..]));
        assert_eq!(numbers(&found), [0, 1]);
        let found = newest_available(&looks, |_| false);
        assert_eq!((found.stamp, found.too_few), (Some(stamp(2)), Some((1, 2))));
    }

    #[test]
    fn a_damaged_copy_does_not_bring_an_older_version_back() {
        let damaged = CopyLook { damaged: true, ..whole(2) };
        let found = newest_available(&at(vec![whole(1), damaged]), |_| true);
        assert_eq!((found.stamp, found.too_few), (Some(stamp(2)), Some((0, 1))));
    }

    #[test]
    fn forms_that_are_older_than_the_removal_are_not_available() {
        let removed = CopyLook { removed: Some(stamp(2)), ..CopyLook::default() };
        let looks = at(vec![whole(2), slices(&[(0, 2), (1, 2)]), removed]);
        assert_eq!(newest_available(&looks, |_| true).stamp, None);
    }

    #[test]
    fn slices_of_two_schemes_are_not_combined() {
        let mut looks = at(vec![slices(&[(0, 1)]), slices(&[(1, 1)])]);
        looks[1].1.slices[0].slice.parity = 2;
        let found = newest_available(&looks, |_| false);
        assert_eq!((found.slices.len(), found.too_few), (0, Some((1, 2))));
    }

    #[test]
    fn an_older_version_is_available_if_its_own_slices_are_enough() {
        let looks = at(vec![slices(&[(0, 1), (0, 2)]), slices(&[(1, 1)])]);
        assert!(has_available_before(&looks, stamp(2)));
        assert!(!has_available_before(&looks, stamp(1)));
        assert!(!has_available_before(&looks[..1], stamp(2)));
    }
}

//! Erasure coding of native objects: which form of an object lies on which of its targets.
//!
//! The first target by rank has an object whole. A large object is cut into D data slices, P parity
//! slices are made of them, and the next D + P targets have one each: any D of them give the object
//! back. A small one lies whole on the first P + 1 targets instead.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// More slices of a kind than that are more targets than an object should depend on.
pub const MAX_FRAGMENTS: u8 = 8;

/// Objects of at most so many bytes are copied where nothing else is said.
pub const DEFAULT_LIMIT: u64 = 256 << 10;

/// How the objects of a bucket are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Erasure {
    /// Slices that together are the object.
    pub data: u8,
    /// Slices more: so many may be lost.
    pub parity: u8,
    /// Objects of at most so many bytes are copied instead.
    pub limit: u64,
}

impl Default for Erasure {
    /// Two and two, as AIStore has it.
    fn default() -> Self {
        Self { data: 2, parity: 2, limit: DEFAULT_LIMIT }
    }
}

impl Erasure {
    /// On how many targets something of a large object lies.
    pub fn width(&self) -> usize {
        1 + usize::from(self.data) + usize::from(self.parity)
    }

    /// On how many targets something lies that tells of an object, whatever its size: so many may
    /// answer for it, one after the other.
    pub fn metadata_holders(&self) -> usize {
        1 + usize::from(self.parity)
    }

    /// Whether an object of this size is copied and not cut.
    pub fn copies(&self, size: u64) -> bool {
        size <= self.limit
    }

    /// What the target of this rank has of an object of this size; `None`: nothing.
    pub fn form(&self, rank: usize, size: u64) -> Option<Form> {
        let whole = rank == 0 || self.copies(size) && rank < self.metadata_holders();
        if whole {
            return Some(Form::Whole);
        }
        if self.copies(size) || rank >= self.width() {
            return None;
        }
        let number = u8::try_from(rank - 1).ok()?;
        Some(Form::Slice(Slice { data: self.data, parity: self.parity, number }))
    }

    /// Refuses numbers of slices that cannot be.
    pub fn validate(&self) -> Result<()> {
        for (what, n) in [("data", self.data), ("parity", self.parity)] {
            if !(1..=MAX_FRAGMENTS).contains(&n) {
                return Err(Error::invalid(format!("erasure coding with {n} {what} slices"))
                    .hint(format!("there can be 1 to {MAX_FRAGMENTS} {what} slices")));
            }
        }
        Ok(())
    }
}

/// In which form an object lies on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Whole,
    Slice(Slice),
}

/// Which slice of an object; the scheme is part of what it is, as slices of two schemes never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slice {
    pub data: u8,
    pub parity: u8,
    /// The data slices come first, from 0 on.
    pub number: u8,
}

/// Set in the ids under which slices lie.
const SLICES: u64 = 1 << 61;
/// Where numbers stand in such an id. Of what is above the bucket's own id, history and tombstones
/// take the two highest bits ([`crate::history`]).
const DATA: u32 = 58;
const PARITY: u32 = 55;
const NUMBER: u32 = 51;
const PLACE: u32 = 50;
/// Bits of a bucket's own id.
pub(crate) const BUCKET: u64 = (1 << PLACE) - 1;

/// Places for one slice of an object on a target: a new one does not replace the old one before all
/// others have theirs.
pub const PLACES: u8 = 2;

impl Slice {
    /// Whether there can be such a slice.
    pub fn is_valid(&self) -> bool {
        let kinds = [self.data, self.parity];
        kinds.iter().all(|n| (1..=MAX_FRAGMENTS).contains(n))
            && self.number < self.data + self.parity
    }

    /// Id under which such slices of a bucket lie in a store, in one of two places.
    pub fn id(&self, bucket_id: u64, place: u8) -> u64 {
        let bits = |n: u8, at: u32| u64::from(n) << at;
        let kinds = bits(self.data - 1, DATA) | bits(self.parity - 1, PARITY);
        bucket_id | SLICES | kinds | bits(self.number, NUMBER) | bits(place % PLACES, PLACE)
    }

    /// Which slices lie under an id, and in which place; `None`: none.
    pub fn of_id(id: u64) -> Option<(Self, u8)> {
        let field = |at: u32, bits: u32| ((id >> at) & ((1 << bits) - 1)) as u8;
        let (data, parity) = (field(DATA, 3) + 1, field(PARITY, 3) + 1);
        let slice = Self { data, parity, number: field(NUMBER, 4) };
        let lies = id & SLICES != 0 && id >> 62 == 0 && slice.is_valid();
        lies.then_some((slice, field(PLACE, 1)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::history;

    #[test]
    fn the_first_has_all_the_next_a_slice_each_and_small_objects_are_copied() {
        let erasure = Erasure { data: 3, parity: 2, limit: 100 };
        let slice = |number| Some(Form::Slice(Slice { data: 3, parity: 2, number }));
        let forms = |size| (0..8).map(|rank| erasure.form(rank, size)).collect::<Vec<_>>();
        let whole = Some(Form::Whole);
        let large = [whole, slice(0), slice(1), slice(2), slice(3), slice(4), None, None];
        assert_eq!(forms(101), large);
        assert_eq!(forms(100), [whole, whole, whole, None, None, None, None, None]);
        assert_eq!((erasure.width(), erasure.metadata_holders()), (6, 3));
    }

    #[test]
    fn what_lies_under_an_id_is_read_from_it() {
        for data in 1..=MAX_FRAGMENTS {
            for parity in 1..=MAX_FRAGMENTS {
                for number in 0..data + parity {
                    let slice = Slice { data, parity, number };
                    for place in 0..PLACES {
                        let id = slice.id(7, place);
                        assert_eq!(Slice::of_id(id), Some((slice, place)));
                        assert_eq!(history::bucket_id(id), 7);
                        assert!(!history::is_tombstones(id));
                    }
                }
            }
        }
        for other in [7, history::id(7), history::tombstones(7), u64::MAX] {
            assert_eq!(Slice::of_id(other), None, "{other:x}");
        }
    }

    #[test]
    fn numbers_of_slices_have_bounds() {
        Erasure { data: 1, parity: 8, limit: 0 }.validate().unwrap();
        for (data, parity) in [(0, 1), (1, 0), (9, 1), (1, 9)] {
            let e = Erasure { data, parity, limit: 0 }.validate().unwrap_err();
            assert!(e.message.contains("slices"), "{e}");
        }
    }
}

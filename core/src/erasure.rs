//! Erasure coding of native objects: the form of an object on each of its targets.
//!
//! The first target by rank has the whole object. A large object is cut into D data slices and P
//! parity slices, and the next D + P targets have one each: any D of them restore the object. A
//! small object is copied whole to the first P + 1 targets instead.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Maximum slices of a kind: with more, an object would depend on too many targets.
pub const MAX_FRAGMENTS: u8 = 8;

/// Default size up to which objects are copied, in bytes.
pub const DEFAULT_LIMIT: u64 = 256 << 10;

/// How the objects of a bucket are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Erasure {
    /// Number of data slices.
    pub data: u8,
    /// Number of parity slices: this many slices may be lost.
    pub parity: u8,
    /// Objects of at most this many bytes are copied instead.
    pub limit: u64,
}

impl Default for Erasure {
    /// Two and two, as in AIStore.
    fn default() -> Self {
        Self { data: 2, parity: 2, limit: DEFAULT_LIMIT }
    }
}

impl Erasure {
    /// Number of targets that have a part of a large object.
    pub fn width(&self) -> usize {
        1 + usize::from(self.data) + usize::from(self.parity)
    }

    /// Number of targets that have the metadata of an object of any size: each of them may be its
    /// owner, one after the other.
    pub fn metadata_holders(&self) -> usize {
        1 + usize::from(self.parity)
    }

    /// Whether an object of this size is copied and not sliced.
    pub fn copies(&self, size: u64) -> bool {
        size <= self.limit
    }

    /// The form of an object of this size on the target of this rank; `None`: nothing.
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

    /// Refuses invalid numbers of slices.
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

/// The form in which a target has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Form {
    Whole,
    Slice(Slice),
}

/// Identifies a slice of an object; includes the scheme, as slices of two schemes never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slice {
    pub data: u8,
    pub parity: u8,
    /// Number of the slice; data slices come first, from 0 on.
    pub number: u8,
}

/// Set in the ids under which slices are stored.
const SLICES: u64 = 1 << 61;
/// Bit positions of the numbers in such an id. Of the bits above the bucket's own id, history and
/// tombstones use the two highest ([`crate::history`]).
const DATA: u32 = 58;
const PARITY: u32 = 55;
const NUMBER: u32 = 51;
const PLACE: u32 = 50;
/// Bits of a bucket's own id.
pub(crate) const BUCKET: u64 = (1 << PLACE) - 1;

/// Places for one slice of an object on a target: a new slice does not replace the old one before
/// all other targets have theirs.
pub const PLACES: u8 = 2;

impl Slice {
    /// Whether such a slice can exist.
    pub fn is_valid(&self) -> bool {
        let kinds = [self.data, self.parity];
        kinds.iter().all(|n| (1..=MAX_FRAGMENTS).contains(n))
            && self.number < self.data + self.parity
    }

    /// Id under which such slices of a bucket are stored, in one of two places.
    pub fn id(&self, bucket_id: u64, place: u8) -> u64 {
        let bits = |n: u8, at: u32| u64::from(n) << at;
        let kinds = bits(self.data - 1, DATA) | bits(self.parity - 1, PARITY);
        bucket_id | SLICES | kinds | bits(self.number, NUMBER) | bits(place % PLACES, PLACE)
    }

    /// The slice and its place for a storage id; `None`: the id is not for slices.
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

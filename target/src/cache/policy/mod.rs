//! Eviction policies: one interface, two implementations. `bench/cache` compares them with others
//! on traces.
//!
//! A policy identifies residents by their [`Slot`], a small number that the table of
//! [residents](crate::cache::Residents) assigns; sizes, ids and times are in that table. No policy
//! does I/O or reads a clock, so a trace gives the same victims every time.

mod density;
pub mod list;
mod lru;
mod reuse;
#[cfg(test)]
mod tests;

use forebay_core::config::CachePolicy;

pub use density::Density;
pub use lru::Lru;

/// Index of a resident in the tables of its disk.
pub type Slot = u32;

/// The decision about a resident that a policy offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is evicted: the policy removes it.
    Take,
    /// It stays, this time.
    Skip,
    /// It stays, and no more are wanted.
    Enough,
}

/// The buckets whose residents a policy offers.
#[derive(Clone, Copy)]
pub enum Buckets<'a> {
    All,
    /// The bucket of this number.
    One(u16),
    /// Those for which this is true. The answer may change from true to false meanwhile.
    Where(&'a dyn Fn(u16) -> bool),
}

impl Buckets<'_> {
    /// Whether residents of this bucket are offered.
    pub fn has(&self, bucket: u16) -> bool {
        match self {
            Self::All => true,
            Self::One(only) => *only == bucket,
            Self::Where(may) => may(bucket),
        }
    }
}

/// An order of eviction.
pub trait Policy: Send {
    /// A copy was added in `slot`, which was empty. `bucket` is a small number of its bucket; `key`
    /// is a digest of bucket and name, which identifies an object that is added again.
    fn insert(&mut self, slot: Slot, bucket: u16, key: u64);

    /// The copy in `slot` was read.
    fn access(&mut self, slot: Slot);

    /// The copy in `slot` was removed, for another reason than eviction.
    fn remove(&mut self, slot: Slot);

    /// Offers residents of some buckets in the order of eviction, until `judge` has enough or all were
    /// offered.
    fn evict(&mut self, of: Buckets<'_>, judge: &mut dyn FnMut(Slot) -> Verdict);
}

/// Creates the policy of a configuration.
pub fn build(policy: CachePolicy) -> Box<dyn Policy> {
    match policy {
        CachePolicy::Density => Box::<Density>::default(),
        CachePolicy::Lru => Box::<Lru>::default(),
    }
}

/// Grows a column so that it has a cell for `slot`.
pub fn reach<T: Clone>(column: &mut Vec<T>, slot: Slot, empty: T) {
    let slot = slot as usize;
    if column.len() <= slot {
        column.resize(slot + 1, empty);
    }
}

/// Spreads the bits of a number (the last step of SplitMix64).
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Random numbers that are the same in every run: SplitMix64.
#[derive(Clone, Debug, Default)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(n)) >> 64) as u64
    }

    /// From 0 to less than 1.
    pub fn unit(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Attempts to draw an occupied cell: at random, then onward from a random cell.
const TRIES: usize = 8;

/// A cell for which `is_there` is true, if any.
pub fn draw(dice: &mut Dice, cells: usize, is_there: impl Fn(usize) -> bool) -> Option<usize> {
    if cells == 0 {
        return None;
    }
    let mut at = 0;
    for _ in 0..TRIES {
        at = dice.below(cells as u64) as usize;
        if is_there(at) {
            return Some(at);
        }
    }
    (at..cells).chain(0..at).find(|at| is_there(*at))
}

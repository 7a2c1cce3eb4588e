//! `dsort`: the records of some shards in another order, in other shards. What goes where is decided
//! here, before the first byte of a member is read; doing it is the targets' work.
//!
//! A *record* is all members of one key in one input shard. It is never split, and those of two
//! shards stay two though they have one key. [`Records`] holds what the indexes of the shards say;
//! [`plan`] orders it, cuts the sequence into shards and names them. The same spec over the same
//! shards is the same plan, wherever it is made.

mod key_map;
mod plan;
mod records;
mod report;
mod spec;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use key_map::KeyMap;
pub use plan::{Inputs, Plan, PlannedMember, PlannedShard, Totals, plan};
pub use records::{Added, MAX_KEY, Records};
pub use report::{DsortReport, Phase, TargetPart, Times};
pub use spec::{
    Algorithm, ContentType, DsortSpec, InputFormat, KeyMapAt, KeyMapSource, Memory, Overwrite,
    Reaction, Reactions,
};

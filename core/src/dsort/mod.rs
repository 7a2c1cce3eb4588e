//! `dsort`: rewrites the records of some shards in another order, into other shards. The plan is
//! made here, before any member's data is read; the targets execute it.
//!
//! A *record* is all members of one key in one input shard. It is never split, and records of two
//! shards stay separate even if they have the same key. [`Records`] contains the content of the
//! shards' indexes; [`plan`] orders it, cuts the sequence into shards and names them. The same spec
//! over the same shards gives the same plan on any node.

mod key_map;
mod plan;
mod records;
mod report;
mod spec;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use key_map::{KeyMap, KeyMapAt, KeyMapSource};
pub use plan::{Inputs, Plan, PlannedMember, PlannedShard, Totals, plan};
pub use records::{Added, MAX_KEY, Records};
pub use report::{DsortReport, Phase, TargetPart, Times};
pub use spec::{
    Algorithm, ContentType, DsortSpec, InputFormat, Memory, Overwrite, Reaction, Reactions,
};

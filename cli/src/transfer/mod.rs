//! Transfers between buckets and local folders: `cp`, `mv` and `sync`.

mod copy;
mod cp;
mod filter;
mod pattern;
mod run;
mod select;
mod step;
mod sync;

pub(crate) use cp::{CopyArgs, MoveArgs, copy, move_all};
pub(crate) use pattern::Pattern;
pub(crate) use sync::{SyncArgs, sync};

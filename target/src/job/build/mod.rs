//! Shards that a job writes: the job says what goes into each ([`owners`]), and the target that owns
//! a shard packs it ([`builds`], [`pack`]) and keeps it as an object, or aside until the job says
//! that all of them are good.

pub(crate) mod builds;
mod owners;
mod pack;

use forebay_core::{Error, ErrorCode};

pub(super) use owners::{Built, Contents, Order, Owners, Wanted};
pub(super) use pack::writer;

/// The end of what was stopped.
pub(super) fn stopped() -> Error {
    Error::new(ErrorCode::Conflict, "stopped")
}

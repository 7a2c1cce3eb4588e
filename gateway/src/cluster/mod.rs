//! Membership: where nodes report, and what the leading gateway makes of it: who may come in, who
//! is alive, who has heard of the newest state.

pub(crate) mod desk;
pub(crate) mod gateways;
mod knock;
pub(crate) mod leading;
pub(crate) mod liveness;
pub(crate) mod members;
pub(crate) mod publish;
pub(crate) mod rebalance;
pub(crate) mod standing;

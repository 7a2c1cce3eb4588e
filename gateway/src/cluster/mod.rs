//! Membership: where nodes report, and what the leading gateway makes of it: who may come in, who
//! is alive, who has heard of the newest state.

pub(crate) mod gateways;
pub(crate) mod leadership;
pub(crate) mod leading;
pub(crate) mod liveness;
pub(crate) mod members;
pub(crate) mod membership;
mod port_probe;
pub(crate) mod publish;
pub(crate) mod rebalance;

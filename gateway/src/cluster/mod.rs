//! Membership: the service that nodes report to, and the leading gateway's decisions: which nodes
//! are admitted, which are alive, and which have the newest state.

pub(crate) mod gateways;
pub(crate) mod leadership;
pub(crate) mod leading;
pub(crate) mod liveness;
pub(crate) mod members;
pub(crate) mod membership;
mod port_probe;
pub(crate) mod publish;
pub(crate) mod rebalance;

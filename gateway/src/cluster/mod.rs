//! Membership as the primary gateway runs it: who may come in, who is alive, who has heard of the
//! newest state.

pub(crate) mod liveness;
pub(crate) mod members;
pub(crate) mod publish;

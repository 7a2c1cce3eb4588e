//! A whole cluster in one thread and in virtual time: nodes that die, stand still and lose disks, a
//! network that cuts and delays, clients that write and read. Everything follows from a seed, so a seed
//! that fails fails again, step by step.
//!
//! Real is what the cluster decides by, from `forebay-core`: the state and its commands, leases,
//! placement, what moves and when all has settled, stamps, tombstones, who asks and tells whom.
//! Modelled are the steps between those decisions (`object`, `tell`, `copies`, `moves`, `gateway`, `keeper`), the
//! gateways' Raft group (`group`), disks and the network.

pub mod broken;
mod client;
mod copies;
pub mod exec;
mod faults;
mod gateway;
mod group;
mod keeper;
pub mod ledger;
mod moves;
mod net;
mod object;
pub mod plan;
pub mod run;
mod seen;
mod target;
mod tell;
mod world;

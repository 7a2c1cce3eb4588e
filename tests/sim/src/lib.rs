//! A whole cluster in one thread and in virtual time: nodes that die, pause and lose disks, a
//! network that cuts and delays, clients that write and read. Everything follows from a seed, so a
//! seed that fails can be replayed step by step.
//!
//! The decisions are the real ones of `forebay-core`: the state and its commands, leases,
//! placement, moves and their completion, stamps, tombstones, and the sets of nodes that a target
//! queries or notifies. The steps between those decisions are models (the modules of this crate), as
//! are the gateways' Raft group (`group`), disks and the network.

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

//! A whole cluster in one thread and in virtual time: nodes that die, pause and lose disks, a
//! network that cuts and delays, clients that write and read. Everything follows from a seed, so a
//! seed that fails can be replayed step by step.
//!
//! Nodes act by the real rules of `forebay-core`: the state and its commands, leases, placement, the
//! completion of a rebalance. Targets run the real replication engine ([`forebay_core::replication`]);
//! `driver` executes its commands in the simulated world, and `requests` starts an operation for each
//! request. Models are the gateways' Raft group (`group`), disks, the network, and the tasks that
//! start operations (`maintenance`, `keeper`).

pub mod broken;
mod client;
mod disks;
mod driver;
pub mod exec;
mod faults;
mod gateway;
mod group;
mod keeper;
pub mod ledger;
mod maintenance;
mod net;
pub mod plan;
mod requests;
pub mod run;
mod seen;
mod slices;
mod target;
mod versions;
mod view;
mod world;

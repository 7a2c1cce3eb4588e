//! A gateway over real sockets in one process, with stand-ins for targets.
#![allow(clippy::unwrap_used)]

mod buckets;
mod cluster;
mod jobs;
mod listing;
mod objects;
mod stand_in;
mod wire;
mod world;

//! Functions for tests of other crates.
//!
//! A module and not a feature: with a feature, `cargo build` and `cargo test` would each compile the
//! store.

use crate::{Extensions, Volume};

/// Extensions with these ids, as a later version of Forebay may write them.
pub fn extensions(ids: &[u64]) -> Extensions {
    Extensions::for_test(ids)
}

/// Makes a disk reject writes, as after a failed sync.
pub fn fail_disk(volume: &Volume) {
    volume.shared().give_up(&"planned");
}

/// Whether a disk accepts writes.
pub fn accepts_writes(volume: &Volume) -> bool {
    volume.shared().check_alive().is_ok()
}

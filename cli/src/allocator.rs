//! The allocator of all processes, and how long it keeps freed memory.
#![allow(unsafe_code)]

use std::ffi::c_int;

/// Memory is often freed by another thread than the one that allocated it: a connection's thread
/// allocates a body, and a disk's thread frees it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h`, which the bindings leave out.
const PURGE_DELAY: c_int = 15;
/// The environment variable by which users set the same option.
const PURGE_DELAY_ENV: &str = "MIMALLOC_PURGE_DELAY";
/// Milliseconds for which a server keeps freed memory. Under load it is needed again soon. With the
/// default of one second it would be returned to the system, and each write of 16 KiB would cost
/// page faults to get it back.
const KEEP_MS: std::ffi::c_long = 10_000;

/// Keeps freed memory in this process for [`KEEP_MS`].
pub(crate) fn keep_freed_memory() {
    if std::env::var_os(PURGE_DELAY_ENV).is_none() {
        // SAFETY: takes two numbers and stores one in a table of the allocator.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, KEEP_MS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_option_is_that_of_the_purge_delay() {
        // SAFETY: reads a number from a table of the allocator.
        let delay = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "the default of mimalloc 3");
        keep_freed_memory();
        assert_eq!(delay(), KEEP_MS);
    }
}

//! The allocator of all processes, and for how long it keeps what was freed.
#![allow(unsafe_code)]

use std::ffi::c_int;

/// What one thread allocates is freed by another all the time here: bodies come by a connection's
/// thread and go by a disk's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h`, which the bindings leave out.
const PURGE_DELAY: c_int = 15;
/// By which users set the same.
const PURGE_DELAY_ENV: &str = "MIMALLOC_PURGE_DELAY";
/// Milliseconds for which freed memory stays with a server. Under load it is wanted again soon: given
/// back every second, as is the default, it comes back page by page, one fault for each write of 16 KiB.
const KEEP_MS: std::ffi::c_long = 10_000;

/// Has freed memory stay with this process for as long as suits a server.
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

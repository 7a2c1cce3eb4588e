//! Calls to the operating system that the standard library does not offer.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use forebay_node::file_modes;
use tokio::process::Command;

/// Makes the process that `command` starts end with this one, however this one ends.
///
/// The kernel ties the child to the *thread* that starts it, so start it from a thread that runs as
/// long as the process.
pub(crate) fn die_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        let parent = std::process::id();
        // SAFETY: the closure runs in the child between fork and exec and makes only
        // async-signal-safe calls: prctl, getppid and the making of an error from a number.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have ended before the line above took effect.
                if libc::getppid() as u32 != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

/// Gives the process that `command` starts the umask that this one had at its start: a server that
/// it runs needs that umask for files in folders of users.
pub(crate) fn keep_user_umask(command: &mut Command) {
    let Some(umask) = file_modes::user_umask() else { return };
    // SAFETY: the closure runs in the child between fork and exec and makes only an
    // async-signal-safe call.
    unsafe {
        command.pre_exec(move || {
            libc::umask(umask as libc::mode_t);
            Ok(())
        });
    }
}

/// A signal to a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Terminate,
    Kill,
}

/// Sends a signal; a process that has ended is no error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    // Zero and negative ids mean groups of processes.
    let Ok(pid @ 1..) = libc::pid_t::try_from(pid) else { return };
    // SAFETY: takes two numbers and touches no memory of ours.
    unsafe {
        libc::kill(pid, number);
    }
}

/// Raises the limit of open files of this process to the maximum: the default of many systems is
/// too low for a server. Returns the new limit.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is of the right type and outlives both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// Size in bytes of the file system that holds `path`.
pub(crate) fn file_system_size(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all-zero bytes are a valid value of this plain C structure.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in NUL, `stat` is of the right type, and both outlive the call.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((stat.f_blocks as u64).saturating_mul(stat.f_frsize as u64))
}

/// In a statically linked program: resolves names by files and DNS alone, regardless of
/// /etc/nsswitch.conf.
///
/// Other services that /etc/nsswitch.conf may name, such as systemd's, are shared libraries for the
/// machine's own version of glibc. A program with another version linked in crashes when it loads
/// one.
pub(crate) fn resolve_names_without_modules() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        use std::ffi::{CStr, c_char, c_int};

        unsafe extern "C" {
            /// Of glibc's `nss.h`.
            fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
        }
        const LOOKUPS: [(&CStr, &CStr); 4] = [
            (c"hosts", c"files dns"),
            (c"services", c"files"),
            (c"passwd", c"files"),
            (c"group", c"files"),
        ];
        for (database, services) in LOOKUPS {
            // SAFETY: both texts end in NUL and are copied; no other thread runs yet.
            unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_as_high_as_allowed() {
        let raised = raise_open_files().unwrap();
        assert_eq!(raise_open_files().unwrap(), raised);
        assert!(raised > 0);
    }
}

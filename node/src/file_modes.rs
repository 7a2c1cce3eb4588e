//! Permissions of the files that a server creates: its own are private to its user. Files in
//! folders of users, as buckets of the folder backend have them, keep the permissions that the
//! user's umask gives.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU32, Ordering};

/// The umask of a server: only the owner may read and write its files (0600) and folders (0700).
const PRIVATE_UMASK: u32 = 0o077;
/// No umask has been replaced.
const NONE: u32 = u32::MAX;

/// The umask that the process had at its start.
static USER_UMASK: AtomicU32 = AtomicU32::new(NONE);

/// From now on, this process creates files that only its user can read. Libraries create files too,
/// such as those of the index, so that the umask is the one place that covers all of them. Call it
/// before threads are started.
pub fn make_private() {
    let before = set_umask(PRIVATE_UMASK);
    let _ = USER_UMASK.compare_exchange(NONE, before, Ordering::Relaxed, Ordering::Relaxed);
}

/// The umask that the process had before [`make_private`]; `None` if that was not called.
pub fn user_umask() -> Option<u32> {
    Some(USER_UMASK.load(Ordering::Relaxed)).filter(|umask| *umask != NONE)
}

/// Gives a new file or folder in a folder of users the permissions that it has without
/// [`make_private`]. One with permissions for others already, from an access control list of its
/// folder, keeps them.
pub fn share(created: &File) -> io::Result<()> {
    match user_umask() {
        Some(umask) => share_by(created, umask),
        None => Ok(()),
    }
}

fn share_by(created: &File, umask: u32) -> io::Result<()> {
    let found = created.metadata()?;
    let mode = found.mode() & 0o7777;
    let all = if found.is_dir() { 0o777 } else { 0o666 };
    let shared = mode | (all & !umask);
    if mode & PRIVATE_UMASK != 0 || shared == mode {
        return Ok(());
    }
    created.set_permissions(Permissions::from_mode(shared))
}

#[allow(unsafe_code)]
fn set_umask(umask: u32) -> u32 {
    // SAFETY: takes and returns a number, touches no memory and cannot fail.
    let before = unsafe { libc::umask(umask as libc::mode_t) };
    // `mode_t` has 16 bits on some systems.
    #[allow(clippy::useless_conversion)]
    u32::from(before)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    #[test]
    fn a_shared_file_gets_what_the_umask_of_its_user_leaves() {
        let dir = tempfile::tempdir().unwrap();
        for (created, umask, shared) in [
            (0o600, 0o022, 0o644),
            (0o600, 0o077, 0o600),
            (0o600, 0o002, 0o664),
            (0o640, 0o022, 0o640),
        ] {
            let path = dir.path().join(format!("{created}-{umask}"));
            let new = File::options().write(true).create_new(true).mode(created).open(path);
            let new = new.unwrap();
            new.set_permissions(Permissions::from_mode(created)).unwrap();
            share_by(&new, umask).unwrap();
            assert_eq!(new.metadata().unwrap().mode() & 0o7777, shared, "{created:o} {umask:o}");
        }
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o2700)).unwrap();
        share_by(&File::open(&folder).unwrap(), 0o022).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o7777, 0o2755);
    }
}

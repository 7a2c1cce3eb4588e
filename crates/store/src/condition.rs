//! The condition of a disk that is in use: how far its removal has got, and whether it takes writes.
//!
//! A disk is `Serving`; it becomes `Leaving` by command, then `Sealed`, and `Serving` again if its
//! removal fails. It is retired once, from any of these.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use forebay_core::{Error, Result};
use tokio_util::sync::CancellationToken;

/// How far the removal of a disk has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// No new objects are placed on it.
    Leaving,
    /// It is removed as soon as its last objects are moved: writes that started here complete
    /// elsewhere.
    Sealed,
}

/// See the module.
pub(crate) struct Condition {
    /// A [`Phase`].
    phase: AtomicU8,
    /// A sync failed: the state of the disk is unknown until it is opened again.
    has_failed: AtomicBool,
    /// The file system is read-only at the moment.
    is_read_only: AtomicBool,
    /// An operation failed with an error that requires a check of the disk.
    is_suspect: AtomicBool,
    /// Cancelled when the disk is taken out of use.
    retired: CancellationToken,
}

impl Condition {
    /// That of a disk that was just opened.
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Serving as u8),
            has_failed: AtomicBool::new(false),
            is_read_only: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            retired: CancellationToken::new(),
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    fn has_reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    /// From here on no new objects are placed on the disk.
    pub(crate) fn leave(&self) {
        self.enter(Phase::Leaving);
    }

    /// From here on no write starts on the disk.
    pub(crate) fn seal(&self) {
        self.enter(Phase::Sealed);
    }

    /// The disk is not removed after all.
    pub(crate) fn stay(&self) {
        self.enter(Phase::Serving);
    }

    /// Whether the disk is being removed.
    pub(crate) fn is_leaving(&self) -> bool {
        self.has_reached(Phase::Leaving)
    }

    /// Whether no write may start.
    pub(crate) fn is_sealed(&self) -> bool {
        self.has_reached(Phase::Sealed)
    }

    /// Stops all writes, until the disk is opened again.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.suspect();
    }

    /// Whether a write or a sync has failed since the disk was opened.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Notes whether the file system is read-only. Returns whether that is new.
    pub(crate) fn set_read_only(&self, read_only: bool) -> bool {
        self.is_read_only.swap(read_only, Ordering::Relaxed) != read_only
    }

    /// Requests a check of the disk.
    pub(crate) fn suspect(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
    }

    /// Whether the disk has to be checked now. A request is answered once.
    pub(crate) fn take_suspicion(&self) -> bool {
        let is_suspect = self.is_suspect.swap(false, Ordering::Relaxed);
        is_suspect || self.has_failed() && !self.is_read_only.load(Ordering::Relaxed)
    }

    /// Takes the disk out of use: writes fail, and all that waits for it ends.
    pub(crate) fn retire(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.retired.cancel();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Cancelled when the disk is taken out of use.
    pub(crate) fn retired(&self) -> &CancellationToken {
        &self.retired
    }

    /// Rejects writes after a failed sync, and while the file system is read-only. `disk` is its folder.
    pub(crate) fn check_writable(&self, disk: &Path) -> Result<()> {
        let disk = disk.display();
        if self.has_failed() {
            let text = format!("disk {disk} failed; it takes no writes until it is opened again");
            return Err(Error::unavailable(text)
                .hint("look at the kernel's log, replace the disk if it is failing"));
        }
        if self.is_read_only.load(Ordering::Relaxed) {
            return Err(Error::unavailable(format!("disk {disk} is read-only"))
                .hint("look at the kernel's log, mount it for writing again"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_stays_takes_writes_again() {
        let condition = Condition::new();
        assert!(!condition.is_leaving() && !condition.is_sealed());
        condition.leave();
        assert!(condition.is_leaving() && !condition.is_sealed());
        condition.seal();
        assert!(condition.is_leaving() && condition.is_sealed());
        condition.stay();
        assert!(!condition.is_leaving() && !condition.is_sealed());
    }

    #[test]
    fn a_failed_disk_is_checked_until_it_is_opened_again_and_a_read_only_one_once() {
        let condition = Condition::new();
        let check = |condition: &Condition| condition.check_writable(Path::new("/d"));
        assert!(check(&condition).is_ok() && !condition.take_suspicion());
        condition.suspect();
        assert!(condition.take_suspicion() && !condition.take_suspicion());
        assert!(condition.set_read_only(true) && !condition.set_read_only(true));
        assert!(check(&condition).is_err());
        condition.fail();
        assert!(condition.take_suspicion(), "it failed");
        assert!(!condition.take_suspicion(), "it is read-only");
        assert!(condition.set_read_only(false));
        assert!(condition.take_suspicion() && condition.take_suspicion());
        assert!(check(&condition).is_err());
    }

    #[test]
    fn a_retired_disk_takes_no_writes() {
        let condition = Condition::new();
        condition.retire();
        assert!(condition.is_retired() && condition.check_writable(Path::new("/d")).is_err());
    }
}

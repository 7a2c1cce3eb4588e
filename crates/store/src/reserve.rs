//! The emergency reserve: a file that is removed when the file system is full, so that removals can
//! still be logged and the index still works. It is created again when there is space.

use std::sync::{Mutex, MutexGuard};

use forebay_core::intra::FileSystemUsage;
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteSize;

use super::disk::Space;
use super::shared::{Shared, headroom};

/// The reserve has this part of the budget and of the file system at most,
const SHARE: u64 = 32;
/// and never more than this.
const MAX: u64 = 32 << 20;
/// A smaller reserve would not hold one batch of the index.
const MIN: u64 = 128 << 10;
/// A file system counts as full while it has less free than this part of it, or than [`MAX_FULL`] if
/// that is less, beside the headroom.
const FULL_SHARE: u64 = 16;
const MAX_FULL: u64 = 64 << 20;

/// The reserve of one disk.
pub(crate) struct Reserve {
    budget: u64,
    state: Mutex<State>,
    /// The last measurement of the file system.
    file_system: Mutex<Option<FileSystemUsage>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not measured yet.
    Unknown,
    Kept,
    GivenUp,
}

impl Reserve {
    pub(crate) fn new(budget: u64) -> Self {
        Self { budget, state: Mutex::new(State::Unknown), file_system: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    fn size(&self, file_system: u64) -> u64 {
        (self.budget.min(file_system) / SHARE).min(MAX)
    }
}

impl Shared {
    /// Whether the file system has so little space left that new objects have to wait: the rest is
    /// for removals.
    pub(crate) fn is_tight(&self) -> bool {
        let Ok(space) = self.io.space(&self.root) else { return false };
        space.free < self.reserve.size(space.total) / 2
    }

    /// Usage of the file system at the last measurement. Reads no disk, which might hang.
    pub(crate) fn file_system(&self) -> Option<FileSystemUsage> {
        *self.reserve.file_system.locked()
    }

    /// Records a measurement of the file system, and logs when it becomes full or has free space
    /// again.
    pub(crate) fn note_file_system(&self, space: &Space) {
        let slack = (space.total / FULL_SHARE).min(MAX_FULL);
        let full = space.free < headroom(space.total) + slack;
        let now = FileSystemUsage { size: space.total, free: space.free, full };
        let mut known = self.reserve.file_system.locked();
        let before = known.replace(now);
        drop(known);
        let (disk, free) = (self.root.display(), ByteSize(now.free));
        match before {
            None => {
                let usage = self.room.usage();
                let budget = usage.budget;
                if !now.holds_budget(usage.stored + usage.dead, budget) {
                    tracing::warn!(
                        %disk, budget = %ByteSize(budget), %free, size = %ByteSize(now.size),
                        "the budget is larger than what the file system has free"
                    );
                }
            }
            Some(before) if before.full && !full => {
                tracing::info!(%disk, %free, "the file system has free space again");
            }
            Some(_) => {}
        }
        if full && !before.is_some_and(|before| before.full) {
            tracing::error!(%disk, %free, "the file system is full: new objects are refused or soon will be");
        }
    }

    /// Removes the reserve. False if there is none.
    pub(crate) fn give_up_reserve(&self) -> bool {
        let mut state = self.reserve.state();
        if *state == State::GivenUp {
            return false;
        }
        *state = State::GivenUp;
        let given_up = self.io.unlink(&self.reserve_path()).is_ok();
        if given_up {
            let disk = self.root.display();
            tracing::warn!(%disk, "the file system is full: only removals are written for now");
        }
        given_up
    }

    /// Creates the reserve again if it was removed and there is space for it. Blocks.
    pub(crate) fn renew_reserve(&self) {
        let mut state = self.reserve.state();
        let Ok(space) = self.io.space(&self.root) else { return };
        self.note_file_system(&space);
        let size = self.reserve.size(space.total);
        if *state == State::Kept || size < MIN || space.free < 3 * size {
            return;
        }
        match self.io.allocate(&self.reserve_path(), size) {
            Ok(()) => *state = State::Kept,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => *state = State::Kept,
            Err(e) => {
                tracing::debug!(disk = %self.root.display(), "no reserve: {e}");
                // Some file systems do not support it: not worth a try every time.
                if e.kind() == std::io::ErrorKind::Unsupported {
                    *state = State::Kept;
                }
            }
        }
    }

    fn reserve_path(&self) -> std::path::PathBuf {
        reserve_path(&self.root)
    }
}

/// Path of a disk's reserve.
pub(crate) fn reserve_path(root: &std::path::Path) -> std::path::PathBuf {
    root.join(".forebay").join("reserve")
}

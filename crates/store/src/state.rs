//! The state of a disk, and the store's record of a disk.

use std::fmt;
use std::path::PathBuf;
use std::sync::Weak;

use forebay_core::intra::FileSystemUsage;
use forebay_core::{Error, Result};

use super::space::Usage;
use super::{DiskSettings, Store, format};

/// The state of a disk in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// It is read and written.
    InUse,
    /// It is read and takes no new objects: its objects move to other disks, then it is removed.
    Leaving,
    /// It failed or is missing, and is tried again until it is back.
    Away(String),
    /// Its index is being rebuilt from its log.
    Mending,
    /// Taken out of use by command, until a command brings it back.
    Disabled { emptied: bool },
    /// Not a disk of this store any more, or not yet.
    Detached,
}

impl DiskState {
    /// Whether it may have objects that cannot be looked up at the moment.
    pub(crate) fn hides_objects(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Mending | Self::Disabled { emptied: false })
    }

    /// Whether it is tried again automatically.
    pub(crate) fn wants_trial(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Mending)
    }
}

impl fmt::Display for DiskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InUse => "it is in use",
            Self::Leaving => "its objects are moved to other disks",
            Self::Away(why) => why,
            Self::Mending => "its index is damaged and is made again",
            Self::Disabled { .. } => "it is disabled by command",
            Self::Detached => "it is detached",
        })
    }
}

/// The report about a disk.
#[derive(Clone, Debug)]
pub struct DiskReport {
    pub path: PathBuf,
    pub state: DiskState,
    /// Empty for a disk that is not in use.
    pub usage: Usage,
    /// Why the last command to take it out of use failed; mostly empty.
    pub note: String,
    /// Its file system, if the disk is in use.
    pub file_system: Option<FileSystemUsage>,
}

/// The store's entry of a disk. Its index among the others is the disk's number as long as the
/// process runs.
pub(super) struct Slot {
    pub(super) settings: DiskSettings,
    pub(super) state: DiskState,
    /// Its identity when it was last in use.
    pub(super) seen: Option<Seen>,
    pub(super) note: String,
    /// Alive until the last user of the disk is gone after it was taken out of use, and its lock is
    /// released.
    pub(super) ending: Weak<()>,
    /// The library marked its index as poisoned: it has to be read completely before it is trusted
    /// again.
    pub(super) doubted: bool,
}

pub(super) struct Seen {
    pub(super) id: String,
    /// It was a mounted file system: the folder under the mount is not this disk.
    pub(super) mounted: bool,
}

impl Slot {
    pub(super) fn new(settings: DiskSettings) -> Self {
        let state = match settings.disabled {
            Some(disabled) => DiskState::Disabled { emptied: disabled.emptied },
            None => DiskState::Away("it is not open yet".into()),
        };
        let (seen, note, ending) = (None, String::new(), Weak::new());
        Self { settings, state, seen, note, ending, doubted: false }
    }
}

impl Store {
    /// Returns an error if an object that was not found may be on a disk that is not in use.
    pub fn check_absent(&self, bucket_id: u64, name: &str) -> Result<()> {
        if !self.disks.is_degraded() || self.disks.is_removed(&format::key(bucket_id, name))? {
            return Ok(());
        }
        self.check_whole()
    }

    /// [`ErrorCode::Unavailable`] while some disk is not in use.
    pub fn check_whole(&self) -> Result<()> {
        match self.disks.first_hidden() {
            None => Ok(()),
            Some((path, state)) => Err(Error::unavailable(format!(
                "disk {} of this target is not in use: {state}",
                path.display()
            ))
            .hint("bring it back, or detach it if it is lost")),
        }
    }

    /// The disks, in use or not.
    pub fn disk_report(&self) -> Vec<DiskReport> {
        self.disks.report()
    }

    /// The disks that may hide objects, and why they are not in use.
    pub fn disks_away(&self) -> Vec<(PathBuf, String)> {
        let hidden = self.disks.report().into_iter().filter(|d| d.state.hides_objects());
        hidden.map(|d| (d.path, d.state.to_string())).collect()
    }
}

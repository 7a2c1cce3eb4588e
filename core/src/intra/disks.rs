//! Disks of a target: their usage and state, and commands for them.

use serde::{Deserialize, Serialize};

use crate::name::NodeId;
use crate::size::ByteSize;

/// One disk of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    pub path: String,
    /// Bytes of the budget that are used.
    pub used: u64,
    /// The budget in bytes.
    pub budget: u64,
    #[serde(default)]
    pub state: DiskStatus,
    /// Why it is not in use, or why it is still in use despite a command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Its file system; `None` while the disk is not in use, and from older targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystemUsage>,
}

/// The file system below a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemUsage {
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that the target may still write there.
    pub free: u64,
    /// Whether so little is free that new objects are refused or will soon be refused.
    pub full: bool,
}

impl FileSystemUsage {
    /// Whether the rest of the disk's budget, of which `used` bytes are taken, is free in the file
    /// system.
    pub fn holds_budget(&self, used: u64, budget: u64) -> bool {
        budget.saturating_sub(used) <= self.free
    }
}

/// The state of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskStatus {
    #[default]
    InUse,
    /// Read-only; its objects move to other disks, then it is removed.
    Leaving,
    /// Failed or missing: retried until it is back.
    Away,
    /// Its index is being rebuilt.
    Mending,
    /// Taken out of use by command.
    Disabled,
}

impl DiskStatus {
    pub const ALL: [Self; 5] =
        [Self::InUse, Self::Leaving, Self::Away, Self::Mending, Self::Disabled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::InUse => "in_use",
            Self::Leaving => "leaving",
            Self::Away => "away",
            Self::Mending => "mending",
            Self::Disabled => "disabled",
        }
    }
}

/// A command for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskAction {
    /// None: report all disks.
    Show,
    /// Add a folder as a disk.
    Attach,
    /// Drain and remove it.
    Detach,
    /// Drain it, keep it known but out of use.
    Disable,
    Enable,
    /// Check all disks now, and the placement of objects among them.
    Check,
}

/// `POST /internal/v1/disks` on a target; answered with all its disks as [`DiskUsage`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskCommand {
    pub action: DiskAction,
    /// The folder, as the target's machine names it.
    #[serde(default)]
    pub path: String,
    /// For an attached disk: as in the configuration.
    #[serde(default)]
    pub size: Option<ByteSize>,
    #[serde(default)]
    pub mount: bool,
    /// Detach or disable it without draining; attach it with its content.
    #[serde(default)]
    pub force: bool,
}

impl DiskCommand {
    pub fn new(action: DiskAction, path: impl Into<String>) -> Self {
        Self { action, path: path.into(), size: None, mount: false, force: false }
    }
}

/// `POST /api/v1/disks` on a gateway: the command for one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeDiskCommand {
    pub node: NodeId,
    #[serde(flatten)]
    pub command: DiskCommand,
}

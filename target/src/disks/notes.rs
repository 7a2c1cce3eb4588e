//! Changes of the disks by commands, as a file in the node's folder: the configuration file belongs
//! to the operator, and is not written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use forebay_core::config::DiskConfig;
use forebay_core::intra::DiskAction;
use forebay_core::{Error, Result};
use forebay_store::{Disabled, DiskSettings, blocking};
use serde::{Deserialize, Serialize};

use crate::note_file::replace;

/// File in the node's folder.
const FILE: &str = "disks.json";

/// Differences of the disks from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Notes {
    /// Disks that were attached, and settings that replace those of the configuration.
    attached: Vec<DiskConfig>,
    /// Disks of the configuration that were detached.
    detached: BTreeSet<String>,
    /// Disks out of use, and whether they were emptied before.
    pub(super) disabled: BTreeMap<String, bool>,
    /// Disks that are being emptied, and the action that follows.
    pub(super) leaving: BTreeMap<String, DiskAction>,
}

impl Notes {
    /// Reads the notes of a node; there may be none.
    pub(crate) async fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        blocking(move || match std::fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(failed("read", &path, &e)),
            Ok(text) => serde_json::from_slice(&text).map_err(|e| {
                failed("understand", &path, &e).hint(
                    "mend the file, or remove it to use the \
                    disks of the configuration",
                )
            }),
        })
        .await
    }

    /// Stores the record durably.
    pub(super) async fn save(&self, folder: &Path) -> Result<()> {
        if folder.as_os_str().is_empty() {
            return Err(Error::unsupported("this target has no folder to note its disks in")
                .hint("set node.dir in its configuration"));
        }
        let path = folder.join(FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::internal(format!("notes of disks: {e}")))?;
        blocking(move || replace(&path, &text).map_err(|e| failed("write", &path, &e))).await
    }

    /// The disks of the node, from the configuration and commands.
    pub(crate) fn apply(&self, configured: &[DiskConfig]) -> Vec<DiskSettings> {
        let replaced = |disk: &&DiskConfig| !self.attached.iter().any(|a| a.path == disk.path);
        let kept = configured.iter().filter(|disk| !self.detached.contains(&disk.path));
        let disks = kept.filter(replaced).chain(&self.attached);
        disks
            .map(|disk| {
                let emptied = self.disabled.get(&disk.path);
                let disabled = emptied.map(|&emptied| Disabled { emptied });
                DiskSettings { disabled, ..settings_of(disk) }
            })
            .collect()
    }

    /// The disks of the configuration that commands detached.
    pub(crate) fn left_out<'a>(&'a self, configured: &'a [DiskConfig]) -> Vec<&'a str> {
        let paths = configured.iter().map(|disk| disk.path.as_str());
        paths.filter(|path| self.detached.contains(*path)).collect()
    }

    /// Records an attached disk. `configured`: its entry in the configuration, if there is one.
    pub(super) fn attach(&mut self, disk: DiskConfig, configured: Option<&DiskConfig>) {
        self.forget(&disk.path);
        let is_same = |c: &DiskConfig| (c.size, c.mount) == (disk.size, disk.mount);
        if !configured.is_some_and(is_same) {
            self.attached.push(disk);
        }
    }

    pub(super) fn detach(&mut self, path: String, configured: &[DiskConfig]) {
        self.forget(&path);
        if configured.iter().any(|disk| disk.path == path) {
            self.detached.insert(path);
        }
    }

    pub(super) fn disable(&mut self, path: String, emptied: bool) {
        self.leaving.remove(&path);
        self.disabled.insert(path, emptied);
    }

    fn forget(&mut self, path: &str) {
        self.attached.retain(|disk| disk.path != path);
        self.detached.remove(path);
        self.disabled.remove(path);
        self.leaving.remove(path);
    }
}

pub(super) fn settings_of(disk: &DiskConfig) -> DiskSettings {
    DiskSettings {
        rebuild_index: disk.rebuild_index,
        mount: disk.mount,
        ..DiskSettings::new(&disk.path, disk.size.map(|s| s.0))
    }
}

fn failed(verb: &str, path: &Path, e: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("cannot {verb} {}: {e}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::size::ByteSize;

    fn disk(path: &str, size: Option<u64>) -> DiskConfig {
        let size = size.map(ByteSize);
        DiskConfig { path: path.into(), size, mount: false, rebuild_index: false }
    }

    fn paths(notes: &Notes, configured: &[DiskConfig]) -> Vec<(String, Option<bool>)> {
        let disks = notes.apply(configured).into_iter();
        disks.map(|d| (d.path.display().to_string(), d.disabled.map(|d| d.emptied))).collect()
    }

    #[test]
    fn disks_are_those_of_the_configuration_as_commands_changed_them() {
        let configured = [disk("/a", Some(1)), disk("/b", None)];
        let mut notes = Notes::default();
        notes.attach(disk("/c", None), None);
        notes.detach("/a".into(), &configured);
        notes.disable("/b".into(), true);
        let have = |notes: &Notes| paths(notes, &configured);
        assert_eq!(have(&notes), [("/b".into(), Some(true)), ("/c".into(), None)]);
        assert_eq!(notes.left_out(&configured), ["/a"]);
        // As before, and with another size.
        notes.attach(disk("/a", Some(1)), Some(&configured[0]));
        notes.detach("/c".into(), &configured);
        notes.attach(disk("/b", Some(9)), Some(&configured[1]));
        assert_eq!(have(&notes), [("/a".into(), None), ("/b".into(), None)]);
        assert_eq!(notes.apply(&configured)[1].budget, Some(9));
    }

    #[tokio::test]
    async fn notes_outlive_the_process_and_damaged_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Notes::load(dir.path()).await.unwrap(), Notes::default());
        let mut notes = Notes::default();
        notes.attach(disk("/c", Some(1 << 30)), None);
        notes.leaving.insert("/c".into(), DiskAction::Detach);
        notes.save(dir.path()).await.unwrap();
        assert_eq!(Notes::load(dir.path()).await.unwrap(), notes);
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        let e = Notes::load(dir.path()).await.unwrap_err();
        assert!(e.message.contains(FILE) && e.hint.is_some(), "{e}");
        assert!(notes.save(Path::new("")).await.unwrap_err().message.contains("no folder"));
    }
}

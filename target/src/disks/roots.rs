//! Folders that a command may attach as disks.

use std::path::{Path, PathBuf};

use forebay_core::config::{DiskConfig, NodeConfig};
use forebay_core::{Error, ErrorCode, Result};

/// The folders below which disks may be attached; `None`: everywhere.
#[derive(Clone, Debug)]
pub(crate) struct DiskRoots(Option<Vec<PathBuf>>);

impl DiskRoots {
    /// `disks.roots`. Without it: everywhere on a node whose clients are on this machine, and beside
    /// the configured disks on any other.
    pub(crate) fn of(config: &NodeConfig) -> Self {
        let roots = &config.disks.roots;
        if roots.is_empty() && config.listen.is_loopback() {
            return Self(None);
        }
        let configured = roots.iter().map(PathBuf::from);
        let beside = || config.disk.iter().filter_map(beside);
        Self(Some(if roots.is_empty() { beside().collect() } else { configured.collect() }))
    }

    /// Checks a folder without symbolic links in it: `AccessDenied` if it is below no root. Blocks on
    /// the disk.
    pub(super) fn check(&self, real: &Path) -> Result<()> {
        let Some(roots) = &self.0 else { return Ok(()) };
        let real_of = |root: &PathBuf| std::fs::canonicalize(root).unwrap_or_else(|_| root.clone());
        if roots.iter().map(real_of).any(|root| real != root && real.starts_with(&root)) {
            return Ok(());
        }
        let text = format!("{} may not be attached: it is below no root of disks", real.display());
        Err(Error::new(ErrorCode::AccessDenied, text)
            .hint("disks.roots in the configuration of the target lists the folders below which it may be"))
    }
}

/// The folder of a configured disk's neighbours; none at the top, which would open every folder.
fn beside(disk: &DiskConfig) -> Option<PathBuf> {
    let parent = Path::new(&disk.path).parent()?;
    parent.parent().map(|_| parent.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn roots(listen: &str, roots: &[&Path], disks: &[&Path]) -> DiskRoots {
        let mut config = NodeConfig::default();
        config.listen.http = listen.into();
        config.disks.roots = roots.iter().map(|root| root.to_str().unwrap().to_owned()).collect();
        let disk = |path: &&Path| DiskConfig {
            path: path.to_str().unwrap().to_owned(),
            size: None,
            mount: false,
            rebuild_index: false,
        };
        config.disk = disks.iter().map(disk).collect();
        DiskRoots::of(&config)
    }

    #[test]
    fn a_disk_is_below_a_root_after_symbolic_links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["mnt/nvme1", "etc/secret", "linked"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        symlink(base.join("etc/secret"), base.join("mnt/out")).unwrap();
        symlink(base.join("mnt"), base.join("linked/mnt")).unwrap();
        let open = |roots: &DiskRoots, path: &str| {
            roots.check(&std::fs::canonicalize(base.join(path)).unwrap())
        };
        let configured = roots("0.0.0.0:7400", &[&base.join("linked/mnt")], &[]);
        open(&configured, "mnt/nvme1").unwrap();
        let e = open(&configured, "mnt/out").unwrap_err();
        assert_eq!(e.code, ErrorCode::AccessDenied);
        assert!(e.hint.unwrap().contains("disks.roots"));
        assert!(open(&configured, "mnt").is_err() && open(&configured, "etc/secret").is_err());
    }

    #[test]
    fn without_roots_only_a_loopback_node_takes_every_folder() {
        let (disk, top) = (Path::new("/mnt/nvme0"), Path::new("/data"));
        assert!(roots("127.0.0.1:7400", &[], &[disk]).check(Path::new("/srv/x")).is_ok());
        let elsewhere = roots("0.0.0.0:7400", &[], &[disk, top]);
        assert!(elsewhere.check(Path::new("/mnt/nvme1")).is_ok());
        assert!(elsewhere.check(Path::new("/srv/x")).is_err(), "beside a disk at the top");
        assert!(roots("127.0.0.1:7400", &[disk], &[]).check(Path::new("/srv/x")).is_err());
    }
}

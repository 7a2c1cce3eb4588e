//! A small ext4 disk in a file, which can lose its power. Needs root and loop devices.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::os;

pub struct LoopDisk {
    image: PathBuf,
    mount: PathBuf,
}

impl LoopDisk {
    /// Makes and mounts a disk of `bytes` in `folder`. Its file system commits every second, so
    /// that a run of seconds sees many of its transactions.
    pub fn make(folder: &Path, bytes: u64) -> Result<Self> {
        let disk = Self { image: folder.join("disk.img"), mount: folder.join("disk") };
        fs::create_dir_all(&disk.mount)?;
        File::create(&disk.image)?.set_len(bytes)?;
        command("mkfs.ext4", &["-q", "-F", "-m", "0", &text(&disk.image)])?;
        disk.attach()?;
        Ok(disk)
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    fn attach(&self) -> Result<()> {
        command("mount", &["-o", "loop,commit=1", &text(&self.image), &text(&self.mount)])
    }

    /// Cuts the power. Every later call of whoever has files open here fails.
    pub fn cut(&self) -> Result<()> {
        os::cut_power(&self.mount)
    }

    /// Mounts again what survived. Nobody may have files open.
    pub fn restore(&self) -> Result<()> {
        command("umount", &[&text(&self.mount)])?;
        self.attach()
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = command("umount", &[&text(&self.mount)]);
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.mount);
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn command(name: &str, arguments: &[&str]) -> Result<()> {
    let done = Command::new(name).args(arguments).output()?;
    if !done.status.success() {
        bail!("{name} {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

//! A small ext4 file system on a loop device, whose power can be cut: it needs root and loop devices.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{skip, wait};

/// A mounted file system of its own.
pub struct LoopDisk {
    image: PathBuf,
    at: PathBuf,
}

impl LoopDisk {
    /// Creates one and mounts it at `at`. `None`: this machine does not support that.
    pub fn mount(image: PathBuf, at: &Path) -> Option<Self> {
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(512 << 20).unwrap();
        let disk = Self { image, at: at.to_owned() };
        let made = run("mkfs.ext4", ["-q", "-F", "-m", "0"].map(Path::new), &disk.image);
        if let Err(why) = made.and_then(|()| disk.mount_again()) {
            let why = format!("no file system on a loop device: {why}");
            skip::skipped_unless("FOREBAY_REQUIRE_LOOP", &why);
            return None;
        }
        Some(disk)
    }

    fn mount_again(&self) -> Result<(), String> {
        run("mount", [Path::new("-o"), Path::new("loop"), &self.image], &self.at)
    }

    /// From now on every call fails, and data that was not synced is lost.
    pub fn cut(&self) {
        // Mode 2: the journal is not written either.
        let script = "import fcntl, os, struct, sys; \
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
        run("python3", ["-c", script].map(Path::new), &self.at).unwrap();
    }

    /// Mounts another, empty disk in its place.
    pub fn replace(&self) {
        self.unmounted();
        let made = run("mkfs.ext4", ["-q", "-F", "-m", "0"].map(Path::new), &self.image);
        made.and_then(|()| self.mount_again()).unwrap();
    }

    fn unmounted(&self) {
        wait::until("the dead disk is unmounted", Duration::from_secs(20), || {
            run("umount", [], &self.at).is_ok()
        });
    }

    /// Mounts the disk again, with the data that was synced before the cut.
    pub fn power_on(&self) {
        self.unmounted();
        self.mount_again().unwrap();
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = run("umount", ["-l"].map(Path::new), &self.at);
    }
}

fn run<const N: usize>(program: &str, args: [&Path; N], last: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    let out = command.args(args).arg(last).stdin(Stdio::null()).output();
    let out = out.map_err(|e| format!("{program}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim()))
}

//! Scale-downs: the mark by which a target that a scale-down drained ends its drain when it returns.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Path at which a gateway decommissions the target that sends the request.
pub const DECOMMISSION_PATH: &str = "/internal/v1/decommission";
/// Path at which a target logs and starts what `forebay node prestop` decided.
pub const PRESTOP_PATH: &str = "/internal/v1/prestop";

/// Name of the mark in the node's folder.
const FILE: &str = "scale-down";

/// Whether a scale-down drained this target before its last stop; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ScaleDown {
    /// `None` for a node without a folder.
    file: Option<PathBuf>,
    is_over: Arc<AtomicBool>,
}

impl ScaleDown {
    /// Looks for the mark in the node's folder; it is from an earlier process.
    pub(crate) fn of(dir: &str) -> Self {
        if dir.is_empty() {
            return Self::default();
        }
        let file = Path::new(dir).join(FILE);
        let is_over = Arc::new(AtomicBool::new(file.exists()));
        Self { file: Some(file), is_over }
    }

    /// Whether an earlier process was drained by a scale-down. This process runs, so its place is
    /// there again.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Writes the mark for the next process. Blocks on the disk.
    pub fn begin(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        File::create(file)?.sync_all()?;
        match file.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Removes the mark of an earlier process: the target is a member again.
    pub(crate) fn forget(&self) {
        let Some(file) = self.file.as_ref().filter(|_| self.is_over()) else { return };
        match fs::remove_file(file) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                tracing::warn!(file = %file.display(), error = %e, "cannot remove the mark");
            }
            _ => self.is_over.store(false, Ordering::Release),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_finds_the_mark_until_it_is_a_member() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().to_str().unwrap();
        let first = ScaleDown::of(dir);
        first.begin().unwrap();
        assert!(!first.is_over(), "this process is the one that is drained");
        first.forget();
        let second = ScaleDown::of(dir);
        assert!(second.is_over());
        second.forget();
        assert!(!second.is_over() && !ScaleDown::of(dir).is_over());
        let without_folder = ScaleDown::of("");
        without_folder.begin().unwrap();
        assert!(!without_folder.is_over());
    }
}

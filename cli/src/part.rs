//! Files that are written atomically.

use std::path::{Path, PathBuf};

/// A temporary file; removed on drop unless it was renamed to its final name.
pub(crate) struct Part(PathBuf);

impl Part {
    /// A temporary file for `path`, in the same folder.
    pub(crate) fn beside(path: &Path) -> Self {
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        // A file name has at most 255 bytes.
        let own = &own[..own.floor_char_boundary(180)];
        let unique = format!(".{own}.{:08x}.forebay-part", rand::random::<u32>());
        Self(path.with_file_name(unique))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let part = Part::beside(&dir.path().join("é".repeat(200)));
        std::fs::write(&part.0, "half").unwrap();
        drop(part);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

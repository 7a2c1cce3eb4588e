//! Small files in the node's folder that survive the process and power cuts.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file so that a crash leaves the old or the new one.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

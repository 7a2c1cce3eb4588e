//! Files below `objects/` that no record names: left by a crash or a mistake.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_core::{Error, Result};
use forebay_store::Volume;

/// Ids of files that no record names. A write in progress may be among them: only files found
/// twice, with time for any write in between, are orphans.
pub(crate) fn find(volume: &Volume) -> Result<BTreeSet<u64>> {
    // Files first: a file that a record names by the time the record is read was there before.
    let mut ids = BTreeSet::new();
    let objects = volume.path().join("objects");
    for dir in list(volume, &objects)? {
        for name in list(volume, &objects.join(dir))? {
            // Other names do not belong to the store.
            if let Some(id) = (name.len() == 16).then(|| u64::from_str_radix(&name, 16).ok()) {
                ids.extend(id);
            }
        }
    }
    for record in volume.records() {
        for id in record?.file_ids() {
            ids.remove(&id);
        }
    }
    Ok(ids)
}

/// Removes files that [`find`] returned twice. Returns how many were removed.
pub(crate) fn remove(volume: &Volume, ids: impl IntoIterator<Item = u64>) -> Result<u64> {
    let mut removed = 0;
    for id in ids {
        let path = volume.object_path(id);
        match volume.remove_object_file(id) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), "removed a file that no record names");
                removed += 1;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(&path, &e)),
        }
    }
    Ok(removed)
}

fn list(volume: &Volume, dir: &Path) -> Result<Vec<String>> {
    volume.list_folder(dir).map_err(|e| failed(dir, &e))
}

fn failed(path: &Path, e: &std::io::Error) -> Error {
    Error::internal(format!("{}: {e}", PathBuf::from(path).display()))
}

//! Completes the file operations that a crash interrupted.

use forebay_core::Result;

use super::inspect::{Finding, inspect};
use crate::apply::Applier;
use crate::format;
use crate::identity::failed;
use crate::shared::{Shared, object_path, work_path};

/// Completes the file operations that a crash interrupted: removes doomed files, moves those whose
/// record is in the log, removes those that were never finished.
pub(crate) fn tidy(shared: &Shared) -> Result<()> {
    let doomed = shared.index.doomed()?;
    if !doomed.is_empty() {
        let mut usage_counters = shared.usage_counters();
        let mut applier = Applier::new(&shared.index, &mut usage_counters);
        for file in doomed {
            if shared.unlink_file(file) {
                applier.batch.unmark_for_delete(file);
            }
        }
        applier.commit()?;
    }
    let work = shared.root.join("work");
    for name in shared.io.list(&work).map_err(failed("list", &work))? {
        let path = work.join(&name);
        let named = match u64::from_str_radix(&name, 16) {
            Ok(id) => is_named(shared, id)?,
            Err(_) => None,
        };
        match named {
            Some(id) => {
                let (from, to) = (work_path(&shared.root, id), object_path(&shared.root, id));
                shared.io.rename(&from, &to).map_err(failed("rename", &from))?;
            }
            None => shared.io.unlink(&path).map_err(failed("remove", &path))?,
        }
    }
    Ok(())
}

/// Whether a record names this file of `work/`.
fn is_named(shared: &Shared, id: u64) -> Result<Option<u64>> {
    let Finding::Object(trailer) = inspect(&*shared.io, &work_path(&shared.root, id), id)? else {
        return Ok(None);
    };
    let record = shared.index.get(&format::key(trailer.bucket_id, &trailer.name))?;
    Ok(record.filter(|r| r.extents().iter().any(|e| e.id == id)).map(|_| id))
}

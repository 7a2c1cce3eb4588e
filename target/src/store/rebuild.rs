//! Opens the index of a disk, and makes it again from the object files where there is none to trust.

use std::path::Path;
use std::sync::Arc;

use forebay_core::{Error, ErrorCode, Result};

use super::DiskSettings;
use super::disk::{Disk, DiskFile};
use super::format::{self, FOOTER, MAX_RECORD};
use super::identity::failed;
use super::index::Index;
use super::record::Record;
use super::volume::object_path;

/// Nearly every record with its footer fits into the last bytes of this number.
const SHORT_TAIL: u64 = 4096;
/// Any record and a torn one behind it do.
const LONG_TAIL: u64 = 2 * (MAX_RECORD + FOOTER) as u64;

/// The disk's index, whole.
pub(crate) fn open_index(
    number: usize,
    settings: &DiskSettings,
    io: Arc<dyn Disk>,
    own: &Path,
    objects: &Path,
) -> Result<Index> {
    let path = own.join("index");
    if !settings.rebuild_index {
        match Index::open(&path, io.clone(), number) {
            Ok(index) if index.is_complete()? => return Ok(index),
            Ok(_) => {}
            Err(e) if e.code == ErrorCode::Corrupt => {
                tracing::warn!("{e}; it is made again from the object files");
            }
            Err(e) => return Err(e.hint("start with --rebuild-index if the disk is sound")),
        }
    }
    io.remove_tree(&path).map_err(failed("remove", &path))?;
    let index = Index::open(&path, io.clone(), number)?;
    fill(&index, &*io, own, objects)?;
    index.set_complete()?;
    Ok(index)
}

/// What becomes of one file.
enum Finding {
    Object(Box<Record>),
    /// Never finished: a power cut took what was not synced.
    Torn,
    /// Not readable as an object, and not by a power cut.
    Damaged(Error),
}

fn fill(index: &Index, io: &dyn Disk, own: &Path, objects: &Path) -> Result<()> {
    let (mut found, mut torn, mut lost) = (0u64, 0u64, 0u64);
    for dir in io.list(objects).map_err(failed("list", objects))? {
        let dir = objects.join(dir);
        for name in io.list(&dir).map_err(failed("list", &dir))? {
            let path = dir.join(&name);
            let Ok(generation) = u64::from_str_radix(&name, 16) else {
                tracing::warn!(path = %path.display(), "not an object file, left alone");
                continue;
            };
            match inspect(io, &path, generation)? {
                Finding::Object(record) => {
                    found += 1;
                    keep_newest(index, io, objects, &record)?;
                }
                Finding::Torn => {
                    torn += 1;
                    io.unlink(&path).map_err(failed("remove", &path))?;
                }
                Finding::Damaged(e) if e.code == ErrorCode::Unsupported => return Err(e),
                Finding::Damaged(e) => {
                    lost += 1;
                    let aside = own.join("lost");
                    io.create_dir(&aside).map_err(failed("create folder", &aside))?;
                    io.rename(&path, &aside.join(&name)).map_err(failed("rename", &path))?;
                    tracing::warn!(path = %path.display(), "damaged, moved to .forebay/lost: {e}");
                }
            }
        }
    }
    if found + torn + lost > 0 {
        tracing::info!(found, torn, lost, "index made again from the object files");
    }
    Ok(())
}

fn keep_newest(index: &Index, io: &dyn Disk, objects: &Path, record: &Record) -> Result<()> {
    let other = index.get(&format::key(record.bucket_id, &record.name))?;
    let (keep, drop) = match other {
        Some(other) if other.generation > record.generation => (false, Some(record.generation)),
        Some(other) => (true, Some(other.generation)),
        None => (true, None),
    };
    if keep {
        index.insert(record)?;
    }
    if let Some(generation) = drop {
        let path = object_path(objects, generation);
        io.unlink(&path).map_err(failed("remove", &path))?;
    }
    Ok(())
}

fn inspect(io: &dyn Disk, path: &Path, generation: u64) -> Result<Finding> {
    let file = io.open(path).map_err(failed("open", path))?;
    let len = file.size().map_err(failed("measure", path))?;
    let mut result = tail(&*file, len, SHORT_TAIL).map_err(failed("read", path))?;
    if len > SHORT_TAIL && !matches!(result, Ok(Some(_))) {
        result = tail(&*file, len, LONG_TAIL).map_err(failed("read", path))?;
    }
    let end = len.min(8) as usize;
    let mut last = [0; 8];
    file.read_exact_at(&mut last[..end], len - end as u64).map_err(failed("read", path))?;
    Ok(match result {
        Ok(Some(record)) => {
            let payload = record.size.saturating_add(format::table_len(record.size));
            if record.generation == generation && payload < len {
                Finding::Object(Box::new(record))
            } else {
                Finding::Damaged(Error::new(ErrorCode::Corrupt, "its record is of another file"))
            }
        }
        Ok(None) if last == [0; 8] => Finding::Torn,
        Ok(None) => Finding::Damaged(Error::new(ErrorCode::Corrupt, "it has no footer")),
        Err(e) => Finding::Damaged(e),
    })
}

fn tail(file: &dyn DiskFile, len: u64, most: u64) -> std::io::Result<Result<Option<Record>>> {
    let mut bytes = vec![0; len.min(most) as usize];
    file.read_exact_at(&mut bytes, len.saturating_sub(most))?;
    Ok(format::decode_tail(&bytes))
}

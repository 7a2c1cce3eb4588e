//! Reads the record at the end of a file.

use std::path::Path;

use forebay_core::{Error, ErrorCode, Result};

use crate::disk::{Disk, DiskFile};
use crate::format::{self, FOOTER, MAX_RECORD};
use crate::identity::failed;
use crate::record::Record;

/// Nearly every record with its footer fits into the last bytes of this number.
const SHORT_TAIL: u64 = 4096;
/// Any record, with a torn one behind it, fits into these.
const LONG_TAIL: u64 = 2 * (MAX_RECORD + FOOTER) as u64;

/// The result of inspecting one file.
pub(super) enum Finding {
    Object(Box<Record>),
    /// Never finished: a power cut lost the bytes that were not synced.
    Torn,
    /// Not readable as an object, for another reason than a power cut.
    Damaged(Error),
}

pub(super) fn inspect(io: &dyn Disk, path: &Path, id: u64) -> Result<Finding> {
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
        Ok(Some(record)) => match record.extents() {
            [only] if only.id == id && only.size + format::table_len(only.size) < len => {
                Finding::Object(Box::new(record))
            }
            extents if extents.iter().any(|e| e.id == id) => Finding::Object(Box::new(record)),
            _ => Finding::Damaged(Error::new(ErrorCode::Corrupt, "its record is of another file")),
        },
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

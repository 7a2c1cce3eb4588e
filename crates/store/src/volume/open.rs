//! Opens the objects on a disk: from the log, or from their files.

use std::sync::Arc;

use forebay_core::Result;

use super::Volume;
use crate::disk::DiskFile;
use crate::identity::failed;
use crate::is_corrupt;
use crate::reader::{Body, ObjectReader, OpenExtent, corrupt};
use crate::record::{Extent, Place, Record};

impl Volume {
    /// Opens an object. `None` if its bytes are gone (its entry is then removed), or if it has
    /// moved. `Unsupported`: only a later version of Forebay can read it.
    pub(crate) fn open_object(&self, record: &Record) -> Result<Option<ObjectReader>> {
        record.check_payload_known()?;
        self.open_stored(record)
    }

    /// As [`Self::open_object`], for bytes that are checked, or copied with their record. That does
    /// not depend on their meaning.
    pub(crate) fn open_stored(&self, record: &Record) -> Result<Option<ObjectReader>> {
        self.try_open(record).inspect_err(|e| self.shared.suspect_if(e))
    }

    fn try_open(&self, record: &Record) -> Result<Option<ObjectReader>> {
        let body = match &record.place {
            Place::Log(spot) => match self.shared.log.read(spot, record.size) {
                Ok(Some((found, payload))) => {
                    if !is_same(&found, record) {
                        return Err(corrupt(record, "another object lies in its place"));
                    }
                    Some(Body::Memory(payload))
                }
                Ok(None) => None,
                Err(e) if is_corrupt(&e) => return Err(corrupt(record, &e.message)),
                Err(e) => return Err(e),
            },
            Place::Files(_, extents) => self.open_files(extents)?.map(Body::Files),
        };
        match body {
            Some(body) => Ok(Some(ObjectReader::new(record.clone(), body))),
            None => {
                self.forget_lost(record)?;
                Ok(None)
            }
        }
    }

    fn open_files(&self, extents: &[Extent]) -> Result<Option<Vec<OpenExtent>>> {
        let mut open = Vec::with_capacity(extents.len());
        for extent in extents {
            let path = self.shared.object_path(extent.id);
            let file = match self.shared.io.open(&path) {
                // Committed, but the file is not in its place yet.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    match self.shared.io.open(&self.shared.work_path(extent.id)) {
                        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                            self.shared.io.open(&path)
                        }
                        other => other,
                    }
                }
                other => other,
            };
            match file {
                Ok(file) => open.push(self.open_extent(file, extent)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(failed("open", &path)(e)),
            }
        }
        Ok(Some(open))
    }

    fn open_extent(&self, file: Arc<dyn DiskFile>, extent: &Extent) -> OpenExtent {
        OpenExtent::new(file, extent.size, Some((extent.id, self.shared.checked.clone())))
    }

    /// Removes an entry whose bytes are gone, unless it was changed since the look-up.
    fn forget_lost(&self, record: &Record) -> Result<()> {
        let Some(now) = self.shared.current(record)? else { return Ok(()) };
        if now.place != record.place {
            return Ok(());
        }
        let (name, bucket_id) = (&record.name, record.bucket_id);
        tracing::warn!(name, bucket_id, generation = record.generation, "object lost its bytes");
        self.shared.losses.send_modify(|n| *n += 1);
        self.remove_all_blocking(std::slice::from_ref(&now)).map(drop)
    }
}

fn is_same(found: &Record, wanted: &Record) -> bool {
    (found.bucket_id, &found.name, found.generation, found.size)
        == (wanted.bucket_id, &wanted.name, wanted.generation, wanted.size)
}

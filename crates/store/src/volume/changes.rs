//! Changes of the objects on a disk: commits, metadata, removals.

use bytes::Bytes;
use forebay_core::bucket::Class;
use forebay_core::{Error, Result};

use super::Volume;
use crate::blocking;
use crate::change::{Change, MetaChange, Outcome};
use crate::format;
use crate::index::Span;
use crate::record::{Extent, Place, Record, RecordMeta, Spot};
use crate::shared::Shared;
use crate::space::Reservation;
use crate::work::{Filling, Finished, Payload};

/// Removals in one request, so that other writers get their turn.
const REMOVALS_PER_GROUP: usize = 256;

/// The files of an object to be committed.
pub(crate) struct Parts {
    /// The existing files.
    pub(crate) kept: Vec<Extent>,
    /// The new files that follow.
    pub(crate) fresh: Vec<Filling>,
}

impl Volume {
    /// Commits a written object. `misplaced`: another disk has an older copy.
    pub(crate) async fn commit(
        &self,
        finished: Finished,
        meta: RecordMeta,
        misplaced: bool,
    ) -> Result<Record> {
        let Finished { bucket_id, name, payload, reservation, .. } = finished;
        match payload {
            Payload::Memory(bytes) => {
                let mut record = self.record(bucket_id, name, meta);
                record.size = bytes.len() as u64;
                self.submit_put(record, bytes, Vec::new(), misplaced, vec![reservation]).await
            }
            Payload::File(filling) => {
                let parts = Parts { kept: Vec::new(), fresh: vec![*filling] };
                let record = self.record(bucket_id, name, meta);
                self.commit_files(record, parts, misplaced, vec![reservation]).await
            }
        }
    }

    /// Makes an object of files: the existing ones, then the new ones.
    pub(crate) async fn commit_files(
        &self,
        mut record: Record,
        parts: Parts,
        misplaced: bool,
        held: Vec<Reservation>,
    ) -> Result<Record> {
        self.shared.check_alive()?;
        let Parts { mut kept, fresh } = parts;
        kept.extend(fresh.iter().map(|f| Extent { id: f.id, size: f.written }));
        record.sequence = self.shared.next_sequence();
        record.generation = record.sequence;
        record.size = kept.iter().map(|e| e.size).sum();
        record.place = Place::Files(Spot::default(), kept);
        let (shared, mine) = (self.shared.clone(), record.clone());
        let ended = blocking(move || end_files(&shared, fresh, &mine));
        let fresh = self.shared.while_in_use(ended).await?;
        self.submit_put(record, Bytes::new(), fresh, misplaced, held).await
    }

    /// A record of this disk that is not committed yet.
    pub(crate) fn record(&self, bucket_id: u64, name: String, meta: RecordMeta) -> Record {
        Record {
            bucket_id,
            name,
            size: 0,
            generation: 0,
            sequence: 0,
            meta,
            place: Place::Log(Spot::default()),
            disk: self.number(),
        }
    }

    async fn submit_put(
        &self,
        record: Record,
        payload: Bytes,
        files: Vec<Filling>,
        misplaced: bool,
        held: Vec<Reservation>,
    ) -> Result<Record> {
        let change = Change::Put { record: Box::new(record), payload, files, misplaced };
        let mut outcomes = self.committer.submit(vec![change], held).await?;
        let new = outcomes.pop().and_then(|o| o.new);
        new.ok_or_else(|| Error::internal("a commit was overtaken by a later one of its object"))
    }

    /// Waits until all changes that were submitted before are made.
    pub(crate) async fn drain(&self) -> Result<()> {
        // Changes of a group that need no sync are answered first. The second request is in a later
        // group.
        for _ in 0..2 {
            self.committer.submit(Vec::new(), Vec::new()).await?;
        }
        Ok(())
    }

    /// Changes metadata. `None` if the object is gone or was committed again since.
    pub(crate) async fn update(
        &self,
        record: &Record,
        change: MetaChange,
    ) -> Result<Option<Record>> {
        let change = Change::Update { record: Box::new(record.clone()), change };
        Ok(self.one(change).await?.new)
    }

    /// Removes exactly this commit of an object. False if it was gone or committed again already.
    pub(crate) async fn remove(&self, record: &Record) -> Result<bool> {
        let change = removal(record);
        Ok(self.one(change).await?.old.is_some())
    }

    /// Removes exactly these commits. Returns those that still existed.
    pub fn remove_all_blocking(&self, records: &[Record]) -> Result<Vec<Record>> {
        let mut removed = Vec::new();
        for chunk in records.chunks(REMOVALS_PER_GROUP) {
            let changes = chunk.iter().map(removal).collect();
            let outcomes = self.committer.submit_blocking(changes)?;
            removed.extend(outcomes.into_iter().filter_map(|o| o.old));
        }
        Ok(removed)
    }

    /// Drops the note that another disk may have an older copy of this key.
    pub(crate) async fn clear_misplaced(&self, key: Vec<u8>) -> Result<()> {
        self.one(Change::ClearMisplaced { key }).await.map(drop)
    }

    async fn one(&self, change: Change) -> Result<Outcome> {
        let mut outcomes = self.committer.submit(vec![change], Vec::new()).await?;
        Ok(outcomes.pop().unwrap_or_default())
    }

    /// Removes every object of a bucket. Returns how many and how many bytes.
    pub(crate) fn remove_bucket(&self, bucket_id: u64) -> Result<(u64, u64)> {
        let span = Span { bucket_id, ..Span::default() };
        let (mut objects, mut bytes) = (0, 0);
        loop {
            let page: Vec<Record> =
                self.shared.index.scan(&span).take(REMOVALS_PER_GROUP).collect::<Result<_>>()?;
            if page.is_empty() {
                return Ok((objects, bytes));
            }
            for record in self.remove_all_blocking(&page)? {
                objects += 1;
                bytes += record.size;
            }
        }
    }

    /// Writes noted access times to the index.
    pub(crate) fn write_times(&self) -> Result<()> {
        let touches = self.shared.recency.take();
        for chunk in touches.chunks(REMOVALS_PER_GROUP) {
            self.committer.submit_blocking(vec![Change::Times(chunk.to_vec())])?;
        }
        Ok(())
    }
}

fn removal(record: &Record) -> Change {
    Change::Remove {
        bucket_id: record.bucket_id,
        name: record.name.clone(),
        generation: Some(record.generation),
    }
}

/// Completes files of `work/`, so that the log may name them. Each gets a trailer with this record.
fn end_files(shared: &Shared, mut files: Vec<Filling>, record: &Record) -> Result<Vec<Filling>> {
    let trailer = format::encode_trailer(record)?;
    for file in &mut files {
        file.end(&trailer)?;
        if record.meta.class == Class::Owned {
            shared.synced(file.file.sync(), &file.path)?;
        }
    }
    let folder = files.first().and_then(|f| f.path.parent());
    if let Some(folder) = folder.filter(|_| record.meta.class == Class::Owned) {
        shared.synced(shared.io.sync_dir(folder), folder)?;
    }
    Ok(files)
}

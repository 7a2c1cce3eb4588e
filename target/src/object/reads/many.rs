//! Reads of many small objects for one reader: those in memory immediately, the others in disk
//! order.

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::size::ByteRange;
use forebay_node::clock::unix_ns;
use forebay_node::metrics::CheckPath;
use forebay_store::{Access, Commit, Located, Record, Taken, Validation};

use super::Reads;

/// Position of a small fresh copy: sorted by it, a disk is read from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DiskOrder {
    pub(crate) disk: usize,
    /// Segment, and offset in it.
    position: (u64, u32),
}

impl DiskOrder {
    pub(crate) fn of(located: &Located) -> Self {
        Self { disk: located.disk(), position: located.position() }
    }
}

impl Reads {
    /// Announces that [`Self::small`] will be called for this object soon.
    pub(crate) fn expect(&self, info: &BucketInfo, name: &str) {
        self.store().expect(info.id, name);
    }

    /// The copy here if it is fresh and has at most `most` bytes. Never waits; any other object is
    /// read by [`Self::get`].
    pub(crate) fn small(&self, info: &BucketInfo, name: &str, most: u64) -> Option<Located> {
        let located = self.store().locate(info.id, name).ok()??;
        let (epoch, ns) = located.validated();
        let is_fresh = self.is_fresh_since(info, name, Validation { epoch, ns });
        (located.bytes() <= most && is_fresh).then_some(located)
    }

    /// The payloads of copies on one disk, with their names and in disk order, if they are in the
    /// page cache.
    pub(crate) fn payloads_now(&self, located: &[(&Located, &str)]) -> Vec<Option<Bytes>> {
        let now = unix_ns();
        let taken = self.store().payloads_now(located).into_iter().zip(located);
        let payload = |(taken, (one, name)): (Option<Taken>, &(&Located, &str))| {
            let Taken { commit, payload, .. } = taken?;
            let Commit { generation, evictable } = commit;
            let access = Access { bucket_id: one.bucket_id, name, generation, evictable };
            self.noted(one.disk(), &access, payload.len() as u64, now);
            Some(payload)
        };
        taken.map(payload).collect()
    }

    /// Reads the payloads of copies one after the other, in one step. `None`: gone or damaged; the
    /// caller uses [`Self::get`] then.
    pub(crate) async fn payloads(
        &self,
        records: Vec<Option<Record>>,
    ) -> Result<Vec<Option<Bytes>>> {
        let reads = self.clone();
        forebay_store::blocking(move || {
            let read = |record: Option<Record>| {
                let record = record?;
                let bytes = reads.store().read_blocking(&record).ok()?;
                reads.noted(record.disk, &Access::of(&record), record.size, unix_ns());
                Some(bytes)
            };
            Ok(records.into_iter().map(read).collect())
        })
        .await
    }

    /// The record of a copy that was found by this name.
    pub(crate) fn record_of(&self, located: Located, name: &str) -> Option<Record> {
        self.store().record_of(located, name).ok()?
    }

    /// Records a read of a whole object whose bytes were verified.
    pub(super) fn noted(&self, disk: usize, access: &Access<'_>, size: u64, now_ns: u64) {
        self.store().accessed(disk, access, now_ns);
        self.count_checked(CheckPath::Read, size, ByteRange::whole(size));
    }
}

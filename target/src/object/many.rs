//! Many small objects for one reader: those in memory at once, the others in the order of the disk.

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::size::ByteRange;
use forebay_node::clock::unix_ns;
use forebay_node::metrics::CheckPath;

use super::ObjectService;
use crate::store::Record;

/// Where a small fresh copy lies: sorted by it, a disk is read from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DiskOrder {
    pub(crate) disk: usize,
    segment: u64,
    offset: u32,
}

impl DiskOrder {
    pub(crate) fn of(record: &Record) -> Self {
        let spot = record.spot();
        Self { disk: record.disk, segment: spot.segment, offset: spot.offset }
    }
}

impl ObjectService {
    /// The copy here if it is fresh and has at most `most` bytes. Waits for nothing; any other
    /// object takes the way of [`Self::get`].
    pub(crate) fn small(&self, info: &BucketInfo, name: &str, most: u64) -> Option<Record> {
        let record = self.store().find(info.id, name).ok()??;
        (record.size <= most && self.is_fresh(info, &record)).then_some(record)
    }

    /// The payload of this very commit if it lies in the page cache.
    pub(crate) fn payload_now(&self, record: &Record) -> Option<Bytes> {
        let bytes = self.store().read_now(record).ok()??;
        self.noted(record);
        Some(bytes)
    }

    /// The payloads of these very commits, read one after the other in one step. `None`: gone or
    /// damaged; [`Self::get`] deals with that.
    pub(crate) async fn payloads(&self, records: Vec<Record>) -> Result<Vec<Option<Bytes>>> {
        let service = self.clone();
        crate::store::blocking(move || {
            let read = |record: Record| {
                let bytes = service.store().read_blocking(&record).ok()?;
                service.noted(&record);
                Some(bytes)
            };
            Ok(records.into_iter().map(read).collect())
        })
        .await
    }

    fn noted(&self, record: &Record) {
        self.store().touch(record, unix_ns());
        self.count_checked(CheckPath::Read, record.size, ByteRange::whole(record.size));
    }
}

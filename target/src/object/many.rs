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

    /// The payloads of these very commits of one disk, in its order, as far as they lie in the page
    /// cache.
    pub(crate) fn payloads_now(&self, records: &[&Record]) -> Vec<Option<Bytes>> {
        let payloads = self.store().payloads_now(records);
        let now = unix_ns();
        for (record, _) in records.iter().zip(&payloads).filter(|(_, payload)| payload.is_some()) {
            self.noted(record, now);
        }
        payloads
    }

    /// The payloads of these very commits, read one after the other in one step. `None`: gone or
    /// damaged; [`Self::get`] deals with that.
    pub(crate) async fn payloads(&self, records: Vec<Record>) -> Result<Vec<Option<Bytes>>> {
        let service = self.clone();
        crate::store::blocking(move || {
            let read = |record: Record| {
                let bytes = service.store().read_blocking(&record).ok()?;
                service.noted(&record, unix_ns());
                Some(bytes)
            };
            Ok(records.into_iter().map(read).collect())
        })
        .await
    }

    fn noted(&self, record: &Record, now_ns: u64) {
        self.store().touch(record, now_ns);
        self.count_checked(CheckPath::Read, record.size, ByteRange::whole(record.size));
    }
}

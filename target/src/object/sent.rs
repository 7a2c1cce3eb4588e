//! Counts sent bytes: when they are handed to the sender, not when they are announced.

use std::sync::Arc;

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_node::bill::Bill;
use forebay_node::bucket_reads::BucketCounter;
use forebay_node::metrics::Metrics;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::ObjectService;

/// The bytes of one response so far; counted at the last of them, or when the response breaks off.
struct SentBytes {
    metrics: Metrics,
    reads: Arc<BucketCounter>,
    bill: Option<Arc<Bill>>,
    result: &'static str,
    bytes: u64,
    announced: u64,
    is_counted: bool,
}

impl SentBytes {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        // Before the last of them is sent: a client that has received all finds them counted.
        if self.bytes >= self.announced {
            self.count();
        }
    }

    fn count(&mut self) {
        if std::mem::replace(&mut self.is_counted, true) {
            return;
        }
        self.metrics.served(self.result, self.bytes);
        self.reads.served(self.result, self.bytes);
        if let Some(bill) = &self.bill {
            bill.saved(self.bytes);
        }
    }
}

impl Drop for SentBytes {
    fn drop(&mut self) {
        self.count();
    }
}

impl ObjectService {
    /// The same stream, whose bytes are counted as they are taken. `announced`: the size of a
    /// complete response; `len` returns the size of an item.
    pub(crate) fn counting<T: Send + 'static>(
        &self,
        (info, result, announced): (&BucketInfo, &'static str, u64),
        stream: BoxStream<'static, Result<T>>,
        len: impl Fn(&T) -> u64 + Send + 'static,
    ) -> BoxStream<'static, Result<T>> {
        let bill = if result == "miss" || !info.has_backend() {
            None
        } else {
            self.cold_cache().bill(info)
        };
        let metrics = self.metrics().clone();
        let reads = metrics.bucket_reads().of(info);
        let mut sent =
            SentBytes { metrics, reads, bill, result, bytes: 0, announced, is_counted: false };
        stream.inspect_ok(move |piece| sent.add(len(piece))).boxed()
    }
}

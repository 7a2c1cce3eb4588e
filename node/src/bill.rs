//! Counters of what clouds bill: one set per bucket, exported with the bucket's name.

use forebay_core::bill::{CloudBill, RequestClass};
use forebay_core::bucket::BackendKind;
use prometheus::{IntCounter, IntCounterVec};

use crate::metric_families::Families;

/// All buckets' counters.
#[derive(Clone, Debug)]
pub struct Bills {
    requests: IntCounterVec,
    bytes: IntCounterVec,
    saved: IntCounterVec,
    listing_pages: IntCounterVec,
}

impl Default for Bills {
    /// Counters that are not exported.
    fn default() -> Self {
        Self::new(&Families::default())
    }
}

impl Bills {
    pub(crate) fn new(families: &Families) -> Self {
        let counter =
            |name: &str, help: &str, labels: &[&str]| families.counters(name, help, labels);
        Self {
            requests: counter(
                "forebay_cloud_requests_total",
                "Requests to a bucket's cloud, by the class that the cloud bills",
                &["bucket", "class"],
            ),
            bytes: counter(
                "forebay_cloud_bytes_total",
                "Bytes of objects fetched from a bucket's cloud and sent to it, and bytes of its listings",
                &["bucket", "direction"],
            ),
            saved: counter(
                "forebay_egress_saved_bytes_total",
                "Bytes of a cloud's objects that were served without another download",
                &["bucket"],
            ),
            listing_pages: counter(
                "forebay_cloud_listing_pages_total",
                "Pages of listings received from a bucket's cloud",
                &["bucket"],
            ),
        }
    }

    /// Returns the counters of one bucket; a second call returns the same counters.
    pub fn of(&self, bucket: &str, kind: BackendKind) -> Bill {
        let request = |class: RequestClass| {
            (class, self.requests.with_label_values(&[bucket, class.as_str()]))
        };
        Bill {
            requests: RequestClass::of(kind).iter().copied().map(request).collect(),
            fetched: self.bytes.with_label_values(&[bucket, "fetched"]),
            sent: self.bytes.with_label_values(&[bucket, "sent"]),
            saved: self.saved.with_label_values(&[bucket]),
            listing_pages: self.listing_pages.with_label_values(&[bucket]),
            listing_bytes: self.bytes.with_label_values(&[bucket, "listed"]),
        }
    }
}

/// The counters of one bucket's cloud.
#[derive(Clone, Debug)]
pub struct Bill {
    requests: Vec<(RequestClass, IntCounter)>,
    fetched: IntCounter,
    sent: IntCounter,
    saved: IntCounter,
    listing_pages: IntCounter,
    listing_bytes: IntCounter,
}

impl Bill {
    /// Counters that are not exported.
    pub fn unseen(kind: BackendKind) -> Self {
        Bills::default().of("", kind)
    }

    /// Counts one request that is sent.
    pub fn request(&self, class: RequestClass) {
        if let Some((_, counter)) = self.requests.iter().find(|(of, _)| *of == class) {
            counter.inc();
        }
    }

    pub fn fetched(&self, bytes: u64) {
        self.fetched.inc_by(bytes);
    }

    pub fn sent(&self, bytes: u64) {
        self.sent.inc_by(bytes);
    }

    pub fn saved(&self, bytes: u64) {
        self.saved.inc_by(bytes);
    }

    /// Counts one page of a listing, with the bytes of its body.
    pub fn listing_page(&self, bytes: usize) {
        self.listing_pages.inc();
        self.listing_bytes.inc_by(bytes as u64);
    }

    /// Returns the totals so far.
    pub fn total(&self) -> CloudBill {
        CloudBill {
            requests: self.requests.iter().map(|(class, n)| (*class, n.get())).collect(),
            fetched_bytes: self.fetched.get(),
            sent_bytes: self.sent.get(),
            saved_bytes: self.saved.get(),
            listing_pages: self.listing_pages.get(),
            listing_bytes: self.listing_bytes.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_exported_by_its_name_and_asked_for_again_goes_on() {
        let families = Families::default();
        let bills = Bills::new(&families);
        let bill = bills.of("s3://b", BackendKind::S3);
        bill.request(RequestClass::A);
        // S3 has no class for this.
        bill.request(RequestClass::Write);
        bill.saved(7);
        bill.listing_page(900);
        bill.listing_page(100);
        let again = bills.of("s3://b", BackendKind::S3).total();
        let requests = [(RequestClass::A, 1), (RequestClass::B, 0), (RequestClass::Free, 0)];
        assert_eq!((again.requests, again.saved_bytes), (requests.into(), 7));
        assert_eq!((again.listing_pages, again.listing_bytes), (2, 1_000));
        let series: usize = families.gather().iter().map(|f| f.get_metric().len()).sum();
        assert_eq!(series, 8);
    }
}

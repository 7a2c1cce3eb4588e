//! The costs that a cloud bills for a bucket: requests by class, and transferred bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bucket::BackendKind;
use crate::name::Bucket;

/// The price group of a request, as its provider's price list has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestClass {
    /// S3 and Google: writes and listings.
    A,
    /// S3 and Google: reads.
    B,
    /// Azure: puts of blobs and of their blocks.
    Write,
    /// Azure: listings.
    List,
    /// Azure: reads of blobs.
    Read,
    /// Azure: everything else, such as reading a blob's properties.
    Other,
    /// Not billed: deletes, and the parts of one upload to Google.
    Free,
    /// A request to a server without a price list.
    Request,
}

impl RequestClass {
    pub const ALL: [Self; 8] = [
        Self::A,
        Self::B,
        Self::Write,
        Self::List,
        Self::Read,
        Self::Other,
        Self::Free,
        Self::Request,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::Write => "write",
            Self::List => "list",
            Self::Read => "read",
            Self::Other => "other",
            Self::Free => "free",
            Self::Request => "request",
        }
    }

    /// The classes of a kind of backend; none if it is not billed.
    pub fn of(kind: BackendKind) -> &'static [Self] {
        match kind {
            BackendKind::S3 | BackendKind::Gcs => &[Self::A, Self::B, Self::Free],
            BackendKind::Azure => &[Self::Write, Self::List, Self::Read, Self::Other, Self::Free],
            BackendKind::Http | BackendKind::Ais => &[Self::Request],
            BackendKind::Folder => &[],
        }
    }
}

/// The requests to a bucket's cloud, and the traffic that the cluster saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudBill {
    pub requests: BTreeMap<RequestClass, u64>,
    /// Body bytes of objects that came from the cloud.
    pub fetched_bytes: u64,
    /// Body bytes of objects that were written to the cloud.
    pub sent_bytes: u64,
    /// Bytes served to clients without reading them from the cloud again.
    pub saved_bytes: u64,
    /// Pages of listings that the cloud sent; also included in `requests`.
    #[serde(default)]
    pub listing_pages: u64,
    /// Bytes of these pages.
    #[serde(default)]
    pub listing_bytes: u64,
}

impl CloudBill {
    /// Adds the counters of another target.
    pub fn add(&mut self, other: &Self) {
        for (class, n) in &other.requests {
            *self.requests.entry(*class).or_default() += n;
        }
        self.fetched_bytes += other.fetched_bytes;
        self.sent_bytes += other.sent_bytes;
        self.saved_bytes += other.saved_bytes;
        self.listing_pages += other.listing_pages;
        self.listing_bytes += other.listing_bytes;
    }
}

/// `POST /internal/v1/backend/bill` on a target; answered with a [`CloudBill`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BillRequest {
    pub bucket: Bucket,
}

/// `GET /api/v1/bill/BUCKET`: the sum over the targets that answer, each since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketBill {
    #[serde(flatten)]
    pub bill: CloudBill,
    /// Number of targets in the sum.
    pub targets: usize,
    /// Number of targets that did not answer.
    pub away: usize,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bills_of_targets_add_up_class_by_class() {
        let one = CloudBill {
            requests: [(RequestClass::A, 1), (RequestClass::B, 2)].into(),
            fetched_bytes: 3,
            sent_bytes: 4,
            saved_bytes: 5,
            listing_pages: 6,
            listing_bytes: 7,
        };
        let mut sum = CloudBill::default();
        sum.add(&one);
        sum.add(&CloudBill { requests: [(RequestClass::B, 40)].into(), ..one.clone() });
        assert_eq!(sum.requests, [(RequestClass::A, 1), (RequestClass::B, 42)].into());
        assert_eq!((sum.fetched_bytes, sum.sent_bytes, sum.saved_bytes), (6, 8, 10));
        assert_eq!((sum.listing_pages, sum.listing_bytes), (12, 14));
    }

    #[test]
    fn classes_stand_in_json_by_their_names() {
        for class in RequestClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
        let bill = BucketBill { targets: 2, ..BucketBill::default() };
        let json = serde_json::to_value(&bill).unwrap();
        assert_eq!((&json["targets"], &json["saved_bytes"]), (&2.into(), &0.into()));
    }

    #[test]
    fn the_bill_of_an_older_target_counts_no_listings() {
        let older = r#"{"requests":{"a":1},"fetched_bytes":2,"sent_bytes":3,"saved_bytes":4}"#;
        let bill: CloudBill = serde_json::from_str(older).unwrap();
        assert_eq!((bill.saved_bytes, bill.listing_pages, bill.listing_bytes), (4, 0, 0));
    }
}

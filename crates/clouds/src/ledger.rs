//! Assigns a bucket's requests and bytes to a bill.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use forebay_core::bill::RequestClass;
use forebay_core::bucket::{BackendKind, BucketInfo};
use forebay_node::bill::{Bill, Bills};

/// Bill for requests to buckets that the cluster has not registered: names that clients make up
/// must not fill the metrics.
const UNREGISTERED: &str = "unregistered";

/// The bills of this node's buckets; every read finds its bill without a lock.
#[derive(Default)]
pub(super) struct Ledger {
    bills: Bills,
    known: ArcSwap<HashMap<u64, Entry>>,
}

#[derive(Clone)]
struct Entry {
    kind: BackendKind,
    bill: Arc<Bill>,
}

impl Ledger {
    pub(super) fn new(bills: Bills) -> Self {
        Self { bills, known: ArcSwap::default() }
    }

    /// `None` for buckets without costs: native buckets and folders.
    pub(super) fn of(&self, info: &BucketInfo) -> Option<Arc<Bill>> {
        let kind = info.backend.as_ref()?.kind;
        if RequestClass::of(kind).is_empty() {
            return None;
        }
        if let Some(entry) = self.known.load().get(&info.id).filter(|entry| entry.kind == kind) {
            return Some(Arc::clone(&entry.bill));
        }
        let bucket = match info.id {
            0 => UNREGISTERED.to_owned(),
            _ => info.bucket.to_string(),
        };
        let bill = Arc::new(self.bills.of(&bucket, kind));
        let entry = Entry { kind, bill: Arc::clone(&bill) };
        self.change(|known| drop(known.insert(info.id, entry.clone())));
        Some(bill)
    }

    /// Drops the entry of a destroyed bucket. Its costs stay counted: they were paid, and evicting
    /// a bucket creates it again.
    pub(super) fn forget(&self, bucket_id: u64) {
        self.change(|known| drop(known.remove(&bucket_id)));
    }

    fn change(&self, change: impl Fn(&mut HashMap<u64, Entry>)) {
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            change(&mut known);
            known
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::name::{Bucket, Provider};

    use super::*;

    fn info(id: u64, provider: Provider) -> BucketInfo {
        let mut info = BucketInfo::requested(Bucket::new(provider, "b").unwrap(), None);
        info.id = id;
        info
    }

    #[test]
    fn a_bucket_made_again_goes_on_with_its_bill() {
        let ledger = Ledger::default();
        assert!(ledger.of(&info(1, Provider::Ais)).is_none(), "nobody bills native objects");
        let saved = |id| ledger.of(&info(id, Provider::Aws)).unwrap().total().saved_bytes;
        ledger.of(&info(1, Provider::Aws)).unwrap().saved(5);
        ledger.forget(1);
        assert_eq!(saved(2), 5);
    }

    #[test]
    fn names_that_the_cluster_does_not_know_share_one_bill() {
        let ledger = Ledger::default();
        ledger.of(&info(0, Provider::Aws)).unwrap().request(RequestClass::B);
        let mut other = info(0, Provider::Aws);
        other.bucket = Bucket::new(Provider::Aws, "other").unwrap();
        let total = ledger.of(&other).unwrap().total();
        assert_eq!(total.requests.get(&RequestClass::B), Some(&1));
    }
}

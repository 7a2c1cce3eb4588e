//! The memory of all batches of a target: each has its share, which shrinks as others come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::{Error, ErrorCode, Result};
use forebay_node::metrics::Metrics;

/// A batch never has less, or it would read one object after the other,
const LEAST: usize = 256 << 10;
/// and never more: it would not get faster.
const MOST: usize = 64 << 20;
/// For each batch that clients may ask for here, other targets may ask for this many parts of
/// theirs. They count apart: targets that wait for each other's places would wait for ever.
const PARTS: usize = 4;
/// Memory of a request once it is read, as a multiple of its length.
const PARSED: usize = 3;

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    /// A target that assembles a batch.
    Node,
}

/// Admits batches while there is memory for them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Inner>);

struct Inner {
    total: usize,
    batches: usize,
    taken: Mutex<Taken>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Taken {
    clients: usize,
    nodes: usize,
    /// Memory of all requests.
    requests: usize,
}

impl Taken {
    fn count(&mut self, sender: Sender) -> &mut usize {
        match sender {
            Sender::Client => &mut self.clients,
            Sender::Node => &mut self.nodes,
        }
    }
}

impl Inner {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Budget {
    /// `total` bytes for at most `batches` batches of clients.
    pub(crate) fn new(total: u64, batches: usize, metrics: Metrics) -> Self {
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        Self(Arc::new(Inner { total, batches, taken: Mutex::default(), metrics }))
    }

    /// A share for a batch whose request has `length` bytes.
    ///
    /// Fails with [`ErrorCode::TooManyRequests`] while too many others have theirs.
    pub(crate) fn admit(&self, sender: Sender, length: u64) -> Result<Share> {
        let inner = &self.0;
        let request = usize::try_from(length).unwrap_or(usize::MAX).saturating_mul(PARSED);
        let most = match sender {
            Sender::Client => inner.batches,
            Sender::Node => inner.batches.saturating_mul(PARTS),
        };
        let mut taken = inner.taken();
        if *taken.count(sender) >= most {
            return Err(busy("this target answers as many batches as it may"));
        }
        // However long a request is, it gets through when no other is there.
        if taken.requests > 0 && taken.requests.saturating_add(request) > inner.total {
            return Err(busy("the requests of other batches take the memory that there is"));
        }
        taken.requests = taken.requests.saturating_add(request);
        *taken.count(sender) += 1;
        inner.metrics.batches(1);
        Ok(Share { inner: inner.clone(), sender, request })
    }
}

fn busy(why: &str) -> Error {
    Error::new(ErrorCode::TooManyRequests, why)
        .retry_after(1)
        .hint("retry later, or raise limits.batches and limits.batch_memory")
}

/// What one batch may hold in memory. Dropped, it goes to the others.
pub(crate) struct Share {
    inner: Arc<Inner>,
    sender: Sender,
    request: usize,
}

impl Share {
    fn bytes(&self) -> usize {
        let taken = self.inner.taken();
        (self.inner.total / (taken.clients + taken.nodes).max(1)).clamp(LEAST, MOST)
    }

    /// Bytes of entries that are read and have not gone out yet.
    pub(crate) fn ahead(&self) -> usize {
        self.bytes() / 2
    }

    /// Entries up to this size are read whole ahead of their turn; larger ones go out in pieces.
    pub(crate) fn whole(&self) -> usize {
        (self.bytes() / 16).clamp(64 << 10, 1 << 20)
    }

    /// Entries that may be read whole at the same time.
    pub(crate) fn at_once(&self) -> usize {
        self.bytes() / self.whole()
    }

    /// Bytes sent at once. Up to three times as many are on their way.
    pub(crate) fn frame(&self) -> usize {
        (self.bytes() / 8).clamp(32 << 10, 256 << 10)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.inner.taken();
        taken.requests = taken.requests.saturating_sub(self.request);
        *taken.count(self.sender) -= 1;
        self.inner.metrics.batches(-1);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn budget(batches: usize) -> Budget {
        Budget::new(64 << 20, batches, Metrics::default())
    }

    #[test]
    fn the_more_batches_the_less_each_holds_and_together_no_more_than_there_is() {
        let budget = budget(64);
        let first = budget.admit(Sender::Client, 100).unwrap();
        assert_eq!(first.ahead(), 32 << 20, "alone it has all");
        let others: Vec<_> = (0..31).map(|_| budget.admit(Sender::Client, 100).unwrap()).collect();
        let all = || others.iter().chain([&first]);
        let held: usize = all().map(|s| s.ahead() + 3 * s.frame()).sum();
        assert!(held <= 64 << 20, "{held}");
        assert!(all().all(|s| s.ahead() == first.ahead()), "fair");
        drop(others);
        assert_eq!(first.ahead(), 32 << 20, "what others gave back");
    }

    #[test]
    fn too_many_batches_are_told_to_come_again_and_parts_for_nodes_count_apart() {
        let budget = budget(2);
        let held: Vec<_> = (0..2).map(|_| budget.admit(Sender::Client, 1).unwrap()).collect();
        let refused = budget.admit(Sender::Client, 1).err().unwrap();
        assert_eq!((refused.code.status(), refused.retry_after_s), (429, Some(1)));
        let parts: Vec<_> = (0..8).map(|_| budget.admit(Sender::Node, 1).unwrap()).collect();
        assert_eq!(budget.admit(Sender::Node, 1).err().unwrap().code.status(), 429);
        drop((held, parts));
        budget.admit(Sender::Client, 1).unwrap();
    }

    #[test]
    fn long_requests_wait_for_each_other_and_the_longest_gets_through_alone() {
        let budget = budget(8);
        let long = budget.admit(Sender::Client, 256 << 20).unwrap();
        assert_eq!(budget.admit(Sender::Client, 1000).err().unwrap().code.status(), 429);
        drop(long);
        let _short = budget.admit(Sender::Client, 1000).unwrap();
        assert!(budget.admit(Sender::Client, 256 << 20).is_err());
        budget.admit(Sender::Client, 1 << 20).unwrap();
    }
}

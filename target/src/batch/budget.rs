//! The memory of all batches of a target: each has its share, which shrinks as others arrive.
//!
//! A batch has a slot from the arrival of its request until its response is sent. If a client does
//! not read, and another batch waits for a slot, the connection of the first batch is ended.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::listener::Hangup;
use forebay_node::metrics::Metrics;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::time::timeout;

/// A batch never has less, or it would read objects one by one,
const MIN_BATCH_BYTES: usize = 256 << 10;
/// and never more: it would not get faster.
const MAX_BATCH_BYTES: usize = 64 << 20;
/// One half of the memory is not read ahead into: each batch may always read one entry, so that all
/// proceed while those that came first hold the other half.
const FIRST_ENTRIES: usize = 2;
/// For each client batch in the limit, other targets may have this many requests for parts of their
/// batches. They count separately: targets that wait for each other's slots would deadlock.
const PARTS: usize = 4;
/// Memory of a request once it is read, as a multiple of its length.
const PARSED: usize = 3;
/// How long a request waits for a slot before it gets 429,
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(2);
/// and how often it looks for a stalled batch meanwhile.
const ADMISSION_INTERVAL: Duration = Duration::from_millis(200);
/// A batch whose client read nothing for this time may be ended in favor of another one.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// The sender of a request.
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
    /// Bytes of entries that all batches hold.
    held: AtomicUsize,
    freed: Notify,
    /// How long a request waits for a slot.
    admission_timeout: Duration,
    metrics: Metrics,
}

#[derive(Default)]
struct Taken {
    clients: usize,
    nodes: usize,
    /// Memory of all requests.
    requests: usize,
    /// Requests that wait for a slot.
    waiting: usize,
    next: u64,
    live: BTreeMap<u64, Arc<Progress>>,
}

impl Taken {
    fn count(&mut self, sender: Sender) -> &mut usize {
        match sender {
            Sender::Client => &mut self.clients,
            Sender::Node => &mut self.nodes,
        }
    }

    /// Ends the batch whose client has read nothing for the longest time. A node that does not read
    /// waits for a client of its own, and ends that itself. False if no client has stalled.
    fn end_stalled(&self) -> bool {
        let stalled = self.live.values().filter(|p| p.sender == Sender::Client);
        let stalled = stalled.filter_map(|p| Some((p.stalled_since()?, p)));
        let longest = stalled.min_by_key(|(since, _)| *since);
        let Some((_, progress)) = longest.filter(|(since, _)| since.elapsed() >= STALLED_AFTER)
        else {
            return false;
        };
        tracing::debug!("a batch that its client does not read ends for another one");
        progress.set_stalled(false);
        progress.hangup.hang_up();
        true
    }
}

/// The progress of a batch, for those that wait for its slot.
struct Progress {
    sender: Sender,
    stalled: Mutex<Option<Instant>>,
    hangup: Hangup,
}

impl Progress {
    fn stalled_since(&self) -> Option<Instant> {
        *self.stalled.locked()
    }

    fn set_stalled(&self, stalled: bool) {
        let mut since = self.stalled.locked();
        *since = stalled.then(Instant::now);
    }
}

impl Inner {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.locked()
    }
}

/// The memory of an arriving request. Released when dropped.
pub(crate) struct RequestMemory {
    inner: Arc<Inner>,
    bytes: usize,
}

impl RequestMemory {
    /// Accounts for further bytes of the request. Fails with [`ErrorCode::TooManyRequests`] while
    /// other requests take the memory; a single request of any length succeeds.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes.saturating_mul(PARSED);
        let mut taken = self.inner.taken();
        let others = taken.requests.saturating_sub(self.bytes);
        if others > 0 && taken.requests.saturating_add(bytes) > self.inner.total {
            return Err(busy("the requests of other batches take the memory that there is"));
        }
        taken.requests = taken.requests.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        let mut taken = self.inner.taken();
        taken.requests = taken.requests.saturating_sub(self.bytes);
    }
}

/// Counts a request that waits for a slot, until dropped.
struct Waiting<'a>(&'a Inner);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.taken().waiting -= 1;
    }
}

impl Budget {
    /// A budget of `total` bytes for at most `batches` batches of clients.
    pub(crate) fn new(total: u64, batches: usize, metrics: Metrics) -> Self {
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let (taken, held, freed) = (Mutex::default(), AtomicUsize::new(0), Notify::new());
        let admission_timeout = ADMISSION_TIMEOUT;
        Self(Arc::new(Inner { total, batches, taken, held, freed, admission_timeout, metrics }))
    }

    /// Memory for a request of which nothing has arrived yet.
    pub(crate) fn request(&self) -> RequestMemory {
        RequestMemory { inner: self.0.clone(), bytes: 0 }
    }

    /// A share for a batch whose request has arrived. `hangup` ends its connection.
    ///
    /// Waits a while for a slot; fails with [`ErrorCode::TooManyRequests`] if none becomes free.
    pub(crate) async fn admit(
        &self,
        sender: Sender,
        request: RequestMemory,
        hangup: Hangup,
    ) -> Result<Share> {
        let started = Instant::now();
        let admitted = self.wait(sender, request, hangup).await;
        if sender == Sender::Client {
            self.0.metrics.batch_queued(started.elapsed());
        }
        admitted
    }

    /// As [`Self::admit`].
    async fn wait(&self, sender: Sender, request: RequestMemory, hangup: Hangup) -> Result<Share> {
        let inner = &*self.0;
        let progress = Arc::new(Progress { sender, stalled: Mutex::default(), hangup });
        if let Some(number) = self.take_place(&progress) {
            return Ok(self.share(number, progress, request));
        }
        let full = || busy("this target answers as many batches as it may");
        {
            let mut taken = inner.taken();
            if taken.waiting >= inner.batches {
                return Err(full());
            }
            taken.waiting += 1;
        }
        let _waiting = Waiting(inner);
        let started = Instant::now();
        while started.elapsed() < inner.admission_timeout {
            // Created before the check, so that no released slot is missed from here on.
            let freed = inner.freed.notified();
            if let Some(number) = self.take_place(&progress) {
                return Ok(self.share(number, progress, request));
            }
            let _ = timeout(ADMISSION_INTERVAL, freed).await;
        }
        Err(full())
    }

    /// The number of a slot; `None` if there is none, and a stalled batch is being ended.
    fn take_place(&self, progress: &Arc<Progress>) -> Option<u64> {
        let (inner, sender) = (&*self.0, progress.sender);
        let most = match sender {
            Sender::Client => inner.batches,
            Sender::Node => inner.batches.saturating_mul(PARTS),
        };
        let mut taken = inner.taken();
        // Each batch reads ahead with half of its share; batches that had a larger share hold more.
        if inner.held.load(Ordering::Relaxed) > inner.total / 2 {
            taken.end_stalled();
        }
        if *taken.count(sender) >= most {
            if sender == Sender::Client {
                taken.end_stalled();
            }
            return None;
        }
        *taken.count(sender) += 1;
        taken.next += 1;
        let number = taken.next;
        taken.live.insert(number, progress.clone());
        Some(number)
    }

    fn share(&self, number: u64, progress: Arc<Progress>, request: RequestMemory) -> Share {
        self.0.metrics.batches(1);
        Share { inner: self.0.clone(), number, progress, _request: request }
    }
}

fn busy(why: &str) -> Error {
    Error::new(ErrorCode::TooManyRequests, why)
        .retry_after(1)
        .hint("retry later, or raise limits.batches and limits.batch_memory")
}

/// The memory limit of one batch. Released when dropped.
pub(crate) struct Share {
    inner: Arc<Inner>,
    number: u64,
    progress: Arc<Progress>,
    _request: RequestMemory,
}

/// Bytes that a batch holds, counted among those of all batches.
pub(crate) struct HeldBytes {
    inner: Arc<Inner>,
    bytes: usize,
}

impl HeldBytes {
    /// Counts bytes that are about to be read: `bytes` in all, or as many as all batches together
    /// have memory for. Returns the number counted; the batch may hold so many until it calls
    /// [`set`](Self::set).
    pub(crate) fn reserve(&mut self, bytes: usize) -> usize {
        let total = self.inner.total;
        let usable = total - total / FIRST_ENTRIES;
        let more = bytes.saturating_sub(self.bytes);
        let granted = |held: usize| more.min(usable.saturating_sub(held));
        let add = |held: usize| Some(held + granted(held));
        // `add` never refuses.
        let (Ok(before) | Err(before)) =
            self.inner.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let granted = granted(before);
        self.inner.metrics.batch_bytes(granted as i64);
        self.bytes += granted;
        self.bytes
    }

    /// Sets the number of bytes.
    pub(crate) fn set(&mut self, bytes: usize) {
        // Wraps both ways, so that the sum is right.
        let more = bytes.wrapping_sub(self.bytes);
        if more == 0 {
            return;
        }
        self.inner.held.fetch_add(more, Ordering::Relaxed);
        self.inner.metrics.batch_bytes(more as i64);
        self.bytes = bytes;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Share {
    /// Counts bytes of entries that are read and not sent yet.
    pub(crate) fn held(&self) -> HeldBytes {
        HeldBytes { inner: self.inner.clone(), bytes: 0 }
    }

    /// Waits until the client has taken the bytes of `send`. Meanwhile the batch may be ended in
    /// favor of another.
    pub(crate) async fn while_client_reads<T>(&self, send: impl Future<Output = T>) -> T {
        let mut send = pin!(send);
        if let Some(sent) = send.as_mut().now_or_never() {
            return sent;
        }
        self.waits_for_client(true);
        let sent = send.await;
        self.waits_for_client(false);
        sent
    }

    /// Sets whether sent bytes are waiting for the client.
    pub(crate) fn waits_for_client(&self, waits: bool) {
        self.progress.set_stalled(waits);
    }

    fn bytes(&self) -> usize {
        let taken = self.inner.taken();
        (self.inner.total / (taken.clients + taken.nodes).max(1))
            .clamp(MIN_BATCH_BYTES, MAX_BATCH_BYTES)
    }

    /// Most bytes of entries that are read and not sent yet.
    pub(crate) fn ahead(&self) -> usize {
        self.bytes() / 2
    }

    /// Entries up to this size are read ahead as a whole; larger ones are sent in chunks.
    pub(crate) fn whole(&self) -> usize {
        (self.bytes() / 16).clamp(64 << 10, 1 << 20)
    }

    /// Entries that may be read as a whole at the same time.
    pub(crate) fn max_parallel(&self) -> usize {
        self.bytes() / self.whole()
    }

    /// Bytes sent at once. Up to three times as many are in flight.
    pub(crate) fn frame(&self) -> usize {
        (self.bytes() / 8).clamp(32 << 10, 256 << 10)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        {
            let mut taken = self.inner.taken();
            *taken.count(self.progress.sender) -= 1;
            taken.live.remove(&self.number);
        }
        self.inner.freed.notify_waiters();
        self.inner.metrics.batches(-1);
    }
}

#[cfg(test)]
mod tests;

//! The waits of Python threads for the cluster, divided by what they waited for. They are kept for
//! each thread while [`observe`] is on, and `_core.take_waits` takes them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_client::{Recorder, WaitSplit};
use pyo3::prelude::*;

/// Most waits that a thread keeps; further ones are added to the last.
const MAX_WAITS: usize = 1024;
/// Waits with a shorter gap between them are kept as one.
const JOINED_GAP: Duration = Duration::from_micros(50);

/// Set once a loop of the process is observed. A forked child inherits it.
static IS_ON: AtomicBool = AtomicBool::new(false);

struct Wait {
    started: Instant,
    ended: Instant,
    split: WaitSplit,
}

impl Wait {
    fn is_followed_by(&self, next: &Self) -> bool {
        next.started.saturating_duration_since(self.ended) < JOINED_GAP
    }

    fn join(&mut self, next: &Self) {
        self.ended = next.ended;
        self.split.cold += next.split.cold;
        self.split.disk += next.split.disk;
        self.split.queue += next.split.queue;
        self.split.network += next.split.network;
        self.split.client += next.split.client;
    }
}

thread_local! {
    static WAITS: RefCell<Vec<Wait>> = const { RefCell::new(Vec::new()) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// A recorder for a call, if waits are observed.
pub(crate) fn recorder() -> Option<Arc<Recorder>> {
    IS_ON.load(Ordering::Relaxed).then(Arc::default)
}

/// The call in the scope of the recorder; also returns when the call ended.
pub(crate) async fn observed<F: Future>(
    recorder: Option<Arc<Recorder>>,
    call: F,
) -> (F::Output, Instant) {
    let output = match recorder {
        Some(recorder) => recorder.scope(call).await,
        None => call.await,
    };
    (output, Instant::now())
}

/// Keeps a wait of this thread for a call.
pub(crate) fn waited(recorder: &Recorder, started: Instant, ended: Instant) {
    push(Wait { started, ended, split: recorder.split(started, ended) });
}

/// The start of work of this thread on received bytes, if waits are observed.
pub(crate) fn work() -> Option<Instant> {
    IS_ON.load(Ordering::Relaxed).then(Instant::now)
}

/// Keeps work of this thread on `bytes` received bytes.
pub(crate) fn worked(started: Option<Instant>, bytes: usize) {
    let Some(started) = started else { return };
    BYTES.set(BYTES.get() + bytes as u64);
    let ended = Instant::now();
    let split = WaitSplit { client: ended - started, ..WaitSplit::default() };
    push(Wait { started, ended, split });
}

fn push(wait: Wait) {
    WAITS.with_borrow_mut(|waits| {
        let is_full = waits.len() >= MAX_WAITS;
        match waits.last_mut() {
            Some(last) if is_full || last.is_followed_by(&wait) => last.join(&wait),
            _ => waits.push(wait),
        }
    });
}

/// Begins to keep the waits of all threads of this process.
#[pyfunction]
pub(crate) fn observe_waits() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Seconds: start and end on the clock of `now`, then cold, disk, queue, network and client.
type WaitTuple = (f64, f64, f64, f64, f64, f64, f64);

/// Takes the waits of this thread, in their order, and the bytes that it received since the last
/// call. `now` is the caller's monotonic clock in seconds.
#[pyfunction]
pub(crate) fn take_waits(now: f64) -> (Vec<WaitTuple>, u64) {
    let here = Instant::now();
    let at = |then: Instant| now - here.saturating_duration_since(then).as_secs_f64();
    let seconds = |time: Duration| time.as_secs_f64();
    let waits = WAITS.with_borrow_mut(std::mem::take);
    let waits = waits.into_iter().map(|Wait { started, ended, split }| {
        let WaitSplit { cold, disk, queue, network, client } = split;
        let [cold, disk, queue, network, client] =
            [cold, disk, queue, network, client].map(seconds);
        (at(started), at(ended), cold, disk, queue, network, client)
    });
    (waits.collect(), BYTES.take())
}

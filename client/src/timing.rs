//! The waits of a caller: the exchanges of a call, with the stages that the targets report.
//!
//! A call is observed if it runs in the scope of a [`Recorder`]. Then its requests ask targets for the
//! times of their stages, and the recorder keeps when each exchange began, when its last bytes
//! arrived, and these stages. [`Recorder::split`] divides a wait of the caller by them. Without a
//! recorder nothing is asked for and nothing is kept.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;
use forebay_core::timing::{StageTimes, TIMING_HEADER};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Most exchanges that a recorder keeps; older ones give way.
const MAX_EXCHANGES: usize = 256;

tokio::task_local! {
    static RECORDER: Arc<Recorder>;
}

/// A wait of a caller, by what it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitSplit {
    /// A target waited for the cloud.
    pub cold: Duration,
    /// A target waited for its disk.
    pub disk: Duration,
    /// The request waited at a target, or because a target was busy, or the target worked.
    pub queue: Duration,
    /// Requests and bytes were on the network.
    pub network: Duration,
    /// The client decoded and copied.
    pub client: Duration,
}

impl WaitSplit {
    /// The whole wait.
    pub fn total(&self) -> Duration {
        self.cold + self.disk + self.queue + self.network + self.client
    }
}

/// One request and its answer.
#[derive(Debug)]
struct Exchange {
    number: u64,
    started: Instant,
    /// When the last bytes arrived.
    ended: Instant,
    stages: StageTimes,
    /// The part of `stages` that an earlier split had.
    split: StageTimes,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Recorded {
    exchanges: VecDeque<Exchange>,
    next: u64,
    /// Time in which the caller worked and did not wait.
    client: Duration,
}

/// The exchanges of a call.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Recorded>);

impl Recorder {
    /// Observes a call.
    pub fn scope<F: Future>(self: &Arc<Self>, call: F) -> impl Future<Output = F::Output> + use<F> {
        RECORDER.scope(self.clone(), call)
    }

    /// Observes the start of a call: what `start` spawns in this crate is observed, too.
    pub fn sync_scope<T>(self: &Arc<Self>, start: impl FnOnce() -> T) -> T {
        RECORDER.sync_scope(self.clone(), start)
    }

    /// Divides a wait of the caller by the exchanges that it waited for: backwards from its end, the
    /// exchange that ended last. Exchanges that are over are forgotten.
    pub fn split(&self, from: Instant, to: Instant) -> WaitSplit {
        let mut recorded = self.0.locked();
        let worked = std::mem::take(&mut recorded.client);
        let mut split = WaitSplit::default();
        let mut now = to;
        while now > from {
            let before = recorded.exchanges.iter().filter(|exchange| exchange.started < now);
            let Some(last) = before.max_by_key(|exchange| exchange.ended.min(now)) else {
                // Before the first request: connections and maps.
                split.network += now - from;
                break;
            };
            let ended = last.ended.min(now).max(from);
            // After the last bytes of all.
            split.client += now - ended;
            let started = last.started.max(from).min(ended);
            last.add_part(ended - started, &mut split);
            now = started;
        }
        let moved = worked.min(split.network);
        split.network -= moved;
        split.client += moved;
        recorded.exchanges.retain_mut(|exchange| {
            (exchange.started, exchange.split) = (to, exchange.stages);
            !exchange.is_over
        });
        split
    }

    fn update(&self, number: u64, change: impl FnOnce(&mut Exchange)) {
        let mut recorded = self.0.locked();
        if let Some(exchange) = recorded.exchanges.iter_mut().find(|one| one.number == number) {
            change(exchange);
        }
    }

    fn add(&self, started: Instant, ended: Instant, stages: StageTimes, is_over: bool) -> u64 {
        let mut recorded = self.0.locked();
        let number = recorded.next;
        recorded.next += 1;
        if recorded.exchanges.len() == MAX_EXCHANGES {
            recorded.exchanges.pop_front();
        }
        let split = StageTimes::default();
        let exchange = Exchange { number, started, ended, stages, split, is_over };
        recorded.exchanges.push_back(exchange);
        number
    }
}

impl Exchange {
    /// Adds a part of this exchange's time, divided as the whole of it is.
    fn add_part(&self, part: Duration, split: &mut WaitSplit) {
        let stages = self.stages.since(&self.split);
        // Clocks of two machines never run equally.
        let whole = self.ended.saturating_duration_since(self.started).max(stages.total());
        let share = |stage: Duration| match whole.is_zero() {
            true => Duration::ZERO,
            false => part.mul_f64(stage.as_secs_f64() / whole.as_secs_f64()).min(part),
        };
        let (cold, disk) = (share(stages.cold), share(stages.disk));
        let queue = share(stages.queue + stages.rest);
        split.cold += cold;
        split.disk += disk;
        split.queue += queue;
        split.network += part.saturating_sub(cold + disk + queue);
    }
}

/// An observed exchange that is under way.
#[derive(Debug)]
pub(crate) struct Timed {
    recorder: Arc<Recorder>,
    number: u64,
    stages: StageTimes,
    is_cold_body: bool,
}

/// Starts an exchange, if the caller is observed.
pub(crate) fn begin() -> Option<Timed> {
    let recorder = RECORDER.try_with(Arc::clone).ok()?;
    let now = Instant::now();
    let number = recorder.add(now, now, StageTimes::default(), false);
    Some(Timed { recorder, number, stages: StageTimes::default(), is_cold_body: false })
}

impl Timed {
    /// Takes in the head of the answer.
    pub(crate) fn answered(&mut self, headers: &HeaderMap) {
        let value = headers.get(TIMING_HEADER).and_then(|value| value.to_str().ok());
        if let Some(value) = value {
            (self.stages, self.is_cold_body) = StageTimes::parse_header(value);
        }
        self.arrived();
    }

    /// Records that bytes arrived, after a wait for them.
    pub(crate) fn came(&mut self, waited: Duration) {
        if self.is_cold_body {
            self.stages.cold += waited;
        }
        self.arrived();
    }

    /// The stages so far, as the target reported them within the answer.
    pub(crate) fn reported(&mut self, stages: StageTimes) {
        self.stages = stages;
        self.arrived();
    }

    /// Records that the target refused the request, because it was busy or not.
    pub(crate) fn refused(&mut self, is_busy: bool) {
        let stages = &mut self.stages;
        self.recorder.update(self.number, |exchange| {
            exchange.ended = Instant::now();
            if is_busy {
                stages.queue = exchange.ended - exchange.started;
            }
            exchange.stages = *stages;
        });
    }

    fn arrived(&self) {
        self.recorder.update(self.number, |exchange| {
            exchange.ended = Instant::now();
            exchange.stages = self.stages;
        });
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.recorder.update(self.number, |exchange| exchange.is_over = true);
    }
}

/// Whether the caller is observed.
pub(crate) fn is_observed() -> bool {
    RECORDER.try_with(|_| ()).is_ok()
}

/// Asks the target for the times of its stages.
pub(crate) fn ask(headers: &mut HeaderMap) {
    headers.insert(HeaderName::from_static(TIMING_HEADER), HeaderValue::from_static("1"));
}

/// The start of work of the caller, if the caller is observed.
pub(crate) fn work() -> Option<Instant> {
    is_observed().then(Instant::now)
}

/// Counts work of the caller that began at `started`, and so does not wait.
pub(crate) fn worked(started: Option<Instant>) {
    let Some(started) = started else { return };
    let _ = RECORDER.try_with(|recorder| recorder.0.locked().client += started.elapsed());
}

/// Counts a pause before another try; `is_busy`: the target was busy.
pub(crate) fn paused(started: Instant, is_busy: bool) {
    let ended = Instant::now();
    let queue = if is_busy { ended - started } else { Duration::ZERO };
    let stages = StageTimes { queue, ..StageTimes::default() };
    let _ = RECORDER.try_with(|recorder| recorder.add(started, ended, stages, true));
}

/// The task in the scope of the caller's recorder, if there is one.
pub(crate) fn carried<F: Future + Send + 'static>(
    task: F,
) -> impl Future<Output = F::Output> + Send + 'static
where
    F::Output: Send,
{
    let recorder = RECORDER.try_with(Arc::clone).ok();
    async move {
        match recorder {
            Some(recorder) => RECORDER.scope(recorder, task).await,
            None => task.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn stages(queue: u64, cold: u64, disk: u64) -> StageTimes {
        StageTimes::from_micros([queue * 1000, cold * 1000, disk * 1000, 0])
    }

    #[test]
    fn a_wait_is_divided_by_the_exchange_that_ended_last() {
        let (recorder, start) = (Recorder::default(), Instant::now());
        recorder.add(start, start + 10 * MS, stages(0, 0, 9), true);
        recorder.add(start, start + 40 * MS, stages(2, 30, 0), true);
        let split = recorder.split(start, start + 42 * MS);
        assert_eq!((split.cold, split.queue, split.disk), (30 * MS, 2 * MS, Duration::ZERO));
        assert_eq!((split.network, split.client), (8 * MS, 2 * MS));
        assert_eq!(split.total(), 42 * MS);
        assert!(recorder.0.locked().exchanges.is_empty());
    }

    #[test]
    fn exchanges_one_after_the_other_each_have_their_part() {
        let (recorder, start) = (Recorder::default(), Instant::now());
        recorder.add(start + MS, start + 11 * MS, stages(10, 0, 0), true);
        recorder.add(start + 11 * MS, start + 31 * MS, stages(0, 0, 20), true);
        recorder.0.locked().client = 500 * MS;
        let split = recorder.split(start, start + 31 * MS);
        assert_eq!((split.queue, split.disk), (10 * MS, 20 * MS));
        // The wait before the first request, in which the client cannot have worked longer.
        assert_eq!((split.network, split.client), (Duration::ZERO, MS));
    }

    #[test]
    fn a_wait_for_the_end_of_an_exchange_is_divided_as_the_whole_of_it() {
        let (recorder, start) = (Recorder::default(), Instant::now());
        recorder.add(start, start + 100 * MS, stages(0, 50, 0), true);
        let split = recorder.split(start + 80 * MS, start + 100 * MS);
        assert_eq!((split.cold, split.network), (10 * MS, 10 * MS));
    }

    #[tokio::test]
    async fn times_of_a_stream_count_once() {
        let recorder = Arc::new(Recorder::default());
        let mut timed = recorder.scope(async { begin() }).await.expect("a recorder is there");
        let start = recorder.0.locked().exchanges[0].started;
        timed.reported(stages(0, 0, 0));
        for _ in 0..2 {
            tokio::time::sleep(5 * MS).await;
            let so_far = StageTimes { disk: timed.stages.disk + 4 * MS, ..timed.stages };
            timed.reported(so_far);
            let disk = recorder.split(start, Instant::now()).disk;
            assert!(disk > 3 * MS && disk <= 4 * MS, "{disk:?}");
        }
        drop(timed);
        recorder.split(start, Instant::now());
        assert!(recorder.0.locked().exchanges.is_empty());
        assert!(begin().is_none(), "outside of the scope nothing is observed");
    }
}

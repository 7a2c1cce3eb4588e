//! The native batch stream (`docs/batch-stream.md`), from objects of this target.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_core::batch::BatchRequest;
use forebay_core::batch_stream::{Encoder, MAX_PIECE, Row};
use forebay_core::timing::{ReadStage, StageTimes};
use forebay_core::{Error, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::trace;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;

use super::budget::Share;
use super::reading::Reading;
use super::{Loaded, Loader};

/// Frames in flight to a client that reads slowly; their bytes count in its share.
const FRAMES_AHEAD: usize = 1;

/// Parts of the response that are sent together.
type Parts = Vec<Bytes>;

/// Serves a batch. The work stops as soon as the returned stream is dropped.
///
/// Objects in memory are read within the call: a batch of few small objects needs no task of its
/// own.
pub(crate) fn answer(
    loader: Loader,
    request: BatchRequest,
    share: Share,
    times: Option<StageTimer>,
    lifecycle: &Lifecycle,
) -> impl Stream<Item = Result<Bytes>> + use<> {
    let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
    let mut work = Box::pin(write(loader, request, Arc::new(share), times, sender.clone()));
    if work.as_mut().now_or_never().is_none() {
        let stop = lifecycle.token();
        lifecycle.spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = stop.cancelled() => {}
                _ = work => {}
            }
        });
    }
    outgoing(receiver)
}

fn outgoing(receiver: mpsc::Receiver<Parts>) -> impl Stream<Item = Result<Bytes>> {
    let state = (receiver, Vec::new().into_iter());
    futures::stream::unfold(state, |(mut receiver, mut parts)| async move {
        loop {
            if let Some(part) = parts.next() {
                return Some((Ok(part), (receiver, parts)));
            }
            parts = receiver.recv().await?.into_iter();
        }
    })
}

/// Ends early (`None`) when the client is gone.
async fn write(
    loader: Loader,
    request: BatchRequest,
    share: Arc<Share>,
    times: Option<StageTimer>,
    out: mpsc::Sender<Parts>,
) -> Option<()> {
    let header = Encoder::header(loader.service.state().version);
    let encoder = Encoder::default();
    let mut frames = Frames { encoder, share: share.clone(), times, ready: vec![header], out };
    let wanted = (0..request.entries.len()).collect();
    let mut reading = Reading::new(loader, Arc::new(request), wanted, share);
    while let Some((index, loaded)) = next_or_flush(&mut reading, &mut frames).await? {
        let index = index as u32;
        match loaded {
            Ok(Loaded::Whole(bytes)) => frames.whole(index, bytes),
            Ok(Loaded::Stream { size, stage, stream }) => {
                frames.stream(index, size, stage, stream).await?;
            }
            Err(e) => frames.encoder.push(Row::failure(index, &e)),
        }
        frames.send_if_full().await?;
    }
    frames.end().await
}

/// The next result. If it has to wait, the ready bytes are sent to the client meanwhile.
async fn next_or_flush(
    reading: &mut Reading,
    frames: &mut Frames,
) -> Option<Option<(usize, Result<Loaded>)>> {
    let next = {
        let mut next = pin!(reading.next());
        if let Some(next) = next.as_mut().now_or_never() {
            return Some(next);
        }
        frames.send().await?;
        let started = Instant::now();
        (next.await, started)
    };
    let (next, started) = next;
    frames.waited(reading.stage(), started);
    Some(next)
}

/// The stages of a request whose client asked for them.
pub(crate) struct StageTimer {
    /// When the request had arrived.
    started: Instant,
    times: StageTimes,
    /// Time in which the client had to take bytes.
    sending: Duration,
}

impl StageTimer {
    /// Starts when the request has arrived.
    pub(crate) fn start() -> Self {
        let (times, sending) = (StageTimes::default(), Duration::ZERO);
        Self { started: Instant::now(), times, sending }
    }

    /// Everything so far was waiting for a place.
    pub(crate) fn admitted(&mut self) {
        self.times.queue = self.started.elapsed();
    }

    /// The stages so far.
    fn now(&self) -> StageTimes {
        let known = StageTimes { rest: Duration::ZERO, ..self.times }.total() + self.sending;
        StageTimes { rest: self.started.elapsed().saturating_sub(known), ..self.times }
    }
}

/// Rows that are being sent.
struct Frames {
    encoder: Encoder,
    share: Arc<Share>,
    /// `None`: the client did not ask for it.
    times: Option<StageTimer>,
    /// Bytes to be sent before the next frame.
    ready: Parts,
    out: mpsc::Sender<Parts>,
}

impl Frames {
    /// A whole object, split where it is larger than a chunk.
    fn whole(&mut self, index: u32, mut bytes: Bytes) {
        let total = bytes.len() as u64;
        loop {
            let piece = bytes.split_to(bytes.len().min(MAX_PIECE));
            let more = !bytes.is_empty();
            self.encoder.push(Row { index, status: 0, more, total, payload: piece });
            if !more {
                return;
            }
        }
    }

    async fn stream(
        &mut self,
        index: u32,
        total: u64,
        stage: ReadStage,
        mut stream: BoxStream<'static, Result<Bytes>>,
    ) -> Option<()> {
        let mut sent = 0;
        loop {
            let started = Instant::now();
            let Some(chunk) = stream.next().await else { break };
            self.waited(stage, started);
            let mut chunk = match chunk {
                Ok(chunk) => chunk,
                Err(e) => {
                    self.encoder.push(Row::failure(index, &e));
                    return Some(());
                }
            };
            while !chunk.is_empty() {
                let payload = chunk.split_to(chunk.len().min(MAX_PIECE));
                sent += payload.len() as u64;
                self.encoder.push(Row { index, status: 0, more: sent < total, total, payload });
            }
            self.send_if_full().await?;
        }
        if sent < total {
            let short = Error::internal(format!("{sent} of {total} bytes were read"));
            self.encoder.push(Row::failure(index, &short));
        }
        Some(())
    }

    async fn send_if_full(&mut self) -> Option<()> {
        if self.encoder.is_full(self.share.frame()) { self.send().await } else { Some(()) }
    }

    async fn send(&mut self) -> Option<()> {
        self.ready.extend(self.encoder.flush());
        if self.ready.is_empty() {
            return Some(());
        }
        self.push_times();
        let started = self.times.as_ref().map(|_| Instant::now());
        let sent = self.out.send(std::mem::take(&mut self.ready));
        let sent = self.share.while_client_reads(sent).await.ok();
        if let (Some(times), Some(started)) = (&mut self.times, started) {
            times.sending += started.elapsed();
        }
        sent
    }

    /// Counts a wait that began at `started`.
    fn waited(&mut self, stage: ReadStage, started: Instant) {
        trace::stage(stage.span_name(), started);
        if let Some(timer) = &mut self.times {
            timer.times.add(stage, started.elapsed());
        }
    }

    fn push_times(&mut self) {
        if let Some(times) = &self.times {
            self.ready.push(Encoder::times(&times.now()));
        }
    }

    async fn end(mut self) -> Option<()> {
        self.ready.extend(self.encoder.flush());
        self.push_times();
        self.ready.push(self.encoder.end());
        self.share.while_client_reads(self.out.send(self.ready)).await.ok()
    }
}

//! The one thread of a disk that changes its log and its index.
//!
//! It takes the changes that gathered while it wrote the last group, appends all of them with one
//! write, syncs once if any of them must survive a power cut, and puts them into the index in one
//! batch. So a group grows with the load, and no change waits just to fill a group.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use forebay_core::{Error, Result};
use futures_executor::block_on;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::change::{Change, Outcome};
use super::engine::Engine;
use super::shared::Shared;
use super::space::Reservation;

/// Requests that may wait; with payloads of at most [`super::format::INLINE_MAX_BYTES`] this bounds their memory.
const QUEUE: usize = 512;
/// A group ends with the request that reaches one of these.
const GROUP_BYTES: usize = 1 << 20;
const GROUP_CHANGES: usize = 1024;

/// Changes of one caller, made together.
pub(crate) struct Request {
    pub(crate) changes: Vec<Change>,
    /// Released when the accounts include the written bytes, before the reply.
    held: Vec<Reservation>,
    reply: oneshot::Sender<Result<Vec<Outcome>>>,
    /// The caller blocks its thread, which may be the only thread of its runtime.
    blocks: bool,
}

/// A request and its result.
pub(crate) struct Answer(pub(crate) Request, pub(crate) Result<Vec<Outcome>>);

impl Answer {
    fn give(self) {
        let Self(request, outcomes) = self;
        drop(request.held);
        // The caller may have gone away; the changes are made nevertheless.
        drop(request.reply.send(outcomes));
    }
}

/// Sends the replies of a group. A task of the runtime does it: from a thread outside the runtime,
/// waking each caller costs a system call, and the disk would be idle meanwhile.
pub(crate) struct Answers(Option<mpsc::UnboundedSender<Vec<Answer>>>);

impl Answers {
    /// Starts the task, where more than one thread runs tasks.
    fn start() -> Self {
        let runtime = Handle::try_current().ok();
        let runtime = runtime.filter(|r| r.runtime_flavor() == RuntimeFlavor::MultiThread);
        Self(runtime.map(|runtime| {
            let (sender, mut groups) = mpsc::unbounded_channel::<Vec<Answer>>();
            runtime.spawn(async move {
                while let Some(group) = groups.recv().await {
                    group.into_iter().for_each(Answer::give);
                }
            });
            sender
        }))
    }

    pub(crate) fn give(&self, answers: impl Iterator<Item = Answer>) {
        let (now, later): (Vec<_>, Vec<_>) = answers.partition(|Answer(request, _)| request.blocks);
        let left = match &self.0 {
            Some(task) if later.len() > 1 => task.send(later).err().map(|e| e.0),
            _ => Some(later),
        };
        now.into_iter().chain(left.into_iter().flatten()).for_each(Answer::give);
    }
}

/// The handle that passes changes to the thread. Dropping it waits for the thread's end.
pub(crate) struct Committer {
    retired: CancellationToken,
    sender: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread over a disk whose index has all of the log.
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let retired = shared.condition.retired().clone();
        let name = format!("disk-{}", shared.number);
        let engine = Engine::new(shared, Answers::start());
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(engine, receiver))
            .map_err(|e| Error::internal(format!("no thread for a disk: {e}")))?;
        Ok(Self { retired, sender: Some(sender), thread: Some(thread) })
    }

    /// Makes changes. Returns when they are made and, where their class requires it, synced. They
    /// are made even if the future is dropped. Returns one outcome for each change, in order.
    pub(crate) async fn submit(
        &self,
        changes: Vec<Change>,
        held: Vec<Reservation>,
    ) -> Result<Vec<Outcome>> {
        self.ask(changes, held, false).await
    }

    async fn ask(
        &self,
        changes: Vec<Change>,
        held: Vec<Reservation>,
        blocks: bool,
    ) -> Result<Vec<Outcome>> {
        let (reply, answer) = oneshot::channel();
        let sender = self.sender.as_ref().ok_or_else(stopped)?;
        let request = Request { changes, held, reply, blocks };
        let answered = async {
            sender.send(request).await.map_err(|_| stopped())?;
            answer.await.map_err(|_| stopped())?
        };
        tokio::select! {
            biased;
            outcomes = answered => outcomes,
            // The disk may hang, and with it the thread.
            () = self.retired.cancelled() => Err(stopped()),
        }
    }

    /// [`Self::submit`] for callers on a thread that may block and hold no reservation.
    pub(crate) fn submit_blocking(&self, changes: Vec<Change>) -> Result<Vec<Outcome>> {
        block_on(self.ask(changes, Vec::new(), true))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a disk panicked");
        }
    }
}

fn stopped() -> Error {
    Error::unavailable("the disk is being closed")
}

/// Commits the gathered requests in groups, until all senders are gone.
fn run(mut engine: Engine, mut receiver: mpsc::Receiver<Request>) {
    let mut next = receiver.blocking_recv();
    while let Some(first) = next.take() {
        let mut group = Group::default();
        group.take(first);
        while !group.is_full() {
            match receiver.try_recv() {
                Ok(request) if group.has_object_of(&request) => {
                    next = Some(request);
                    break;
                }
                Ok(request) => group.take(request),
                Err(_) => break,
            }
        }
        engine.commit(group.requests);
        if next.is_none() {
            next = receiver.blocking_recv();
        }
    }
    engine.end();
}

/// Requests that are written together; no object is in two of them.
#[derive(Default)]
struct Group {
    requests: Vec<Request>,
    /// Digests of objects. Two objects with the same digest are treated as one.
    objects: HashSet<u64>,
    changes: usize,
    bytes: usize,
}

impl Group {
    fn take(&mut self, request: Request) {
        for change in &request.changes {
            self.objects.extend(change.digest());
            self.changes += 1;
            self.bytes += change.payload();
        }
        self.requests.push(request);
    }

    fn is_full(&self) -> bool {
        self.bytes >= GROUP_BYTES || self.changes >= GROUP_CHANGES
    }

    fn has_object_of(&self, request: &Request) -> bool {
        let mut digests = request.changes.iter().filter_map(Change::digest);
        digests.any(|digest| self.objects.contains(&digest))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked(blocks: bool) -> (Answer, oneshot::Receiver<Result<Vec<Outcome>>>) {
        let (reply, receiver) = oneshot::channel();
        let request = Request { changes: Vec::new(), held: Vec::new(), reply, blocks };
        (Answer(request, Ok(Vec::new())), receiver)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn who_blocks_the_only_thread_of_a_runtime_has_its_answer_all_the_same() {
        let answers = Answers::start();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (started, has_started) = oneshot::channel();
        let blocking = tokio::spawn(async move {
            started.send(()).unwrap();
            wait.recv().unwrap();
        });
        has_started.await.unwrap();
        let (all, mut receivers): (Vec<_>, Vec<_>) =
            [false, true, false].map(asked).into_iter().unzip();
        answers.give(all.into_iter());
        assert!(receivers[1].try_recv().unwrap().is_ok());
        assert!(receivers[0].try_recv().is_err(), "a task answers these");
        release.send(()).unwrap();
        blocking.await.unwrap();
        for receiver in receivers.into_iter().step_by(2) {
            assert!(receiver.await.unwrap().is_ok());
        }
    }
}

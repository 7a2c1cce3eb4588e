//! The one thread of a disk that changes its log and its index.
//!
//! It takes what has gathered while it wrote the last group, appends all of it with one write,
//! syncs once if anything in it must survive a power cut, and puts it into the index in one batch.
//! So a group grows with the load, and nobody waits for the sake of grouping.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};

use bytes::Bytes;
use forebay_core::bucket::Class;
use forebay_core::{Error, ErrorCode, Result};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::apply::{Applied, Applier};
use super::format;
use super::log::{Entry, Item, Position};
use super::recency::Touch;
use super::record::{Place, Record, RecordMeta, Spot};
use super::shared::Shared;
use super::space::Reservation;
use super::work::Filling;

/// Requests that may wait; with payloads of at most [`format::SMALL`] this bounds their memory.
const QUEUE: usize = 512;
/// A group ends with the request that reaches one of these.
const GROUP_BYTES: usize = 1 << 20;
const GROUP_CHANGES: usize = 1024;

pub(crate) type MetaChange = Box<dyn FnOnce(&mut RecordMeta) + Send>;

/// One change of a disk.
pub(crate) enum Change {
    /// A commit. The payload is empty when the record's place is in files; the new ones of them
    /// come along and are moved to their places when the log has the record. A `sequence` (and
    /// then a `generation`) of 0 is filled in. `stray`: another disk has an older copy.
    Put { record: Box<Record>, payload: Bytes, files: Vec<Filling>, stray: bool },
    /// A removal; of this commit only if `generation` is given.
    Remove { bucket_id: u64, name: String, generation: Option<u64> },
    /// A change of the metadata of this very commit.
    Update { record: Box<Record>, change: MetaChange },
    /// Times of access, by key: index only.
    Times(Vec<(Vec<u8>, Touch)>),
    /// Compaction: the same record at the head of the log, if it is current.
    Move { record: Box<Record>, payload: Bytes },
    /// Compaction: the same removal at the head of the log, if it still hides something.
    Bury { from: u64, bucket_id: u64, name: String, sequence: u64 },
    /// Compaction: nothing of this segment is needed any more.
    Release { segment: u64 },
    /// No other disk has an older copy of this key.
    Unstray { key: Vec<u8> },
}

/// What became of a change; both are absent when there was nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) new: Option<Record>,
    pub(crate) old: Option<Record>,
}

struct Request {
    changes: Vec<Change>,
    /// Given back when the accounts have what was written, before the answer.
    held: Vec<Reservation>,
    reply: oneshot::Sender<Result<Vec<Outcome>>>,
}

impl Request {
    fn answer(self, outcomes: Result<Vec<Outcome>>) {
        drop(self.held);
        // Nobody may be waiting any more; what was done is done.
        drop(self.reply.send(outcomes));
    }
}

/// The hand that gives changes to the thread. Dropping it waits for the thread's end.
pub(crate) struct Committer {
    retired: CancellationToken,
    sender: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread over a disk whose index has all of the log.
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let retired = shared.retired.clone();
        let engine = Engine { shared, tight: false, unlinked: Vec::new(), unremoved: Vec::new() };
        let name = format!("disk-{}", engine.shared.number);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || engine.run(receiver))
            .map_err(|e| Error::internal(format!("no thread for a disk: {e}")))?;
        Ok(Self { retired, sender: Some(sender), thread: Some(thread) })
    }

    /// Makes changes; returns when they are made and, where their class asks for it, synced.
    /// They are made even if the future is dropped. One outcome for each change, in order.
    pub(crate) async fn submit(
        &self,
        changes: Vec<Change>,
        held: Vec<Reservation>,
    ) -> Result<Vec<Outcome>> {
        let (reply, answer) = oneshot::channel();
        let sender = self.sender.as_ref().ok_or_else(stopped)?;
        let request = Request { changes, held, reply };
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
        block_on(self.submit(changes, Vec::new()))
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

/// Drives a future of channels on a thread that may block.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn stopped() -> Error {
    Error::unavailable("the disk is being closed")
}

struct Engine {
    shared: Arc<Shared>,
    /// The file system is nearly full: as of the group at hand.
    tight: bool,
    /// Doomed files that are gone: the next batch may forget them.
    unlinked: Vec<u64>,
    /// Segments that were released and could not be removed yet.
    unremoved: Vec<u64>,
}

/// A change after a look at what is there.
enum Step {
    Nothing,
    Append { item: Item, files: Vec<Filling>, stray: bool },
    Refresh { records: Vec<Record>, tell: bool },
    Release(u64),
    Unstray(Vec<u8>),
}

/// A request after a look at what is there.
struct Plan {
    request: Request,
    steps: Vec<Step>,
    /// Something in it must survive a power cut before it is answered.
    durable: bool,
}

impl Engine {
    fn run(mut self, mut receiver: mpsc::Receiver<Request>) {
        let mut next = receiver.blocking_recv();
        while let Some(first) = next.take() {
            let mut group = Group::default();
            group.take(first);
            while !group.is_full() {
                match receiver.try_recv() {
                    Ok(request) if group.has_key_of(&request) => {
                        next = Some(request);
                        break;
                    }
                    Ok(request) => group.take(request),
                    Err(_) => break,
                }
            }
            self.commit(group);
            if next.is_none() {
                next = receiver.blocking_recv();
            }
        }
    }

    /// Makes the changes of a group: first those that need no sync, so that none waits for one.
    fn commit(&mut self, group: Group) {
        let (mut quick, mut durable) = (Vec::new(), Vec::new());
        self.tight = self.shared.is_tight();
        if self.tight && group.requests.iter().flat_map(|r| &r.changes).any(|c| !c.needs_room()) {
            self.shared.give_up_reserve();
        }
        for mut request in group.requests {
            match self.plan(&mut request.changes) {
                Ok((steps, true)) => durable.push(Plan { request, steps, durable: true }),
                Ok((steps, false)) => quick.push(Plan { request, steps, durable: false }),
                Err(e) => request.answer(Err(e)),
            }
        }
        for plans in [quick, durable] {
            if plans.is_empty() {
                continue;
            }
            let (requests, steps): (Vec<_>, Vec<_>) =
                plans.into_iter().map(|p| ((p.request, p.durable), p.steps)).unzip();
            let durable = requests.iter().any(|(_, durable)| *durable);
            match self.write(steps, durable) {
                Ok(outcomes) => {
                    for ((request, _), outcomes) in requests.into_iter().zip(outcomes) {
                        request.answer(Ok(outcomes));
                    }
                }
                Err(e) => {
                    for (request, _) in requests {
                        request.answer(Err(e.clone()));
                    }
                }
            }
        }
    }

    /// Decides what each change comes to; true: the request must be synced.
    fn plan(&self, changes: &mut Vec<Change>) -> Result<(Vec<Step>, bool)> {
        self.shared.check_alive()?;
        let mut durable = false;
        let mut steps = Vec::with_capacity(changes.len());
        if self.tight && changes.iter().any(Change::needs_room) {
            let bytes: usize = changes.iter().map(Change::payload).sum();
            self.shared.room.note_full(bytes as u64);
            let text = format!("the file system of {} is full", self.shared.root.display());
            return Err(Error::new(ErrorCode::OutOfSpace, text).hint("free space on it"));
        }
        for change in changes.drain(..) {
            let (step, owned) = self.plan_one(change)?;
            durable |= owned;
            steps.push(step);
        }
        Ok((steps, durable))
    }

    fn plan_one(&self, change: Change) -> Result<(Step, bool)> {
        let shared = &self.shared;
        Ok(match change {
            Change::Put { mut record, payload, files, stray } => {
                if record.sequence == 0 {
                    record.sequence = shared.next_sequence();
                }
                if record.generation == 0 {
                    record.generation = record.sequence;
                }
                let owned = is_owned(&record);
                let item = Item { entry: Entry::Put(record), payload };
                format::check_entry(&item.entry)?;
                let stray = stray || shared.is_partial();
                (Step::Append { item, files, stray }, owned)
            }
            Change::Remove { bucket_id, name, generation } => {
                let current = shared.index.get(&format::key(bucket_id, &name))?;
                match current.filter(|r| generation.is_none_or(|g| g == r.generation)) {
                    None => (Step::Nothing, false),
                    Some(current) => {
                        let sequence = shared.next_sequence();
                        let entry = Entry::Remove { bucket_id, name, sequence };
                        let (item, files) = (Item { entry, payload: Bytes::new() }, Vec::new());
                        let stray = shared.is_partial();
                        (Step::Append { item, files, stray }, is_owned(&current))
                    }
                }
            }
            Change::Update { record, change } => self.plan_update(&record, change)?,
            Change::Times(touches) => {
                (Step::Refresh { records: self.plan_times(touches)?, tell: false }, false)
            }
            Change::Move { record, payload } => match shared.current(&record)? {
                Some(now) if now.sequence == record.sequence && now.spot() == record.spot() => {
                    // The index may last before the log does, and then names the copy alone.
                    let owned = is_owned(&now);
                    (append(Entry::Put(Box::new(now)), payload), owned)
                }
                _ => (Step::Nothing, false),
            },
            Change::Bury { from, bucket_id, name, sequence } => {
                // What should be gone and is still there would be seen again by a rebuild.
                let left = shared.left_behind.load(Ordering::Relaxed);
                if left || !self.unremoved.is_empty() || shared.tally().hides(from, sequence) {
                    (append(Entry::Remove { bucket_id, name, sequence }, Bytes::new()), false)
                } else {
                    (Step::Nothing, false)
                }
            }
            Change::Release { segment } => {
                let live = shared.tally().segments.get(&segment).map_or(0, |s| s.live);
                (if live == 0 { Step::Release(segment) } else { Step::Nothing }, true)
            }
            Change::Unstray { key } => (Step::Unstray(key), false),
        })
    }

    /// Metadata that must survive the loss of the index is logged when the class is `Owned`.
    fn plan_update(&self, record: &Record, change: MetaChange) -> Result<(Step, bool)> {
        let Some(mut now) = self.shared.current(record)? else { return Ok((Step::Nothing, false)) };
        let (before, was_evictable) = (now.meta.clone(), now.evictable());
        change(&mut now.meta);
        if !is_owned(&now) || now.meta.same_lasting(&before) {
            let tell = now.evictable() != was_evictable;
            return Ok((Step::Refresh { records: vec![now], tell }, false));
        }
        let payload = match &now.place {
            Place::Files(..) => Bytes::new(),
            Place::Log(spot) => match self.shared.log.read(spot, now.size)? {
                Some((_, payload)) => payload,
                None => return Ok((Step::Nothing, false)),
            },
        };
        now.sequence = self.shared.next_sequence();
        let entry = Entry::Put(Box::new(now));
        format::check_entry(&entry)?;
        Ok((append(entry, payload), true))
    }

    fn plan_times(&self, touches: Vec<(Vec<u8>, Touch)>) -> Result<Vec<Record>> {
        let mut records = Vec::with_capacity(touches.len());
        for (key, touch) in touches {
            let current = self.shared.index.get(&key)?;
            if let Some(mut record) = current.filter(|r| r.generation == touch.generation) {
                record.meta.atime_ns = record.meta.atime_ns.max(touch.atime_ns);
                records.push(record);
            }
        }
        Ok(records)
    }

    /// Log, sync, index, files: in this order. One list of outcomes for each list of steps.
    fn write(&mut self, plans: Vec<Vec<Step>>, durable: bool) -> Result<Vec<Vec<Outcome>>> {
        let mut items = Vec::new();
        let mut rest = Vec::with_capacity(plans.len());
        for steps in plans {
            let steps: Vec<Rest> = steps
                .into_iter()
                .map(|step| match step {
                    Step::Append { item, files, stray } => {
                        items.push(item);
                        Rest::Appended { files, stray }
                    }
                    Step::Nothing => Rest::Nothing,
                    Step::Refresh { records, tell } => Rest::Refresh { records, tell },
                    Step::Release(segment) => Rest::Release(segment),
                    Step::Unstray(key) => Rest::Unstray(key),
                })
                .collect();
            rest.push(steps);
        }
        let spots = self.append(&items)?;
        // From here on the log may name these files, whatever happens.
        for file in rest.iter_mut().flatten().flat_map(Rest::files) {
            file.handed_over = true;
        }
        if durable && let Err(e) = self.shared.log.sync() {
            self.shared.give_up(&e);
            return Err(e);
        }
        let appended = items.into_iter().zip(spots);
        let (outcomes, after) = match self.index(rest, appended) {
            Ok(done) => done,
            Err(e) => {
                // The log is ahead of the index now, and only opening the disk puts that right.
                self.shared.give_up(&e);
                return Err(e);
            }
        };
        self.finish(after);
        self.shared.progress.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }

    fn append(&self, items: &[Item]) -> Result<Vec<Spot>> {
        let shared = &self.shared;
        match shared.log.append(items) {
            Err(e) if e.code == ErrorCode::OutOfSpace => {
                let bytes: usize = items.iter().map(|i| i.payload.len()).sum();
                shared.room.note_full(bytes as u64);
                // New objects are turned away from the next group on.
                if shared.give_up_reserve() { shared.log.append(items) } else { Err(e) }
            }
            other => other.inspect_err(|e| shared.suspect_if(e)),
        }
    }

    fn index(
        &mut self,
        plans: Vec<Vec<Rest>>,
        mut appended: impl Iterator<Item = (Item, Spot)>,
    ) -> Result<(Vec<Vec<Outcome>>, After)> {
        let mut tally = self.shared.tally();
        let mut applier = Applier::new(&self.shared.index, &mut tally);
        let mut after = After::default();
        self.unlinked.drain(..).for_each(|file| applier.batch.undoom(file));
        let mut all = Vec::with_capacity(plans.len());
        for steps in plans {
            let mut outcomes = Vec::with_capacity(steps.len());
            for step in steps {
                outcomes.push(match step {
                    Rest::Nothing => Outcome::default(),
                    Rest::Refresh { mut records, tell } => {
                        records.iter().try_for_each(|record| applier.refresh(record))?;
                        if tell {
                            after.told.extend(records.iter().map(|r| (None, Some(r.clone()))));
                        }
                        Outcome { new: records.pop(), old: None }
                    }
                    Rest::Release(segment) => {
                        applier.forget_segment(segment);
                        after.released.push(segment);
                        Outcome::default()
                    }
                    Rest::Unstray(key) => {
                        applier.batch.remove_stray(&key);
                        Outcome::default()
                    }
                    Rest::Appended { files, stray } => {
                        let (item, spot) = appended
                            .next()
                            .ok_or_else(|| Error::internal("the log did not place every record"))?;
                        let (at, len, entry) = placed(item, spot);
                        let applied = applier.apply(at, len, entry)?;
                        // Of what was removed its own sequence counts, not the removal's: a copy
                        // that was replaced on another disk must not take the newer one with it.
                        let note = match (&applied.new, &applied.old) {
                            (Some(new), _) => Some((new, None)),
                            (None, Some(old)) => Some((old, Some(old.sequence))),
                            (None, None) => None,
                        };
                        if let Some((record, removed)) = note.filter(|_| stray) {
                            let key = format::key(record.bucket_id, &record.name);
                            applier.batch.put_stray(&key, removed);
                        }
                        after.settle.extend(files.iter().map(|f| f.id));
                        after.note(applied)
                    }
                });
            }
            all.push(outcomes);
        }
        applier.commit()?;
        Ok((all, after))
    }

    /// What follows a batch of the index. A crash in here is made good when the disk is opened.
    fn finish(&mut self, after: After) {
        let shared = &self.shared;
        after.settle.into_iter().for_each(|file| shared.settle_file(file));
        for gone in &after.gone {
            shared.companions.drop_of(shared, *gone);
        }
        for (gone, new) in &after.told {
            shared.tell(gone.as_ref(), new.as_ref());
        }
        for key in &after.removed {
            shared.recency.forget(key);
        }
        for file in after.doomed {
            if shared.unlink_file(file) {
                self.unlinked.push(file);
            }
        }
        self.unremoved.extend(after.released);
        if !self.unremoved.is_empty()
            && let Err(e) = remove_segments(shared, &mut self.unremoved)
        {
            tracing::warn!(segments = self.unremoved.len(), "released segments stay: {e}");
        }
        shared.show_accounts();
    }
}

/// Removes released segments from the front; those that are left are tried again later.
fn remove_segments(shared: &Shared, released: &mut Vec<u64>) -> Result<()> {
    // An index of before the release would miss them after a power cut.
    shared.index.persist()?;
    while let Some(segment) = released.first() {
        shared.log.remove(*segment)?;
        released.remove(0);
    }
    Ok(())
}

/// What is left of a step after its record went to the log.
enum Rest {
    Nothing,
    Appended { files: Vec<Filling>, stray: bool },
    Refresh { records: Vec<Record>, tell: bool },
    Release(u64),
    Unstray(Vec<u8>),
}

impl Rest {
    fn files(&mut self) -> &mut [Filling] {
        match self {
            Self::Appended { files, .. } => files,
            _ => &mut [],
        }
    }
}

/// Work on files that follows a batch.
#[derive(Default)]
struct After {
    settle: Vec<u64>,
    doomed: Vec<u64>,
    /// Generations that are history.
    gone: Vec<u64>,
    /// Keys that have no object any more.
    removed: Vec<Vec<u8>>,
    released: Vec<u64>,
    /// Records that went and came, as far as the cache wants to know.
    told: Vec<(Option<Record>, Option<Record>)>,
}

impl After {
    fn note(&mut self, applied: Applied) -> Outcome {
        let Applied { new, old, doomed } = applied;
        self.doomed.extend(doomed);
        let same =
            |a: &Record, b: &Record| a.generation == b.generation && a.evictable() == b.evictable();
        if !old.as_ref().zip(new.as_ref()).is_some_and(|(a, b)| same(a, b))
            && (old.is_some() || new.is_some())
        {
            self.told.push((old.clone(), new.clone()));
        }
        if let Some(old) = &old {
            if new.as_ref().is_none_or(|n| n.generation != old.generation) {
                self.gone.push(old.generation);
            }
            if new.is_none() {
                self.removed.push(format::key(old.bucket_id, &old.name));
            }
        }
        Outcome { new, old }
    }
}

/// Requests that are written together; no key is in two of them.
#[derive(Default)]
struct Group {
    requests: Vec<Request>,
    keys: HashSet<Vec<u8>>,
    changes: usize,
    bytes: usize,
}

impl Group {
    fn take(&mut self, request: Request) {
        for change in &request.changes {
            self.keys.extend(change.key());
            self.changes += 1;
            self.bytes += change.payload();
        }
        self.requests.push(request);
    }

    fn is_full(&self) -> bool {
        self.bytes >= GROUP_BYTES || self.changes >= GROUP_CHANGES
    }

    fn has_key_of(&self, request: &Request) -> bool {
        request.changes.iter().filter_map(Change::key).any(|key| self.keys.contains(&key))
    }
}

impl Change {
    fn key(&self) -> Option<Vec<u8>> {
        match self {
            Self::Put { record, .. } | Self::Update { record, .. } | Self::Move { record, .. } => {
                Some(format::key(record.bucket_id, &record.name))
            }
            Self::Remove { bucket_id, name, .. } | Self::Bury { bucket_id, name, .. } => {
                Some(format::key(*bucket_id, name))
            }
            Self::Unstray { key } => Some(key.clone()),
            Self::Times(_) | Self::Release { .. } => None,
        }
    }

    /// Whether it has to wait while the file system is full; what frees space must not.
    fn needs_room(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Times(_))
    }

    pub(crate) fn payload(&self) -> usize {
        match self {
            Self::Put { payload, .. } | Self::Move { payload, .. } => payload.len(),
            _ => 0,
        }
    }
}

fn append(entry: Entry, payload: Bytes) -> Step {
    Step::Append { item: Item { entry, payload }, files: Vec::new(), stray: false }
}

fn is_owned(record: &Record) -> bool {
    record.meta.class == Class::Owned
}

/// The entry with its place in the log, and its frame.
fn placed(item: Item, spot: Spot) -> (Position, u64, Entry) {
    let at = Position { segment: spot.segment, offset: u64::from(spot.offset) };
    match item.entry {
        Entry::Put(mut record) => {
            record.set_spot(spot);
            (at, record.frame_bytes(), Entry::Put(record))
        }
        removal => (at, u64::from(spot.head).next_multiple_of(format::ALIGN), removal),
    }
}

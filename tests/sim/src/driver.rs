//! Executes the operations of the replication engine: disks, locks and messages are those of the
//! simulated world.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use forebay_core::copies::Stamp;
use forebay_core::erasure::Form;
use forebay_core::replication::{
    Answer, Command, CommandId, Event, IncomingCopy, IssuedCommand, LocalCopy, LookMode,
    ObsoleteForms, Operation, Removal, Step, next_executed,
};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use futures::future::{Either, select};

use crate::exec::{Locked, Micros, SECOND};
use crate::target::{Key, Record};
use crate::world::{At, W, World, at_of};

/// Timeout of a request to another target.
pub(crate) const REQUEST_TIMEOUT: Micros = 5 * SECOND;
/// Size of a copy that is looked at before it is sent, in bytes.
const LARGE: u64 = 1 << 20;

/// The values that an operation writes and reads.
#[derive(Default)]
pub(crate) struct Payload {
    /// The value that the operation commits.
    pub(crate) incoming: Cell<u64>,
    /// The value that it has assembled from slices.
    pub(crate) assembled: Cell<u64>,
    /// The value that it has opened for a reader.
    pub(crate) opened: Cell<Option<u64>>,
    /// It was forwarded to a new owner.
    pub(crate) forwarded: Cell<bool>,
}

impl Payload {
    pub(crate) fn of(value: u64) -> Rc<Self> {
        Rc::new(Self { incoming: Cell::new(value), ..Self::default() })
    }
}

/// The result of a command, with the lock that it took.
type Executed = (Answer, Option<Locked<Key>>);
type Running = BTreeMap<CommandId, Pin<Box<dyn Future<Output = Executed>>>>;

impl World {
    /// Runs an operation at a target to its end.
    pub(crate) async fn drive<T>(
        self: &W,
        at: At,
        key: &Key,
        payload: &Rc<Payload>,
        operation: Operation<T>,
    ) -> T {
        self.drive_locked(at, key, payload, operation, None).await.0
    }

    /// The same for an operation that begins, or ends, with the object's lock held.
    pub(crate) async fn drive_locked<T>(
        self: &W,
        at: At,
        key: &Key,
        payload: &Rc<Payload>,
        mut operation: Operation<T>,
        mut lock: Option<Locked<Key>>,
    ) -> (T, Option<Locked<Key>>) {
        let mut running = Running::new();
        let mut event = Event::Start;
        loop {
            let commands = match operation.step(event) {
                Step::Done(done) => return (done, lock),
                Step::Commands(commands) => commands,
            };
            for IssuedCommand { id, command } in commands {
                match command {
                    Command::Unlock => lock = None,
                    Command::Cancel(id) => drop(running.remove(&id)),
                    command => {
                        let world = self.clone();
                        let executed = world.execute(at, key.clone(), command, payload.clone());
                        running.insert(id, Box::pin(executed));
                    }
                }
            }
            let (id, (answer, taken)) = next_executed(&mut running).await;
            lock = taken.or(lock);
            event = Event::Answered { id, answer };
        }
    }

    async fn execute(
        self: W,
        at: At,
        key: Key,
        command: Command,
        payload: Rc<Payload>,
    ) -> Executed {
        if matches!(command, Command::Lock) {
            let lock = self.target(at).process().locks.lock(&key).await;
            return (Answer::Done, Some(lock));
        }
        let answer = match command {
            Command::Look { to, mode } => self.request_look(at, &to, key, mode).await,
            Command::Fetch { from, anew } => self.request_copy(at, &from, key, anew).await,
            Command::Send { to, copy, form, written } => {
                self.send_copy(at, &to, key, (copy, form), written).await
            }
            Command::Assemble { stamp, sources } => {
                self.assemble(at, &key, (stamp, sources), &payload).await
            }
            Command::DropForms { to, forms, by } => {
                self.request_drop(at, &to, key, forms, by).await
            }
            Command::Ensure { to, stamp } => self.request_ensure(at, &to, key, stamp).await,
            Command::RemoveOlder { to, removal } => {
                let forwards = removal.by.as_ref().is_some_and(|by| *by != self.target(at).id);
                payload.forwarded.set(forwards || payload.forwarded.get());
                self.request_removal(at, &to, key, removal).await
            }
            Command::FetchVersions { from } => self.request_versions(at, &from, key).await,
            Command::SendVersion { version, to } => self.send_version(at, &key, version, to).await,
            Command::Sleep(time) => {
                self.exec.sleep(time.as_micros() as Micros).await;
                Answer::Done
            }
            Command::WaitForLease => Answer::of_result(self.leased(at).await),
            command => self.use_disk(at, &key, command, &payload).await,
        };
        (answer, None)
    }

    /// Executes a command on the disks of a target.
    async fn use_disk(&self, at: At, key: &Key, command: Command, payload: &Payload) -> Answer {
        let target = self.target(at);
        match command {
            Command::GetCopy => {
                self.moment().await;
                Answer::Copy(target.get(key).map(copy_of))
            }
            Command::GetSlices => self.get_slices(at, key).await,
            Command::CommitSlice { slice, stamp, .. } => {
                self.commit_slice(at, key, (slice, stamp), payload.incoming.get()).await
            }
            Command::KeepSlice { copy, slice } => self.keep_slice(at, key, copy, slice).await,
            Command::RemoveSlices { slices } => self.remove_slices(at, key, &slices).await,
            Command::GetTombstone => {
                self.moment().await;
                Answer::Tombstone(target.tombstone(key))
            }
            Command::Open(copy) => {
                self.moment().await;
                let record = target.get(key).filter(|now| now.commit == copy.commit);
                payload.opened.set(record.map(|record| record.value));
                match record {
                    Some(_) => Answer::Done,
                    None => Answer::Failed(gone()),
                }
            }
            Command::CheckCondition | Command::Pace { .. } => Answer::Done,
            Command::Prepare { replaced, .. } => self.archive(at, key, replaced).await,
            Command::ListVersions => self.list_versions(at, key).await,
            Command::Receive => {
                self.moment().await;
                Answer::Done
            }
            Command::Commit { stamp } => self.commit(at, key, stamp, payload.incoming.get()).await,
            Command::CommitAssembled { stamp } => {
                self.commit(at, key, stamp, payload.assembled.get()).await
            }
            Command::UpdateMetadata { copy, stamp } => {
                self.disk().await;
                let record = target.get(key).filter(|now| now.commit == copy.commit);
                let Some(record) = record else { return Answer::Failed(gone()) };
                let updated = Record { stamp, commit: self.seen.next_commit(), ..record };
                target.records.borrow_mut().insert(key.clone(), updated);
                self.note(|| format!("target {at} changes metadata of {key:?}: {stamp:?}"));
                payload.opened.set(Some(updated.value));
                self.moment().await;
                Answer::Copy(Some(copy_of(updated)))
            }
            Command::RemoveCopy => {
                self.disk().await;
                let removed = target.records.borrow_mut().remove(key);
                if removed.is_some() {
                    target.away.note_removal(key);
                    self.note(|| format!("target {at} removes {key:?}"));
                    self.check_kept(key);
                }
                self.moment().await;
                Answer::Copy(removed.map(copy_of))
            }
            Command::WriteTombstone { stamp } => {
                self.disk().await;
                target.tombstones.borrow_mut().insert(key.clone(), stamp);
                self.note(|| format!("target {at} notes that {key:?} was removed: {stamp:?}"));
                if target.map().is_quiescent() {
                    target.process().late_tombstones.ring();
                }
                Answer::Done
            }
            Command::RemoveTombstone { stamp } => {
                self.moment().await;
                if target.tombstone(key) == Some(stamp) {
                    target.tombstones.borrow_mut().remove(key);
                }
                Answer::Done
            }
            command => Answer::Failed(Error::unsupported(format!("{command:?}"))),
        }
    }

    async fn commit(&self, at: At, key: &Key, stamp: Stamp, value: u64) -> Answer {
        self.disk().await;
        let record = Record { stamp, value, commit: self.seen.next_commit() };
        self.target(at).records.borrow_mut().insert(key.clone(), record);
        self.note(|| format!("target {at} commits {key:?} as {stamp:?}: {value}"));
        self.check_kept(key);
        self.moment().await;
        Answer::Copy(Some(copy_of(record)))
    }

    async fn request_look(self: &W, at: At, to: &NodeId, key: Key, mode: LookMode) -> Answer {
        let (world, asked) = (self.clone(), at_of(to));
        let version = self.target(at).map().version;
        let look = async move { world.look(asked, key, mode, version).await };
        self.request(at, to, look, Answer::Look).await
    }

    async fn request_copy(self: &W, at: At, from: &NodeId, key: Key, anew: bool) -> Answer {
        let (world, asked) = (self.clone(), at_of(from));
        let (me, version) = (self.target(at).id.clone(), self.target(at).map().version);
        let sent = async move { world.send_on_request(asked, key, me, anew, version).await };
        self.request(at, from, sent, |()| Answer::Done).await
    }

    async fn send_copy(
        self: &W,
        at: At,
        to: &NodeId,
        key: Key,
        (copy, form): (LocalCopy, Form),
        written: bool,
    ) -> Answer {
        let record = self.target(at).get(&key).filter(|now| now.commit == copy.commit);
        let Some(Record { stamp, value, .. }) = record else { return Answer::Failed(gone()) };
        let (world, receiver) = (self.clone(), at_of(to));
        let version = self.target(at).map().version;
        let (from, size) = (Some(self.target(at).id.clone()), copy.size);
        let copy = IncomingCopy { stamp, form, size, from, written };
        let received = async move { world.receive(receiver, key, copy, value, version).await };
        self.request(at, to, received, |()| Answer::Done).await
    }

    async fn request_removal(self: &W, at: At, to: &NodeId, key: Key, removal: Removal) -> Answer {
        let (world, receiver) = (self.clone(), at_of(to));
        let version = self.target(at).map().version;
        let removed = async move { world.remove_older(receiver, key, removal, version).await };
        self.request(at, to, removed, |()| Answer::Done).await
    }

    async fn request_drop(
        self: &W,
        at: At,
        to: &NodeId,
        key: Key,
        forms: ObsoleteForms,
        by: Option<NodeId>,
    ) -> Answer {
        let (world, receiver) = (self.clone(), at_of(to));
        let version = self.target(at).map().version;
        let dropped = async move { world.drop_forms(receiver, key, forms, by, version).await };
        self.request(at, to, dropped, |()| Answer::Done).await
    }

    async fn request_ensure(self: &W, at: At, to: &NodeId, key: Key, stamp: Stamp) -> Answer {
        let (world, receiver) = (self.clone(), at_of(to));
        let version = self.target(at).map().version;
        let ensured = async move { world.ensure(receiver, key, stamp, version).await };
        self.request(at, to, ensured, Answer::Ensured).await
    }

    /// Sends a request; the wait ends with the death of the node.
    pub(crate) async fn request<T: 'static>(
        self: &W,
        at: At,
        to: &NodeId,
        work: impl Future<Output = Result<T>> + 'static,
        answer: impl FnOnce(T) -> Answer,
    ) -> Answer {
        let called = self.call_within(REQUEST_TIMEOUT, (at, at_of(to)), work);
        match select(Box::pin(called), Box::pin(self.death_of(at, to))).await {
            Either::Left((result, _)) => result.map_or_else(Answer::Failed, answer),
            Either::Right(_) => Answer::Died,
        }
    }

    /// Returns when this target's map has the node dead or removed.
    async fn death_of(&self, at: At, id: &NodeId) {
        let target = self.target(at);
        while target.map().node(id).is_some_and(|node| node.alive) {
            target.changed.rung().await;
        }
    }
}

pub(crate) fn copy_of(record: Record) -> LocalCopy {
    let Record { stamp, value, commit } = record;
    LocalCopy { stamp, commit, size: size_of(value), damaged: false }
}

/// The size of an object: three sizes, above and below the limits of transfers and of coding.
pub(crate) fn size_of(value: u64) -> u64 {
    match (value % 5, value % 2) {
        (0, _) => LARGE,
        (_, 0) => 2,
        _ => 1,
    }
}

pub(crate) fn gone() -> Error {
    Error::new(ErrorCode::ObjectNotFound, "this commit was replaced or removed")
}

//! Executes the operations of the replication engine (`forebay_core::replication`): disks and HTTP
//! are those of this target.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::replication::{
    Answer, Command, CommandId, Event, IssuedCommand, Object, Operation, Step, next_executed,
};
use forebay_node::pace::Pace;
use forebay_store::Record;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::Replication;
use super::content::Content;
use crate::object::Key;
use crate::object::lock::KeyGuard;

/// An operation on one object, as the commands of the driver see it.
pub(super) struct Work<'a> {
    pub(super) object: Object,
    pub(super) key: Key,
    /// Limits what the operation sends.
    pub(super) pace: Option<&'a Pace>,
    pub(super) content: Mutex<Content<'a>>,
    /// The record that the operation has seen last, and often needs again.
    pub(super) seen: std::sync::Mutex<Option<Record>>,
    /// The record that the operation has committed.
    pub(super) committed: std::sync::Mutex<Option<Record>>,
}

impl<'a> Work<'a> {
    pub(super) fn new(info: &BucketInfo, name: &str) -> Self {
        Self::with_content(info, name, Content::Nothing)
    }

    pub(super) fn with_content(info: &BucketInfo, name: &str, content: Content<'a>) -> Self {
        Self {
            object: Object::new(Arc::new(info.clone()), name),
            key: Key::new(info, name),
            pace: None,
            content: Mutex::new(content),
            seen: std::sync::Mutex::default(),
            committed: std::sync::Mutex::default(),
        }
    }

    #[must_use]
    pub(super) fn paced(self, pace: &'a Pace) -> Self {
        Self { pace: Some(pace), ..self }
    }

    pub(super) fn info(&self) -> &BucketInfo {
        &self.object.info
    }

    pub(super) fn name(&self) -> &str {
        &self.object.name
    }
}

/// The outcome of a command.
pub(super) enum Executed {
    Answered(CommandId, Answer),
    Locked(CommandId, KeyGuard),
    /// Work that several commands share; it has no answer of its own.
    Shared,
}

type Running<'a> = BTreeMap<RunningId, BoxFuture<'a, Executed>>;

/// A command, or work that several commands share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RunningId {
    Command(CommandId),
    Shared(CommandId),
}

impl Replication {
    /// Runs an operation to its end. Dropping the future cancels it, and releases its lock.
    pub(super) async fn drive<T: Send>(&self, work: &Work<'_>, operation: Operation<T>) -> T {
        self.drive_locked(work, operation, None).await.0
    }

    /// The same for an operation that begins, or ends, with the object's lock held.
    pub(super) async fn drive_locked<T: Send>(
        &self,
        work: &Work<'_>,
        mut operation: Operation<T>,
        mut lock: Option<KeyGuard>,
    ) -> (T, Option<KeyGuard>) {
        let mut running = Running::new();
        let mut event = Event::Start;
        loop {
            match operation.step(event) {
                Step::Done(done) => return (done, lock),
                Step::Commands(commands) => self.begin(work, commands, &mut running, &mut lock),
            }
            event = loop {
                match next_executed(&mut running).await.1 {
                    Executed::Answered(id, answer) => break Event::Answered { id, answer },
                    Executed::Locked(id, guard) => {
                        lock = Some(guard);
                        break Event::Answered { id, answer: Answer::Done };
                    }
                    Executed::Shared => {}
                }
            };
        }
    }

    /// Starts the commands of one step.
    fn begin<'a>(
        &'a self,
        work: &'a Work<'_>,
        commands: Vec<IssuedCommand>,
        running: &mut Running<'a>,
        lock: &mut Option<KeyGuard>,
    ) {
        let mut slices = Vec::new();
        for IssuedCommand { id, command } in commands {
            match command {
                Command::Unlock => *lock = None,
                Command::Cancel(id) => drop(running.remove(&RunningId::Command(id))),
                command => match super::slices::SliceSend::of(id, &command) {
                    Some(send) => slices.push(send),
                    None => {
                        let executed = Box::pin(self.execute(work, id, command));
                        running.insert(RunningId::Command(id), executed);
                    }
                },
            }
        }
        // The object is read once for all slices of a step.
        let Some(first) = slices.first().map(|send| send.id) else { return };
        let (reading, sends) = self.send_slices(work, slices);
        running.insert(RunningId::Shared(first), reading);
        running.extend(sends.into_iter().map(|(id, send)| (RunningId::Command(id), send)));
    }

    async fn execute(&self, work: &Work<'_>, id: CommandId, command: Command) -> Executed {
        if command == Command::Lock {
            return Executed::Locked(id, self.local().locks.lock(&work.key).await);
        }
        let answer = match self.execute_request(work, &command).await {
            Some(answer) => answer,
            None => self.execute_here(work, command).await.unwrap_or_else(Answer::Failed),
        };
        Executed::Answered(id, answer)
    }

    /// Executes a command that waits, or works on the disks of this target.
    async fn execute_here(&self, work: &Work<'_>, command: Command) -> Result<Answer> {
        match command {
            Command::Sleep(time) => tokio::time::sleep(time).await,
            Command::Pace { bytes } => {
                let pace = work.pace.unwrap_or(&self.0.repair_pace);
                pace.pass(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
            }
            Command::WaitForLease => self.leased().await?,
            command => return self.execute_on_disk(work, command).await,
        }
        Ok(Answer::Done)
    }
}

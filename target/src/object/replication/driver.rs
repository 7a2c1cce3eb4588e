//! Executes the operations of the replication engine (`forebay_core::replication`): disks and HTTP
//! are those of this target.

use std::collections::BTreeMap;

use forebay_core::Result;
use forebay_core::replication::{
    Answer, Command, CommandId, Event, IssuedCommand, Operation, Step, next_executed,
};
use futures::future::BoxFuture;

use super::Replication;
use super::work::{Executed, Work};
use crate::object::lock::KeyGuard;

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

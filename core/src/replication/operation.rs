//! Operations as coroutines: a step of the engine's text runs until it waits for answers to its
//! commands.
//!
//! The text of an operation is an `async` function. It waits for nothing but answers to commands,
//! so nothing has to wake it: [`Operation::step`] polls it each time that an answer arrives.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::command::{Answer, Command, CommandId};
use crate::error::Result;
use crate::locks::MutexExt;

/// A command to execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCommand {
    pub id: CommandId,
    pub command: Command,
}

/// An input of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The first event of each operation.
    Start,
    /// A command is executed, or has failed.
    Answered { id: CommandId, answer: Answer },
}

/// The outcome of one step of an operation.
#[derive(Debug)]
pub enum Step<T> {
    /// New commands, to be executed concurrently. The list is empty if the operation waits for
    /// earlier ones.
    Commands(Vec<IssuedCommand>),
    /// The operation has ended; unanswered commands are cancelled.
    Done(T),
}

/// One operation on one object. Dropping it cancels it.
pub struct Operation<T> {
    text: Pin<Box<dyn Future<Output = T> + Send>>,
    commands: Commands,
}

impl<T> Operation<T> {
    /// An operation with this text, which gets the handle for its commands.
    pub(super) fn new<F>(text: impl FnOnce(Commands) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let commands = Commands::default();
        Self { text: Box::pin(text(commands.clone())), commands }
    }

    /// Runs the operation until it needs an answer that it does not have, or ends. An answer to a
    /// cancelled command has no effect.
    pub fn step(&mut self, event: Event) -> Step<T> {
        if let Event::Answered { id, answer } = event {
            self.commands.deliver(id, answer);
        }
        match self.text.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Step::Done(done),
            Poll::Pending => Step::Commands(self.commands.take_issued()),
        }
    }
}

/// Waits for the first of the commands that a driver executes, and takes it out of `running`.
/// Returns its key and outcome. Never ends if `running` is empty.
pub async fn next_executed<K, F>(running: &mut BTreeMap<K, F>) -> (K, F::Output)
where
    K: Copy + Ord,
    F: Future + Unpin,
{
    poll_fn(|context| {
        let executed =
            running.iter_mut().find_map(|(key, work)| match Pin::new(work).poll(context) {
                Poll::Ready(executed) => Some((*key, executed)),
                Poll::Pending => None,
            });
        let Some((key, executed)) = executed else { return Poll::Pending };
        running.remove(&key);
        Poll::Ready((key, executed))
    })
    .await
}

/// The handle by which an operation issues commands.
#[derive(Clone, Default)]
pub(super) struct Commands(Arc<Mutex<Mailbox>>);

#[derive(Default)]
struct Mailbox {
    last: CommandId,
    issued: Vec<IssuedCommand>,
    /// The commands that the operation waits for, with their answers.
    open: BTreeMap<CommandId, Option<Answer>>,
}

impl Commands {
    /// Issues a command. The answer is the output of the returned value; if that is dropped before,
    /// the command is cancelled.
    pub(super) fn issue(&self, command: Command) -> Pending {
        let id = self.push(command);
        self.0.locked().open.insert(id, None);
        Pending { id, commands: self.clone() }
    }

    /// Issues a command that has no answer.
    pub(super) fn push(&self, command: Command) -> CommandId {
        let mut mailbox = self.0.locked();
        mailbox.last += 1;
        let id = mailbox.last;
        mailbox.issued.push(IssuedCommand { id, command });
        id
    }

    /// Returns the output of `text`, or `None` if that takes longer than `limit`; then the commands
    /// that `text` waits for are cancelled.
    pub(super) async fn timeout<T>(
        &self,
        limit: Duration,
        text: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut text, mut timer) = (pin!(text), self.issue(Command::Sleep(limit)));
        poll_fn(|context| match text.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Pin::new(&mut timer).poll(context).map(|_| None),
        })
        .await
    }

    fn deliver(&self, id: CommandId, answer: Answer) {
        if let Some(place) = self.0.locked().open.get_mut(&id) {
            *place = Some(answer);
        }
    }

    fn take_issued(&self) -> Vec<IssuedCommand> {
        std::mem::take(&mut self.0.locked().issued)
    }

    /// Takes the answer to a command; `None` while there is none.
    fn take_answer(&self, id: CommandId) -> Option<Answer> {
        let mut mailbox = self.0.locked();
        let answer = mailbox.open.get_mut(&id)?.take()?;
        mailbox.open.remove(&id);
        Some(answer)
    }

    /// Whether the command was open. Its answer is not expected any more.
    fn close(&self, id: CommandId) -> bool {
        self.0.locked().open.remove(&id).is_some()
    }
}

/// A command without an answer yet.
#[must_use]
pub(super) struct Pending {
    id: CommandId,
    commands: Commands,
}

impl Future for Pending {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        self.commands.take_answer(self.id).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.commands.close(self.id) {
            self.commands.push(Command::Cancel(self.id));
        }
    }
}

/// Waits until all commands have succeeded; returns the first error as soon as it arrives.
pub(super) async fn all_done(mut commands: Vec<Pending>) -> Result<()> {
    poll_fn(|context| {
        let mut failed = None;
        commands.retain_mut(|command| match Pin::new(command).poll(context) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                failed = answer.done().err().or(failed.take());
                false
            }
        });
        match failed {
            Some(e) => Poll::Ready(Err(e)),
            None if commands.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn commands<T>(step: Step<T>) -> Vec<IssuedCommand> {
        match step {
            Step::Commands(commands) => commands,
            Step::Done(_) => panic!("the operation has ended"),
        }
    }

    fn answered(id: CommandId, answer: Answer) -> Event {
        Event::Answered { id, answer }
    }

    #[test]
    fn commands_are_issued_together_and_answered_in_any_order() {
        let mut operation = Operation::new(|commands| async move {
            let both = [commands.issue(Command::Lock), commands.issue(Command::GetCopy)];
            let [first, second] = both;
            (first.await.done(), second.await.done())
        });
        assert_eq!(commands(operation.step(Event::Start)).len(), 2);
        assert!(commands(operation.step(answered(2, Answer::Done))).is_empty());
        assert!(matches!(operation.step(answered(1, Answer::Done)), Step::Done((Ok(()), Ok(())))));
    }

    #[test]
    fn a_timeout_cancels_the_command_that_it_interrupts() {
        let mut operation = Operation::new(|commands| async move {
            let lock = commands.issue(Command::Lock);
            let locked = commands.timeout(Duration::from_secs(7), lock).await;
            commands.issue(Command::GetCopy).await;
            locked
        });
        let issued = commands(operation.step(Event::Start));
        assert_eq!(issued[1].command, Command::Sleep(Duration::from_secs(7)));
        let issued = commands(operation.step(answered(2, Answer::Done)));
        assert_eq!(issued[0].command, Command::Cancel(1));
        assert_eq!(issued[1].command, Command::GetCopy);
        assert!(commands(operation.step(answered(1, Answer::Done))).is_empty(), "it is cancelled");
        assert!(matches!(operation.step(answered(issued[1].id, Answer::Done)), Step::Done(None)));
    }

    #[test]
    fn the_first_error_ends_the_wait_for_several_commands() {
        let mut operation = Operation::new(|commands| async move {
            let both = [Command::Lock, Command::Lock].map(|command| commands.issue(command));
            all_done(Vec::from(both)).await
        });
        commands(operation.step(Event::Start));
        let failed = Answer::Failed(Error::unavailable("it is down"));
        assert!(matches!(operation.step(answered(2, failed)), Step::Done(Err(_))));
    }
}

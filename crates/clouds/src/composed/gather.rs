//! Groups concurrent reads of whole objects. Callers that will read many objects announce them, so
//! that a group waits for the next announced read. No other read waits.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::cloud_rules::Compose;
use forebay_core::error::Result;
use forebay_core::locks::MutexExt;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::group;
use super::known::Known;
use super::pause::ComposePause;
use crate::{Backend, RemoteObject};

/// Objects that Google composes in one call at most.
pub const MAX_COMPOSED_OBJECTS: usize = 32;
/// Longest wait of a group for the next announced read: the announcing caller may be delayed by
/// something else.
const GROUP_WAIT: Duration = Duration::from_millis(500);

/// The groups of one bucket.
#[derive(Default)]
pub(crate) struct Gather {
    state: Mutex<State>,
    /// Fewer reads are announced than before.
    fewer: Notify,
    pub(super) known: Known,
    pub(super) pause: ComposePause,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// Objects that are requested and not answered.
    inside: usize,
    /// Objects that were announced and are not finished.
    announced: usize,
    latest: Option<Instant>,
}

impl State {
    /// Whether the waiting reads are to be fetched now.
    fn is_due(&self) -> bool {
        self.waiting.len() >= MAX_COMPOSED_OBJECTS
            || self.announced <= self.inside
            || self.latest.is_none_or(|at| at.elapsed() >= GROUP_WAIT)
    }
}

/// A waiting read of an object.
pub(super) struct Waiting {
    pub(super) name: String,
    pub(super) answer: oneshot::Sender<Result<RemoteObject>>,
}

/// Announces this many reads of objects. Each finished read reduces the number by one, and dropping
/// this cancels the rest.
pub struct Announced {
    gather: Arc<Gather>,
    left: usize,
}

impl Announced {
    pub fn one_is_done(&mut self) {
        if self.left > 0 {
            self.left -= 1;
            self.gather.announced_less(1);
        }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.gather.announced_less(self.left);
    }
}

/// Counts an object as requested until dropped.
struct Inside<'a>(&'a Gather);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
    }
}

impl Gather {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    pub(crate) fn announce(self: &Arc<Self>, objects: usize) -> Announced {
        self.lock().announced += objects;
        Announced { gather: Arc::clone(self), left: objects }
    }

    fn announced_less(&self, objects: usize) {
        self.lock().announced -= objects;
        self.fewer.notify_one();
    }

    /// Waits for the object together with others. `None`: the caller reads it alone.
    pub(super) async fn join(
        self: &Arc<Self>,
        inner: &Arc<dyn Backend>,
        name: &str,
        how: Compose,
    ) -> Option<Result<RemoteObject>> {
        if how == Compose::Off || !self.pause.is_on() {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut state = self.lock();
            state.inside += 1;
            state.latest = Some(Instant::now());
            state.waiting.push(Waiting { name: name.to_owned(), answer });
            state.waiting.len() == 1
        };
        let _inside = Inside(self);
        if first {
            self.lead(inner, how);
        } else {
            self.fewer.notify_one();
        }
        answered.await.ok()
    }

    /// Waits until a group is complete, and fetches it. Runs in a task of its own, because the
    /// first caller may give up.
    fn lead(self: &Arc<Self>, inner: &Arc<dyn Backend>, how: Compose) {
        let (gather, inner) = (Arc::clone(self), Arc::clone(inner));
        tokio::spawn(async move {
            let (group, more) = loop {
                {
                    let mut state = gather.lock();
                    if state.is_due() {
                        let most = state.waiting.len().min(MAX_COMPOSED_OBJECTS);
                        let group: Vec<_> = state.waiting.drain(..most).collect();
                        break (group, !state.waiting.is_empty());
                    }
                }
                let _ = timeout(GROUP_WAIT / 10, gather.fewer.notified()).await;
            };
            if more {
                gather.lead(&inner, how);
            }
            group::fetch(&gather, &inner, group, how).await;
        });
    }
}

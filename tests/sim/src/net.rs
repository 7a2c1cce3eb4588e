//! The simulated network: messages are delayed, reordered, lost and resent, and wait at a link that
//! is cut. A dead process refuses connections; a paused one does not respond.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;

use forebay_core::{Error, Result};
use futures::channel::oneshot;

use crate::exec::{MS, Micros, SECOND};
use crate::world::{At, NETWORK, W, World};

/// How long a message waits at a cut link before the connection counts as broken.
const BROKEN_AFTER: Micros = 15 * SECOND;

/// Faults of the links.
#[derive(Default)]
pub(crate) struct Net {
    /// Pairs of nodes, the lower one first, that do not reach each other.
    cut: RefCell<BTreeSet<(At, At)>>,
    /// Percentage of messages that are lost and resent.
    pub(crate) lossy: Cell<u64>,
    /// Longest usual delay.
    pub(crate) delay: Cell<Micros>,
}

impl Net {
    pub(crate) fn cut(&self, a: At, b: At) {
        self.cut.borrow_mut().insert((a.min(b), a.max(b)));
    }

    pub(crate) fn heal(&self) {
        self.cut.borrow_mut().clear();
        self.lossy.set(0);
        self.delay.set(2 * MS);
    }

    pub(crate) fn is_cut(&self, a: At, b: At) -> bool {
        self.cut.borrow().contains(&(a.min(b), a.max(b)))
    }
}

/// The error of a connection that is refused, or that breaks.
pub(crate) fn refused() -> Error {
    Error::unavailable("the connection was refused or broke")
}

impl World {
    /// Delivers a message. False: the connection broke before it arrived.
    async fn travel(&self, from: At, to: At) -> bool {
        let net = &self.net;
        let mut delay = self.exec.between(100, net.delay.get().max(200));
        while self.exec.percent(net.lossy.get()) {
            delay += 200 * MS;
        }
        self.exec.sleep(delay).await;
        let started = self.exec.now();
        while net.is_cut(from, to) {
            if self.exec.now() - started > BROKEN_AFTER {
                return false;
            }
            self.exec.sleep(self.exec.between(50 * MS, 300 * MS)).await;
        }
        true
    }

    /// Runs `work` in the process at `to`. A message that is on its way arrives even if the caller
    /// has stopped waiting for the response.
    pub(crate) async fn call<T: 'static>(
        self: &W,
        (from, to): (At, At),
        work: impl Future<Output = Result<T>> + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let world = self.clone();
        self.exec.spawn(NETWORK, async move {
            if !world.travel(from, to).await || !world.is_up(to) {
                world.travel(to, from).await;
                let _ = answer.send(Err(refused()));
                return;
            }
            let (done, result) = oneshot::channel();
            world.exec.spawn(to, async move { drop(done.send(work.await)) });
            let result = result.await.unwrap_or_else(|_| Err(refused()));
            let came = world.travel(to, from).await;
            let _ = answer.send(if came { result } else { Err(refused()) });
        });
        answered.await.unwrap_or_else(|_| Err(refused()))
    }

    /// The same; an error if no response arrives within that time.
    pub(crate) async fn call_within<T: 'static>(
        self: &W,
        limit: Micros,
        way: (At, At),
        work: impl Future<Output = Result<T>> + 'static,
    ) -> Result<T> {
        let late = || Error::unavailable("no answer in time");
        self.exec.within(limit, self.call(way, work)).await.unwrap_or_else(|| Err(late()))
    }
}

//! Idle and header timeouts of a connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;
use hyper::rt::{Sleep, Timer};

/// Limits how long a connection may be without a complete head of a request. One timer serves all
/// of its requests: it is reset only when it fires.
pub(crate) struct HeadTimeout {
    limit: Duration,
    clock: Mutex<Clock>,
}

struct Clock {
    until: Instant,
    /// Time does not count: the client waits for this node, or is still reading.
    held: bool,
    alarm: Pin<Box<tokio::time::Sleep>>,
}

impl HeadTimeout {
    pub(crate) fn new(limit: Duration) -> Self {
        let until = Instant::now() + limit;
        let alarm = Box::pin(tokio::time::sleep_until(until.into()));
        Self { limit, clock: Mutex::new(Clock { until, held: false, alarm }) }
    }

    /// Restarts the timeout.
    pub(crate) fn renew(&self) {
        self.set(Instant::now() + self.limit);
    }

    /// While `held`, an answer is in progress and time does not count; afterwards the timeout
    /// restarts.
    pub(crate) fn hold(&self, held: bool) {
        let mut clock = self.clock();
        (clock.held, clock.until) = (held, Instant::now() + self.limit);
    }

    fn set(&self, until: Instant) {
        self.clock().until = until;
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.locked()
    }

    fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut clock = self.clock();
        loop {
            ready!(clock.alarm.as_mut().poll(cx));
            let now = Instant::now();
            if clock.held {
                clock.until = now + self.limit;
            }
            if now >= clock.until {
                return Poll::Ready(());
            }
            let until = clock.until;
            clock.alarm.as_mut().reset(until.into());
        }
    }
}

/// [`HeadTimeout`] as a timer for `hyper`, which uses it only for heads of requests.
pub(crate) struct HeadTimer(pub(crate) Arc<HeadTimeout>);

struct HeadSleep(Arc<HeadTimeout>);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.0.set(deadline);
        Box::pin(HeadSleep(self.0.clone()))
    }

    fn reset(&self, _: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.0.set(deadline);
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_over(cx)
    }
}

impl Sleep for HeadSleep {}

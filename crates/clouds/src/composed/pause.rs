//! Decides whether compositions may be made in a bucket at the moment.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::cloud_rules::Compose;
use forebay_core::error::{Error, ErrorCode};
use forebay_core::locks::MutexExt;
use tokio::time::Instant;

use crate::Backend;

/// How long compositions pause after Google asked to slow down; twice as long each time,
const REST: Duration = Duration::from_secs(60);
/// up to this.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// After this time the bucket's settings are read again.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct ComposePause {
    state: Mutex<State>,
    /// One read of the bucket's settings at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Compositions pause until then.
    off_until: Option<Instant>,
    /// Length of the last pause.
    rest: Duration,
    /// When the bucket's settings were last found suitable.
    looked: Option<Instant>,
    swept: bool,
}

impl ComposePause {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    pub(super) fn is_on(&self) -> bool {
        self.lock().off_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Whether the bucket is suitable for compositions, and no pause is running.
    pub(super) async fn allows(&self, inner: &dyn Backend, how: Compose) -> bool {
        let good = || self.lock().looked.is_some_and(|at| at.elapsed() < LOOK_AGAIN);
        if how == Compose::Force || good() {
            return true;
        }
        let _one = self.looking.lock().await;
        if good() || !self.is_on() {
            return self.is_on();
        }
        match inner.check_composing().await {
            Ok(()) => {
                self.lock().looked = Some(Instant::now());
                true
            }
            Err(error) => {
                self.rest("the bucket is not one to compose in", &error, LOOK_AGAIN);
                false
            }
        }
    }

    /// Handles the failure of a composition.
    pub(super) fn refused(&self, error: &Error) {
        match error.code {
            // The objects were changed, which says nothing about compositions.
            ErrorCode::ObjectChanged | ErrorCode::ObjectNotFound => {}
            ErrorCode::TooManyRequests => {
                let rest = self.lock().rest;
                let rest = (rest * 2).clamp(REST, LONGEST_REST);
                self.rest("there are too many compositions", error, rest);
            }
            ErrorCode::AccessDenied | ErrorCode::Unsupported => {
                self.rest("the bucket's credentials may not compose", error, LONGEST_REST);
            }
            _ => self.rest("a composition failed", error, REST),
        }
    }

    /// Handles a successful composition.
    pub(super) fn made(&self) {
        self.lock().rest = Duration::ZERO;
    }

    fn rest(&self, why: &str, error: &Error, rest: Duration) {
        let mut state = self.lock();
        state.off_until = Some(Instant::now() + rest);
        state.rest = rest;
        tracing::warn!(%error, "{why}: objects are read one by one for {rest:?}");
    }

    /// Whether this process has yet to delete the leftovers of earlier ones. True only once.
    pub(super) fn is_to_be_swept(&self) -> bool {
        !std::mem::replace(&mut self.lock().swept, true)
    }
}

//! The scope of a call: who observes its waits, and the caller's span that its requests carry.
//!
//! A thread of Python has a span while [`swap_span_parent`] has set one; the package sets it around each
//! call that it traces (`forebay/spans.py`).

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use forebay_client::{Recorder, SpanParent, start_within_span, within_span};
use pyo3::prelude::*;

use crate::waits;

thread_local! {
    static PARENT: RefCell<Option<SpanParent>> = const { RefCell::new(None) };
}

/// Sets the span that the calls of this thread are made for, as a `traceparent` header, and returns
/// the one before; `None` for no span.
#[pyfunction]
pub(crate) fn swap_span_parent(traceparent: Option<&str>) -> Option<String> {
    let before = PARENT.replace(traceparent.and_then(SpanParent::parse));
    before.map(|parent| parent.as_str().to_owned())
}

/// The scope of one call, which a stream keeps until its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallScope {
    /// The exchanges of the call, if waits are observed.
    pub(crate) recorder: Option<Arc<Recorder>>,
    parent: Option<SpanParent>,
}

impl CallScope {
    /// The scope of a call that this thread starts now.
    pub(crate) fn of_thread() -> Self {
        Self { recorder: waits::recorder(), parent: PARENT.with_borrow(Clone::clone) }
    }

    /// Starts a part of the call that goes on in the background.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> T) -> T {
        let start = || start_within_span(self.parent.clone(), start);
        match &self.recorder {
            Some(recorder) => recorder.sync_scope(start),
            None => start(),
        }
    }

    /// The future within the span of the call.
    pub(crate) fn within_span<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        within_span(self.parent.clone(), future)
    }
}

//! Something that takes seconds to start, used by all tests of a file that run at one time.

use std::sync::{Arc, Mutex, Weak};

use forebay_core::locks::MutexExt;

/// Started by the first test that needs it, dropped when the last test that holds it ends. A plain
/// `static` would never be dropped, and would leave processes behind.
pub struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    pub fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        self.try_get(|| Some(start())).expect("`start` returns one")
    }

    /// As [`Self::get`]; `None` where this machine cannot start it. `start` runs for each test then,
    /// so that each reports that it is skipped.
    pub fn try_get(&self, start: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        let mut held = self.0.locked();
        if let Some(running) = held.upgrade() {
            return Some(running);
        }
        let new = Arc::new(start()?);
        *held = Arc::downgrade(&new);
        Some(new)
    }
}

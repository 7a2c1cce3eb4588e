//! Whether anyone but the cluster's own nodes uses this process, and how long it has been unused.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;

/// The users of a process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    users: usize,
    last: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { users: 0, last: Instant::now() })))
    }
}

impl Activity {
    /// Registers a user until the returned guard is dropped.
    pub fn enter(&self) -> User {
        self.change(|state| state.users += 1);
        User(self.clone())
    }

    /// Records a use at this moment.
    pub fn touch(&self) {
        self.change(|_| {});
    }

    /// Returns how long the process has been unused; zero while it is in use.
    pub fn quiet_for(&self) -> Duration {
        let state = self.0.locked();
        match state.users {
            0 => state.last.elapsed(),
            _ => Duration::ZERO,
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.locked();
        change(&mut state);
        state.last = Instant::now();
    }
}

/// A guard: the process counts as used while it exists.
#[derive(Debug)]
pub struct User(Activity);

impl Drop for User {
    fn drop(&mut self) {
        self.0.change(|state| state.users -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_begins_when_the_last_user_leaves() {
        let activity = Activity::default();
        let first = activity.enter();
        let second = activity.clone().enter();
        std::thread::sleep(Duration::from_millis(5));
        drop(first);
        assert_eq!(activity.quiet_for(), Duration::ZERO);
        drop(second);
        std::thread::sleep(Duration::from_millis(5));
        assert!(activity.quiet_for() >= Duration::from_millis(5));
        activity.touch();
        assert!(activity.quiet_for() < Duration::from_millis(5));
    }
}

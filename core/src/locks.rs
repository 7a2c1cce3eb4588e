//! Locks of the standard library without poisoning.
//!
//! A thread that panics while it holds a lock poisons it, and every later user of the lock would
//! have to panic too. Servers here must keep serving: the code under a lock leaves its value whole
//! at every step that can panic, so the value is used as it is. `parking_lot` has the same
//! semantics, but parks threads in a global table, which a forked Python process may have copied
//! in its locked state.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A [`Mutex`] whose poisoning is ignored.
pub trait MutexExt<T> {
    /// Waits for the lock.
    fn locked(&self) -> MutexGuard<'_, T>;

    /// The value, by the exclusive reference; locks nothing.
    fn value_mut(&mut self) -> &mut T;

    /// The value; locks nothing.
    fn into_value(self) -> T;
}

impl<T> MutexExt<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn value_mut(&mut self) -> &mut T {
        self.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_value(self) -> T {
        self.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An [`RwLock`] whose poisoning is ignored.
pub trait RwLockExt<T> {
    /// Waits until no writer holds the lock.
    fn read_locked(&self) -> RwLockReadGuard<'_, T>;

    /// Waits until nobody else holds the lock.
    fn write_locked(&self) -> RwLockWriteGuard<'_, T>;
}

impl<T> RwLockExt<T> for RwLock<T> {
    fn read_locked(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_locked(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_usable_after_a_panic_of_its_holder() {
        let mutex = Mutex::new(1);
        let rw = RwLock::new(1);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _held = (mutex.locked(), rw.write_locked());
                    panic!("with both locks held");
                })
                .join()
                .is_err()
        });
        assert!(panicked && mutex.is_poisoned() && rw.is_poisoned());

        *mutex.locked() += 1;
        *rw.write_locked() += 1;

        assert_eq!((*mutex.locked(), *rw.read_locked()), (2, 2));
        assert_eq!(mutex.into_value(), 2);
    }
}

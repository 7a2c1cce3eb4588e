//! One lock per object, created on first use and removed with its last holder.
//!
//! Serializes writers of one object; readers never take it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use forebay_core::locks::MutexExt;
use tokio::sync::OwnedMutexGuard;

use super::Key;

type Lock = tokio::sync::Mutex<()>;

/// The locks that are held or waited for.
#[derive(Debug, Default)]
pub(crate) struct KeyLocks(Mutex<HashMap<Key, Weak<Lock>>>);

/// While it is held, no other writer of the object runs.
#[must_use]
#[derive(Debug)]
pub(crate) struct KeyGuard {
    _guard: OwnedMutexGuard<()>,
}

impl KeyLocks {
    /// Waits for the object's lock. Cancel-safe: dropping the future leaves the queue.
    pub(crate) async fn lock(&self, key: &Key) -> KeyGuard {
        let lock = {
            let mut table = self.0.locked();
            if table.len() > 1024 && table.len().is_power_of_two() {
                table.retain(|_, lock| lock.strong_count() > 0);
            }
            match table.get(key).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::new(Lock::default());
                    table.insert(key.clone(), Arc::downgrade(&lock));
                    lock
                }
            }
        };
        KeyGuard { _guard: lock.lock_owned().await }
    }

    /// Returns when each lock that is held now has been released.
    pub(crate) async fn drained(&self) {
        let held: Vec<Arc<Lock>> = {
            let table = self.0.locked();
            table.values().filter_map(Weak::upgrade).collect()
        };
        for lock in held {
            drop(lock.lock().await);
        }
    }

    /// Whether a writer holds the object's lock.
    pub(crate) fn is_held(&self, key: &Key) -> bool {
        let lock = {
            let table = self.0.locked();
            table.get(key).and_then(Weak::upgrade)
        };
        lock.is_some_and(|lock| lock.try_lock().is_err())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_writer_of_an_object_at_a_time() {
        let locks = Arc::new(KeyLocks::default());
        let key = Key { bucket_id: 1, name: "a".into() };
        let first = locks.lock(&key).await;
        let other = locks.lock(&Key { bucket_id: 1, name: "b".into() }).await;
        let second = tokio::spawn({
            let (locks, key) = (locks.clone(), key.clone());
            async move { locks.lock(&key).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        assert!(locks.is_held(&key));
        let drained = tokio::spawn({
            let locks = locks.clone();
            async move { locks.drained().await }
        });
        tokio::task::yield_now().await;
        assert!(!drained.is_finished());
        drop((first, other));
        assert!(second.await.is_ok());
        assert!(drained.await.is_ok());
        assert!(!locks.is_held(&key));
    }
}

//! `forebay serve --idle-stop`: stops a server that is started on demand when it has no users left.
//!
//! A user holds a shared lock on `DIR/users`, which the system releases when the user ends. A
//! server that stops takes the exclusive lock until its process has ended, so that no new user
//! begins to use it meanwhile.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_node::lifecycle::Lifecycle;
use tokio::time::sleep;

use crate::home;
use crate::node::Stopped;

/// Shortest and longest polling interval.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The idle timeout of a server.
#[derive(Debug)]
pub(crate) struct IdleStop {
    after: Duration,
    users: PathBuf,
    file: File,
}

impl IdleStop {
    /// Makes the file that users of the server in `dir` lock.
    pub(crate) fn new(dir: &Path, after: Duration) -> Result<Self, Stopped> {
        let users = dir.join("users");
        let file = fs::OpenOptions::new().create(true).append(true).open(&users);
        let file = file.map_err(|e| home::failed(&users, &e))?;
        Ok(Self { after, users, file })
    }

    /// Waits until the server has had no user for the idle timeout, and stops it. The caller must
    /// hold the returned lock until the process ends.
    pub(crate) async fn watch(self, lifecycle: Lifecycle) -> Option<File> {
        let stop = lifecycle.token();
        let every = (self.after / 8).clamp(LOOK_EVERY.0, LOOK_EVERY.1);
        loop {
            tokio::select! {
                () = stop.cancelled() => return None,
                () = sleep(every) => {}
            }
            match self.file.try_lock() {
                Ok(()) => {
                    let quiet = lifecycle.activity().quiet_for();
                    if quiet >= self.after {
                        tracing::info!(?quiet, "nobody uses this server; stopping");
                        stop.cancel();
                        return Some(self.file);
                    }
                    if let Err(error) = self.file.unlock() {
                        // A user would wait for the lock without end: stop the server instead.
                        tracing::error!(%error, file = %self.users.display(), "cannot unlock");
                        stop.cancel();
                        return Some(self.file);
                    }
                }
                Err(TryLockError::WouldBlock) => lifecycle.activity().touch(),
                Err(TryLockError::Error(error)) => {
                    tracing::warn!(%error, file = %self.users.display(), "cannot lock");
                    lifecycle.activity().touch();
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Instant;

    use super::*;

    const AFTER: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_server_stops_once_its_last_user_is_gone_for_long_enough() {
        let dir = tempfile::tempdir().unwrap();
        let user = File::create(dir.path().join("users")).unwrap();
        user.lock_shared().unwrap();
        let lifecycle = Lifecycle::new();
        let idle = IdleStop::new(dir.path(), AFTER).unwrap();
        let watch = tokio::spawn(idle.watch(lifecycle.clone()));
        sleep(AFTER * 2).await;
        assert!(!lifecycle.token().is_cancelled());
        drop(user);
        let left = Instant::now();
        let held = watch.await.unwrap().unwrap();
        assert!(left.elapsed() >= AFTER - LOOK_EVERY.0 * 2, "{:?}", left.elapsed());
        assert!(lifecycle.token().is_cancelled());
        let late = File::open(dir.path().join("users")).unwrap();
        assert!(matches!(late.try_lock_shared(), Err(TryLockError::WouldBlock)));
        drop(held);
        late.try_lock_shared().unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_stopped_otherwise_needs_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lifecycle = Lifecycle::new();
        let idle = IdleStop::new(dir.path(), Duration::from_secs(60)).unwrap();
        let watch = tokio::spawn(idle.watch(lifecycle.clone()));
        lifecycle.token().cancel();
        assert!(watch.await.unwrap().is_none());
    }
}

//! Limits the open connections of a process, so that file descriptors stay available for files.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use forebay_core::Error;
use forebay_core::locks::MutexExt;
use tokio::net::TcpStream;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::bare_answer::send_error;
use crate::exchange::Observer;

/// The cap if the limit of open files is unknown.
const DEFAULT_CAP: usize = 4096;
/// Minimum number of descriptors reserved for files and for connections to other nodes, but at most
/// half of all.
const LEAST_RESERVE: usize = 256;
/// The reserve as a fraction of all descriptors: one in this many.
const RESERVE_SHARE: usize = 4;
/// Connections above the cap that may be open while older ones end: one for this many of the cap.
const OVERFLOW_SHARE: usize = 16;
/// Maximum number of refusals sent at the same time; further connections are closed without one.
const MAX_REFUSALS: usize = 32;
/// How long a refused client may take to read the refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection cap of a process with this many descriptors.
fn cap_of(descriptors: Option<usize>) -> usize {
    let Some(all) = descriptors else { return DEFAULT_CAP };
    let reserve = (all / RESERVE_SHARE).max(LEAST_RESERVE.min(all / 2));
    all.saturating_sub(reserve).max(8)
}

/// The process's limit of open files.
#[allow(unsafe_code)]
fn descriptors() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is of the right type and outlives the call.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (done == 0).then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// All connections of the process when descriptors are the limit: roles that share a process share
/// them.
static OF_PROCESS: LazyLock<Connections> =
    LazyLock::new(|| Connections::with_cap(cap_of(descriptors())));

/// Open connections that count against one cap; cheap to clone.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Shared>);

struct Shared {
    cap: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    count: usize,
    refusals: usize,
    next: u64,
    /// Connections that were not asked to end, the oldest first.
    by_age: BTreeMap<u64, CancellationToken>,
}

/// An open connection; closed for accounting when dropped.
pub(crate) struct Connection {
    connections: Connections,
    number: u64,
    /// Cancelled when the connection has to end after its current request.
    pub(crate) end: CancellationToken,
}

/// A permit to answer a refused connection, if one is available.
pub(crate) struct Refusal(Option<Connections>);

impl Connections {
    /// At most `cap`; 0 means as many as the process's descriptors allow.
    pub(crate) fn new(cap: usize) -> Self {
        if cap == 0 { OF_PROCESS.clone() } else { Self::with_cap(cap) }
    }

    fn with_cap(cap: usize) -> Self {
        Self(Arc::new(Shared { cap, open: Mutex::default() }))
    }

    pub(crate) fn cap(&self) -> usize {
        self.0.cap
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.locked()
    }

    /// Registers a connection, which also ends when `stop` is cancelled. Above the cap the oldest
    /// connection is ended: immediately if it is idle, otherwise after its request.
    pub(crate) fn enter(&self, stop: &CancellationToken) -> Result<Connection, Refusal> {
        let mut open = self.open();
        if open.count >= self.0.cap {
            if let Some((_, oldest)) = open.by_age.pop_first() {
                oldest.cancel();
            }
            if open.count >= self.0.cap + self.0.cap / OVERFLOW_SHARE {
                let answers = open.refusals < MAX_REFUSALS;
                open.refusals += usize::from(answers);
                return Err(Refusal(answers.then(|| self.clone())));
            }
        }
        open.count += 1;
        open.next += 1;
        let (number, end) = (open.next, stop.child_token());
        open.by_age.insert(number, end.clone());
        drop(open);
        Ok(Connection { connections: self.clone(), number, end })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.count -= 1;
        open.by_age.remove(&self.number);
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        if let Some(connections) = &self.0 {
            connections.open().refusals -= 1;
        }
    }
}

impl Refusal {
    /// Sends the refusal if a permit is available.
    pub(crate) async fn send(self, stream: TcpStream, node: &str, observer: &Observer) {
        if self.0.is_some() {
            send_error(stream, &too_many_connections(), node, observer, REFUSAL_TIMEOUT).await;
        }
    }
}

fn too_many_connections() -> Error {
    Error::unavailable("this node has as many connections as it may").retry_after(1).hint(
        "retry later, reuse connections, or raise limits.connections and the limit of open files",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_kept_for_files() {
        for (all, cap) in [(64, 32), (400, 200), (1024, 768), (20_000, 15_000), (4, 8)] {
            assert_eq!(cap_of(Some(all)), cap, "{all}");
        }
        assert_eq!(cap_of(None), DEFAULT_CAP);
    }

    #[test]
    fn above_the_cap_the_oldest_connection_ends_and_far_above_it_new_ones_are_refused() {
        let (connections, stop) = (Connections::new(16), CancellationToken::new());
        let enter = || connections.enter(&stop);
        let mut all: Vec<_> = (0..16).filter_map(|_| enter().ok()).collect();
        assert!(all.iter().all(|c| !c.end.is_cancelled()));
        all.extend(enter().ok());
        assert_eq!((all.len(), all[0].end.is_cancelled()), (17, true));
        assert!(!all[1].end.is_cancelled());
        let refused: Vec<_> = (0..40).filter_map(|_| enter().err()).collect();
        assert_eq!(refused.len(), 40);
        assert_eq!(refused.iter().filter(|r| r.0.is_some()).count(), MAX_REFUSALS);
        drop((refused, all));
        assert!(enter().is_ok_and(|c| !c.end.is_cancelled()));
        assert_eq!(connections.open().refusals, 0);
    }
}

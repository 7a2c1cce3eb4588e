//! One tokio runtime per process, made anew in a forked child, and the bridge from a blocking
//! Python call into it.
//!
//! A fork copies the parent's memory but none of its threads. The parent's runtime, and everything
//! that would talk to it when dropped, is therefore left alone for ever in the child: leaking is
//! safe, joining or waking threads that do not exist is not.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

/// How often a waiting call looks for Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// Every DataLoader worker is a process with these threads; they wait for sockets and decode.
const THREADS: usize = 2;

struct PerProcess {
    pid: u32,
    runtime: Runtime,
}

/// Locked only by a thread that holds the GIL, and never across its release. A thread that forks
/// holds the GIL too, so the child never inherits this locked.
static CURRENT: Mutex<Option<&'static PerProcess>> = Mutex::new(None);

/// The runtime of this process.
pub(crate) fn runtime(_py: Python<'_>) -> PyResult<&'static Runtime> {
    let pid = std::process::id();
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = *current
        && own.pid == pid
    {
        return Ok(&own.runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("forebay")
        .enable_all()
        .build()
        .map_err(|e| PyRuntimeError::new_err(format!("cannot start threads: {e}")))?;
    let own: &'static PerProcess = Box::leak(Box::new(PerProcess { pid, runtime }));
    *current = Some(own);
    Ok(&own.runtime)
}

/// Runs a future to its end without the GIL. Ctrl-C drops the future, which cancels it, and raises.
pub(crate) fn block_on<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime(py)?;
    let _context = runtime.enter();
    let mut future = Box::pin(future);
    loop {
        let step = py.detach(|| {
            runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, &mut future).await })
        });
        match step {
            Ok(output) => return Ok(output),
            Err(_elapsed) => py.check_signals()?,
        }
    }
}

/// A value tied to the runtime of the process that made it: out of reach in a forked child, and
/// not dropped there.
pub(crate) struct Owned<T> {
    pid: u32,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// The value, or `None` in a process that did not make it.
    pub(crate) fn get(&self) -> Option<&T> {
        (self.pid == std::process::id()).then_some(&*self.value)
    }

    /// As [`Self::get`], to change it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        (self.pid == std::process::id()).then_some(&mut *self.value)
    }
}

impl<T> Drop for Owned<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

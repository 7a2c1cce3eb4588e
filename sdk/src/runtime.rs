//! One tokio runtime per process, made anew in a forked child, and the bridge from a blocking
//! Python call into it.
//!
//! A fork copies the parent's memory but none of its threads. The parent's runtime, and everything
//! that would talk to it when dropped, is therefore left alone for ever in the child: leaking is
//! safe, joining or waking threads that do not exist is not.

use std::cell::RefCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often a waiting call looks for Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// Every DataLoader worker is a process with these threads; they wait for sockets and decode.
const THREADS: usize = 2;
/// No more than 32 MiB, with which glibc's adaption ends, and what it adds to a piece.
const RETAINED_BYTES: usize = (32 << 20) - (64 << 10);

struct PerProcess {
    pid: u32,
    runtime: OnceLock<std::io::Result<&'static Runtime>>,
}

/// No lock guards it: a fork may come at any moment, and a child could not open what a thread of
/// its parent had closed.
static CURRENT: ArcSwapOption<PerProcess> = ArcSwapOption::const_empty();

/// The runtime of this process.
pub(crate) fn runtime(_py: Python<'_>) -> PyResult<&'static Runtime> {
    let pid = std::process::id();
    let own = loop {
        let current = CURRENT.load_full();
        if let Some(own) = current.as_ref().filter(|own| own.pid == pid) {
            break own.clone();
        }
        let new = Arc::new(PerProcess { pid, runtime: OnceLock::new() });
        // Whoever was first, the next look finds one.
        CURRENT.compare_and_swap(&current, Some(new));
    };
    let made = own.runtime.get_or_init(|| {
        keep_freed_memory();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("forebay")
            .enable_all()
            .build()?;
        Ok(&*Box::leak(Box::new(runtime)))
    });
    made.as_ref()
        .copied()
        .map_err(|e| PyRuntimeError::new_err(format!("cannot start threads: {e}")))
}

/// Has glibc keep freed memory. A loop frees each batch when it has the next: given back to the system,
/// its pages would be had anew for every one, which costs more than what fills them. Settings of the
/// user's stay.
fn keep_freed_memory() {
    let is_set =
        |name, what| std::env::var_os(name).is_some_and(|set| set.to_string_lossy().contains(what));
    if is_set("MALLOC_TRIM_THRESHOLD_", "") || is_set("GLIBC_TUNABLES", "trim_threshold") {
        return;
    }
    // glibc takes the largest mapped piece that was freed for the size of what comes and goes, and
    // keeps twice as much. It must have adapted before a setting ends the adaption.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(RETAINED_BYTES)));
    // Two objects of that size, what a program makes of one, and as much again in pieces between them.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: takes two numbers, and a lock of the allocator's own.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * RETAINED_BYTES as libc::c_int);
    }
}

thread_local! {
    /// Ends the calls of this thread when another says so.
    static CANCEL: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// Lets one thread end the calls that another one waits for.
#[pyclass(module = "forebay._core", frozen)]
#[derive(Default)]
pub(crate) struct Cancel {
    token: CancellationToken,
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Whatever `run` waits for ends now, and what it begins to wait for later does so at once.
    fn cancel(&self) {
        self.token.cancel();
    }

    /// What `function` returns; its calls can be cancelled meanwhile.
    #[pyo3(signature = (function, /, *args, **kwargs))]
    fn run<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let before = CANCEL.replace(Some(self.token.clone()));
        let result = function.call(args, kwargs);
        CANCEL.set(before);
        result
    }
}

/// Runs a future to its end without the GIL. Ctrl-C drops the future, which cancels it, and raises;
/// so does [`Cancel`].
pub(crate) fn block_on<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime(py)?;
    let _context = runtime.enter();
    let cancel = CANCEL.with_borrow(|cancel| cancel.clone()).unwrap_or_default();
    let mut future = Box::pin(future);
    loop {
        let step = py.detach(|| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => None,
                    step = tokio::time::timeout(SIGNAL_INTERVAL, &mut future) => Some(step),
                }
            })
        });
        match step {
            None => return Err(PyRuntimeError::new_err("the call was cancelled")),
            Some(Ok(output)) => return Ok(output),
            Some(Err(_elapsed)) => py.check_signals()?,
        }
    }
}

/// What threads without the GIL work at, whatever the one that began it does meanwhile. Only the process
/// that began it has the outcome. Dropped, it ends.
pub(crate) struct Pending<T> {
    work: Mutex<Option<Owned<Work<T>>>>,
}

struct Work<T>(JoinHandle<T>);

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Begins it.
    pub(crate) fn begin(
        py: Python<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PyResult<Self> {
        let work = Work(runtime(py)?.spawn(work));
        Ok(Self { work: Mutex::new(Some(Owned::new(work))) })
    }

    /// Whether the outcome is there, or was taken.
    pub(crate) fn is_done(&self) -> bool {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.as_ref().and_then(Owned::get).is_none_or(|work| work.0.is_finished())
    }

    /// Waits for the outcome, which is had once.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<T> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let work = work.ok_or_else(|| PyRuntimeError::new_err("this was taken before"))?;
        let Some(mut work) = work.into_inner() else {
            return Err(PyRuntimeError::new_err("this was asked for by the parent process"));
        };
        block_on(py, &mut work.0)?
            .map_err(|e| PyRuntimeError::new_err(format!("this ended unexpectedly: {e}")))
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

    /// The value itself.
    #[allow(unsafe_code)]
    pub(crate) fn into_inner(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, as `this` is neither used again nor dropped.
        (this.pid == std::process::id()).then(|| unsafe { ManuallyDrop::take(&mut this.value) })
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

//! One tokio runtime per process, created anew in a forked child, and the bridge from a blocking
//! Python call to it.
//!
//! A fork copies the parent's memory but none of its threads. The child therefore never uses or
//! drops the parent's runtime and values that depend on it: a leak is safe, joining or waking
//! threads that do not exist is not.

use std::cell::RefCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use forebay_client::Recorder;
use forebay_core::locks::MutexExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::call_scope::CallScope;
use crate::waits;

/// Interval at which a waiting call checks for Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// Every DataLoader worker is a process with this many threads; they wait for sockets and decode.
const THREADS: usize = 2;
/// Less than 32 MiB, the limit of glibc's dynamic threshold, minus glibc's overhead per allocation.
const RETAINED_BYTES: usize = (32 << 20) - (64 << 10);

struct PerProcess {
    pid: u32,
    runtime: OnceLock<std::io::Result<&'static Runtime>>,
}

/// Without a lock: a fork may happen at any moment, and the child could not release a lock that a
/// thread of its parent held.
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
        // If another thread was faster, the next iteration finds its value.
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

/// Makes glibc keep freed memory. A loop frees each batch when it has the next one: if the pages
/// were returned to the system, page faults for every batch would cost more than filling it.
/// Settings of the user take precedence.
fn keep_freed_memory() {
    let is_set =
        |name, what| std::env::var_os(name).is_some_and(|set| set.to_string_lossy().contains(what));
    if is_set("MALLOC_TRIM_THRESHOLD_", "") || is_set("GLIBC_TUNABLES", "trim_threshold") {
        return;
    }
    // glibc sets its dynamic threshold to the size of the largest freed mmap'd chunk, and keeps
    // twice as much. This must happen before `mallopt`, which ends the adaption.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(RETAINED_BYTES)));
    // Two objects of that size, the program's results of one, and as much again in fragments
    // between them.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: takes two numbers, and a lock of the allocator's own.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * RETAINED_BYTES as libc::c_int);
    }
}

thread_local! {
    /// Cancels the calls of this thread on request of another thread.
    static CANCEL: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// Lets one thread cancel the calls that another thread waits for.
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

    /// Cancels the calls of `run`: the current one, and later ones immediately.
    fn cancel(&self) {
        self.token.cancel();
    }

    /// Runs `function` and returns its result; its calls can be cancelled meanwhile.
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

/// Runs a future to its end without the GIL. Ctrl-C or [`Cancel`] drops the future, which cancels
/// it, and raises an exception.
pub(crate) fn block_on<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    block_on_in(py, &CallScope::of_thread(), future)
}

/// [`block_on`] in the scope of a call that may have started before.
pub(crate) fn block_on_in<F>(py: Python<'_>, scope: &CallScope, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let future = scope.within_span(future);
    match &scope.recorder {
        Some(recorder) => block_on_observed(py, recorder, future),
        None => block_on_unobserved(py, future),
    }
}

/// Runs a future and divides the wait for it by the exchanges of this recorder.
fn block_on_observed<F>(py: Python<'_>, recorder: &Arc<Recorder>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let started = Instant::now();
    let call = waits::observed(Some(recorder.clone()), future);
    let (output, ended) = block_on_unobserved(py, call)?;
    waits::waited(recorder, started, ended);
    Ok(output)
}

fn block_on_unobserved<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
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

/// A task in the background that needs no GIL and continues while the Python thread does other
/// work. Only the process that started it can take the result. Dropping it cancels the task.
pub(crate) struct Pending<T> {
    work: Mutex<Option<Owned<Work<T>>>>,
    scope: CallScope,
}

struct Work<T>(JoinHandle<T>);

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Starts the task.
    pub(crate) fn begin(
        py: Python<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PyResult<Self> {
        let scope = CallScope::of_thread();
        let runtime = runtime(py)?;
        let work = scope.within_span(work);
        let work = match scope.recorder.clone() {
            Some(recorder) => runtime.spawn(recorder.scope(work)),
            None => runtime.spawn(work),
        };
        Ok(Self { work: Mutex::new(Some(Owned::new(Work(work)))), scope })
    }

    /// Whether the result is available, or was taken.
    pub(crate) fn is_done(&self) -> bool {
        let work = self.work.locked();
        work.as_ref().and_then(Owned::get).is_none_or(|work| work.0.is_finished())
    }

    /// Waits for the result, which can be taken once.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<T> {
        let work = self.work.locked().take();
        let work = work.ok_or_else(|| PyRuntimeError::new_err("this was taken before"))?;
        let Some(mut work) = work.into_inner() else {
            return Err(PyRuntimeError::new_err("this was asked for by the parent process"));
        };
        let output = block_on_in(py, &self.scope, &mut work.0);
        output?.map_err(|e| PyRuntimeError::new_err(format!("this ended unexpectedly: {e}")))
    }
}

/// A value tied to the runtime of the process that created it: not accessible in a forked child,
/// and not dropped there.
pub(crate) struct Owned<T> {
    pid: u32,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// The value, or `None` in a process that did not create it.
    pub(crate) fn get(&self) -> Option<&T> {
        (self.pid == std::process::id()).then_some(&*self.value)
    }

    /// Takes the value; `None` in a process that did not create it.
    #[allow(unsafe_code)]
    pub(crate) fn into_inner(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, as `this` is neither used again nor dropped.
        (this.pid == std::process::id()).then(|| unsafe { ManuallyDrop::take(&mut this.value) })
    }

    /// As [`Self::get`], mutable.
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

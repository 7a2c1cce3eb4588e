//! Batches: builds requests from flat lists and returns the results as buffers and exceptions.
//! `_core.BatchStream` returns results one by one, `_core.PendingBatch` all of them later.

use std::sync::Mutex;
use std::time::Instant;

use bytes::Bytes;
use forebay_client::{BatchItem, BatchStream as NativeStream, Client, Result};
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ObjectName};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::{Buffer, BytesRooms, GIL_IS_FREE};
use crate::call_scope::CallScope;
use crate::client::parse_bucket;
use crate::error::{exception, raise};
use crate::runtime::{self, Owned, Pending};
use crate::waits;

/// The part of an object that is read: a member of the shard (or empty), offset, length.
pub(crate) type Part = (String, Option<u64>, Option<u64>);

/// The request for `names[i]` in `buckets[bucket_of[i]]`, in this order. Without `bucket_of` all
/// are in the first bucket, without `parts` they are whole objects.
pub(crate) fn request(
    py: Python<'_>,
    buckets: &[String],
    bucket_of: Option<&[u32]>,
    names: &[PyBackedStr],
    parts: Option<Vec<Part>>,
) -> PyResult<BatchRequest> {
    if parts.as_ref().is_some_and(|parts| parts.len() != names.len()) {
        return Err(raise(py, Error::invalid("a batch needs one part per name, or none at all")));
    }
    if bucket_of.is_some_and(|bucket_of| bucket_of.len() != names.len()) {
        return Err(raise(py, Error::invalid("a batch needs one bucket index per name")));
    }
    let buckets = buckets.iter().map(|uri| parse_bucket(py, uri)).collect::<PyResult<_>>()?;
    let mut parts = parts.into_iter().flatten();
    let entries = names
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let bucket = bucket_of.map_or(0, |bucket_of| bucket_of[at]);
            let whole = BatchEntry::whole(bucket, ObjectName::new(name)?);
            let Some((archpath, start, length)) = parts.next() else { return Ok(whole) };
            let range = (start.is_some() || length.is_some()).then(|| (start.unwrap_or(0), length));
            Ok(BatchEntry { archpath, range, ..whole })
        })
        .collect::<forebay_core::Result<_>>()
        .map_err(|e| raise(py, e))?;
    Ok(BatchRequest { buckets, entries, ordered: true })
}

/// The Python type of a result's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A `Buffer` over the received memory, without a copy.
    Shared,
    /// A `bytes` with a copy: the cheapest Python object for small content.
    Bytes,
}

/// One result as a Python object.
pub(crate) fn answer(
    py: Python<'_>,
    answer: forebay_core::Result<Bytes>,
    content: Content,
) -> PyResult<Bound<'_, PyAny>> {
    match answer {
        Ok(bytes) if content == Content::Bytes => Ok(PyBytes::new(py, &bytes).into_any()),
        Ok(bytes) => Ok(Bound::new(py, Buffer::from(bytes))?.into_any()),
        Err(e) => exception(py, e),
    }
}

/// [`answer`] for one of many results; `raises`: a failure is raised instead of returned.
fn one_of(
    py: Python<'_>,
    result: forebay_core::Result<Bytes>,
    content: Content,
    raises: bool,
) -> PyResult<Bound<'_, PyAny>> {
    match result {
        Err(e) if raises => Err(raise(py, e)),
        result => answer(py, result, content),
    }
}

/// Received bytes that are converted together while a batch is read.
const COPIED: usize = 512 << 10;

/// Reads a batch; returns the results in the order of the request. Large `bytes` results are
/// received directly into their objects. Small ones are copied as they arrive, while they are in
/// the CPU's caches and the targets send the rest.
pub(crate) fn read_all<'py>(
    py: Python<'py>,
    client: Client,
    request: BatchRequest,
    content: Content,
    raises: bool,
) -> PyResult<Bound<'py, PyList>> {
    let mut answers = Answers::new(request.entries.len(), content, raises);
    let rooms = answers.rooms.as_ref().map(BytesRooms::rooms);
    let reading = client.batch_runs(request, rooms, |run| answers.take(run));
    runtime::block_on(py, reading)?.map_err(|e| raise(py, e))?;
    let (started, bytes) = (waits::work(), answers.total);
    let list = answers.finish(py);
    waits::worked(started, bytes);
    list
}

/// The results of a batch that is being read.
struct Answers {
    content: Content,
    raises: bool,
    made: Vec<Option<PyResult<Py<PyAny>>>>,
    /// Results that were received and are not Python objects yet, and their size in bytes.
    waiting: Vec<BatchItem>,
    bytes: usize,
    /// Bytes of all results.
    total: usize,
    rooms: Option<BytesRooms>,
    /// No other thread waits for the GIL; otherwise the rest is converted at the end.
    is_free: bool,
}

impl Answers {
    fn new(count: usize, content: Content, raises: bool) -> Self {
        let mut made = Vec::new();
        made.resize_with(count, || None);
        let is_free = content == Content::Bytes;
        let rooms = is_free.then(BytesRooms::default);
        Self { content, raises, made, waiting: Vec::new(), bytes: 0, total: 0, rooms, is_free }
    }

    fn take(&mut self, run: Vec<BatchItem>) {
        for BatchItem { index, result } in run {
            self.total += result.as_ref().map_or(0, Bytes::len);
            let result = match (result, &self.rooms) {
                (Ok(bytes), Some(rooms)) => match rooms.take_out(bytes) {
                    Ok(object) => {
                        self.made[index] = Some(Ok(object.into_any()));
                        continue;
                    }
                    Err(bytes) => Ok(bytes),
                },
                (result, _) => result,
            };
            self.bytes += result.as_ref().map_or(0, Bytes::len);
            self.waiting.push(BatchItem { index, result });
        }
        if self.is_free && self.bytes >= COPIED {
            let started = Instant::now();
            Python::attach(|py| {
                self.is_free = started.elapsed() < GIL_IS_FREE;
                self.make(py);
            });
        }
    }

    /// Converts the waiting results.
    fn make(&mut self, py: Python<'_>) {
        self.bytes = 0;
        for BatchItem { index, result } in self.waiting.drain(..) {
            let one = one_of(py, result, self.content, self.raises);
            self.made[index] = Some(one.map(Bound::unbind));
        }
    }

    fn finish(mut self, py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
        self.make(py);
        let missing = || Err(raise(py, Error::internal("an entry of the batch was left out")));
        let made = self.made.into_iter().map(|one| one.unwrap_or_else(missing));
        PyList::new(py, made.collect::<PyResult<Vec<Py<PyAny>>>>()?)
    }
}

/// All results as Python objects; `raises`: the first failure is raised.
pub(crate) fn answers(
    py: Python<'_>,
    answers: Vec<forebay_core::Result<Bytes>>,
    content: Content,
    raises: bool,
) -> PyResult<Bound<'_, PyList>> {
    let (started, mut bytes) = (waits::work(), 0);
    let list = PyList::empty(py);
    for one in answers {
        bytes += one.as_ref().map_or(0, Bytes::len);
        list.append(one_of(py, one, content, raises)?)?;
    }
    waits::worked(started, bytes);
    Ok(list)
}

type Read = Result<Vec<forebay_core::Result<Bytes>>>;

/// A batch that is read in the background.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct PendingBatch {
    reading: Pending<Read>,
    content: Content,
    raises: bool,
}

impl PendingBatch {
    pub(crate) fn begin(
        py: Python<'_>,
        client: Client,
        request: BatchRequest,
        content: Content,
        raises: bool,
    ) -> PyResult<Self> {
        let reading = Pending::begin(py, async move { client.batch_all(&request).await })?;
        Ok(Self { reading, content, raises })
    }
}

#[pymethods]
impl PendingBatch {
    /// Waits for all results; they can be taken once.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let read = self.reading.wait(py)?.map_err(|e| raise(py, e))?;
        answers(py, read, self.content, self.raises)
    }
}

/// Iterator over the results of a batch in runs of those that have arrived, each with its position
/// in the request. Only the process that sent the request can read on.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct BatchStream {
    /// Taken out while waiting for a result, so that the lock is never held without the GIL.
    stream: Mutex<Option<Owned<NativeStream>>>,
    scope: CallScope,
}

impl From<NativeStream> for BatchStream {
    fn from(stream: NativeStream) -> Self {
        Self { stream: Mutex::new(Some(Owned::new(stream))), scope: CallScope::of_thread() }
    }
}

/// Results with their positions.
type Run<'py> = Vec<(usize, Bound<'py, PyAny>)>;

#[pymethods]
impl BatchStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Run<'py>>> {
        let slot = || self.stream.locked();
        let Some(mut stream) = slot().take() else { return Ok(None) };
        let Some(native) = stream.get_mut() else {
            *slot() = Some(stream);
            return Err(PyRuntimeError::new_err("this batch was sent by the parent process"));
        };
        let Some(run) = runtime::block_on_in(py, &self.scope, native.next_run())? else {
            return Ok(None);
        };
        *slot() = Some(stream);
        let bytes = run.iter().map(|item| item.result.as_ref().map_or(0, Bytes::len)).sum();
        waits::worked(waits::work(), bytes);
        let answer = |item: BatchItem| {
            answer(py, item.result, Content::Shared).map(|answer| (item.index, answer))
        };
        run.into_iter().map(answer).collect::<PyResult<_>>().map(Some)
    }
}

//! Shards: `_core.ShardStream` (the samples of a shard as they arrive), and indexes of many shards
//! as flat buffers.

mod index;
mod parts;

use std::sync::Mutex;

use forebay_client::{Sample, ShardItem, ShardStream as NativeStream};
use forebay_core::Error;
use forebay_core::locks::MutexExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::call_scope::CallScope;
use crate::error::raise;
use crate::runtime::{self, Owned};
use crate::waits;
use parts::Parts;

pub(crate) use index::{answer, archive_format, fetch, sample_layout, split_member};

/// Maximum number of samples in a run.
const RUN: usize = 256;

/// Iterator over the samples of a shard, as key and parts by extension, or over its members, as
/// name and content. After the failure of one sample it continues with the next. Only the process
/// that opened it can read on.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct ShardStream {
    /// Taken out while waiting for an item, so that the lock is never held without the GIL.
    reading: Mutex<Option<Owned<Reading>>>,
    /// Whether items are members.
    flat: bool,
}

/// Key and parts of a sample, or name and content of a member.
type Item<'py> = (Bound<'py, PyString>, Bound<'py, PyAny>);

struct Reading {
    stream: NativeStream,
    scope: CallScope,
    /// A failure after the last run, which the next call raises.
    failure: Option<Error>,
}

impl Reading {
    /// Waits for the next item.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<ShardItem>> {
        if let Some(failure) = self.failure.take() {
            return Ok(Some(Err(failure)));
        }
        match self.stream.try_next() {
            Some(next) => Ok(next),
            None => runtime::block_on_in(py, &self.scope, self.stream.next()),
        }
    }

    /// `first` and the samples that are available without waiting, up to the first failure.
    fn run(&mut self, first: Sample<Vec<u8>>) -> Vec<Sample<Vec<u8>>> {
        let mut run = vec![first];
        while run.len() < RUN
            && let Some(Some(item)) = self.stream.try_next()
        {
            match item {
                Ok(sample) => run.push(sample),
                Err(e) => {
                    self.failure = Some(e);
                    break;
                }
            }
        }
        run
    }
}

impl ShardStream {
    pub(crate) fn new(stream: NativeStream, scope: CallScope, flat: bool) -> Self {
        let reading = Reading { stream, scope, failure: None };
        Self { reading: Mutex::new(Some(Owned::new(reading))), flat }
    }

    /// Runs `read`; `None` at the end.
    fn with<T>(
        &self,
        read: impl FnOnce(&mut Reading) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        let slot = || self.reading.locked();
        let Some(mut owned) = slot().take() else { return Ok(None) };
        let Some(reading) = owned.get_mut() else {
            *slot() = Some(owned);
            return Err(PyRuntimeError::new_err("this shard was opened by the parent process"));
        };
        let Some(item) = read(reading)? else { return Ok(None) };
        *slot() = Some(owned);
        Ok(Some(item))
    }
}

#[pymethods]
impl ShardStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Item<'py>>> {
        let Some(item) = self.with(|reading| reading.next(py))? else { return Ok(None) };
        let mut sample = item.map_err(|e| raise(py, e))?;
        let (started, bytes) = (waits::work(), sample.parts.iter().map(|(_, data)| data.len()));
        let bytes = bytes.sum();
        let key = PyString::new(py, &sample.key);
        if self.flat {
            let data = sample.parts.pop().map(|(_, data)| data).unwrap_or_default();
            let data = PyBytes::new(py, &data).into_any();
            waits::worked(started, bytes);
            return Ok(Some((key, data)));
        }
        let parts = Parts::plain(py).of(&key, sample.parts)?;
        waits::worked(started, bytes);
        Ok(Some((key, parts.into_any())))
    }

    /// The next available samples, at least one, as key and parts in a dict like `like`; empty at
    /// the end.
    fn next_run<'py>(
        &self,
        py: Python<'py>,
        like: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyList>> {
        let parts = Parts::like(like)?;
        let run = self.with(|reading| {
            let first = reading.next(py)?;
            Ok(first.map(|first| first.map(|first| reading.run(first))))
        });
        let Some(run) = run? else { return Ok(PyList::empty(py)) };
        let mut made = Vec::with_capacity(RUN);
        let (started, mut bytes) = (waits::work(), 0);
        for sample in run.map_err(|e| raise(py, e))? {
            bytes += sample.parts.iter().map(|(_, data)| data.len()).sum::<usize>();
            let key = PyString::new(py, &sample.key);
            made.push((parts.of(&key, sample.parts)?, key));
        }
        let list = PyList::new(py, made.into_iter().map(|(parts, key)| (key, parts)));
        waits::worked(started, bytes);
        list
    }

    /// Stops reading.
    fn close(&self) {
        drop(self.reading.locked().take());
    }
}

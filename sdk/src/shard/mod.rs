//! Shards: `_core.ShardStream`, the samples of one as they arrive, and indexes of many as flat
//! buffers.

mod index;

use std::sync::{Mutex, PoisonError};

use forebay_client::{ShardItem, ShardStream as NativeStream};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::raise;
use crate::runtime::{self, Owned};

pub(crate) use index::{answer, archive_format, fetch, sample_layout, split_member};

/// Iterator over the samples of a shard, as key and parts by extension, or over its members, as
/// name and content. After the failure of one sample it goes on with the next. Only the process
/// that opened it can read on.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct ShardStream {
    /// Taken out while an item is awaited, so that the lock is never held without the GIL.
    stream: Mutex<Option<Owned<NativeStream>>>,
    /// Whether items are members.
    flat: bool,
}

impl ShardStream {
    pub(crate) fn new(stream: NativeStream, flat: bool) -> Self {
        Self { stream: Mutex::new(Some(Owned::new(stream))), flat }
    }

    fn item<'py>(&self, py: Python<'py>, item: ShardItem) -> PyResult<(String, Bound<'py, PyAny>)> {
        let mut sample = item.map_err(|e| raise(py, e))?;
        if self.flat {
            let data = sample.parts.pop().map(|(_, data)| data).unwrap_or_default();
            return Ok((sample.key, PyBytes::new(py, &data).into_any()));
        }
        let parts = PyDict::new(py);
        for (extension, data) in sample.parts {
            parts.set_item(extension, PyBytes::new(py, &data))?;
        }
        Ok((sample.key, parts.into_any()))
    }
}

#[pymethods]
impl ShardStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(String, Bound<'py, PyAny>)>> {
        let slot = || self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut stream) = slot().take() else { return Ok(None) };
        let Some(native) = stream.get_mut() else {
            *slot() = Some(stream);
            return Err(PyRuntimeError::new_err("this shard was opened by the parent process"));
        };
        let next = match native.try_next() {
            Some(next) => next,
            None => runtime::block_on(py, native.next())?,
        };
        let Some(item) = next else { return Ok(None) };
        *slot() = Some(stream);
        self.item(py, item).map(Some)
    }

    /// Stops reading.
    fn close(&self) {
        drop(self.stream.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

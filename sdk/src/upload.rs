//! `_core.Upload`: an object that is uploaded in parts while its content is produced.

use std::sync::Mutex;

use forebay_client::Upload as Native;
use forebay_core::locks::MutexExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::raise;
use crate::part_buffer::PartBuffer;
use crate::runtime::{self, Owned};

/// An upload in progress; only the process that started it can continue it.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct Upload {
    /// Taken out while waiting, and for good at the end.
    native: Mutex<Option<Owned<Native>>>,
}

impl From<Native> for Upload {
    fn from(native: Native) -> Self {
        Self { native: Mutex::new(Some(Owned::new(native))) }
    }
}

impl Upload {
    fn put_back(&self, native: Owned<Native>) {
        *self.native.locked() = Some(native);
    }

    fn take(&self) -> PyResult<Owned<Native>> {
        let taken = self.native.locked().take();
        let native = taken.ok_or_else(|| PyValueError::new_err("the upload is over"))?;
        if native.get().is_some() {
            return Ok(native);
        }
        self.put_back(native);
        Err(PyRuntimeError::new_err("this upload was begun by the parent process"))
    }
}

#[pymethods]
impl Upload {
    /// Sends the collected bytes; returns when the number of parts in progress permits it.
    fn push(&self, py: Python<'_>, part: &PartBuffer) -> PyResult<()> {
        let mut upload = self.take()?;
        let Some(native) = upload.get_mut() else { return Ok(()) };
        let pushed = runtime::block_on(py, native.push(part.take()));
        self.put_back(upload);
        pushed?.map_err(|e| raise(py, e))
    }

    /// Completes the object.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        match self.take()?.into_inner() {
            Some(native) => runtime::block_on(py, native.finish())?.map_err(|e| raise(py, e)),
            None => Ok(()),
        }
    }

    /// Aborts the upload.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        match self.take()?.into_inner() {
            Some(native) => runtime::block_on(py, native.abort()),
            None => Ok(()),
        }
    }
}

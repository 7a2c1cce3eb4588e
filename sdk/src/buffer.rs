//! Received bytes as a Python object with the buffer protocol: `memoryview(buffer)` copies nothing.

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Read-only bytes that belong to Rust and live as long as any view of them.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct Buffer {
    bytes: Bytes,
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Self { bytes }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().bytes;
        let length = ffi::Py_ssize_t::try_from(bytes.len())?;
        // SAFETY: `view` comes from the interpreter. `FillInfo` stores a new reference to `slf` in
        // it, which keeps the never moved, never written bytes alive until the view is released.
        let filled = unsafe {
            let start = bytes.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags)
        };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

//! Transfer of bytes between Rust and Python without a copy: received bytes as an object with the
//! buffer protocol (`memoryview(buffer)`), and the memory of a Python object to receive into.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::buf::UninitSlice;
use bytes::{BufMut, Bytes};
use forebay_core::batch_stream::{Room, Rooms};
use forebay_core::locks::MutexExt;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
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

/// Writable memory of a Python object, which is neither moved nor freed while this value exists.
pub(crate) struct Destination {
    buffer: PyBuffer<u8>,
    offset: usize,
}

impl Destination {
    /// The bytes of `buffer` from `offset` on.
    pub(crate) fn new(buffer: PyBuffer<u8>, offset: usize) -> PyResult<Self> {
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        if offset > buffer.len_bytes() {
            let length = buffer.len_bytes();
            let text = format!("offset {offset} is behind the end of a buffer of {length} bytes");
            return Err(PyValueError::new_err(text));
        }
        Ok(Self { buffer, offset })
    }

    /// The memory, for writing.
    #[allow(unsafe_code)]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let length = self.buffer.len_bytes() - self.offset;
        if length == 0 {
            // The pointer of an empty buffer may be null.
            return &mut [];
        }
        // SAFETY: the exporter keeps the memory at its place while the buffer is held, it is
        // writable and contiguous, and the borrow of `self` keeps it from being taken twice here.
        // As with every `readinto`, another thread of Python that uses it meanwhile sees bytes of
        // before or after, and must not.
        unsafe {
            let start = self.buffer.buf_ptr().cast::<u8>().add(self.offset);
            std::slice::from_raw_parts_mut(start, length)
        }
    }
}

/// A `bytes` object that is filled before Python code has access to it.
pub(crate) struct Unfilled {
    bytes: Py<PyBytes>,
    /// Its memory, the length in bytes, and the number of written bytes.
    start: *mut u8,
    len: usize,
    filled: usize,
}

// SAFETY: the memory belongs to `bytes`, which is kept, does not move and is not read before `finish`;
// nothing but `BufMut`, through a unique borrow, writes to it.
#[allow(unsafe_code)]
unsafe impl Send for Unfilled {}

impl Unfilled {
    /// Creates an object of `len` bytes; its pages are allocated as they are filled.
    #[allow(unsafe_code)]
    pub(crate) fn new(py: Python<'_>, len: u64) -> PyResult<Self> {
        let size = ffi::Py_ssize_t::try_from(len)?;
        // SAFETY: without a source, Python returns a new `bytes` object whose memory is not written
        // yet, or null with an exception set, which `from_owned_ptr_or_err` takes.
        let (bytes, start) = unsafe {
            let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
            let made = Bound::from_owned_ptr_or_err(py, made)?;
            let start = ffi::PyBytes_AsString(made.as_ptr()).cast::<u8>();
            (made.cast_into_unchecked::<PyBytes>(), start)
        };
        Ok(Self { bytes: bytes.unbind(), start, len: size as usize, filled: 0 })
    }

    /// Appends bytes; false if they do not fit.
    pub(crate) fn append(&mut self, piece: &[u8]) -> bool {
        let has_room = piece.len() <= self.remaining_mut();
        if has_room {
            self.put_slice(piece);
        }
        has_room
    }

    /// All of its memory, for writing in any order; [`Self::written`] follows.
    #[allow(unsafe_code)]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: Python allocated `len` bytes at `start` in a call that the compiler does not see into,
        // so that they are bytes with any values. They belong to this value alone, and the borrow of
        // `self` keeps them from being taken twice.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// The same object, of which the first `count` bytes were written through [`Self::bytes`].
    pub(crate) fn written(mut self, count: usize) -> Self {
        self.filled = count;
        self
    }

    /// The object, if it is complete.
    pub(crate) fn finish(self) -> Option<Py<PyBytes>> {
        (self.filled == self.len).then_some(self.bytes)
    }
}

// SAFETY: `chunk_mut` is memory that only this value uses, and ends where the object does; never
// more than that is announced as written.
#[allow(unsafe_code)]
unsafe impl BufMut for Unfilled {
    fn remaining_mut(&self) -> usize {
        self.len - self.filled
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        assert!(count <= self.remaining_mut(), "more was written than there is room for");
        self.filled += count;
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        // SAFETY: the bytes from `filled` to `len` are within the memory that `new` got, and the borrow
        // of `self` keeps them from being taken twice.
        unsafe {
            UninitSlice::from_raw_parts_mut(self.start.add(self.filled), self.len - self.filled)
        }
    }
}

// SAFETY: as for `Send`; through a shared borrow the memory is read only.
#[allow(unsafe_code)]
unsafe impl Sync for Unfilled {}

impl AsRef<[u8]> for Unfilled {
    /// The written bytes.
    #[allow(unsafe_code)]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: these bytes were written, and cannot write again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start, self.filled) }
    }
}

/// `bytes` objects that a batch is received into. [`Self::take_out`] returns the object that holds
/// a result's bytes.
#[derive(Clone, Default)]
pub(crate) struct BytesRooms {
    /// Complete objects by their address.
    full: Arc<Mutex<HashMap<usize, Arc<Unfilled>>>>,
    /// Another thread waits for the GIL.
    is_contended: Arc<AtomicBool>,
}

/// A thread that waits longer than this for the GIL makes no further `bytes` objects during the
/// batch.
pub(crate) const GIL_IS_FREE: Duration = Duration::from_millis(1);

impl BytesRooms {
    /// The allocator of payloads for the decoder of a batch.
    pub(crate) fn rooms(&self) -> Rooms {
        let rooms = self.clone();
        Arc::new(move |len| rooms.room(len))
    }

    fn room(&self, len: usize) -> Option<Box<dyn Room>> {
        if self.is_contended.load(Ordering::Relaxed) {
            return None;
        }
        let started = Instant::now();
        let bytes = Python::attach(|py| {
            self.is_contended.store(started.elapsed() > GIL_IS_FREE, Ordering::Relaxed);
            Unfilled::new(py, len as u64).ok()
        })?;
        Some(Box::new(Receiving { bytes, full: self.full.clone() }))
    }

    fn full(&self) -> MutexGuard<'_, HashMap<usize, Arc<Unfilled>>> {
        self.full.locked()
    }

    /// The object that holds these bytes; the bytes themselves if no object does.
    pub(crate) fn take_out(&self, content: Bytes) -> Result<Py<PyBytes>, Bytes> {
        let Some(object) = self.full().remove(&(content.as_ptr() as usize)) else {
            return Err(content);
        };
        if content.len() != object.len {
            return Err(content);
        }
        drop(content);
        // The length shows that it is complete.
        Arc::try_unwrap(object)
            .map(|only| only.bytes)
            .map_err(|shared| Bytes::from_owner(Filled(shared)))
    }
}

/// An object that is being received.
struct Receiving {
    bytes: Unfilled,
    full: Arc<Mutex<HashMap<usize, Arc<Unfilled>>>>,
}

impl AsRef<[u8]> for Receiving {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Room for Receiving {
    fn append(&mut self, piece: &[u8]) {
        self.bytes.append(piece);
    }

    fn finish(self: Box<Self>) -> Bytes {
        let object = Arc::new(self.bytes);
        let mut full = self.full.locked();
        full.insert(object.start as usize, object.clone());
        Bytes::from_owner(Filled(object))
    }
}

/// The memory of an object as a Rust buffer.
struct Filled(Arc<Unfilled>);

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }
}

/// Readable memory of a Python object, which is neither moved nor freed while this value exists.
pub(crate) struct Source {
    buffer: PyBuffer<u8>,
}

impl Source {
    pub(crate) fn new(buffer: PyBuffer<u8>) -> PyResult<Self> {
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Self { buffer })
    }

    #[allow(unsafe_code)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let length = self.buffer.len_bytes();
        if length == 0 {
            // The pointer of an empty buffer may be null.
            return &[];
        }
        // SAFETY: the exporter keeps the memory at its place while the buffer is held, and it is
        // contiguous. As with every `write`, another thread of Python must not change it meanwhile.
        unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), length) }
    }
}

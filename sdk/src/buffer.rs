//! Bytes between Rust and Python without a copy: received ones as an object with the buffer
//! protocol (`memoryview(buffer)`), and the memory of a Python object to receive into.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::buf::UninitSlice;
use bytes::{BufMut, Bytes};
use forebay_core::batch_stream::{Room, Rooms};
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

/// Writable memory of a Python object, which cannot move or go while this lives.
pub(crate) struct Destination {
    buffer: PyBuffer<u8>,
    offset: usize,
}

impl Destination {
    /// The bytes of `buffer` behind the first `offset`.
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

    /// To be written to.
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

/// A `bytes` object that is filled before anybody else sees it.
pub(crate) struct Unfilled {
    bytes: Py<PyBytes>,
    /// Its memory, so many bytes of it, and how many of these are written.
    start: *mut u8,
    len: usize,
    filled: usize,
}

// SAFETY: the memory belongs to `bytes`, which is kept, does not move and is not read before `finish`;
// nothing but `BufMut`, through a unique borrow, writes to it.
#[allow(unsafe_code)]
unsafe impl Send for Unfilled {}

impl Unfilled {
    /// Room for `len` bytes; it takes memory as it is filled.
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

    /// Writes behind what is there; false if there is no room for it.
    pub(crate) fn append(&mut self, piece: &[u8]) -> bool {
        let has_room = piece.len() <= self.remaining_mut();
        if has_room {
            self.put_slice(piece);
        }
        has_room
    }

    /// The object, if all of it was written.
    pub(crate) fn finish(self) -> Option<Py<PyBytes>> {
        (self.filled == self.len).then_some(self.bytes)
    }
}

// SAFETY: `chunk_mut` is memory that belongs to this alone, and ends where the object does; what is
// announced as written is never more than that.
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
    /// What was written.
    #[allow(unsafe_code)]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: these bytes were written, and cannot write again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start, self.filled) }
    }
}

/// `bytes` objects that a batch is received into. Whoever takes an answer out has the object that its
/// bytes lie in.
#[derive(Clone, Default)]
pub(crate) struct BytesRooms {
    /// By their address: objects that are full.
    full: Arc<Mutex<HashMap<usize, Arc<Unfilled>>>>,
    /// Another thread needs the GIL.
    is_contended: Arc<AtomicBool>,
}

/// Whoever waits longer than this for the GIL leaves it to others.
pub(crate) const GIL_IS_FREE: Duration = Duration::from_millis(1);

impl BytesRooms {
    /// Where the decoder of a batch has its payloads.
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
        self.full.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object that these bytes lie in; the bytes themselves if it is none of these.
    pub(crate) fn take_out(&self, content: Bytes) -> Result<Py<PyBytes>, Bytes> {
        let Some(object) = self.full().remove(&(content.as_ptr() as usize)) else {
            return Err(content);
        };
        if content.len() != object.len {
            return Err(content);
        }
        drop(content);
        // The length says that it is full.
        Arc::try_unwrap(object)
            .map(|only| only.bytes)
            .map_err(|shared| Bytes::from_owner(Filled(shared)))
    }
}

/// An object on its way.
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
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        full.insert(object.start as usize, object.clone());
        Bytes::from_owner(Filled(object))
    }
}

/// The memory of an object as Rust sees it.
struct Filled(Arc<Unfilled>);

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }
}

/// Readable memory of a Python object, which cannot move or go while this lives.
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

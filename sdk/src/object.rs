//! Single objects: byte ranges, uploads of many, `_core.ObjectStream` (one object in chunks), and
//! `_core.PendingObject` (a whole object, later).

use std::sync::Mutex;

use bytes::Bytes;
use forebay_client::{
    Body, Client, GetReply, ObjectStream as NativeStream, Result as ClientResult, no_memory,
};
use forebay_core::locks::MutexExt;
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, Error, Result};
use futures::{StreamExt, TryStreamExt, stream};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::buffer::{Buffer, Unfilled};
use crate::call_scope::CallScope;
use crate::error::raise;
use crate::runtime::{self, Owned, Pending};
use crate::waits;

/// The bytes of a Python object without a copy; the object is kept while they are used.
pub(crate) fn share(data: PyBackedBytes) -> Bytes {
    Bytes::from_owner(data)
}

/// The value of a `Range` header; `None` is the whole object.
pub(crate) fn parse_range(value: Option<&str>) -> Result<Option<RangeSpec>> {
    let Some(value) = value else { return Ok(None) };
    match RangeSpec::parse(value)? {
        Some(range) => Ok(Some(range)),
        None => Err(Error::invalid(format!("invalid range \"{value}\""))
            .hint("for example bytes=0-99 or bytes=-10")),
    }
}

/// From this size on, waking a waiting thread for each chunk costs more than handing over all of
/// them at the end.
const HANDOVER_MIN_BYTES: u64 = 1 << 20;

/// Receives the rest of an object into a `bytes` object.
pub(crate) fn received<'py>(
    py: Python<'py>,
    reply: GetReply,
    (bucket, name): (&Bucket, &str),
) -> PyResult<Bound<'py, PyBytes>> {
    let len = reply.range.len();
    let mut bytes = room_for(py, bucket, name, len)?;
    let reading = async move {
        reply.stream.read_into(&mut bytes).await?;
        Ok(bytes)
    };
    let read: ClientResult<Unfilled> = if len < HANDOVER_MIN_BYTES {
        runtime::block_on(py, reading)?
    } else {
        Pending::begin(py, reading)?.wait(py)?
    };
    finished(py, read.map_err(|e| raise(py, e))?)
}

/// A `bytes` object for the reported size of an object, or for a part of it.
pub(crate) fn room_for(
    py: Python<'_>,
    bucket: &Bucket,
    name: &str,
    len: u64,
) -> PyResult<Unfilled> {
    Unfilled::new(py, len).map_err(|_| raise(py, no_memory(bucket, name, len)))
}

/// The filled `bytes` object; an internal error if it is not full.
pub(crate) fn finished(py: Python<'_>, bytes: Unfilled) -> PyResult<Bound<'_, PyBytes>> {
    let odd = || raise(py, Error::internal("an object has another length than was said"));
    let bytes = bytes.finish().ok_or_else(odd)?.into_bound(py);
    waits::worked(waits::work(), bytes.as_bytes().len());
    Ok(bytes)
}

/// An object that is received in the background, into its `bytes` object.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct PendingObject(Pending<ClientResult<Arrived>>);

enum Arrived {
    /// The expected number of bytes,
    Expected(Unfilled),
    /// or another.
    Other(Bytes),
}

impl PendingObject {
    /// Starts a read of an object with an expected size; if the size is right, the read needs no
    /// GIL.
    pub(crate) fn begin(
        py: Python<'_>,
        client: Client,
        bucket: Bucket,
        name: String,
        size: u64,
    ) -> PyResult<Self> {
        let mut bytes = room_for(py, &bucket, &name, size)?;
        let reading = async move {
            let reply = client.read(&bucket, &name, None).await?;
            if reply.range.len() != size {
                return Ok(Arrived::Other(reply.bytes().await?));
            }
            reply.stream.read_into(&mut bytes).await?;
            Ok(Arrived::Expected(bytes))
        };
        Pending::begin(py, reading).map(Self)
    }
}

#[pymethods]
impl PendingObject {
    /// Whether a result is available without waiting.
    fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// Waits for the whole object; it can be taken once.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        match self.0.wait(py)?.map_err(|e| raise(py, e))? {
            Arrived::Expected(bytes) => finished(py, bytes),
            Arrived::Other(bytes) => Ok(PyBytes::new(py, &bytes)),
        }
    }
}

/// Stores objects, `concurrency` at a time, and stops at the first failure.
pub(crate) async fn put_many(
    client: Client,
    bucket: Bucket,
    items: Vec<(String, Bytes)>,
    concurrency: usize,
) -> ClientResult<()> {
    let (client, bucket) = (&client, &bucket);
    stream::iter(items)
        .map(|(name, data)| async move {
            match client.put(bucket, &name, Body::Bytes(data), None).await {
                Ok(_) => Ok(()),
                Err(e) => Err(naming(bucket, &name, e)),
            }
        })
        .buffer_unordered(concurrency)
        .try_collect()
        .await
}

/// Adds the object's name to a failure.
fn naming(bucket: &Bucket, name: &str, error: forebay_client::Error) -> forebay_client::Error {
    let mut error = Error::from(error);
    if !error.message.contains(name) {
        error.message = format!("{}: {}", bucket.object_uri(name), error.message);
    }
    error.into()
}

/// Iterator over the bytes of an object; only the process that opened it can read on.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct ObjectStream {
    /// Taken out while waiting for a chunk, so that the lock is never held without the GIL.
    stream: Mutex<Option<Owned<NativeStream>>>,
    scope: CallScope,
}

impl ObjectStream {
    /// The stream of an object that was opened in this scope.
    pub(crate) fn new(stream: NativeStream, scope: CallScope) -> Self {
        Self { stream: Mutex::new(Some(Owned::new(stream))), scope }
    }
}

#[pymethods]
impl ObjectStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let slot = || self.stream.locked();
        let Some(mut stream) = slot().take() else { return Ok(None) };
        let Some(native) = stream.get_mut() else {
            *slot() = Some(stream);
            return Err(PyRuntimeError::new_err("this stream was opened by the parent process"));
        };
        match runtime::block_on_in(py, &self.scope, native.next())? {
            None => Ok(None),
            Some(Err(e)) => Err(raise(py, e)),
            Some(Ok(bytes)) => {
                *slot() = Some(stream);
                waits::worked(waits::work(), bytes.len());
                Ok(Some(bytes.into()))
            }
        }
    }
}

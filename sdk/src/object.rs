//! Single objects: byte ranges, uploads of many, and `_core.ObjectStream`, the pieces of one object
//! as they arrive.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use forebay_client::{
    Body, Client, GetReply, ObjectStream as NativeStream, Result as ClientResult,
};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, Error, Result};
use futures::{StreamExt, TryStreamExt, stream};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::buffer::{Buffer, Unfilled};
use crate::error::raise;
use crate::runtime::{self, Owned};

/// The bytes of a Python object, uncopied; it lives as long as they do.
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

/// What is still to come of an object, in a `bytes` object.
pub(crate) fn received(py: Python<'_>, reply: GetReply) -> PyResult<Bound<'_, PyBytes>> {
    let odd = || Error::internal("an object has another length than was said");
    let (mut bytes, mut stream) = (Unfilled::new(py, reply.range.len())?, reply.stream);
    let filled = runtime::block_on(py, async move {
        while let Some(piece) = stream.try_next().await? {
            if !bytes.append(&piece) {
                return Err(odd().into());
            }
        }
        Ok(bytes)
    })?;
    let filled = filled.map_err(|e: forebay_client::Error| raise(py, e))?;
    let made = filled.finish().ok_or_else(|| raise(py, odd()))?;
    Ok(made.into_bound(py))
}

/// Stores the objects, so many at a time, and stops at the first failure.
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

/// The failure with the object's name in it.
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
    /// Taken out while a piece is awaited, so that the lock is never held without the GIL.
    stream: Mutex<Option<Owned<NativeStream>>>,
}

impl From<NativeStream> for ObjectStream {
    fn from(stream: NativeStream) -> Self {
        Self { stream: Mutex::new(Some(Owned::new(stream))) }
    }
}

#[pymethods]
impl ObjectStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let slot = || self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut stream) = slot().take() else { return Ok(None) };
        let Some(native) = stream.get_mut() else {
            *slot() = Some(stream);
            return Err(PyRuntimeError::new_err("this stream was opened by the parent process"));
        };
        match runtime::block_on(py, native.next())? {
            None => Ok(None),
            Some(Err(e)) => Err(raise(py, e)),
            Some(Ok(bytes)) => {
                *slot() = Some(stream);
                Ok(Some(bytes.into()))
            }
        }
    }
}

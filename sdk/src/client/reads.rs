//! Calls that read one object: whole, a range, in concurrent ranges, in chunks, or its properties.

use forebay_client::Ranges;
use forebay_core::size::RangeSpec;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Client, json, parse_bucket, parse_ranged};
use crate::buffer::{Buffer, Destination};
use crate::each::{Pinned, pinned};
use crate::error::raise;
use crate::object::{self, ObjectStream, PendingObject};
use crate::waits;

#[pymethods]
impl Client {
    fn get(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
    ) -> PyResult<Buffer> {
        let bucket = parse_bucket(py, bucket)?;
        let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
        let bytes = self.call(py, |c| async move { c.get_bytes(&bucket, &name, range).await })?;
        waits::worked(waits::work(), bytes.len());
        Ok(bytes.into())
    }

    /// The same as a `bytes` object, which the bytes are received into.
    fn read<'py>(
        &self,
        py: Python<'py>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bucket = parse_bucket(py, bucket)?;
        let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
        let reply = self.call(py, |c| {
            let (bucket, name) = (&bucket, &name);
            async move { c.read(bucket, name, range).await }
        })?;
        object::received(py, reply, (&bucket, &name))
    }

    /// Starts a read of a whole object, with an expected size, in the background.
    fn begin_read(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        size: u64,
    ) -> PyResult<PendingObject> {
        PendingObject::begin(py, self.native(py)?, parse_bucket(py, bucket)?, name, size)
    }

    /// Reads a range of an object, or all of it, by several concurrent ranges; with a pin (size,
    /// version, checksum) only that content.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (bucket, name, byte_range, part_size, parallel, pin=None))]
    fn get_in_ranges(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
        part_size: u64,
        parallel: usize,
        pin: Option<Pinned>,
    ) -> PyResult<Buffer> {
        let (bucket, range) = parse_ranged(py, bucket, byte_range)?;
        let how = Ranges { size: part_size, parallel };
        let pin = pin.map(pinned);
        let bytes = self.call(py, |c| async move {
            c.get_in_ranges((&bucket, &name), range, how, pin.as_ref()).await
        })?;
        waits::worked(waits::work(), bytes.len());
        Ok(bytes.into())
    }

    /// Reads a range of a pinned object (size, version, checksum) by several concurrent ranges, as a
    /// `bytes` object of `length` bytes, which they are received into.
    #[allow(clippy::too_many_arguments)]
    fn read_in_ranges<'py>(
        &self,
        py: Python<'py>,
        bucket: &str,
        name: String,
        start: u64,
        length: u64,
        part_size: u64,
        parallel: usize,
        pin: Pinned,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bucket = parse_bucket(py, bucket)?;
        let mut dest = object::room_for(py, &bucket, &name, length)?;
        let Some(more) = length.checked_sub(1) else {
            return object::finished(py, dest);
        };
        let range = RangeSpec::From(start, Some(start.saturating_add(more)));
        let how = Ranges { size: part_size, parallel };
        let pin = pinned(pin);
        let bytes = dest.bytes();
        let count = self.call(py, |c| async move {
            c.get_into((&bucket, &name), Some(range), how, Some(&pin), bytes).await
        })?;
        object::finished(py, dest.written(count))
    }

    /// Reads a range as [`Self::get_in_ranges`] does, into the memory of a Python object; returns the
    /// number of bytes.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (bucket, name, byte_range, dest, offset, part_size, parallel, pin=None))]
    fn get_into(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
        dest: PyBuffer<u8>,
        offset: usize,
        part_size: u64,
        parallel: usize,
        pin: Option<Pinned>,
    ) -> PyResult<usize> {
        let (bucket, range) = parse_ranged(py, bucket, byte_range)?;
        let how = Ranges { size: part_size, parallel };
        let pin = pin.map(pinned);
        let mut dest = Destination::new(dest, offset)?;
        let bytes = dest.bytes();
        self.call(py, |c| async move {
            c.get_into((&bucket, &name), range, how, pin.as_ref(), bytes).await
        })
    }

    fn open(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
    ) -> PyResult<ObjectStream> {
        let bucket = parse_bucket(py, bucket)?;
        let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
        let opened = self.open_stream(py, |c| async move { c.get(&bucket, &name, range).await });
        let (reply, scope) = opened?;
        Ok(ObjectStream::new(reply.stream, scope))
    }

    fn head(&self, py: Python<'_>, bucket: &str, name: String) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.head(&bucket, &name).await })?)
    }
}

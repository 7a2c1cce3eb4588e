//! Calls that write, copy and delete objects.

use forebay_client::Body;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::{Client, json, parse_bucket};
use crate::object;
use crate::part_buffer::PartBuffer;
use crate::runtime;
use crate::upload::Upload;

#[pymethods]
impl Client {
    fn put(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        data: PyBackedBytes,
    ) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        let body = Body::Bytes(object::share(data));
        let meta = self.call(py, |c| async move { c.put(&bucket, &name, body, None).await })?;
        json(py, &meta)
    }

    /// Writes an object from the content of a part buffer.
    fn put_gathered(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        content: &PartBuffer,
    ) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        let body = Body::Bytes(content.take());
        self.call(py, |c| async move { c.put(&bucket, &name, body, None).await }).map(drop)
    }

    fn put_file(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        path: String,
    ) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        let body = runtime::block_on(py, Body::file(&path))?.map_err(|e| {
            PyOSError::new_err((e.raw_os_error().unwrap_or(0), e.to_string(), path))
        })?;
        let meta = self.call(py, |c| async move { c.put(&bucket, &name, body, None).await })?;
        json(py, &meta)
    }

    /// Starts an upload of an object in parts.
    fn upload(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        parallel: usize,
    ) -> PyResult<Upload> {
        let bucket = parse_bucket(py, bucket)?;
        let native = self.call(py, |c| async move { c.upload(&bucket, &name, parallel).await })?;
        Ok(native.into())
    }

    fn put_many(
        &self,
        py: Python<'_>,
        bucket: &str,
        items: Vec<(String, PyBackedBytes)>,
        concurrency: usize,
    ) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        let items: Vec<_> =
            items.into_iter().map(|(name, data)| (name, object::share(data))).collect();
        self.call(py, |c| object::put_many(c, bucket, items, concurrency))
    }

    fn delete(&self, py: Python<'_>, bucket: &str, name: String) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        self.call(py, |c| async move { c.delete(&bucket, &name).await })
    }

    fn copy(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        to_bucket: &str,
        to_name: String,
    ) -> PyResult<()> {
        let (bucket, to) = (parse_bucket(py, bucket)?, parse_bucket(py, to_bucket)?);
        self.call(py, |c| async move { c.copy((&bucket, &name), (&to, &to_name)).await })
    }
}

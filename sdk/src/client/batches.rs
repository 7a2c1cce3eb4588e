//! Calls that read batches: all results at once, later, or as they arrive.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyList;

use super::Client;
use crate::batch::{self, BatchStream, Content, PendingBatch};
use crate::error::raise;
use crate::runtime;

#[pymethods]
impl Client {
    /// Reads a batch: each result in the order of `names` as a `Buffer` (or `bytes`, if requested),
    /// or an exception, which is raised only if requested. Without `bucket_of` all are in the first
    /// bucket.
    #[pyo3(signature = (buckets, bucket_of, names, parts=None, as_bytes=false, raises=false))]
    fn batch_all<'py>(
        &self,
        py: Python<'py>,
        buckets: Vec<String>,
        bucket_of: Option<Vec<u32>>,
        names: Vec<PyBackedStr>,
        parts: Option<Vec<batch::Part>>,
        as_bytes: bool,
        raises: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let request = batch::request(py, &buckets, bucket_of.as_deref(), &names, parts)?;
        let content = if as_bytes { Content::Bytes } else { Content::Shared };
        batch::read_all(py, self.native(py)?, request, content, raises)
    }

    /// The same, started now and taken later.
    #[pyo3(signature = (buckets, bucket_of, names, as_bytes=false, raises=false))]
    fn begin_batch(
        &self,
        py: Python<'_>,
        buckets: Vec<String>,
        bucket_of: Option<Vec<u32>>,
        names: Vec<PyBackedStr>,
        as_bytes: bool,
        raises: bool,
    ) -> PyResult<PendingBatch> {
        let request = batch::request(py, &buckets, bucket_of.as_deref(), &names, None)?;
        let content = if as_bytes { Content::Bytes } else { Content::Shared };
        PendingBatch::begin(py, self.native(py)?, request, content, raises)
    }

    /// The same as they arrive, each with its position; in the order of `names` or not.
    #[pyo3(signature = (buckets, bucket_of, names, parts=None, ordered=true))]
    fn batch(
        &self,
        py: Python<'_>,
        buckets: Vec<String>,
        bucket_of: Option<Vec<u32>>,
        names: Vec<PyBackedStr>,
        parts: Option<Vec<batch::Part>>,
        ordered: bool,
    ) -> PyResult<BatchStream> {
        let mut request = batch::request(py, &buckets, bucket_of.as_deref(), &names, parts)?;
        request.ordered = ordered;
        let native = self.native(py)?;
        let _context = runtime::runtime(py)?.enter();
        Ok(native.batch(&request).map_err(|e| raise(py, e))?.into())
    }
}

//! Calls that start, describe and stop jobs.

use forebay_core::Error;
use forebay_core::job::{JobKind, Selection};
use pyo3::prelude::*;

use super::{Client, json, parse_bucket};
use crate::error::raise;

#[pymethods]
impl Client {
    fn start_job(
        &self,
        py: Python<'_>,
        kind: &str,
        bucket: &str,
        names: Option<Vec<String>>,
        prefix: String,
    ) -> PyResult<String> {
        let kind: JobKind = kind.parse().map_err(|e: Error| raise(py, e))?;
        let bucket = parse_bucket(py, bucket)?;
        let selection = selection(names, prefix);
        self.call(py, |c| async move { c.start_job(kind, &bucket, &selection).await })
    }

    /// Returns the plan of a prefetch, as JSON.
    fn prefetch_plan(
        &self,
        py: Python<'_>,
        bucket: &str,
        names: Option<Vec<String>>,
        prefix: String,
    ) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        let selection = selection(names, prefix);
        let plan = self.call(py, |c| async move { c.prefetch_plan(&bucket, &selection).await })?;
        json(py, &plan.to_json())
    }

    #[allow(clippy::too_many_arguments)]
    fn start_write_back(
        &self,
        py: Python<'_>,
        bucket: &str,
        names: Option<Vec<String>>,
        prefix: String,
        to: &str,
        folder: String,
        remove: bool,
    ) -> PyResult<String> {
        let (bucket, to) = (parse_bucket(py, bucket)?, parse_bucket(py, to)?);
        let chosen = selection(names, prefix);
        self.call(py, |c| async move {
            c.start_write_back(&bucket, &chosen, (&to, &folder), remove).await
        })
    }

    /// Starts a job that sorts shards; `spec` is JSON.
    fn start_dsort(&self, py: Python<'_>, spec: String) -> PyResult<String> {
        self.call(py, |c| async move { c.start_dsort(spec.into_bytes()).await })
    }

    fn job(&self, py: Python<'_>, id: String) -> PyResult<String> {
        json(py, &self.call(py, |c| async move { c.job(&id).await })?)
    }

    fn stop_job(&self, py: Python<'_>, id: String) -> PyResult<()> {
        self.call(py, |c| async move { c.stop_job(&id).await })?;
        Ok(())
    }
}

/// The objects of a job: these names, or all with this prefix.
fn selection(names: Option<Vec<String>>, prefix: String) -> Selection {
    names.map_or(Selection::Prefix(prefix), Selection::Names)
}

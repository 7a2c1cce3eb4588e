//! Calls about the cluster, its buckets, and listings of a bucket.

use forebay_core::bucket::{BackendKind, BackendSpec, implied_backend};
use forebay_core::list_columns::Columns;
use forebay_core::{Bucket, Error};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Client, json, parse_bucket};
use crate::error::raise;
use crate::listing;

#[pymethods]
impl Client {
    fn cluster_map(&self, py: Python<'_>) -> PyResult<String> {
        let reply = self.call(py, |c| async move { c.refresh_map().await })?;
        json(py, &reply.state)
    }

    fn cluster_info(&self, py: Python<'_>) -> PyResult<String> {
        json(py, &self.call(py, |c| async move { c.cluster_info().await })?)
    }

    fn create_bucket(
        &self,
        py: Python<'_>,
        bucket: &str,
        folder: Option<String>,
        account: Option<String>,
    ) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        let backend = match (folder, account) {
            (Some(root), account) => Some(BackendSpec {
                root: Some(root),
                account,
                ..BackendSpec::new(BackendKind::Folder, "")
            }),
            (None, Some(account)) => {
                let backend = implied_backend(&bucket).ok_or_else(|| {
                    let text =
                        format!("{bucket} is no bucket of a cloud and cannot have an account");
                    raise(py, Error::invalid(text))
                })?;
                Some(BackendSpec { account: Some(account), ..backend })
            }
            (None, None) => None,
        };
        self.call(py, |c| async move { c.create_bucket(&bucket, backend).await })?;
        Ok(())
    }

    fn destroy_bucket(&self, py: Python<'_>, bucket: &str) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        self.call(py, |c| async move { c.destroy_bucket(&bucket).await })
    }

    fn head_bucket(&self, py: Python<'_>, bucket: &str) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.head_bucket(&bucket).await })?)
    }

    fn bucket_bill(&self, py: Python<'_>, bucket: &str) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.bucket_bill(&bucket).await })?)
    }

    fn bucket_warmth(&self, py: Python<'_>, bucket: &str) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.bucket_warmth(&bucket).await })?)
    }

    fn bucket_access(&self, py: Python<'_>, bucket: &str, prefix: String) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.bucket_access(&bucket, &prefix).await })?)
    }

    fn list_buckets(&self, py: Python<'_>, provider: Option<&str>) -> PyResult<Vec<String>> {
        let provider = provider.map(str::parse).transpose().map_err(|e: Error| raise(py, e))?;
        let buckets = self.call(py, |c| async move { c.list_buckets(provider).await })?;
        Ok(buckets.iter().map(Bucket::to_string).collect())
    }

    #[pyo3(signature = (bucket, prefix, token, page_size, recursive=true))]
    fn list_page(
        &self,
        py: Python<'_>,
        bucket: &str,
        prefix: String,
        token: String,
        page_size: usize,
        recursive: bool,
    ) -> PyResult<(Vec<listing::Row>, String)> {
        let bucket = parse_bucket(py, bucket)?;
        let wanted = listing::request(prefix, token, page_size, recursive);
        let page = self.call(py, |c| async move { c.list_page(&bucket, &wanted).await })?;
        Ok(listing::rows(page))
    }

    fn list_all<'py>(
        &self,
        py: Python<'py>,
        bucket: &str,
        prefix: String,
    ) -> PyResult<[Bound<'py, PyBytes>; 3]> {
        let bucket = parse_bucket(py, bucket)?;
        let buffers = self.call(py, |c| async move {
            let mut buffers = listing::Buffers::new();
            let keep = |rows: Columns| {
                buffers.push(&rows);
                Ok(())
            };
            c.list_blocks(&bucket, &prefix, keep).await?;
            Ok(buffers)
        })?;
        Ok(buffers.into_parts().map(|buffer| PyBytes::new(py, &buffer)))
    }
}

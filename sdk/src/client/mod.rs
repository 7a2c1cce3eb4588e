//! `_core.Client`: every call of the Python package to the cluster. Values that are not bytes are
//! passed as JSON texts, which the Python side converts to its own types.
//!
//! The class and its connection to the Rust client are here; its methods are in one file for each
//! kind of thing that they are about.

mod batches;
mod buckets;
mod feeds;
mod jobs;
mod reads;
mod shards;
mod writes;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay_client::tls::TlsOptions;
use forebay_client::{
    Client as Native, ClientConfig, Contact, Result as ClientResult, TokenSource,
};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, Error};
use pyo3::prelude::*;
use serde::Serialize;

use crate::call_scope::CallScope;
use crate::error::raise;
use crate::object;
use crate::runtime::{self, Owned};

/// A client that is created anew in each process that uses it.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct Client {
    config: ClientConfig,
    /// Without a lock, because a fork could copy it in the locked state.
    current: ArcSwapOption<Owned<Native>>,
}

impl Client {
    /// The Rust client of this process.
    pub(crate) fn native(&self, py: Python<'_>) -> PyResult<Native> {
        let current = self.current.load_full();
        if let Some(native) = current.as_deref().and_then(Owned::get) {
            return Ok(native.clone());
        }
        let _context = runtime::runtime(py)?.enter();
        let native = Native::new(self.config.clone()).map_err(|e| raise(py, e))?;
        // Another thread may have created one too; then that one is used from now on.
        self.current.compare_and_swap(&current, Some(Arc::new(Owned::new(native.clone()))));
        Ok(native)
    }

    /// As [`Self::call`], for a call that opens a stream; also returns the scope of the stream.
    pub(crate) fn open_stream<T: Send, F>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(Native) -> F,
    ) -> PyResult<(T, CallScope)>
    where
        F: Future<Output = ClientResult<T>> + Send,
    {
        let (future, scope) = (make(self.native(py)?), CallScope::of_thread());
        let opened = runtime::block_on_in(py, &scope, future)?.map_err(|e| raise(py, e))?;
        Ok((opened, scope))
    }

    /// Runs one call and waits for its result without the GIL.
    pub(crate) fn call<T: Send, F>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(Native) -> F,
    ) -> PyResult<T>
    where
        F: Future<Output = ClientResult<T>> + Send,
    {
        let future = make(self.native(py)?);
        runtime::block_on(py, future)?.map_err(|e| raise(py, e))
    }
}

#[pymethods]
impl Client {
    /// `retry` is the value of the header `forebay-cloud-retry`. `has_contact`: the cluster was
    /// reached before, so that the client waits for a restart. `ca_file`: CAs for HTTPS.
    #[new]
    #[pyo3(signature = (
        endpoint, timeout_s, retry=None, has_contact=false, ca_file=None, token=None
    ))]
    fn new(
        endpoint: String,
        timeout_s: f64,
        retry: Option<String>,
        has_contact: bool,
        ca_file: Option<PathBuf>,
        token: Option<&str>,
    ) -> PyResult<Self> {
        let deadline = Duration::try_from_secs_f64(timeout_s)
            .map_err(|e| pyo3::exceptions::PyValueError::new_err(format!("timeout: {e}")))?;
        let token = token.map_or_else(|| TokenSource::of_user(&endpoint), TokenSource::fixed);
        let usual = ClientConfig::new(endpoint);
        let config = ClientConfig {
            cloud_retry: retry,
            token,
            contact: if has_contact { Contact::made() } else { Contact::default() },
            deadline,
            tls: ca_file.map(|ca| TlsOptions { ca_file: Some(ca), ..TlsOptions::from_env() }),
            connect_timeout: usual.connect_timeout.min(deadline),
            idle_timeout: usual.idle_timeout.min(deadline),
            ..usual
        };
        Ok(Self { config, current: ArcSwapOption::empty() })
    }

    /// Whether any connection was not refused, here or in the parent process.
    fn has_contact(&self) -> bool {
        self.config.contact.is_made()
    }
}

/// The bucket of a URI.
pub(crate) fn parse_bucket(py: Python<'_>, uri: &str) -> PyResult<Bucket> {
    Ok(Bucket::parse_uri(uri).map_err(|e| raise(py, e))?.0)
}

/// A bucket, and the byte range to read of one of its objects.
fn parse_ranged(
    py: Python<'_>,
    bucket: &str,
    byte_range: Option<&str>,
) -> PyResult<(Bucket, Option<RangeSpec>)> {
    let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
    Ok((parse_bucket(py, bucket)?, range))
}

/// A result as JSON text.
fn json(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|e| raise(py, Error::internal(format!("cannot show an answer: {e}"))))
}

//! Reports of training loops.

use forebay_core::Error;
use forebay_core::feed::Feed;
use pyo3::prelude::*;

use super::Client;
use crate::error::raise;
use crate::runtime;

#[pymethods]
impl Client {
    /// Reports a feed in the background; whether it arrives is not known. `feed` is JSON.
    fn report_feed(&self, py: Python<'_>, feed: &str) -> PyResult<()> {
        let feed: Feed = serde_json::from_str(feed)
            .map_err(|e| raise(py, Error::invalid(format!("the feed cannot be read: {e}"))))?;
        let native = self.native(py)?;
        runtime::runtime(py)?.spawn(async move {
            // The next report replaces one that was lost.
            let _ = native.report_feed(&feed).await;
        });
        Ok(())
    }

    /// All feeds as JSON.
    fn feeds(&self, py: Python<'_>) -> PyResult<String> {
        super::json(py, &self.call(py, |c| async move { c.feeds().await })?)
    }
}

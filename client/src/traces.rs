//! Traces that the nodes chose.

use forebay_core::trace::{TraceReply, TracesReply};

use crate::client::Client;
use crate::error::Result;

impl Client {
    /// Returns the slow, failed and sampled traces of the last hour, the newest first. Only an admin may.
    pub async fn traces(&self) -> Result<TracesReply> {
        self.get_json("/api/v1/traces").await
    }

    /// Returns the spans of a trace, by its id or by the id of one of its requests. Only an admin may.
    pub async fn trace(&self, id: &str) -> Result<TraceReply> {
        self.get_json(&format!("/api/v1/traces/{id}")).await
    }
}

//! The line of the log for a request, for the configured share of them.

use std::net::IpAddr;
use std::time::Duration;

use axum::http::Method;
use forebay_core::request::{Protocol, RequestId};

use super::metrics::{Outcome, api_name};

/// One line of the log for a request. It has no query, which may hold signatures.
pub(super) struct AccessLine<'a> {
    pub(super) id: RequestId,
    pub(super) protocol: Option<Protocol>,
    pub(super) operation: &'static str,
    pub(super) outcome: Outcome,
    pub(super) status: u16,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) bytes: u64,
    pub(super) first_byte: Option<Duration>,
    pub(super) whole: Duration,
    pub(super) from: IpAddr,
    pub(super) user: Option<&'a str>,
}

impl AccessLine<'_> {
    /// Writes the line.
    pub(super) fn write(&self) {
        let ms = |time: Duration| time.as_micros() as f64 / 1e3;
        tracing::info!(
            target: "forebay::access",
            request_id = %self.id,
            api = api_name(self.protocol),
            op = self.operation,
            result = self.outcome.name(),
            status = self.status,
            method = %self.method,
            path = self.path,
            bytes = self.bytes,
            first_byte_ms = self.first_byte.map(ms),
            ms = ms(self.whole),
            from = %self.from.to_canonical(),
            user = self.user,
            "request"
        );
    }
}

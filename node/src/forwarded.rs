//! The scheme by which a client reached this node, here or at a proxy in front of it.

use axum::http::{HeaderMap, HeaderName};

/// The scheme of a request, for everything that answers with URLs. Proxies in front of a node set it
/// too.
pub static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether a request came over HTTPS, here or at a proxy in front of this node.
pub fn is_https(headers: &HeaderMap) -> bool {
    headers.get(&FORWARDED_PROTO).is_some_and(|scheme| scheme.as_bytes() == b"https")
}

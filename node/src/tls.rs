//! The cryptography below TLS, which is the same for every client of a node.

/// Chooses the provider of cryptography for the process. One TLS stack serves all, but the crates of
/// its clients do not choose it, and panic without a choice: call this before one is built. A choice
/// that was made earlier stays.
pub fn choose_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// Repeats `condition` until it holds; fails the test if that takes longer than `within`.
pub fn until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The same for conditions that ask a server through an async client.
pub async fn until_async<F>(what: &str, within: Duration, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = Instant::now() + within;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

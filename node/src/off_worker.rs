//! Runs work that needs the CPU for longer than an async worker may be blocked.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Bytes that are parsed or written inline: less than 1 ms at 64 MB/s.
const INLINE_BYTES: usize = 64 << 10;

/// Runs `work` over this many bytes. If they are more than a few, other tasks of this thread move
/// to other threads meanwhile, so that the node keeps answering.
pub fn off_worker<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let has_others =
        || Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    match bytes > INLINE_BYTES && has_others() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_runs_on_any_runtime_and_on_none() {
        assert_eq!(off_worker(usize::MAX, || 7), 7);
        let one = tokio::runtime::Builder::new_current_thread().build();
        assert_eq!(one.map(|r| r.block_on(async { off_worker(usize::MAX, || 7) })).ok(), Some(7));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_while_a_worker_is_busy() {
        let (sender, receiver) = mpsc::channel();
        let long = tokio::spawn(async move { off_worker(usize::MAX, || receiver.recv()) });
        // Runs on the only worker, which `work` would block.
        let other = tokio::spawn(async move { sender.send(7) });
        assert!(matches!(other.await, Ok(Ok(()))));
        assert!(matches!(long.await, Ok(Ok(7))));
    }
}

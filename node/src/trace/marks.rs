//! Marks of chosen traces on their way to the other nodes.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use forebay_client::PeerClient;
use forebay_core::NodeId;
use forebay_core::locks::MutexExt;
use forebay_core::trace::{MARKS_PATH, TraceMark, TraceMarks};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::maps::Maps;

/// Most marks that wait, and most in a message.
pub(super) const MAX_MARKS: usize = 1_024;
/// Pause in which marks are collected for one message.
const COLLECT_FOR: Duration = Duration::from_millis(250);
/// Timeout of a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Marks that wait for the next message.
#[derive(Debug, Default)]
pub(super) struct Marks {
    waiting: Mutex<BTreeSet<TraceMark>>,
    is_new: Notify,
}

impl Marks {
    /// Adds a mark; false if too many wait.
    pub(super) fn add(&self, mark: TraceMark) -> bool {
        let mut waiting = self.waiting.locked();
        if waiting.len() >= MAX_MARKS {
            return false;
        }
        waiting.insert(mark);
        drop(waiting);
        self.is_new.notify_one();
        true
    }

    /// Sends marks to all other members until the node stops. A node that does not reply misses them.
    pub(super) async fn send(
        &self,
        me: &NodeId,
        maps: &Maps,
        peer: &PeerClient,
        stop: &CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = self.is_new.notified() => {}
                () = stop.cancelled() => return,
            }
            tokio::time::sleep(COLLECT_FOR).await;
            let marks: Vec<_> = std::mem::take(&mut *self.waiting.locked()).into_iter().collect();
            if marks.is_empty() {
                continue;
            }
            let (message, state) = (TraceMarks { marks }, maps.load());
            let others = state.nodes.values().filter(|node| node.alive && node.id != *me);
            let sent = others.map(|node| {
                let sent = peer.post_json::<_, ()>(&node.url, MARKS_PATH, &message);
                async move {
                    match tokio::time::timeout(SEND_TIMEOUT, sent).await {
                        Ok(Ok(())) => {}
                        Ok(Err(e)) => {
                            tracing::debug!(node = %node.id, error = %e, "marks not sent")
                        }
                        Err(_) => tracing::debug!(node = %node.id, "marks not sent in time"),
                    }
                }
            });
            futures::future::join_all(sent).await;
        }
    }
}

//! Shares of the budget, waiting for a slot, and batches that are ended for others.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::batch::PIECE;

fn budget(batches: usize) -> Budget {
    Budget::new(64 << 20, batches, Metrics::default())
}

async fn admit(budget: &Budget, sender: Sender) -> Result<Share> {
    budget.admit(sender, budget.request(), Hangup::default()).await
}

#[tokio::test]
async fn the_more_batches_the_less_each_holds_and_together_no_more_than_there_is() {
    let budget = budget(64);
    let first = admit(&budget, Sender::Client).await.unwrap();
    assert_eq!(first.ahead(), 32 << 20, "alone it has all");
    let mut others = Vec::new();
    for _ in 0..31 {
        others.push(admit(&budget, Sender::Client).await.unwrap());
    }
    let all = || others.iter().chain([&first]);
    let held: usize = all().map(|s| s.ahead() + 3 * s.frame()).sum();
    assert!(held <= 64 << 20, "{held}");
    assert!(all().all(|s| s.ahead() == first.ahead()), "fair");
    drop(others);
    assert_eq!(first.ahead(), 32 << 20, "what others gave back");
}

#[tokio::test]
async fn too_many_batches_get_retry_after_and_parts_for_nodes_count_separately() {
    let mut inner = Arc::into_inner(budget(1).0).unwrap();
    inner.admission_timeout = Duration::from_millis(100);
    let budget = Budget(Arc::new(inner));
    let held = admit(&budget, Sender::Client).await.unwrap();
    let refused = admit(&budget, Sender::Client).await.err().unwrap();
    assert_eq!((refused.code.status(), refused.retry_after_s), (429, Some(1)));
    let mut parts = Vec::new();
    for _ in 0..4 {
        parts.push(admit(&budget, Sender::Node).await.unwrap());
    }
    assert_eq!(admit(&budget, Sender::Node).await.err().unwrap().code.status(), 429);
    drop((held, parts));
    admit(&budget, Sender::Client).await.unwrap();
}

#[tokio::test]
async fn a_request_waits_for_a_place() {
    let budget = budget(1);
    let held = admit(&budget, Sender::Client).await.unwrap();
    let waits = tokio::spawn({
        let budget = budget.clone();
        async move { admit(&budget, Sender::Client).await.is_ok() }
    });
    tokio::task::yield_now().await;
    drop(held);
    assert!(waits.await.unwrap());
}

#[tokio::test]
async fn a_batch_that_its_client_does_not_read_ends_for_another() {
    let budget = budget(2);
    let hangup = Hangup::default();
    let reads = admit(&budget, Sender::Client).await.unwrap();
    let stalled = budget.admit(Sender::Client, budget.request(), hangup.clone());
    let stalled = stalled.await.unwrap();
    // Like the connection: dropping it drops all of the batch.
    let connection = tokio::spawn(async move {
        let never = std::future::pending::<()>();
        tokio::select! {
            () = stalled.while_client_reads(never) => {}
            () = hangup.ended() => {}
        }
    });
    let third = admit(&budget, Sender::Client).await.unwrap();
    connection.await.unwrap();
    drop((reads, third));
}

#[tokio::test]
async fn stalled_batches_end_while_all_hold_more_than_they_may() {
    let budget = budget(8);
    let hangup = Hangup::default();
    let share = budget.admit(Sender::Client, budget.request(), hangup.clone()).await.unwrap();
    let mut held = share.held();
    held.set(40 << 20);
    share.waits_for_client(true);
    tokio::time::sleep(STALLED_AFTER + Duration::from_millis(50)).await;
    let other = admit(&budget, Sender::Client).await.unwrap();
    assert!(hangup.ended().now_or_never().is_some());
    drop((held, share, other));
    assert_eq!(budget.0.held.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn batches_that_come_one_after_the_other_hold_no_more_than_there_is() {
    let budget = budget(64);
    let mut batches = Vec::new();
    for _ in 0..64 {
        let share = admit(&budget, Sender::Client).await.unwrap();
        let mut held = share.held();
        let reserved = held.reserve(share.ahead());
        // At least a piece of one entry, whatever the others hold.
        held.set(reserved.max(PIECE));
        batches.push((held, share));
    }
    let all = budget.0.held.load(Ordering::Relaxed);
    assert_eq!(
        all,
        (32 << 20) + 63 * PIECE,
        "the first has one half of the memory, others a piece"
    );
    let (mut first, share) = batches.swap_remove(0);
    drop(batches);
    assert_eq!(first.reserve(share.ahead()), 32 << 20, "memory that was given back");
    first.set(1000);
    assert_eq!(budget.0.held.load(Ordering::Relaxed), 1000);
}

#[test]
fn long_requests_wait_for_each_other_and_the_longest_gets_through_alone() {
    let budget = budget(8);
    let mut long = budget.request();
    long.grow(256 << 20).unwrap();
    assert_eq!(budget.request().grow(1000).err().unwrap().code.status(), 429);
    drop(long);
    let mut short = budget.request();
    short.grow(1000).unwrap();
    assert!(budget.request().grow(256 << 20).is_err());
    budget.request().grow(1 << 20).unwrap();
}

//! Batches against scripted targets.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::batch_stream::{CONTENT_TYPE, Encoder, MAX_PIECE, Row};
use forebay_core::{Error as CoreError, ErrorCode, ObjectName};

use super::PATH;
use crate::scripted_server::{
    Reply, Server, Turns, bucket, client, json, map, nobody, not_here, reply,
};

const LONG_TIMEOUT: Duration = Duration::from_secs(20);

fn request(n: usize) -> BatchRequest {
    let entries =
        (0..n).map(|i| BatchEntry::whole(0, ObjectName::new(format!("o{i}")).unwrap())).collect();
    BatchRequest { buckets: vec![bucket()], entries, ordered: true }
}

fn stream(rows: Vec<Row>) -> Vec<u8> {
    let mut encoder = Encoder::default();
    let mut out = Encoder::header(7).to_vec();
    for row in rows {
        encoder.push(row);
        encoder.flush().iter().for_each(|b| out.extend_from_slice(b));
    }
    out.extend_from_slice(&encoder.end());
    out
}

fn body_of(name: &str) -> Bytes {
    format!("bytes of {name}").into()
}

/// Answers each entry with its name, in two pieces.
fn rows(part: &BatchRequest) -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, entry) in part.entries.iter().enumerate() {
        let whole = body_of(entry.name.as_str());
        let total = whole.len() as u64;
        let row = |payload, more| Row { index: i as u32, status: 0, more, total, payload };
        rows.push(row(whole.slice(..3), true));
        rows.push(row(whole.slice(3..), false));
    }
    rows
}

fn answer(bytes: Vec<u8>) -> Reply {
    reply(200, &[("content-type", CONTENT_TYPE)], bytes)
}

type Script = Arc<dyn Fn(usize, &BatchRequest) -> Reply + Send + Sync>;

/// A gateway and three targets that play `script` by the number of the request.
async fn cluster(script: Script) -> (Server, Vec<Server>) {
    let mut targets = Vec::new();
    for _ in 0..3 {
        let (script, turns) = (script.clone(), Turns::new());
        let target = Server::start(move |seen| match seen.path.as_str() {
            PATH => script(turns.next(PATH), &serde_json::from_slice(&seen.body).unwrap()),
            _ => not_here(),
        });
        targets.push(target.await);
    }
    let urls: Vec<String> = targets.iter().map(|t| t.url.clone()).collect();
    let gateway = Server::start(move |_| {
        let ids = ["target-01", "target-02", "target-03"];
        let nodes: Vec<_> = ids.into_iter().zip(urls.iter().map(String::as_str)).collect();
        json(&map(7, &nodes))
    })
    .await;
    (gateway, targets)
}

async fn all_names_match(gateway: &Server, n: usize) {
    let all = client(&gateway.url, LONG_TIMEOUT).batch_all(&request(n)).await.unwrap();
    assert_eq!(all.len(), n);
    for (i, result) in all.into_iter().enumerate() {
        assert_eq!(result.unwrap(), body_of(&format!("o{i}")));
    }
}

#[tokio::test]
async fn a_batch_costs_one_request_per_owner_and_comes_back_in_order() {
    let (gateway, targets) = cluster(Arc::new(|_, part| answer(stream(rows(part))))).await;
    all_names_match(&gateway, 200).await;
    for target in &targets {
        assert_eq!(target.count(PATH), 1);
    }
    let client = client(&gateway.url, LONG_TIMEOUT);
    let items: Vec<_> = client.batch(&request(50)).unwrap().collect().await;
    let order: Vec<usize> = items.iter().map(|i| i.index).collect();
    assert_eq!(order, (0..50).collect::<Vec<_>>());
    assert!(items.iter().all(|i| i.result.as_ref().unwrap() == &body_of(&format!("o{}", i.index))));
}

#[tokio::test]
async fn answers_that_came_together_are_handed_out_together() {
    let (gateway, _targets) = cluster(Arc::new(|_, part| answer(stream(rows(part))))).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    for ordered in [true, false] {
        let mut stream = client.batch(&BatchRequest { ordered, ..request(200) }).unwrap();
        let first = stream.next().await.unwrap();
        let (mut seen, mut runs) = (vec![first], 0);
        while let Some(run) = stream.next_run().await {
            assert!(!run.is_empty());
            seen.extend(run);
            runs += 1;
        }
        assert!(runs < 50, "{runs} runs");
        seen.iter().for_each(|item| {
            let whole = body_of(&format!("o{}", item.index));
            assert_eq!(item.result.as_ref().unwrap(), &whole);
        });
        let mut indices: Vec<usize> = seen.iter().map(|item| item.index).collect();
        assert!(!ordered || indices.is_sorted());
        indices.sort_unstable();
        assert_eq!(indices, (0..200).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_planned_again_for_what_is_missing_only() {
    let (gateway, targets) = cluster(Arc::new(|turn, part| {
        let whole = stream(rows(part));
        match turn {
            1 => answer(whole[..whole.len() * 2 / 3].to_vec()),
            _ => answer(whole),
        }
    }))
    .await;
    all_names_match(&gateway, 90).await;
    for target in &targets {
        let sizes: Vec<usize> = target
            .seen
            .lock()
            .unwrap()
            .iter()
            .map(|s| serde_json::from_slice::<BatchRequest>(&s.body).unwrap().entries.len())
            .collect();
        assert!(sizes.len() == 2 && sizes[1] < sizes[0], "{sizes:?}");
    }
}

#[tokio::test]
async fn an_ordered_stream_survives_a_break_in_the_middle() {
    let (gateway, _targets) = cluster(Arc::new(|turn, part| {
        let whole = stream(rows(part));
        match turn {
            1 | 2 => answer(whole[..whole.len() / 2].to_vec()),
            _ => answer(whole),
        }
    }))
    .await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    let items: Vec<_> = client.batch(&request(60)).unwrap().collect().await;
    for (i, item) in items.iter().enumerate() {
        assert_eq!((item.index, item.result.as_ref().unwrap()), (i, &body_of(&format!("o{i}"))));
    }
    assert_eq!(items.len(), 60);
}

#[tokio::test]
async fn entries_of_a_wrong_owner_are_asked_for_again_and_missing_ones_are_reported() {
    let (gateway, _targets) = cluster(Arc::new(|turn, part| {
        let mut rows = Vec::new();
        for (i, entry) in part.entries.iter().enumerate() {
            let name = entry.name.as_str();
            let error = match (name, turn) {
                ("o3", _) => Some(bucket().object_not_found(name)),
                (_, 1) => Some(CoreError::new(ErrorCode::WrongOwner, "moved")),
                _ => None,
            };
            rows.push(match error {
                Some(e) => Row::failure(i as u32, &e),
                None => {
                    let payload = body_of(name);
                    let total = payload.len() as u64;
                    Row { index: i as u32, status: 0, more: false, total, payload }
                }
            });
        }
        answer(stream(rows))
    }))
    .await;
    let all = client(&gateway.url, LONG_TIMEOUT).batch_all(&request(12)).await.unwrap();
    for (i, result) in all.into_iter().enumerate() {
        match i {
            3 => assert_eq!(result.unwrap_err().code, ErrorCode::ObjectNotFound),
            _ => assert_eq!(result.unwrap(), body_of(&format!("o{i}"))),
        }
    }
}

#[tokio::test]
async fn a_target_that_stays_away_fails_its_entries_at_the_deadline_and_no_others() {
    let (gateway, mut targets) = cluster(Arc::new(|_, part| answer(stream(rows(part))))).await;
    drop(targets.pop());
    let client = client(&gateway.url, Duration::from_millis(400));
    let all = client.batch_all(&request(30)).await.unwrap();
    let failed: Vec<_> = all.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(!failed.is_empty() && failed.len() < 30, "{}", failed.len());
    assert!(failed.iter().all(|e| e.code == ErrorCode::Timeout));
    assert!(failed[0].message.contains(&gateway.url), "{}", failed[0].message);
}

#[tokio::test]
async fn a_batch_of_nothing_is_nothing_and_without_a_cluster_one_error() {
    let gone = nobody();
    let client = client(&gone, Duration::from_millis(200));
    assert!(client.batch_all(&request(0)).await.unwrap().is_empty());
    let e = client.batch_all(&request(5)).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::Unavailable);
    assert!(e.to_string().contains(&gone), "{e}");
}

#[tokio::test]
async fn a_stream_without_its_end_frame_is_asked_for_again_although_all_rows_came() {
    const END: usize = 16;
    for ordered in [true, false] {
        let (gateway, targets) = cluster(Arc::new(|turn, part| {
            let whole = stream(rows(part));
            match turn {
                1 => answer(whole[..whole.len() - END].to_vec()),
                _ => answer(whole),
            }
        }))
        .await;
        let client = client(&gateway.url, LONG_TIMEOUT);
        let wanted = BatchRequest { ordered, ..request(30) };
        let items: Vec<_> = client.batch(&wanted).unwrap().collect().await;
        assert_eq!(items.len(), 30);
        for item in items {
            assert_eq!(item.result.unwrap(), body_of(&format!("o{}", item.index)));
        }
        assert!(targets.iter().all(|target| target.count(PATH) == 2));
    }
}

#[tokio::test]
async fn streams_that_are_always_corrupt_fail_entries_soon_with_an_error_of_their_own() {
    const END: usize = 16;
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let damages: [(&str, Damage); 4] = [
        ("end frame", |whole| whole[..whole.len() - END].to_vec()),
        ("not a batch stream", |_| b"<html>Sign in to the network</html>".to_vec()),
        ("checksum", |mut whole| {
            // The last byte of the last payload.
            let at = whole.len() - END - 1;
            whole[at] ^= 1;
            whole
        }),
        ("does not count", |mut whole| {
            let at = whole.len() - 1;
            whole[at] ^= 1;
            whole
        }),
    ];
    for (text, damage) in damages {
        let (gateway, _targets) =
            cluster(Arc::new(move |_, part| answer(damage(stream(rows(part)))))).await;
        let client = client(&gateway.url, LONG_TIMEOUT);
        let started = std::time::Instant::now();
        let all = client.batch_all(&request(3)).await;
        let errors: Vec<CoreError> = match all {
            Ok(all) => all.into_iter().filter_map(Result::err).collect(),
            Err(e) => vec![e.into()],
        };
        assert!(!errors.is_empty(), "{text}");
        for e in errors {
            assert_eq!(e.code, ErrorCode::CorruptAnswer, "{text}: {e}");
            assert!(e.message.contains(text), "{text}: {e}");
        }
        assert!(started.elapsed() < LONG_TIMEOUT / 2, "{text}");
    }
}

#[tokio::test]
async fn an_object_larger_than_a_targets_allowance_comes_whole() {
    let piece = Bytes::from(vec![7; MAX_PIECE]);
    let total = 10 * MAX_PIECE as u64;
    let (gateway, _targets) = cluster(Arc::new(move |_, part| {
        let of_entry = |i: usize| {
            let row =
                |more| Row { index: i as u32, status: 0, more, total, payload: piece.clone() };
            (0..10).map(|n| row(n < 9)).collect::<Vec<_>>()
        };
        answer(stream((0..part.entries.len()).flat_map(of_entry).collect()))
    }))
    .await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    for ordered in [true, false] {
        let request = BatchRequest { ordered, ..request(4) };
        let all =
            tokio::time::timeout(LONG_TIMEOUT, client.batch(&request).unwrap().collect::<Vec<_>>());
        let all = all.await.unwrap();
        assert!(all.iter().all(|item| item.result.as_ref().unwrap().len() as u64 == total));
        assert_eq!(all.len(), 4);
    }
}

#[tokio::test]
async fn a_target_that_owns_many_entries_sends_them_by_several_streams() {
    let (gateway, targets) = cluster(Arc::new(|_, part| answer(stream(rows(part))))).await;
    let n = 15_000;
    all_names_match(&gateway, n).await;
    for target in &targets {
        assert!((2..=4).contains(&target.count(PATH)), "{}", target.count(PATH));
    }
    let asked = |target: &Server| -> usize {
        let seen = target.seen.lock().unwrap();
        let parts = seen.iter().filter(|s| s.path == PATH);
        parts.map(|s| serde_json::from_slice::<BatchRequest>(&s.body).unwrap().entries.len()).sum()
    };
    assert_eq!(targets.iter().map(asked).sum::<usize>(), n, "each entry is asked for once");
    let client = client(&gateway.url, LONG_TIMEOUT);
    let items: Vec<_> = client.batch(&request(n)).unwrap().collect().await;
    assert!(items.iter().enumerate().all(|(at, item)| item.index == at && item.result.is_ok()));
}

#[tokio::test]
async fn a_target_that_is_busy_is_asked_again_when_it_said() {
    let (gateway, targets) = cluster(Arc::new(|turn, part| match turn {
        1 => reply(429, &[("retry-after", "1")], Vec::new()),
        _ => answer(stream(rows(part))),
    }))
    .await;
    let started = std::time::Instant::now();
    all_names_match(&gateway, 60).await;
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    for target in &targets {
        assert_eq!(target.count(PATH), 2);
    }
}

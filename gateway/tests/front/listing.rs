//! Listings over several targets: complete, sorted, paged, or an error; never incomplete without an
//! error.

use std::collections::BTreeSet;

use forebay_v1::list::Page;
use serde_json::{Value, json};

use crate::wire::{Answer, act, send};
use crate::world::World;

async fn ask(url: &str, bucket: &str, value: Value) -> Answer {
    let body = json!({"action": "list", "name": "", "value": value}).to_string();
    let headers = [("content-type", "application/json"), ("accept", "application/msgpack")];
    send(url, "GET", &format!("/v1/buckets/{bucket}"), &headers, body).await
}

async fn page(url: &str, bucket: &str, value: Value) -> Page {
    let answer = ask(url, bucket, value).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/msgpack");
    Page::from_msgpack(&answer.body).unwrap()
}

/// All pages of a listing, and how many there were.
async fn pages(url: &str, bucket: &str, mut value: Value) -> (Vec<(String, u16)>, usize) {
    let (mut all, mut count) = (Vec::new(), 0);
    loop {
        let page = page(url, bucket, value.clone()).await;
        count += 1;
        assert!(!page.uuid.is_empty() && count < 100);
        all.extend(page.entries.into_iter().map(|e| (e.name, e.flags)));
        if page.token.is_empty() {
            return (all, count);
        }
        value["uuid"] = page.uuid.into();
        value["continuation_token"] = page.token.into();
    }
}

fn names(rows: &[(String, u16)]) -> Vec<&str> {
    rows.iter().map(|(n, _)| n.as_str()).collect()
}

async fn native() -> World {
    let w = World::new(1, 3).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    for i in 0..30 {
        let name = format!("d{}/o{i:02}", i % 4);
        w.targets[i % 3].holds.lock().unwrap().records.insert(name);
    }
    w.targets[0].holds.lock().unwrap().records.insert("z".into());
    w
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_all_targets_join_to_one_sorted_listing() {
    let w = native().await;
    let mut want: Vec<String> = (0..30).map(|i| format!("d{}/o{i:02}", i % 4)).collect();
    want.push("z".into());
    want.sort();
    for size in [1, 7, 30, 31, 0] {
        let (rows, _) = pages(w.url(), "b", json!({"pagesize": size, "props": "name,size"})).await;
        assert_eq!(names(&rows), want, "page size {size}");
        assert!(rows.iter().all(|(_, flags)| *flags == 64));
    }
    // A full last page is followed by an empty one.
    assert_eq!(pages(w.url(), "b", json!({"pagesize": 31})).await.1, 2);
    let one =
        page(w.url(), "b", json!({"prefix": "d1/", "start_after": "d1/o05", "pagesize": 2})).await;
    let got: Vec<_> = one.entries.iter().map(|e| (e.name.as_str(), e.size)).collect();
    assert_eq!(got, [("d1/o09", 6), ("d1/o13", 6)]);
    assert_eq!(one.token, "d1/o13");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_level_shows_each_directory_once_over_all_pages() {
    let w = native().await;
    let level = |size: u64| json!({"flags": "2048", "pagesize": size});
    for size in [1, 2, 5, 100] {
        let (rows, _) = pages(w.url(), "b", level(size)).await;
        assert_eq!(names(&rows), ["d0/", "d1/", "d2/", "d3/", "z"], "page size {size}");
        assert_eq!(rows.iter().map(|r| r.1).collect::<Vec<_>>(), [256, 256, 256, 256, 64]);
    }
    let inside = page(w.url(), "b", json!({"flags": 2048, "prefix": "d1/"})).await;
    assert_eq!(inside.entries.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_level_under_a_folder_s_name_without_its_slash_is_what_lies_in_the_folder() {
    let w = native().await;
    for size in [1, 3, 8, 100] {
        let one_level = json!({"flags": "2048", "pagesize": size, "prefix": "d1"});
        let (rows, _) = pages(w.url(), "b", one_level).await;
        assert_eq!(rows.len(), 8, "page size {size}: {rows:?}");
        assert!(rows.iter().all(|(name, flags)| name.starts_with("d1/") && *flags == 64));
        // A part of a name opens nothing.
        let one_level = json!({"flags": "2048", "pagesize": size, "prefix": "d"});
        let (rows, _) = pages(w.url(), "b", one_level).await;
        assert_eq!(names(&rows), ["d0/", "d1/", "d2/", "d3/"]);
    }
    let ours = json!({"flags": "2048", "prefix": "d1", "shows_folder": true});
    assert_eq!(names(&pages(w.url(), "b", ours).await.0), ["d1/"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_without_one_of_its_targets_is_503() {
    let w = native().await;
    w.targets[1].stop().await;
    let answer = ask(w.url(), "b", json!({})).await.expect(503);
    assert_eq!(answer.header("retry-after"), "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_listing_is_the_clouds_with_what_is_cached_marked() {
    let w = World::new(1, 2).await;
    let all: BTreeSet<String> = (0..20).map(|i| format!("o{i:02}")).collect();
    for (i, target) in w.targets.iter().enumerate() {
        let mut holds = target.holds.lock().unwrap();
        holds.backend = all.clone();
        holds.records = all.iter().skip(i).step_by(4).cloned().collect();
        // Deleted directly in the cloud.
        holds.records.insert("o05-gone".into());
    }
    let cached = |n: &str| matches!(n[1..].parse::<usize>().unwrap() % 4, 0 | 1);
    let bucket = "cloud?provider=aws";
    for size in [3, 20, 1000] {
        let (rows, _) = pages(w.url(), bucket, json!({"pagesize": size})).await;
        assert_eq!(names(&rows), all.iter().collect::<Vec<_>>());
        assert!(rows.iter().all(|(n, f)| (*f == 64) == cached(n)), "{rows:?}");
    }
    let (rows, _) = pages(w.url(), bucket, json!({"flags": "1", "pagesize": 4})).await;
    assert_eq!(rows.len(), 11, "only what the targets hold");
    let (rows, _) = pages(w.url(), bucket, json!({"flags": "8", "pagesize": 4})).await;
    assert_eq!(rows.len(), 11, "a listing opens shards, it fetches none");
    let (rows, _) = pages(w.url(), bucket, json!({"flags": "512", "pagesize": 6})).await;
    assert!(rows.len() == 10 && rows.iter().all(|(n, _)| !cached(n)), "{rows:?}");
    // Another target can take over for a cloud bucket: its listing is complete.
    w.targets[1].stop().await;
    assert_eq!(pages(w.url(), bucket, json!({})).await.0.len(), 20);
    ask(w.url(), bucket, json!({"start_after": "o03"})).await.expect(400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_the_form_for_those_who_do_not_name_msgpack() {
    let w = World::new(1, 1).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let empty = act(w.url(), "GET", "/v1/buckets/b", "list", json!({})).await.expect(200).json();
    assert_eq!((&empty["entries"], &empty["flags"]), (&Value::Null, &json!(0)));
    w.targets[0].holds.lock().unwrap().records.insert("x".into());
    let one = act(w.url(), "GET", "/v1/buckets/b", "list", json!({"uuid": "mine"})).await.json();
    assert_eq!(one["entries"], json!([{"name": "x", "size": "1", "flags": 64}]));
    assert_eq!(one["uuid"], "mine");
    ask(w.url(), "b", json!({"flags": 512})).await.expect(400);
    ask(w.url(), "nope", json!({})).await.expect(404);
}

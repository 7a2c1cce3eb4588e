//! Parallel listings of realistic key spaces, whose names are generated on demand.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::error::ErrorCode;
use forebay_core::size::ByteRange;
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;

use super::*;
use crate::{PutBody, RemoteMeta, RemoteObject};

/// The names of a bucket, in order; generated on demand.
struct Names {
    count: usize,
    name: Box<dyn Fn(usize) -> String + Send + Sync>,
    /// In rounds of the scheduler.
    latency: u32,
    calls: AtomicU64,
    /// Calls that continued by a token.
    by_token: AtomicUsize,
    /// Reports that it walks for each start, as MinIO does.
    walks: bool,
    fail_at: u64,
}

impl Names {
    fn new(count: usize, name: impl Fn(usize) -> String + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self::made(count, name))
    }

    fn made(count: usize, name: impl Fn(usize) -> String + Send + Sync + 'static) -> Self {
        Self {
            count,
            name: Box::new(name),
            latency: 1,
            calls: AtomicU64::new(0),
            by_token: AtomicUsize::new(0),
            walks: false,
            fail_at: u64::MAX,
        }
    }

    fn of(mut names: Vec<String>) -> Arc<Self> {
        names.sort();
        names.dedup();
        Self::new(names.len(), move |n| names[n].clone())
    }

    /// The first name for which `is_before` is false.
    fn first(&self, is_before: impl Fn(&str) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match is_before(&(self.name)(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

#[async_trait]
impl Backend for Names {
    async fn head_bucket(&self) -> Result<()> {
        Ok(())
    }
    async fn stat(&self, _: &str) -> Result<RemoteMeta> {
        Err(Error::internal("not here"))
    }
    async fn get(&self, _: &str, _: Option<ByteRange>, _: Option<&str>) -> Result<RemoteObject> {
        Err(Error::internal("not here"))
    }
    async fn put(&self, _: &str, _: PutBody) -> Result<RemoteMeta> {
        Err(Error::internal("not here"))
    }
    async fn delete(&self, _: &str) -> Result<()> {
        Err(Error::internal("not here"))
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        if self.calls.fetch_add(1, Ordering::SeqCst) + 1 >= self.fail_at {
            return Err(Error::new(ErrorCode::AccessDenied, "no more"));
        }
        for _ in 0..self.latency {
            tokio::task::yield_now().await;
        }
        assert!(after.token.is_none_or(|token| token == after.name), "{after:?}");
        self.by_token.fetch_add(usize::from(after.token.is_some()), Ordering::SeqCst);
        let start = self.first(|name| name <= after.name || name < prefix);
        let entry = |name: String| RemoteEntry {
            name,
            size: 1,
            version: String::new(),
            etag: String::new(),
            mtime_ns: 0,
        };
        let rest = (start..self.count).map(|n| (self.name)(n));
        let mut entries: Vec<_> =
            rest.take_while(|name| name.starts_with(prefix)).take(limit + 1).collect();
        let more = entries.len() > limit;
        entries.truncate(limit);
        let token = entries.last().cloned();
        let entries = entries.into_iter().map(entry).collect();
        Ok(RemotePage { entries, more, token, walked: self.walks && more })
    }
}

fn options(page: usize) -> SweepOptions {
    SweepOptions { page, ..SweepOptions::default() }
}

async fn names_of(names: &Arc<Names>, prefix: &str, how: SweepOptions) -> Vec<String> {
    let pages = sweep(names.clone(), prefix, "", how);
    let pages: Vec<Vec<RemoteEntry>> = pages.try_collect().await.unwrap();
    pages.into_iter().flatten().map(|entry| entry.name).collect()
}

/// Lists all, compares, and returns the number of calls per page.
async fn calls_per_page(names: &Arc<Names>, page: usize) -> f64 {
    let got = names_of(names, "", options(page)).await;
    assert_eq!(got.len(), names.count);
    assert!((0..names.count).all(|n| got[n] == (names.name)(n)), "complete and in order");
    names.calls.load(Ordering::SeqCst) as f64 / names.count.div_ceil(page) as f64
}

/// Realistic key spaces.
fn key_spaces(count: usize) -> Vec<(&'static str, Arc<Names>)> {
    let hash = |n: usize| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hashed = (0..count).map(|n| format!("{:016x}", hash(n))).collect();
    let skewed = (0..count).map(|n| match n % 100 {
        0 => format!("logs/{:03}/{n}", n % 7),
        1 => format!("a/{n}"),
        _ => format!("datasets/train/hot/{:08x}.jpg", hash(n) >> 32),
    });
    let unicode = (0..count).map(|n| {
        let letters = ['a', 'é', '中', '😀', 'Z'];
        let at = |place: u32| letters[(hash(n) >> (place * 3)) as usize % 5];
        format!("{}{}/{}{n}", at(1), at(2), at(3))
    });
    vec![
        ("numbered", Names::new(count, |n| format!("img_{n:08}.jpg"))),
        ("directories", Names::new(count, |n| format!("train/n{:05}/{:04}.jpg", n / 700, n % 700))),
        ("hashed", Names::of(hashed)),
        ("skewed", Names::of(skewed.collect())),
        ("unicode", Names::of(unicode.collect())),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_comes_once_in_order_with_few_calls_more_than_pages() {
    for (space, names) in key_spaces(40_000) {
        let calls = calls_per_page(&names, 100).await;
        assert!(calls <= 1.2, "{space}: {calls} calls for each page");
    }
}

/// Time is counted in rounds of the scheduler; in each round every task runs once.
#[tokio::test]
async fn calls_go_at_the_same_time_in_every_key_space() {
    for (space, names) in key_spaces(40_000) {
        let names = Arc::into_inner(names).unwrap();
        let names = Arc::new(Names { latency: 50, ..names });
        let rounds = Arc::new(AtomicU64::new(0));
        let counted = rounds.clone();
        let clock = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }));
        calls_per_page(&names, 100).await;
        drop(clock);
        let faster = 400.0 * 50.0 / rounds.load(Ordering::SeqCst) as f64;
        assert!(faster >= 4.0, "{space}: {faster} times as fast as page after page");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_names_wait_in_bounded_memory() {
    let names = Names::new(1_000_000, |n| format!("part-{n:07}"));
    let how = SweepOptions { waiting: 20_000, ..SweepOptions::default() };
    let mut pages = sweep(names.clone(), "", "", how).boxed();
    let (mut rows, mut last) = (0, String::new());
    while let Some(page) = pages.next().await {
        let page = page.unwrap();
        assert!(last < page[0].name);
        rows += page.len();
        last.clone_from(&page[page.len() - 1].name);
        // Requested rows that were not taken: those that may wait, and those in flight.
        let asked = names.calls.load(Ordering::SeqCst) as usize * how.page;
        assert!(asked <= rows * 12 / 10 + 2 * how.waiting + (how.workers + 8) * how.page);
    }
    assert_eq!(rows, 1_000_000);
    assert!(names.calls.load(Ordering::SeqCst) <= 1200);
}

#[tokio::test]
async fn a_failure_ends_the_listing_and_is_returned() {
    let names = Names { fail_at: 20, ..Names::made(10_000, |n| format!("{n:05}")) };
    let pages = sweep(Arc::new(names), "", "", options(100));
    let listed: Result<Vec<_>> = pages.try_collect().await;
    assert_eq!(listed.unwrap_err().code, ErrorCode::AccessDenied);
}

#[tokio::test]
async fn a_listing_that_nobody_reads_any_more_stops() {
    let names = Names::new(1_000_000, |n| format!("{n:07}"));
    let mut pages = sweep(names.clone(), "", "", options(10)).boxed();
    pages.next().await.unwrap().unwrap();
    drop(pages);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let calls = names.calls.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(names.calls.load(Ordering::SeqCst), calls);
}

proptest! {
    #[test]
    fn any_key_space_is_listed_whole(
        names in prop::collection::btree_set("[ab0-2/é中]{0,3}[0-9a]{0,4}", 0..400),
        prefix in "[ab0]{0,2}",
        page in 1usize..20,
        waiting in 1usize..100,
        after in "[ab0-2]{0,3}",
    ) {
        let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        let wanted: Vec<String> = names.iter()
            .filter(|n| n.starts_with(&prefix) && n.as_str() > after.as_str()).cloned().collect();
        let source = Names::of(names);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let got = runtime.block_on(async {
            let how = SweepOptions { workers: 5, page, waiting };
            let pages = sweep(source.clone(), &prefix, &after, how);
            let pages: Vec<Vec<RemoteEntry>> = pages.try_collect().await.unwrap();
            pages.into_iter().flatten().map(|entry| entry.name).collect::<Vec<_>>()
        });
        let pages = wanted.len().div_ceil(page).max(1) as f64;
        let calls = source.calls.load(Ordering::SeqCst) as f64;
        prop_assert!(calls <= 1.2 * pages + 5.0, "{calls} calls for {pages} pages");
        prop_assert_eq!(got, wanted);
    }
}

#[tokio::test]
async fn a_range_is_listed_on_by_the_token_of_its_last_page() {
    let names = Names::new(100_000, |n| format!("{n:06}"));
    assert_eq!(names_of(&names, "", options(1000)).await.len(), names.count);
    let calls = names.calls.load(Ordering::SeqCst) as usize;
    let by_token = names.by_token.load(Ordering::SeqCst);
    assert!(by_token < calls && by_token * 10 > calls * 7, "{by_token} of {calls}");
}

#[tokio::test]
async fn a_backend_that_walks_for_each_range_gets_few() {
    for (space, names) in key_spaces(100_000) {
        let names = Arc::new(Names { walks: true, ..Arc::into_inner(names).unwrap() });
        assert!(calls_per_page(&names, 100).await <= 1.2, "{space}");
        let calls = names.calls.load(Ordering::SeqCst) as usize;
        let started = calls - names.by_token.load(Ordering::SeqCst);
        assert!((2..20).contains(&started), "{space}: {started} ranges for {calls} calls");
    }
}

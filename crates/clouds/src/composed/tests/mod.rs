//! Groups of small objects, over a cloud in memory.
#![allow(clippy::unwrap_used)]

mod cloud;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::cloud_rules::Compose;
use forebay_core::error::{ErrorCode, Result};
use futures::TryStreamExt;
use tokio::sync::Semaphore;

use self::cloud::{Cloud, content, fill, filled};
use super::{Composing, Gather, TEMPORARY, delete_leftovers};
use crate::{Announced, Backend};

/// A bucket whose objects are read together.
struct Bucket {
    cloud: Arc<Cloud>,
    gather: Arc<Gather>,
    backend: Arc<Composing>,
}

impl Bucket {
    fn new(cloud: &Arc<Cloud>, how: Compose) -> Self {
        let gather = Arc::new(Gather::default());
        let inner: Arc<dyn Backend> = cloud.clone();
        let backend = Arc::new(Composing::new(inner, gather.clone(), how));
        Self { cloud: cloud.clone(), gather, backend }
    }

    /// Reads the objects as a batch does: announced, several at a time.
    async fn read(&self, names: &[String]) -> Vec<Result<Bytes>> {
        let announced = Arc::new(std::sync::Mutex::new(self.gather.announce(names.len())));
        let turns = Arc::new(Semaphore::new(64));
        let one = |name: String| {
            let (backend, turns) = (self.backend.clone(), turns.clone());
            let announced: Arc<std::sync::Mutex<Announced>> = announced.clone();
            tokio::spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                let read = read(&*backend, &name).await;
                announced.lock().unwrap().one_is_done();
                read
            })
        };
        let tasks: Vec<_> = names.iter().cloned().map(one).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.push(task.await.unwrap());
        }
        all
    }

    /// Waits until all temporary objects are deleted, which happens after their use.
    async fn is_tidy(&self) {
        let temporary = || self.cloud.names().iter().any(|name| name.starts_with(TEMPORARY));
        for _ in 0..1000 {
            if !temporary() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("temporary objects are left: {:?}", self.cloud.names());
    }
}

async fn read(backend: &dyn Backend, name: &str) -> Result<Bytes> {
    let object = backend.get(name, None, None).await?;
    let parts: Vec<Bytes> = object.stream.try_collect().await?;
    assert_eq!(parts.iter().map(Bytes::len).sum::<usize>() as u64, object.meta.size);
    Ok(parts.concat().into())
}

#[tokio::test]
async fn a_thousand_and_24_objects_take_32_reads() {
    let (cloud, names) = filled(1024);
    let bucket = Bucket::new(&cloud, Compose::On);
    for (name, (n, got)) in names.iter().zip(bucket.read(&names).await.into_iter().enumerate()) {
        assert_eq!(got.unwrap(), content(name, 500 + n % 977), "{name}");
    }
    assert_eq!((cloud.calls("get"), cloud.calls("compose")), (32, 32));
    // The second page has the remaining names, and a group that begins in the middle of it.
    assert!(cloud.calls("describe") <= 3, "{} listing calls", cloud.calls("describe"));
    assert_eq!((cloud.calls("stat"), cloud.calls("check")), (0, 1));
    bucket.is_tidy().await;
}

#[tokio::test]
async fn an_object_replaced_meanwhile_gives_no_wrong_and_no_shifted_bytes() {
    for lax in [false, true] {
        // Same length as before, longer, and deleted.
        let news: [Option<usize>; 3] = [Some(507), Some(9000), None];
        for (round, new) in news.into_iter().enumerate() {
            let (cloud, names) = fill(Cloud::lax(lax), 32);
            let bucket = Bucket::new(&cloud, Compose::On);
            let name = names[7].clone();
            let replaced = name.clone();
            *cloud.before_compose.lock().unwrap() = Some(Box::new(move |cloud| match new {
                Some(size) => cloud.write(&replaced, content("new", size)),
                None => cloud.remove(&replaced),
            }));
            for (n, (name, got)) in names.iter().zip(bucket.read(&names).await).enumerate() {
                match (n, new) {
                    (7, Some(size)) => assert_eq!(got.unwrap(), content("new", size)),
                    (7, None) => assert_eq!(got.unwrap_err().code, ErrorCode::ObjectNotFound),
                    _ => assert_eq!(got.unwrap(), content(name, 500 + n), "round {round}: {name}"),
                }
            }
            assert_eq!(cloud.calls("compose"), 1);
            bucket.is_tidy().await;
            // Compositions continue with the next group.
            bucket.read(&names[8..16]).await;
            assert_eq!(cloud.calls("compose"), 2, "that an object changed is nobody's fault");
            bucket.is_tidy().await;
        }
    }
}

#[tokio::test]
async fn too_many_compositions_switch_themselves_off_for_a_while() {
    let (cloud, names) = filled(64);
    let bucket = Bucket::new(&cloud, Compose::On);
    *cloud.refuses.lock().unwrap() = Some(ErrorCode::TooManyRequests);
    for got in bucket.read(&names[..32]).await {
        got.unwrap();
    }
    assert_eq!((cloud.calls("compose"), cloud.calls("get")), (1, 32), "then one by one");
    *cloud.refuses.lock().unwrap() = None;
    for got in bucket.read(&names[32..]).await {
        got.unwrap();
    }
    assert_eq!((cloud.calls("compose"), cloud.calls("get")), (1, 64));
}

#[tokio::test]
async fn who_is_alone_reads_by_itself() {
    let (cloud, names) = filled(64);
    let bucket = Bucket::new(&cloud, Compose::On);
    read(&*bucket.backend, &names[0]).await.unwrap();
    for got in bucket.read(&names[1..3]).await {
        got.unwrap();
    }
    assert_eq!((cloud.calls("get"), cloud.calls("describe"), cloud.calls("compose")), (3, 0, 0));
}

#[tokio::test]
async fn announcements_that_are_given_up_hold_nobody_up() {
    let (cloud, names) = filled(8);
    let bucket = Bucket::new(&cloud, Compose::On);
    let announced = bucket.gather.announce(1000);
    let reader = {
        let (backend, name) = (bucket.backend.clone(), names[0].clone());
        tokio::spawn(async move { read(&*backend, &name).await })
    };
    tokio::task::yield_now().await;
    drop(announced);
    reader.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_bucket_that_charges_for_what_is_deleted_is_left_alone_unless_forced() {
    for (how, composed) in [(Compose::On, 0), (Compose::Force, 1)] {
        let (cloud, names) = filled(32);
        *cloud.objects_to.lock().unwrap() = Some("it keeps what was deleted");
        let bucket = Bucket::new(&cloud, how);
        for got in bucket.read(&names).await {
            got.unwrap();
        }
        assert_eq!(cloud.calls("compose"), composed, "{how:?}");
        bucket.is_tidy().await;
    }
}

#[tokio::test]
async fn large_and_empty_objects_are_read_by_themselves() {
    let (cloud, names) = filled(30);
    cloud.write(&names[3], content("large", (4 << 20) + 1));
    cloud.write(&names[4], "");
    let bucket = Bucket::new(&cloud, Compose::On);
    let sizes: Vec<_> = bucket.read(&names).await.into_iter().map(|r| r.unwrap().len()).collect();
    assert_eq!((sizes[3], sizes[4], sizes[5]), ((4 << 20) + 1, 0, 505));
    assert_eq!((cloud.calls("compose"), cloud.calls("get")), (1, 3));
}

#[tokio::test]
async fn names_far_apart_are_read_one_by_one_instead_of_listed() {
    let (cloud, names) = filled(20_000);
    let bucket = Bucket::new(&cloud, Compose::On);
    let few: Vec<_> = names.into_iter().step_by(600).collect();
    for got in bucket.read(&few[..32]).await {
        got.unwrap();
    }
    assert_eq!((cloud.calls("describe"), cloud.calls("compose")), (1, 0));
    assert_eq!(cloud.calls("get"), 32);
}

#[tokio::test]
async fn what_processes_that_died_have_left_is_deleted_and_nothing_else() {
    let (cloud, mut names) = filled(40);
    let young = format!("{TEMPORARY}{}-0", forebay_node::clock::unix_s());
    let old: Vec<_> = (0..1200).map(|n| format!("{TEMPORARY}1700000000-{n:04}")).collect();
    for name in old.iter().chain([&young]) {
        cloud.write(name, "left");
    }
    assert_eq!(delete_leftovers(&*cloud).await, 1200);
    names.insert(0, young);
    assert_eq!(cloud.names(), names);
    // The first composition of a process also deletes leftovers.
    cloud.write(&old[0], "left");
    let bucket = Bucket::new(&cloud, Compose::On);
    bucket.read(&names[1..33]).await;
    cloud.remove(&names[0]);
    bucket.is_tidy().await;
}

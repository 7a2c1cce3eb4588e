//! A load of Forebay's own client: reads, writes, removals, listings and batches, whose results are
//! compared byte by byte. Every error that the client returns is a failed request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_client::{Client, Result};
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{Bucket, ErrorCode, ObjectName};
use tokio::task::JoinHandle;

use crate::data::{content, names};
use crate::history::Random;
use crate::wait;

/// Objects of each bucket that are read and never written; up to ten, their names are in order.
const OBJECTS: usize = 10;
/// Names that each writer uses in each bucket.
const NAMES: u64 = 24;
/// Pause of each task after a request, so that the load leaves the processor to the nodes.
const PAUSE: Duration = Duration::from_millis(8);
/// How long a wait for requests may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The last acknowledged state of a written object: the number of the write and the size; `None` after
/// a removal.
type Written = Option<(u64, usize)>;

/// Requests and failures of a load.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of successful requests of each kind.
    pub requests: BTreeMap<&'static str, u64>,
    pub failures: Vec<String>,
    pub slowest: Duration,
}

/// A load under way.
pub struct ClientLoad {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    buckets: Vec<Bucket>,
    /// One client for each set of tasks. They can be exchanged.
    clients: Mutex<Vec<Client>>,
    written: Mutex<BTreeMap<(usize, String), Written>>,
    report: Mutex<Report>,
    stop: AtomicBool,
}

/// Bytes of an object that is not written by the load.
fn fixed(n: usize, name: &str) -> Vec<u8> {
    content(name, 1000 + (n % 3) * 90_000)
}

fn bytes(name: &str, (number, size): (u64, usize)) -> Vec<u8> {
    content(&format!("{name}#{number}"), size)
}

impl ClientLoad {
    /// Fills the buckets, which exist, and starts three tasks for each client: one reads, one writes,
    /// one lists and fetches batches.
    pub async fn start(clients: Vec<Client>, buckets: Vec<Bucket>) -> Self {
        for bucket in &buckets {
            for (n, name) in names(OBJECTS).iter().enumerate() {
                clients[0].put(bucket, name, fixed(n, name), None).await.unwrap();
            }
        }
        let shared = Arc::new(Shared {
            buckets,
            clients: Mutex::new(clients.clone()),
            written: Mutex::default(),
            report: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let mut tasks = Vec::new();
        for at in 0..clients.len() {
            tasks.push(tokio::spawn(shared.clone().read(at)));
            tasks.push(tokio::spawn(shared.clone().write(at)));
            tasks.push(tokio::spawn(shared.clone().list(at)));
        }
        Self { shared, tasks }
    }

    /// From their next request on, the tasks use these clients.
    pub fn exchange(&self, clients: Vec<Client>) {
        let mut current = self.shared.clients.lock().unwrap();
        assert_eq!(clients.len(), current.len());
        *current = clients;
    }

    /// Waits until each kind of request succeeded this many times more. Fails at the first failed
    /// request.
    pub async fn wait_for(&self, more: u64) {
        let count = |report: &Report| report.requests.values().copied().min().unwrap_or(0);
        let enough = count(&self.so_far()) + more;
        wait::until_async("the load goes on", TIMEOUT, || async {
            let report = self.so_far();
            assert_eq!(report.failures, [""; 0]);
            count(&report) >= enough
        })
        .await;
    }

    pub fn so_far(&self) -> Report {
        self.shared.report.lock().unwrap().clone()
    }

    /// Ends the load, then reads and lists with `client` all that was acknowledged.
    pub async fn finish(self, client: &Client) -> Report {
        self.shared.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        let written = std::mem::take(&mut *self.shared.written.lock().unwrap());
        let mut there: Vec<Vec<(String, u64)>> = Vec::new();
        for _ in &self.shared.buckets {
            let sizes = |(n, name): (usize, String)| (name.clone(), fixed(n, &name).len() as u64);
            there.push(names(OBJECTS).into_iter().enumerate().map(sizes).collect());
        }
        for ((at, name), last) in &written {
            let found = client.get_bytes(&self.shared.buckets[*at], name, None).await;
            match (found, last) {
                (Ok(found), Some(last)) => {
                    assert!(found == bytes(name, *last), "{name} is not as write {last:?} left it");
                    there[*at].push((name.clone(), found.len() as u64));
                }
                (Err(e), None) if e.code() == ErrorCode::ObjectNotFound => {}
                (found, last) => panic!("{name}: {:?} after {last:?}", found.map(|b| b.len())),
            }
        }
        for (bucket, mut there) in self.shared.buckets.iter().zip(there) {
            there.sort();
            assert_eq!(client.list_all(bucket, "").await.unwrap(), there, "the list of {bucket}");
        }
        self.shared.report.lock().unwrap().clone()
    }
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn client(&self, at: usize) -> Client {
        self.clients.lock().unwrap()[at].clone()
    }

    /// Counts a request and its result.
    async fn count<T>(
        &self,
        kind: &'static str,
        sent: impl Future<Output = Result<T>>,
    ) -> Option<T> {
        let began = Instant::now();
        let result = sent.await;
        let mut report = self.report.lock().unwrap();
        report.slowest = report.slowest.max(began.elapsed());
        match result {
            Ok(value) => {
                *report.requests.entry(kind).or_default() += 1;
                Some(value)
            }
            Err(e) => {
                report.failures.push(format!("{kind}: {e}"));
                None
            }
        }
    }

    fn expect(&self, is_right: bool, what: &str) {
        if !is_right {
            self.report.lock().unwrap().failures.push(format!("wrong result: {what}"));
        }
    }

    async fn read(self: Arc<Self>, at: usize) {
        let mut random = Random::new(at as u64 + 1);
        let names = names(OBJECTS);
        while self.goes_on() {
            let (client, n) = (self.client(at), random.below(OBJECTS as u64) as usize);
            let bucket = &self.buckets[random.below(self.buckets.len() as u64) as usize];
            let read = self.count("reads", client.get_bytes(bucket, &names[n], None)).await;
            self.expect(read.is_none_or(|read| read == fixed(n, &names[n])), &names[n]);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The objects of each writer have names of their own.
    async fn write(self: Arc<Self>, at: usize) {
        let mut random = Random::new(at as u64 + 101);
        let mut number = 0;
        while self.goes_on() {
            number += 1;
            let client = self.client(at);
            let to = random.below(self.buckets.len() as u64) as usize;
            let name = format!("w{at}/{:02}", random.below(NAMES));
            let key = (to, name.clone());
            let exists = self.written.lock().unwrap().get(&key).is_some_and(Option::is_some);
            let value = match exists && random.below(5) == 0 {
                true => None,
                false => Some((number, 1 + random.below(60_000) as usize)),
            };
            let done = match value {
                Some(value) => {
                    let put = client.put(&self.buckets[to], &name, bytes(&name, value), None);
                    self.count("writes", put).await.map(drop)
                }
                None => self.count("removals", client.delete(&self.buckets[to], &name)).await,
            };
            if done.is_some() {
                self.written.lock().unwrap().insert(key, value);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn list(self: Arc<Self>, at: usize) {
        let names = names(OBJECTS);
        let entry = |name: &String| BatchEntry::whole(0, ObjectName::new(name).unwrap());
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            let (client, bucket) = (self.client(at), &self.buckets[n % self.buckets.len()]);
            let listed = self.count("listings", client.list_all(bucket, "train/")).await;
            let is_whole = listed.is_none_or(|listed| listed.iter().map(|l| &l.0).eq(&names));
            self.expect(is_whole, &format!("a listing of {bucket}"));
            let (buckets, entries) = (vec![bucket.clone()], names.iter().map(entry).collect());
            let request = BatchRequest { buckets, entries, ordered: true };
            let batch = self.count("batches", client.batch_all(&request)).await;
            for (n, (entry, name)) in batch.into_iter().flatten().zip(&names).enumerate() {
                match entry {
                    Ok(bytes) => self.expect(bytes == fixed(n, name), &format!("batch: {name}")),
                    Err(e) => self.expect(false, &format!("batch: {name}: {e}")),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

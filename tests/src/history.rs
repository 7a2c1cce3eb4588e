//! A record of all writes and of those that were acknowledged. After a crash, an object must be as
//! the last acknowledged write left it, or as the one unacknowledged write did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_client::Client;
use forebay_core::{Bucket, ErrorCode};
use tokio::task::JoinHandle;

use crate::data::{assert_same, content};

const KIB: u64 = 1024;

/// One state of an object: the number of the write and its bytes; none when it was removed.
pub type Value = Option<(u64, usize)>;

/// Record of one name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    acknowledged: Value,
    /// The write that was not acknowledged.
    pending: Option<Value>,
}

/// All writes to one bucket, by any number of writers with names of their own.
#[derive(Clone, Default)]
pub struct History {
    names: Arc<Mutex<BTreeMap<String, Known>>>,
    writes: Arc<AtomicU64>,
}

/// Numbers that follow from a seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end
    }

    /// Bytes of an object: most are small, some lie in files of their own.
    fn size(&mut self) -> usize {
        let size = match self.below(20) {
            0..=10 => 1 + self.below(4 * KIB),
            11..=15 => 1 + self.below(128 * KIB),
            16 => 128 * KIB + self.below(3) - 1,
            _ => 128 * KIB + self.below(1920 * KIB),
        };
        size as usize
    }
}

fn bytes(name: &str, (number, size): (u64, usize)) -> Vec<u8> {
    content(&format!("{name}#{number}"), size)
}

/// Writers at work.
pub struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<u64>>,
}

impl Writers {
    /// Panics if a write failed, which ends its writer.
    pub fn assert_none_failed(&self) {
        assert!(self.tasks.iter().all(|task| !task.is_finished()), "a write failed");
    }

    /// Stops the writers; returns the number of acknowledged writes of each.
    pub async fn stop(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut counts = Vec::new();
        for task in self.tasks {
            counts.push(task.await.unwrap());
        }
        counts
    }
}

impl History {
    /// Starts one writer for each client. Needs a runtime.
    pub fn writers(
        &self,
        clients: impl IntoIterator<Item = Client>,
        bucket: &Bucket,
        seed: u64,
    ) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let task = |(writer, client)| {
            let (history, bucket, stop) = (self.clone(), bucket.clone(), stop.clone());
            tokio::spawn(async move { history.write(client, bucket, writer, seed, stop).await })
        };
        let tasks = (0..).zip(clients).map(task).collect();
        Writers { stop, tasks }
    }

    /// Puts, overwrites and removes until `stop` is set or a write fails. Returns how many writes
    /// were acknowledged.
    async fn write(
        &self,
        client: Client,
        bucket: Bucket,
        writer: u64,
        seed: u64,
        stop: Arc<AtomicBool>,
    ) -> u64 {
        let mut random = Random::new(seed << 8 | writer);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            let name = format!("w{writer}/{:02}", random.below(16));
            let number = self.writes.fetch_add(1, Ordering::Relaxed);
            let value = (random.below(5) > 0).then(|| (number, random.size()));
            self.names.lock().unwrap().entry(name.clone()).or_default().pending = Some(value);
            let done = match value {
                Some(value) => {
                    client.put(&bucket, &name, bytes(&name, value), None).await.map(drop)
                }
                None => match client.delete(&bucket, &name).await {
                    Err(e) if e.code() == ErrorCode::ObjectNotFound => Ok(()),
                    other => other.map(drop),
                },
            };
            if done.is_err() {
                break;
            }
            let known = Known { acknowledged: value, pending: None };
            self.names.lock().unwrap().insert(name, known);
            count += 1;
        }
        count
    }

    /// Compares all objects with what the cluster has, and continues from that state.
    pub async fn check(&self, client: &Client, bucket: &Bucket, when: &str) {
        let names = self.names.lock().unwrap().clone();
        let mut there = Vec::new();
        for (name, known) in &names {
            let found = match client.get_bytes(bucket, name, None).await {
                Ok(found) => Some(found),
                Err(e) if e.code() == ErrorCode::ObjectNotFound => None,
                Err(e) => panic!("{when}: {name}: {e}; {known:?}"),
            };
            let allowed = [Some(known.acknowledged), known.pending];
            let is = |value: &Value| match (value, &found) {
                (None, None) => true,
                (Some(value), Some(found)) => {
                    found.len() == value.1 && *found == bytes(name, *value)
                }
                _ => false,
            };
            let Some(now) = allowed.into_iter().flatten().find(is) else {
                let found = found.map(|f| f.len());
                panic!("{when}: {name} has {found:?} bytes, and {known:?} was written");
            };
            there.extend(found.map(|f| (name.clone(), f.len() as u64)));
            let known = Known { acknowledged: now, pending: None };
            self.names.lock().unwrap().insert(name.clone(), known);
        }
        let listed = client.list_all(bucket, "").await.unwrap();
        assert_eq!(listed, there, "{when}: the list");
    }
}

/// Reads objects of known content until `stop` is set. A failed read is accepted, a wrong byte is
/// not.
pub async fn read(
    client: Client,
    bucket: Bucket,
    names: Vec<String>,
    size: usize,
    seed: u64,
    stop: Arc<AtomicBool>,
) {
    let mut random = Random::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let name = &names[random.below(names.len() as u64) as usize];
        if let Ok(found) = client.get_bytes(&bucket, name, None).await {
            assert_same(name, &found, &content(name, size));
        }
    }
}

/// How often a test repeats itself: the number in this variable, or `usual`.
pub fn rounds(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

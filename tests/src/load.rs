//! A load of reads, writes, removals and listings at a fixed rate, as a foreign client makes them:
//! redirects are followed, nothing is retried. Beside it, Forebay's own client reads some of the
//! keys with its retries.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_client::Client;
use forebay_core::Bucket;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::data::content;
use crate::history::Random;
use crate::ledger::{Act, Kind, Ledger, Listing, Micros, Observation};

/// A request without a response after this time has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const KIB: u64 = 1024;
/// Characters of a failed response that are kept for the test's output.
const SAID: usize = 300;
/// Reads per second by Forebay's own client.
const OWN_READS: u32 = 20;

/// The rate of requests.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// This many per second, however long each takes.
    PerSecond(u32),
    /// This many clients, each of which sends its next request after the previous response.
    Clients(u32),
}

/// Which requests go to which gateways.
#[derive(Clone, Debug)]
pub struct Plan {
    pub gateways: Vec<String>,
    pub bucket: Bucket,
    pub pace: Pace,
    /// Keys that are overwritten repeatedly.
    pub keys: u64,
    pub seed: u64,
}

/// One request, as the figures count it.
#[derive(Clone, Debug)]
pub struct Sample {
    pub key: String,
    pub kind: Kind,
    /// Position of the gateway that got the request.
    pub via: usize,
    pub begin: Micros,
    pub end: Micros,
    /// 0: no response.
    pub status: u16,
    /// The node that responded or failed to; empty before a redirect.
    pub by: String,
    pub retry_after: bool,
    /// The first characters of a failed response, or the reason why there is none.
    pub said: String,
}

impl Sample {
    pub fn is_ok(&self) -> bool {
        matches!((self.status, self.kind), (200..300, _) | (404, Kind::Get | Kind::Delete))
    }
}

/// A load under way.
pub struct Load {
    world: Arc<World>,
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// The result of a load.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub samples: Vec<Sample>,
    /// Reads by Forebay's own client; one that failed has the status 503.
    pub own: Vec<Sample>,
    pub ledger: Ledger,
}

struct World {
    plan: Plan,
    http: Http<HttpConnector, Full<Bytes>>,
    began: Instant,
    values: AtomicU64,
    /// Keys that were written once and are not overwritten.
    still: Mutex<Vec<String>>,
    outcome: Mutex<Outcome>,
}

/// The bytes of a value; the first 8 bytes are its number.
fn body(key: &str, value: u64) -> Vec<u8> {
    let mut random = Random::new(value);
    let size = match random.below(20) {
        0..=12 => 8 + random.below(4 * KIB),
        13..=18 => 4 * KIB + random.below(60 * KIB),
        _ => 130 * KIB + random.below(170 * KIB),
    };
    let mut bytes = content(&format!("{key}#{value}"), size as usize);
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// The value that has these bytes; `None` if no write of this key has sent them.
fn value_of(key: &str, bytes: &[u8]) -> Option<u64> {
    let value = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (body(key, value) == bytes).then_some(value)
}

impl Load {
    /// Starts the load on the runtime of the caller. `client` lists once a second and reads.
    pub fn start(plan: Plan, client: Client) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(REQUEST_TIMEOUT));
        let world = Arc::new(World {
            http: Http::builder(TokioExecutor::new()).build(connector),
            began: Instant::now(),
            values: AtomicU64::new(1),
            still: Mutex::default(),
            outcome: Mutex::default(),
            plan,
        });
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = vec![
            tokio::spawn(requests(world.clone(), stop.clone())),
            tokio::spawn(listings(world.clone(), stop.clone(), client.clone())),
            tokio::spawn(own_reads(world.clone(), stop.clone(), client)),
        ];
        Self { world, stop, tasks }
    }

    /// The time as the ledger counts it.
    pub fn now(&self) -> Micros {
        self.world.now()
    }

    /// Ends the load, waits for requests in progress, and reads every key once more with a client
    /// that waits for nodes that restart.
    pub async fn finish(self, client: &Client) -> Outcome {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        let bucket = &self.world.plan.bucket;
        let keys: Vec<String> =
            self.world.outcome.lock().unwrap().ledger.keys.keys().cloned().collect();
        for key in &keys {
            let begin = self.world.now();
            let found = client.get_bytes(bucket, key, None).await;
            let observed = match found {
                Ok(bytes) => self.world.observation_of(key, &bytes),
                Err(e) if e.code() == forebay_core::ErrorCode::ObjectNotFound => {
                    Observation::Missing
                }
                Err(e) => panic!("{key} cannot be read at the end: {e}"),
            };
            self.world.note(key, Act { kind: Kind::Get, observed, begin, end: self.world.now() });
        }
        self.world.list(client).await.expect("a listing at the end");
        std::mem::take(&mut *self.world.outcome.lock().unwrap())
    }

    /// The samples so far.
    pub fn so_far(&self) -> Vec<Sample> {
        self.world.outcome.lock().unwrap().samples.clone()
    }
}

async fn requests(world: Arc<World>, stop: Arc<AtomicBool>) {
    let mut under_way = tokio::task::JoinSet::new();
    match world.plan.pace {
        Pace::Clients(clients) => {
            for client in 0..clients {
                let (world, stop) = (world.clone(), stop.clone());
                let mut random = Random::new(world.plan.seed << 16 | u64::from(client));
                under_way.spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        world.one(&mut random).await;
                    }
                });
            }
        }
        Pace::PerSecond(rate) => {
            let mut random = Random::new(world.plan.seed);
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
            while !stop.load(Ordering::SeqCst) {
                ticks.tick().await;
                let mut own = Random::new(random.below(u64::MAX >> 11));
                let world = world.clone();
                under_way.spawn(async move { world.one(&mut own).await });
                while under_way.try_join_next().is_some() {}
            }
        }
    }
    while let Some(done) = under_way.join_next().await {
        done.unwrap();
    }
}

async fn listings(world: Arc<World>, stop: Arc<AtomicBool>, client: Client) {
    while !stop.load(Ordering::SeqCst) {
        let _ = world.list(&client).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn own_reads(world: Arc<World>, stop: Arc<AtomicBool>, client: Client) {
    let mut under_way = tokio::task::JoinSet::new();
    let mut random = Random::new(world.plan.seed ^ u64::from(OWN_READS));
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / OWN_READS);
    while !stop.load(Ordering::SeqCst) {
        ticks.tick().await;
        let key = world.choose_own(&mut random);
        let (world, client) = (world.clone(), client.clone());
        under_way.spawn(async move { world.read_own(&client, key).await });
        while under_way.try_join_next().is_some() {}
    }
    while let Some(done) = under_way.join_next().await {
        done.unwrap();
    }
}

impl World {
    /// Half of the reads are of keys that are overwritten repeatedly, half of keys that are not.
    fn choose_own(&self, random: &mut Random) -> String {
        let still = self.still.lock().unwrap();
        match random.below(2) {
            0 if !still.is_empty() => still[random.below(still.len() as u64) as usize].clone(),
            _ => format!("hot/{:03}", random.below(self.plan.keys)),
        }
    }

    async fn read_own(&self, client: &Client, key: String) {
        let begin = self.now();
        let found = client.get_bytes(&self.plan.bucket, &key, None).await;
        let (observed, status, said) = match found {
            Ok(bytes) => (self.observation_of(&key, &bytes), 200, String::new()),
            Err(e) if e.code() == forebay_core::ErrorCode::ObjectNotFound => {
                (Observation::Missing, 404, String::new())
            }
            Err(e) => (Observation::Nothing, 503, e.to_string()),
        };
        let (kind, end) = (Kind::Get, self.now());
        self.note(&key, Act { kind, observed, begin, end });
        let by = String::new();
        let sample = Sample { key, kind, via: 0, begin, end, status, by, retry_after: false, said };
        self.outcome.lock().unwrap().own.push(sample);
    }

    fn now(&self) -> Micros {
        self.began.elapsed().as_micros() as Micros
    }

    /// Half are reads, four in ten writes, one in ten removals; of the writes a fifth are of keys
    /// that are written once and stay.
    fn choose(&self, random: &mut Random) -> (String, Kind) {
        let hot = format!("hot/{:03}", random.below(self.plan.keys));
        let value = |world: &Self| world.values.fetch_add(1, Ordering::Relaxed);
        match random.below(50) {
            0..25 => {
                let written = self.values.load(Ordering::Relaxed);
                match random.below(4) {
                    0 => (format!("once/{:06}", random.below(written)), Kind::Get),
                    _ => (hot, Kind::Get),
                }
            }
            25..41 => (hot, Kind::Put(value(self))),
            41..45 => {
                let value = value(self);
                (format!("once/{value:06}"), Kind::Put(value))
            }
            _ => (hot, Kind::Delete),
        }
    }

    async fn one(&self, random: &mut Random) {
        let (key, kind) = self.choose(random);
        let via = random.below(self.plan.gateways.len() as u64) as usize;
        self.ask(key, kind, via).await;
    }

    async fn ask(&self, key: String, kind: Kind, via: usize) {
        let begin = self.now();
        let (method, body) = match kind {
            Kind::Put(value) => ("PUT", Bytes::from(body(&key, value))),
            Kind::Get => ("GET", Bytes::new()),
            Kind::Delete => ("DELETE", Bytes::new()),
        };
        let gateway = &self.plan.gateways[via];
        let mut by = String::new();
        let asked = self.follow(method, gateway, &key, body, &mut by);
        let answer = match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("nothing within {REQUEST_TIMEOUT:?}")),
        };
        let end = self.now();
        let status = answer.as_ref().map_or(0, |answer| answer.0);
        let retry_after = answer.as_ref().is_ok_and(|answer| answer.2);
        let observed = match (kind, &answer) {
            (Kind::Get, Ok((200, bytes, _))) => self.observation_of(&key, bytes),
            (_, Ok((200..300, ..))) => Observation::Done,
            (Kind::Get | Kind::Delete, Ok((404, ..))) => Observation::Missing,
            _ => Observation::Nothing,
        };
        let said = match answer {
            Ok((200..300, ..)) => String::new(),
            Ok((_, bytes, _)) => String::from_utf8_lossy(&bytes).chars().take(SAID).collect(),
            Err(why) => why,
        };
        if observed == Observation::Done && key.starts_with("once/") {
            self.still.lock().unwrap().push(key.clone());
        }
        let sample = Sample { key, kind, via, begin, end, status, by, retry_after, said };
        self.note(&sample.key, Act { kind, observed, begin, end });
        self.outcome.lock().unwrap().samples.push(sample);
    }

    /// Status, body and whether the response has `Retry-After`; or why there is no response.
    async fn follow(
        &self,
        method: &str,
        gateway: &str,
        key: &str,
        body: Bytes,
        by: &mut String,
    ) -> Result<(u16, Bytes, bool), String> {
        let mut url = format!("{gateway}/v1/objects/{}/{key}", self.plan.bucket.name);
        for _ in 0..4 {
            let request = hyper::Request::builder().method(method).uri(&url);
            let request = request.body(Full::new(body.clone())).map_err(|e| e.to_string())?;
            let answer = self.http.request(request).await.map_err(|e| format!("{e:?}"))?;
            let header = |name| answer.headers().get(name).and_then(|v| v.to_str().ok());
            let status = answer.status().as_u16();
            if let (301 | 307, Some(next)) = (status, header("location")) {
                next.clone_into(&mut url);
                *by = crate::http::split(&url).0.to_owned();
                continue;
            }
            let retry_after = header("retry-after").is_some();
            let body = answer.into_body().collect().await.map_err(|e| format!("{status}: {e:?}"));
            return Ok((status, body?.to_bytes(), retry_after));
        }
        Err(format!("one redirect after the other, the last to {url}"))
    }

    fn observation_of(&self, key: &str, bytes: &[u8]) -> Observation {
        let value = value_of(key, bytes);
        if value.is_none() {
            let torn = format!("{key}: {} bytes that nobody wrote", bytes.len());
            self.outcome.lock().unwrap().ledger.torn.push(torn);
        }
        value.map_or(Observation::Nothing, Observation::Found)
    }

    fn note(&self, key: &str, act: Act) {
        let mut outcome = self.outcome.lock().unwrap();
        outcome.ledger.keys.entry(key.to_owned()).or_default().push(act);
    }

    async fn list(&self, client: &Client) -> forebay_client::Result<()> {
        let begin = self.now();
        let listed = client.list_all(&self.plan.bucket, "").await?;
        let sizes: BTreeMap<String, u64> = listed.into_iter().collect();
        let listing = Listing { begin, end: self.now(), keys: sizes.into_keys().collect() };
        self.outcome.lock().unwrap().ledger.listings.push(listing);
        Ok(())
    }
}

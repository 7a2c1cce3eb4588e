//! Several jobs that send requests for some time and measure them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_client::Client;
use forebay_core::Error;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;

use super::work::Work;
use crate::failure::{Failure, code_name};
use crate::progress;
use crate::session::Session;

/// Longest latency that is recorded exactly, in microseconds: an hour.
const LONGEST_US: u64 = 3_600_000_000;
/// Significant decimal digits of latencies.
const DIGITS: u8 = 3;

/// Settings of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) jobs: u16,
    pub(super) time: Duration,
    pub(super) seed: u64,
}

/// Counts and latencies of a load.
#[derive(Debug)]
pub(super) struct Measured {
    /// From the first request to the end of the last one.
    pub(super) elapsed: Duration,
    pub(super) requests: u64,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// Number of failed requests by the word of their error, with one message of each.
    pub(super) errors: BTreeMap<String, (u64, String)>,
    /// Time of whole requests, in microseconds.
    pub(super) latency: Histogram<u64>,
    /// Time to the first byte, in microseconds; empty if the requests do not show it.
    pub(super) first: Histogram<u64>,
}

impl Measured {
    fn new() -> Result<Self, Error> {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST_US, DIGITS)
                .map_err(|e| Error::internal(format!("no histogram: {e}")))
        };
        Ok(Self {
            elapsed: Duration::ZERO,
            requests: 0,
            objects: 0,
            bytes: 0,
            errors: BTreeMap::new(),
            latency: histogram()?,
            first: histogram()?,
        })
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.objects += other.objects;
        self.bytes += other.bytes;
        for (word, (count, message)) in &other.errors {
            self.errors.entry(word.clone()).or_insert_with(|| (0, message.clone())).0 += count;
        }
        // The bounds are the same.
        let _ = self.latency.add(&other.latency);
        let _ = self.first.add(&other.first);
    }
}

/// Runs a load to its end.
pub(super) async fn run(
    session: &Session,
    run: &Run,
    work: Arc<Work>,
) -> Result<Measured, Failure> {
    let bar = progress::bytes(progress::wanted(session.quiet), None);
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let until = started + run.time;
    let mut jobs = JoinSet::new();
    for number in 0..u64::from(run.jobs) {
        let job = Job {
            client: session.client.clone(),
            work: Arc::clone(&work),
            next: Arc::clone(&next),
            bar: bar.clone(),
            random: SmallRng::seed_from_u64(run.seed.wrapping_mul(1025).wrapping_add(number)),
        };
        jobs.spawn(job.run(until));
    }
    let mut all = Measured::new()?;
    while let Some(done) = jobs.join_next().await {
        let done = done.map_err(|e| Error::internal(format!("a job ended early: {e}")))?;
        all.add(&done?);
    }
    all.elapsed = started.elapsed();
    bar.finish_and_clear();
    Ok(all)
}

/// Sends one request after the other.
struct Job {
    client: Client,
    work: Arc<Work>,
    /// Number of the next request of all jobs.
    next: Arc<AtomicU64>,
    bar: ProgressBar,
    random: SmallRng,
}

impl Job {
    async fn run(mut self, until: Instant) -> Result<Measured, Error> {
        let mut own = Measured::new()?;
        loop {
            let started = Instant::now();
            if started >= until {
                return Ok(own);
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match self.work.once(&self.client, number, &mut self.random).await {
                Ok(done) => {
                    own.requests += 1;
                    own.objects += done.objects;
                    own.bytes += done.bytes;
                    own.latency.saturating_record(micros(started.elapsed()));
                    if let Some(first) = done.first {
                        own.first.saturating_record(micros(first));
                    }
                    self.bar.inc(done.bytes);
                }
                Err(e) => {
                    let entry = own.errors.entry(code_name(e.code));
                    entry.or_insert_with(|| (0, e.message.clone())).0 += 1;
                }
            }
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}

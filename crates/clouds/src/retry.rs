//! Retries transient failures, and resumes bodies that broke off.
//!
//! A body that ends early, stalls or breaks is opened again at the byte where it stopped, on the
//! condition that the object still has the same version; callers get all bytes or an error.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::cloud_rules::{CloudRule, CloudRules};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use forebay_node::pace::Pace;
use futures::stream::{self, StreamExt};
use tokio::time::{Instant, sleep, timeout};

use super::{After, Backend, BodyStream, Described, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// Number of attempts, pauses and timeouts.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// Calls in all, the first included.
    pub attempts: u32,
    /// Pause before the second call.
    pub first_pause: Duration,
    /// Factor from one pause to the next.
    pub multiplier: f64,
    pub longest_pause: Duration,
    /// Random share of each pause, so that many nodes do not retry together.
    pub jitter: f64,
    /// No call starts later than this after the first.
    pub deadline: Duration,
    /// A call without a response for this long has failed.
    pub answer: Duration,
    /// A body without a byte for this long counts as broken.
    pub stall: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_pause: Duration::from_millis(100),
            multiplier: 2.0,
            longest_pause: Duration::from_secs(5),
            jitter: 0.5,
            deadline: Duration::from_secs(20),
            answer: Duration::from_secs(30),
            stall: Duration::from_secs(20),
        }
    }
}

impl RetryPolicy {
    /// This policy, with the values of the rules in place of its own.
    #[must_use]
    pub fn by(&self, rules: &CloudRules) -> Self {
        let time = |rule, own| rules.time(rule).unwrap_or(own);
        let attempts = rules.number(CloudRule::Attempts).and_then(|n| u32::try_from(n).ok());
        Self {
            attempts: attempts.unwrap_or(self.attempts),
            first_pause: time(CloudRule::FirstPauseMs, self.first_pause),
            multiplier: rules.ratio(CloudRule::Multiplier).unwrap_or(self.multiplier),
            longest_pause: time(CloudRule::LongestPauseMs, self.longest_pause),
            jitter: rules.ratio(CloudRule::Jitter).unwrap_or(self.jitter),
            deadline: time(CloudRule::DeadlineMs, self.deadline),
            answer: time(CloudRule::AnswerMs, self.answer),
            stall: time(CloudRule::StallMs, self.stall),
        }
    }

    /// Runs `call` with the number of the attempt (0, 1, …) until it succeeds, fails for good, or
    /// attempts or time are used up.
    pub(crate) async fn run<T, F>(&self, mut call: impl FnMut(u32) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let end = Instant::now() + self.deadline;
        let mut attempt = 0;
        loop {
            let error = match call(attempt).await {
                Ok(done) => return Ok(done),
                Err(e) => e,
            };
            attempt += 1;
            if !error.code.is_transient() {
                return Err(error);
            }
            let pause = self.pause(attempt, &error);
            if attempt >= self.attempts || Instant::now() + pause >= end {
                return Err(giving_up(error));
            }
            tracing::debug!(%error, attempt, ?pause, "backend call failed, trying again");
            sleep(pause).await;
        }
    }

    /// Never less than the backend requested.
    fn pause(&self, attempt: u32, error: &Error) -> Duration {
        let grown = self.multiplier.powi(attempt.saturating_sub(1).min(1000) as i32);
        let seconds = self.first_pause.as_secs_f64() * grown;
        let longest = self.longest_pause.as_secs_f64();
        let random: f64 = rand::random();
        let jittered = Duration::from_secs_f64(seconds.min(longest) * (1.0 - self.jitter * random));
        let asked = Duration::from_secs(error.retry_after_s.unwrap_or(0).into());
        jittered.max(asked)
    }
}

/// Errors always say when another attempt is worth it.
fn giving_up(error: Error) -> Error {
    let seconds = error.retry_after_s.unwrap_or(3).max(1);
    error.retry_after(seconds)
}

/// A backend whose transient failures are retried.
pub struct Retrying {
    inner: Arc<dyn Backend>,
    policy: RetryPolicy,
    pace: Arc<Pace>,
}

impl Retrying {
    pub fn new(inner: Arc<dyn Backend>, policy: RetryPolicy) -> Self {
        Self { inner, policy, pace: Arc::new(Pace::new(0.0, 1)) }
    }

    /// Limits the rate of bodies; a body that waits for the limiter does not count as stalled.
    #[must_use]
    pub(crate) fn paced(self, pace: Arc<Pace>) -> Self {
        Self { pace, ..self }
    }
}

#[async_trait]
impl Backend for Retrying {
    async fn head_bucket(&self) -> Result<()> {
        self.policy.run(|_| self.inner.head_bucket()).await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.policy.run(|_| self.inner.stat(name)).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let RemoteObject { meta, range, stream } =
            self.policy.run(|_| self.inner.get(name, range, if_version)).await?;
        let body = Resuming {
            inner: Arc::clone(&self.inner),
            pace: Arc::clone(&self.pace),
            policy: self.policy.clone(),
            name: name.to_owned(),
            version: meta.version.clone(),
            left: range,
            body: stream,
            failures: 0,
        };
        Ok(RemoteObject { meta, range, stream: body.into_stream() })
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        self.policy.run(|_| self.inner.put(name, body.clone())).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.policy
            .run(async |attempt| match self.inner.delete(name).await {
                // An earlier attempt deleted it and only its response was lost.
                Err(e) if attempt > 0 && e.code == ErrorCode::ObjectNotFound => Ok(()),
                other => other,
            })
            .await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.policy.run(|_| self.inner.list(prefix, after, limit)).await
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.policy.run(|_| self.inner.describe(from, limit)).await
    }

    async fn compose(&self, into: &str, parts: &[&Described]) -> Result<RemoteMeta> {
        // Not retried: after a failure the objects are read one by one.
        self.inner.compose(into, parts).await
    }

    async fn check_composing(&self) -> Result<()> {
        self.policy.run(|_| self.inner.check_composing()).await
    }
}

/// A body, with the parameters to open the rest of it again.
struct Resuming {
    inner: Arc<dyn Backend>,
    pace: Arc<Pace>,
    policy: RetryPolicy,
    name: String,
    version: String,
    left: ByteRange,
    body: BodyStream,
    /// Consecutive failures, without a byte between them.
    failures: u32,
}

impl Resuming {
    fn into_stream(self) -> BodyStream {
        stream::unfold(Some(self), |state| async move {
            let mut state = state?;
            match state.next().await {
                Some(Ok(chunk)) => {
                    state.pace.pass(chunk.len()).await;
                    Some((Ok(chunk), Some(state)))
                }
                Some(Err(e)) => Some((Err(e), None)),
                None => None,
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<bytes::Bytes>> {
        loop {
            let error = match timeout(self.policy.stall, self.body.next()).await {
                Ok(Some(Ok(chunk))) if chunk.is_empty() => continue,
                Ok(Some(Ok(chunk))) if chunk.len() as u64 > self.left.len() => {
                    return Some(Err(
                        self.broken(ErrorCode::Internal, "has more bytes than announced")
                    ));
                }
                Ok(Some(Ok(chunk))) => {
                    self.left.start += chunk.len() as u64;
                    self.failures = 0;
                    return Some(Ok(chunk));
                }
                Ok(Some(Err(e))) if !e.code.is_transient() => return Some(Err(e)),
                // All bytes arrived; how the transfer ended does not matter any more.
                _ if self.left.is_empty() => return None,
                Ok(Some(Err(e))) => e,
                Ok(None) => self.broken(ErrorCode::Unavailable, "ended too early"),
                Err(_) => self.broken(ErrorCode::Unavailable, "stalled"),
            };
            if let Err(e) = self.reopen(error).await {
                return Some(Err(e));
            }
        }
    }

    async fn reopen(&mut self, error: Error) -> Result<()> {
        self.failures += 1;
        if self.failures >= self.policy.attempts || self.version.is_empty() {
            return Err(giving_up(error));
        }
        tracing::debug!(object = %self.name, at = self.left.start, %error, "resuming a body");
        // The old transfer is dropped first: it may hold the permit that the new one needs.
        self.body = stream::empty().boxed();
        sleep(self.policy.pause(self.failures, &error)).await;
        let (inner, left) = (&self.inner, self.left);
        let again =
            self.policy.run(|_| inner.get(&self.name, Some(left), Some(&self.version))).await?;
        if again.range != left {
            return Err(self.broken(ErrorCode::Internal, "came back with other bytes than asked"));
        }
        self.body = again.stream;
        Ok(())
    }

    fn broken(&self, code: ErrorCode, how: &str) -> Error {
        Error::new(code, format!("body of {} {how}, at byte {}", self.name, self.left.start))
    }
}

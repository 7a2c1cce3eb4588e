//! Rates of requests and bytes at this node: requests for objects wait here for their turn, and bodies
//! pass at the rate of their bucket and user.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::config::LimitsConfig;
use forebay_core::locks::MutexExt;
use forebay_core::rate::{FairLimiter, Rate, Ticket, Turn, Weights};
use forebay_core::{Error, ErrorCode, Result};
use futures::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use prometheus::IntCounterVec;
use tokio::time::{Instant, sleep_until};

/// Longest time that a request waits for its turn; one that would wait for longer is refused.
pub const MAX_DELAY: Duration = Duration::from_secs(2);
/// Limiters that are kept; more are forgotten while they are idle.
const MAX_LIMITERS: usize = 4096;

/// The purpose of a limiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    BucketRequests(u64),
    BucketBytes(u64),
    UserRequests(String),
    UserBytes(String),
}

impl Key {
    /// The label of metrics.
    fn reason(&self) -> &'static str {
        match self {
            Self::BucketRequests(_) => "bucket_requests",
            Self::BucketBytes(_) => "bucket_bytes",
            Self::UserRequests(_) => "user_requests",
            Self::UserBytes(_) => "user_bytes",
        }
    }
}

/// The counters of delayed and refused requests, by reason.
#[derive(Clone, Debug)]
pub struct RateMetrics {
    pub delayed: IntCounterVec,
    pub refused: IntCounterVec,
}

/// The rates at this node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Rates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    started: Instant,
    limiters: Mutex<HashMap<Key, Arc<Limiter>>>,
    /// Limits of each user in the whole cluster; 0: none.
    user_requests: AtomicU64,
    user_bytes: AtomicU64,
    weights: Mutex<Arc<Weights>>,
    metrics: OnceLock<RateMetrics>,
}

impl Default for Rates {
    fn default() -> Self {
        let (limiters, user_requests, user_bytes, weights, metrics) = Default::default();
        let started = Instant::now();
        Self(Arc::new(Inner { started, limiters, user_requests, user_bytes, weights, metrics }))
    }
}

#[derive(Debug)]
struct Limiter {
    key: Key,
    fair: Mutex<FairLimiter>,
}

/// A user or bucket among those that compete for a limit.
#[derive(Clone, Debug)]
struct Flow {
    name: String,
    weight: f64,
}

/// A request that waits. It leaves the queue when it is dropped, as after its client left.
struct Waiting<'a> {
    limiter: &'a Limiter,
    ticket: Option<Ticket>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.limiter.fair.locked().cancel(&ticket);
        }
    }
}

impl Rates {
    /// Sets the limits and weights of users, also while requests wait.
    pub fn limit_users(&self, config: &LimitsConfig) {
        // The configuration was validated; invalid weights leave those that are set.
        if let Ok(weights) = Weights::parse(&config.weights) {
            *self.0.weights.locked() = Arc::new(weights);
        }
        self.0.user_requests.store(config.user_requests_per_second, Ordering::Relaxed);
        self.0.user_bytes.store(config.user_bytes_per_second.0, Ordering::Relaxed);
    }

    /// Counts delayed and refused requests. The first call has an effect.
    pub fn count_in(&self, metrics: RateMetrics) {
        // A counter is visible from the start on.
        for reason in ["bucket_requests", "bucket_bytes", "user_requests", "user_bytes"] {
            metrics.delayed.with_label_values(&[reason]);
        }
        for reason in ["bucket_requests", "user_requests"] {
            metrics.refused.with_label_values(&[reason]);
        }
        let _ = self.0.metrics.set(metrics);
    }

    /// Whether a request for an object of this bucket has a limit. It takes no lock, and costs next to
    /// nothing without limits.
    pub fn limits(&self, info: &BucketInfo, user: Option<&str>) -> bool {
        let of_user = || {
            let Inner { user_requests, user_bytes, .. } = &*self.0;
            user_requests.load(Ordering::Relaxed) | user_bytes.load(Ordering::Relaxed) > 0
        };
        info.request_rate().is_some() || info.byte_rate().is_some() || user.is_some() && of_user()
    }

    fn now_s(&self) -> f64 {
        self.0.started.elapsed().as_secs_f64()
    }

    /// The limiter of this key, with this rate from now on.
    fn limiter(&self, key: Key, rate: Rate) -> Arc<Limiter> {
        let now = self.now_s();
        let mut limiters = self.0.limiters.locked();
        if let Some(known) = limiters.get(&key) {
            let mut fair = known.fair.locked();
            if fair.rate() != rate {
                fair.set_rate(rate, now);
            }
            drop(fair);
            return known.clone();
        }
        if limiters.len() >= MAX_LIMITERS {
            limiters.retain(|_, limiter| Arc::strong_count(limiter) > 1);
        }
        let fair = Mutex::new(FairLimiter::new(rate, now));
        let limiter = Arc::new(Limiter { key: key.clone(), fair });
        limiters.insert(key, limiter.clone());
        limiter
    }

    /// Admits one request for an object, perhaps after a wait. `nodes` targets share the limits. Returns
    /// the limits of the bytes of its bodies; `None` if they have none.
    pub async fn admit(
        &self,
        info: &BucketInfo,
        user: Option<&str>,
        nodes: usize,
    ) -> Result<Option<Arc<Pass>>> {
        self.admit_all(&[(info, 1)], user, nodes).await
    }

    /// Admits a batch of so many requests for objects of each bucket. The bytes of its bodies count for
    /// the buckets in proportion to their requests.
    pub async fn admit_all(
        &self,
        requests: &[(&BucketInfo, usize)],
        user: Option<&str>,
        nodes: usize,
    ) -> Result<Option<Arc<Pass>>> {
        if !requests.iter().any(|(info, _)| self.limits(info, user)) {
            return Ok(None);
        }
        let until_s = self.now_s() + MAX_DELAY.as_secs_f64();
        let weight = self.0.weights.locked().of(user.unwrap_or_default());
        let of_user = Flow { name: user.unwrap_or_default().to_owned(), weight };
        let first = requests.first().map_or(0, |(info, _)| info.id);
        let of_bucket = Flow { name: first.to_string(), weight: 1.0 };
        let all: usize = requests.iter().map(|(_, count)| count).sum();
        let number = |limit: &AtomicU64| Some(limit.load(Ordering::Relaxed)).filter(|n| *n > 0);
        let user_rate = number(&self.0.user_requests).map(Rate::of_requests);
        if let (Some(user), Some(rate)) = (user, user_rate) {
            let limiter = self.limiter(Key::UserRequests(user.to_owned()), rate.over(nodes));
            self.turn(&limiter, &of_bucket, all, until_s, &format!("user \"{user}\"")).await?;
        }
        for (info, count) in requests {
            if let Some(rate) = info.request_rate() {
                let limiter = self.limiter(Key::BucketRequests(info.id), rate.over(nodes));
                let whose = format!("bucket \"{}\"", info.bucket);
                self.turn(&limiter, &of_user, *count, until_s, &whose).await?;
            }
        }
        let mut bytes = Vec::new();
        let user_rate = number(&self.0.user_bytes).map(Rate::of_bytes);
        if let (Some(user), Some(rate)) = (user, user_rate) {
            let limiter = self.limiter(Key::UserBytes(user.to_owned()), rate.over(nodes));
            bytes.push(ByteLimit { limiter, flow: of_bucket, share: 1.0 });
        }
        for (info, count) in requests {
            if let Some(rate) = info.byte_rate() {
                let limiter = self.limiter(Key::BucketBytes(info.id), rate.over(nodes));
                let share = *count as f64 / all.max(1) as f64;
                bytes.push(ByteLimit { limiter, flow: of_user.clone(), share });
            }
        }
        let is_shaped = !bytes.is_empty();
        Ok(is_shaped.then(|| Arc::new(Pass { rates: self.clone(), bytes })))
    }

    /// Waits for the turn of requests of a flow; 429 if that would last beyond `until_s`.
    async fn turn(
        &self,
        limiter: &Limiter,
        flow: &Flow,
        count: usize,
        until_s: f64,
        whose: &str,
    ) -> Result<()> {
        let max_wait_s = (until_s - self.now_s()).max(0.0);
        match self.pass(limiter, flow, count as f64, max_wait_s).await {
            Ok(()) => Ok(()),
            Err(wait_s) => {
                self.count(&limiter.key, |metrics| &metrics.refused);
                let text = format!("too many requests for {whose}: they are above its rate");
                Err(Error::new(ErrorCode::TooManyRequests, text)
                    .retry_after(wait_s.ceil().clamp(1.0, 3600.0) as u32)
                    .hint("send fewer requests at once, or raise the limit"))
            }
        }
    }

    /// Returns when `cost` units may pass, or the seconds that this would take if they are too many.
    async fn pass(
        &self,
        limiter: &Limiter,
        flow: &Flow,
        cost: f64,
        max_wait_s: f64,
    ) -> Result<(), f64> {
        let now = self.now_s();
        let until = now + max_wait_s;
        let (name, weight) = (flow.name.as_str(), flow.weight);
        let turn = limiter.fair.locked().request(name, weight, cost, now, max_wait_s);
        let (ticket, mut at) = match turn {
            Turn::Now => return Ok(()),
            Turn::Refused(wait) => return Err(wait),
            Turn::At(ticket, at) => (ticket, at),
        };
        self.count(&limiter.key, |metrics| &metrics.delayed);
        let mut waiting = Waiting { limiter, ticket: Some(ticket) };
        loop {
            let at_s = Duration::try_from_secs_f64(at.min(until));
            let at_s = at_s.unwrap_or(Duration::from_secs(3600));
            sleep_until(self.0.started + at_s).await;
            let now = self.now_s();
            match limiter.fair.locked().poll(&ticket, now) {
                // Others came before it.
                Some(next) if now >= until => return Err(next - now),
                Some(next) => at = next,
                None => {
                    waiting.ticket = None;
                    return Ok(());
                }
            }
        }
    }

    fn count(&self, key: &Key, family: impl Fn(&RateMetrics) -> &IntCounterVec) {
        if let Some(metrics) = self.0.metrics.get() {
            family(metrics).with_label_values(&[key.reason()]).inc();
        }
    }
}

/// A limit of bytes that bodies pass, and the part of their bytes that counts for it.
#[derive(Debug)]
struct ByteLimit {
    limiter: Arc<Limiter>,
    flow: Flow,
    share: f64,
}

/// The limits that the bytes of one request pass.
#[derive(Debug)]
pub struct Pass {
    rates: Rates,
    bytes: Vec<ByteLimit>,
}

impl Pass {
    /// Returns when `n` bytes may pass.
    pub async fn bytes(&self, n: usize) {
        for ByteLimit { limiter, flow, share } in &self.bytes {
            let mut left = n as f64 * share;
            while left > 0.0 {
                let piece = left.min(limiter.fair.locked().burst());
                // Without a bound of the wait it is never refused.
                let _ = self.rates.pass(limiter, flow, piece, f64::INFINITY).await;
                left -= piece;
            }
        }
    }

    /// A body whose bytes pass at the rate. A reader that is slower holds it up as before.
    pub fn shape(self: &Arc<Self>, body: Body) -> Body {
        Body::new(ShapedBody { inner: body, pass: self.clone(), wait: None, held: None })
    }

    /// A response whose body passes at the rate.
    pub fn shape_response(self: &Arc<Self>, response: Response) -> Response {
        response.map(|body| self.shape(body))
    }
}

/// A body of which each frame waits for its turn.
struct ShapedBody {
    inner: Body,
    pass: Arc<Pass>,
    wait: Option<BoxFuture<'static, ()>>,
    /// The frame that waits.
    held: Option<Frame<Bytes>>,
}

impl HttpBody for ShapedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.held.is_none() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    let pass = self.pass.clone();
                    self.wait = Some(Box::pin(async move { pass.bytes(bytes).await }));
                    self.held = Some(frame);
                }
                end => return Poll::Ready(end),
            }
        }
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        Poll::Ready(self.held.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.size_hint();
        let held = self.held.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        match inner.exact() {
            Some(exact) => SizeHint::with_exact(exact + held),
            None => inner,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::{Bucket, Provider};
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;

    fn info(rates: &Value) -> BucketInfo {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        info.set_rates(rates).unwrap();
        info
    }

    #[tokio::test]
    async fn requests_over_the_rate_are_delayed_and_refused_once_the_delay_is_too_long() {
        let (rates, info) = (Rates::default(), info(&json!({"requests_per_second": 10})));
        let began = Instant::now();
        for _ in 0..10 {
            assert!(rates.admit(&info, None, 1).await.unwrap().is_none());
        }
        assert!(began.elapsed() < Duration::from_millis(80));
        rates.admit(&info, None, 1).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(99), "{:?}", began.elapsed());
        let many = (0..40).map(|_| rates.admit(&info, None, 1));
        let done = futures::future::join_all(many).await;
        let refused: Vec<_> = done.into_iter().filter_map(Result::err).collect();
        assert!((10..30).contains(&refused.len()), "{}", refused.len());
        let e = &refused[0];
        assert_eq!(e.code, ErrorCode::TooManyRequests);
        assert!(e.retry_after_s.is_some_and(|s| (2..5).contains(&s)), "{:?}", e.retry_after_s);
        assert!(e.message.contains("bucket \"ais://b\""), "{e}");
    }

    #[tokio::test]
    async fn a_body_passes_at_the_rate_and_keeps_its_size() {
        let (rates, info) = (Rates::default(), info(&json!({"bytes_per_second": "1MiB"})));
        let pass = rates.admit(&info, None, 2).await.unwrap().unwrap();
        let body = pass.shape(Body::from(vec![7; 512 << 10]));
        assert_eq!(HttpBody::size_hint(&body).exact(), Some(512 << 10));
        let began = Instant::now();
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len(), 512 << 10);
        // Half of the rate is this node's part, and a quarter of a second's worth passes at once.
        let seconds = began.elapsed().as_secs_f64();
        assert!((0.7..2.0).contains(&seconds), "{seconds}");
    }

    #[tokio::test]
    async fn a_batch_counts_each_of_its_requests_and_later_ones_wait_for_it() {
        let (rates, info) = (Rates::default(), info(&json!({"requests_per_second": 10})));
        assert!(rates.admit_all(&[(&info, 100)], None, 1).await.unwrap().is_none());
        let e = rates.admit(&info, None, 1).await.unwrap_err();
        assert!(e.retry_after_s.is_some_and(|s| (8..=10).contains(&s)), "{:?}", e.retry_after_s);
    }

    #[tokio::test]
    async fn a_waiting_request_that_is_dropped_leaves_the_queue() {
        let (rates, info) = (Rates::default(), info(&json!({"requests_per_second": 1})));
        rates.admit(&info, None, 1).await.unwrap();
        let given_up = tokio::time::timeout(Duration::from_millis(50), rates.admit(&info, None, 1));
        given_up.await.unwrap_err();
        assert!(rates.0.limiters.locked().values().all(|limiter| limiter.fair.locked().is_idle()));
    }

    #[tokio::test]
    async fn users_that_compete_get_parts_by_their_weights() {
        let (rates, info) = (Rates::default(), info(&json!({"bytes_per_second": "400KiB"})));
        let weights = vec!["ann=3".to_owned()];
        rates.limit_users(&LimitsConfig { weights, ..LimitsConfig::default() });
        let read = async |user: &str| {
            let pass = rates.admit(&info, Some(user), 1).await.unwrap().unwrap();
            let until = Instant::now() + Duration::from_millis(1500);
            let mut kib = 0;
            while Instant::now() < until {
                pass.bytes(4 << 10).await;
                kib += 4;
            }
            f64::from(kib)
        };
        let (ann, bob) = tokio::join!(
            async { tokio::join!(read("ann"), read("ann"), read("ann"), read("ann")) },
            async { tokio::join!(read("bob"), read("bob"), read("bob"), read("bob")) },
        );
        let ratio = (ann.0 + ann.1 + ann.2 + ann.3) / (bob.0 + bob.1 + bob.2 + bob.3);
        assert!((2.2..3.6).contains(&ratio), "{ratio}");
    }

    #[tokio::test]
    async fn users_have_limits_of_their_own() {
        let rates = Rates::default();
        let plain = info(&json!({}));
        assert!(!rates.limits(&plain, Some("ann")));
        let config = LimitsConfig { user_requests_per_second: 1, ..LimitsConfig::default() };
        rates.limit_users(&config);
        assert!(rates.limits(&plain, Some("ann")) && !rates.limits(&plain, None));
        let began = Instant::now();
        rates.admit(&plain, Some("ann"), 1).await.unwrap();
        rates.admit(&plain, Some("bob"), 1).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(80));
        rates.admit(&plain, Some("ann"), 1).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(990));
    }
}

//! Rates of requests and bytes: the limits that a bucket sets, and a fair scheduler that keeps one.
//!
//! [`FairLimiter`] is a token bucket whose waiting requests are released in the order of start-time fair
//! queueing: flows that compete get parts of the rate in proportion to their weights. It has no clock:
//! times are seconds of a monotonic clock of the caller. [`Weights`] are those of users.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bucket::BucketInfo;
use crate::config::nearest;
use crate::error::{Error, Result};
use crate::size::{ByteSize, parse_duration};

/// Section of a bucket's properties. It is a stored name, see [`crate::bucket`].
pub const SECTION: &str = "rate";
/// AIStore's section.
const AIS_SECTION: &str = "rate_limit";
const KEYS: [&str; 2] = ["requests_per_second", "bytes_per_second"];
/// Bounds of a weight.
const MIN_WEIGHT: f64 = 0.01;
const MAX_WEIGHT: f64 = 100.0;
/// A limiter forgets flows without waiting requests once it knows about this many of them.
const FORGET_ABOVE_FLOWS: usize = 1024;

/// The limits of a bucket for the whole cluster; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketRates {
    /// Requests for objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Bytes of bodies, read and written together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

impl BucketRates {
    pub fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// Applies a JSON object with some of the limits; the others stay. Nothing changes on an error.
    pub fn apply(&mut self, value: &Value) -> Result<()> {
        let given = match value {
            Value::Null => &Map::new(),
            Value::Object(given) => given,
            _ => {
                return Err(Error::invalid("bucket property \"rate\" must be a JSON object")
                    .hint("for example {\"requests_per_second\":500}"));
            }
        };
        let mut new = *self;
        for (key, value) in given {
            match key.as_str() {
                "requests_per_second" => new.requests_per_second = limit(key, value)?,
                "bytes_per_second" => new.bytes_per_second = limit(key, value)?,
                _ => {
                    let e = Error::invalid(format!("unknown bucket property \"rate.{key}\""));
                    return Err(match nearest(key, KEYS) {
                        Some(near) => e.hint(format!("did you mean \"{near}\"?")),
                        None => e.hint(format!("there are {}", KEYS.join(", "))),
                    });
                }
            }
        }
        *self = new;
        Ok(())
    }
}

/// Parses a limit per second. `null`, "none" and "off" remove it.
fn limit(key: &str, value: &Value) -> Result<Option<u64>> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::String(text) if matches!(text.as_str(), "none" | "off") => return Ok(None),
        Value::Number(n) => n.as_u64(),
        Value::String(text) if key == "bytes_per_second" => {
            ByteSize::parse(text).ok().map(|size| size.0)
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let least = if key == "bytes_per_second" { 1 << 10 } else { 1 };
    number.filter(|n| *n >= least).map(Some).ok_or_else(|| {
        let text = format!("invalid bucket property rate.{key} = {value}");
        Error::invalid(text).hint(format!("it must be a number of at least {least}, or \"none\""))
    })
}

/// The weights of users that compete for a limit; 1 unless they are named.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights(HashMap<String, f64>);

impl Weights {
    /// Parses entries of `limits.weights`: `USER=WEIGHT`.
    pub fn parse(entries: &[String]) -> Result<Self> {
        let mut weights = HashMap::new();
        for entry in entries {
            let (user, weight) = entry.rsplit_once('=').unwrap_or((entry, ""));
            let weight = weight.trim().parse::<f64>().ok();
            let weight = weight.filter(|weight| (MIN_WEIGHT..=MAX_WEIGHT).contains(weight));
            let (user, Some(weight)) = (user.trim(), weight) else {
                let text = format!("limits.weights: \"{entry}\" is no user and weight");
                let hint = format!("for example \"ann=4\", from {MIN_WEIGHT} to {MAX_WEIGHT}");
                return Err(Error::invalid(text).hint(hint));
            };
            if user.is_empty() || weights.insert(user.to_owned(), weight).is_some() {
                let text = format!("limits.weights: \"{entry}\" needs a user of its own");
                return Err(Error::invalid(text).hint("name each user once"));
            }
        }
        Ok(Self(weights))
    }

    pub fn of(&self, user: &str) -> f64 {
        self.0.get(user).copied().unwrap_or(1.0)
    }
}

/// A rate per second, and what may pass at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: f64,
}

impl Rate {
    /// The part of each of `nodes` nodes.
    #[must_use]
    pub fn over(self, nodes: usize) -> Self {
        let nodes = nodes.max(1) as f64;
        Self { per_second: self.per_second / nodes, burst: (self.burst / nodes).max(1.0) }
    }

    /// A limit of requests: a second's worth may pass at once.
    pub fn of_requests(per_second: u64) -> Self {
        Self { per_second: per_second as f64, burst: per_second as f64 }
    }

    /// A limit of bytes: a quarter of a second's worth may pass at once.
    pub fn of_bytes(per_second: u64) -> Self {
        Self { per_second: per_second as f64, burst: per_second as f64 / 4.0 }
    }
}

impl BucketInfo {
    /// The limits of the section `rate`.
    pub fn rates(&self) -> BucketRates {
        let Some(section) = self.extra.get(SECTION) else { return BucketRates::default() };
        let limit = |key| section.get(key).and_then(Value::as_u64);
        BucketRates {
            requests_per_second: limit("requests_per_second"),
            bytes_per_second: limit("bytes_per_second"),
        }
    }

    /// Changes limits. They are a section in `extra`, which older versions of the program keep.
    pub fn set_rates(&mut self, value: &Value) -> Result<()> {
        let mut rates = self.rates();
        rates.apply(value)?;
        if rates.is_set() {
            self.extra.insert(SECTION.to_owned(), json!(rates));
        } else {
            self.extra.remove(SECTION);
        }
        Ok(())
    }

    /// The limit of requests: that of `rate`, or AIStore's `rate_limit.frontend` while it is enabled.
    pub fn request_rate(&self) -> Option<Rate> {
        if self.extra.is_empty() {
            return None;
        }
        let own = self.rates().requests_per_second.map(Rate::of_requests);
        own.or_else(|| self.frontend_rate())
    }

    /// The limit of bytes of bodies.
    pub fn byte_rate(&self) -> Option<Rate> {
        if self.extra.is_empty() {
            return None;
        }
        self.rates().bytes_per_second.map(Rate::of_bytes)
    }

    /// AIStore's limit: `max_tokens` requests in each `interval`, of which `burst_size` may come at once.
    fn frontend_rate(&self) -> Option<Rate> {
        let frontend = self.extra.get(AIS_SECTION)?.get("frontend")?;
        if frontend.get("enabled").and_then(Value::as_bool) != Some(true) {
            return None;
        }
        let number =
            |key: &str, default| frontend.get(key).and_then(Value::as_f64).unwrap_or(default);
        let interval = frontend.get("interval").and_then(Value::as_str).unwrap_or("1m");
        let seconds = parse_duration(interval).ok()?.as_secs_f64().max(1e-3);
        let tokens = number("max_tokens", 1000.0).max(1.0);
        let burst = number("burst_size", 375.0).max(1.0);
        Some(Rate { per_second: tokens / seconds, burst })
    }
}

/// The place of a waiting request. The order is that of release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Bits of the virtual start time, which is never negative: they have the order of the numbers.
    start: u64,
    number: u64,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Turn {
    Now,
    /// It waits. Poll again at this time.
    At(Ticket, f64),
    /// It would wait for longer than allowed, as many seconds as this.
    Refused(f64),
}

/// A waiting request.
#[derive(Clone, Debug)]
struct Waiting {
    flow: Arc<str>,
    start: f64,
    finish: f64,
    cost: f64,
}

/// A rate that flows share by their weights.
#[derive(Debug)]
pub struct FairLimiter {
    rate: Rate,
    /// Below zero after a request that cost more than the burst.
    tokens: f64,
    /// When `tokens` was right.
    filled_s: f64,
    /// Virtual time: the start of the request that was released last.
    virtual_time: f64,
    /// The virtual finish time of the last request of each flow; empty while none waits.
    flows: HashMap<Arc<str>, f64>,
    queue: BTreeMap<Ticket, Waiting>,
    numbers: u64,
}

impl FairLimiter {
    /// A limiter that was not used for long.
    pub fn new(rate: Rate, now_s: f64) -> Self {
        Self {
            rate,
            tokens: rate.burst,
            filled_s: now_s,
            virtual_time: 0.0,
            flows: HashMap::new(),
            queue: BTreeMap::new(),
            numbers: 0,
        }
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate. Requests that wait keep their order.
    pub fn set_rate(&mut self, rate: Rate, now_s: f64) {
        self.refill(now_s);
        self.rate = rate;
        self.tokens = self.tokens.min(rate.burst);
    }

    /// The most that passes at once. A request that costs more passes when so much is free, and is paid
    /// for by those that come after it.
    pub fn burst(&self) -> f64 {
        self.rate.burst.max(1.0)
    }

    /// Whether no request waits.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn refill(&mut self, now_s: f64) {
        let passed = (now_s - self.filled_s).max(0.0);
        // While requests wait, nothing is lost if the first of them polls late.
        let most = if self.is_idle() { self.burst() } else { 2.0 * self.burst() };
        self.tokens = (self.tokens + passed * self.rate.per_second).min(most);
        self.filled_s = self.filled_s.max(now_s);
    }

    /// Requests `cost` units for a flow. Passes now, waits for up to `max_wait_s` as far as can be
    /// foreseen, or is refused and costs nothing.
    pub fn request(
        &mut self,
        flow: &str,
        weight: f64,
        cost: f64,
        now_s: f64,
        max_wait_s: f64,
    ) -> Turn {
        self.refill(now_s);
        if self.queue.is_empty() && self.tokens >= cost.min(self.burst()) {
            self.tokens -= cost;
            return Turn::Now;
        }
        let known = self.flows.get_key_value(flow);
        let last = known.map_or(0.0, |(_, finish)| *finish);
        let flow = known.map_or_else(|| Arc::from(flow), |(name, _)| name.clone());
        let start = last.max(self.virtual_time);
        let finish = start + cost / weight.max(1e-6);
        let ticket = Ticket { start: start.to_bits(), number: self.numbers };
        let wait = self.wait_of(&ticket, cost);
        if wait > max_wait_s {
            return Turn::Refused(wait);
        }
        self.numbers += 1;
        self.flows.insert(flow.clone(), finish);
        self.queue.insert(ticket, Waiting { flow, start, finish, cost });
        if self.flows.len() > 2 * self.queue.len() + FORGET_ABOVE_FLOWS {
            let waiting: HashSet<&str> = self.queue.values().map(|w| &*w.flow).collect();
            self.flows.retain(|flow, _| waiting.contains(&**flow));
        }
        Turn::At(ticket, now_s + wait)
    }

    /// Polls a waiting request: `None` if it passes now, otherwise when to poll again.
    pub fn poll(&mut self, ticket: &Ticket, now_s: f64) -> Option<f64> {
        self.refill(now_s);
        let waiting = self.queue.get(ticket)?;
        let (start, cost) = (waiting.start, waiting.cost);
        let is_first = self.queue.first_key_value().is_some_and(|(first, _)| first == ticket);
        // Sums of rounded parts may miss the cost by a little.
        if is_first && self.tokens + 1e-6 >= cost.min(self.burst()) {
            self.tokens -= cost;
            self.virtual_time = self.virtual_time.max(start);
            self.remove(ticket);
            return None;
        }
        Some(now_s + self.wait_of(ticket, cost).max(1e-3))
    }

    /// Gives up a waiting request. If it is the last of its flow, the flow does not pay for it.
    pub fn cancel(&mut self, ticket: &Ticket) {
        if let Some(waiting) = self.remove(ticket)
            && let Some(last) = self.flows.get_mut(&waiting.flow)
            && *last == waiting.finish
        {
            *last = waiting.start;
        }
    }

    fn remove(&mut self, ticket: &Ticket) -> Option<Waiting> {
        let removed = self.queue.remove(ticket);
        if self.queue.is_empty() {
            self.flows.clear();
            self.virtual_time = 0.0;
        }
        removed
    }

    /// Seconds until a request of this cost passes, if no other one comes before it.
    fn wait_of(&self, ticket: &Ticket, cost: f64) -> f64 {
        let before: f64 = self.queue.range(..*ticket).map(|(_, waiting)| waiting.cost).sum();
        let missing = before + cost.min(self.burst()) - self.tokens;
        (missing / self.rate.per_second.max(1e-9)).max(0.0)
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;

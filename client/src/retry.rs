//! Retries: jittered exponential backoff until a deadline without progress.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;
use forebay_core::{Error as CoreError, ErrorCode};

use crate::contact::Contact;
use crate::error::{Error, Result};
use crate::timeouts::PROGRESS_BYTES;
use crate::timing;

const FIRST_PAUSE: Duration = Duration::from_millis(40);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A client gives up when every endpoint refused every connection for this long.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum number of consecutive unparsable answers to one request.
const MAX_GARBLED: u32 = 5;

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Attempts {
    endpoint: String,
    deadline: Duration,
    /// Start of the current series of tries; `None` after progress, until the next failure.
    since: Option<Instant>,
    /// Time of this series that was spent waiting, while `since` is `None`.
    waited: Duration,
    /// Bytes received in this series, too few to count as progress.
    bytes: u64,
    failures: u32,
    garbled: u32,
    cluster: Option<(Contact, Arc<[String]>)>,
    /// Whether an earlier try may have been carried out without an answer.
    pub(crate) ambiguous: bool,
    pub(crate) grant: GrantRenewal,
}

/// The grant that a target refused. Another one takes its place once: if that is refused, too, the
/// refusal is final, unless the target asks for another try. It does where gateways and it do not know
/// of each other's new keys yet, and while several gateways get new keys, one after the other, a client
/// may have a grant of each. Clones share it: the parts of a batch send the same grant.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrantRenewal(Arc<Mutex<Option<String>>>);

impl GrantRenewal {
    /// Records that a grant was refused with this error. Returns whether another grant is worth a try.
    pub(crate) fn is_worth_it(&self, refused: &str, error: &CoreError) -> bool {
        let mut first = self.0.locked();
        match first.as_deref() {
            _ if error.retry_after_s.is_some() => true,
            None => {
                *first = Some(refused.to_owned());
                true
            }
            Some(first) => first == refused && !refused.is_empty(),
        }
    }
}

impl Attempts {
    pub(crate) fn new(endpoint: &str, deadline: Duration) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            deadline,
            since: Some(Instant::now()),
            waited: Duration::ZERO,
            bytes: 0,
            failures: 0,
            garbled: 0,
            cluster: None,
            ambiguous: false,
            grant: GrantRenewal::default(),
        }
    }

    /// The same, but ends early if all of these endpoints refuse connections.
    pub(crate) fn of_cluster(self, contact: &Contact, endpoints: &Arc<[String]>) -> Self {
        Self { cluster: Some((contact.clone(), endpoints.clone())), ..self }
    }

    /// Records progress: the deadline starts again at the next failure (the reader may pause in
    /// between).
    pub(crate) fn progressed(&mut self) {
        self.since = None;
        self.waited = Duration::ZERO;
        (self.bytes, self.failures, self.garbled) = (0, 0, 0);
    }

    /// Records bytes that arrived after a wait: progress if there are enough of them. Until then
    /// only the waits count, since the reader may pause in between.
    pub(crate) fn arrived(&mut self, bytes: u64, waited: Duration) {
        self.bytes += bytes;
        self.waited = match self.since.take() {
            Some(since) => since.elapsed(),
            None => self.waited + waited,
        };
        if self.bytes >= PROGRESS_BYTES {
            self.progressed();
        }
    }

    /// Waits before the next try, or returns the error to give up with.
    pub(crate) async fn again(&mut self, error: Error) -> Result<()> {
        if !error.is_transient() {
            return Err(error);
        }
        self.ambiguous |= error.is_ambiguous();
        self.garbled += u32::from(matches!(error, Error::Garbled { .. }));
        if self.garbled >= MAX_GARBLED {
            return Err(Error::Api(CoreError::new(ErrorCode::CorruptAnswer, error.to_string())));
        }
        let waited = self.waited;
        let started = || Instant::now().checked_sub(waited).unwrap_or_else(Instant::now);
        let since = *self.since.get_or_insert_with(started);
        let refusing = self.refusing_endpoints();
        let timeouts = match refusing {
            Some(_) => self.deadline.min(REFUSED_TIMEOUT),
            None => self.deadline,
        };
        let left = timeouts.saturating_sub(since.elapsed());
        if left.is_zero() {
            if let Some(endpoints) = refusing {
                return Err(Error::Refused { endpoints: endpoints.to_vec(), after: timeouts });
            }
            return Err(Error::Timeout {
                endpoint: self.endpoint.clone(),
                after: self.deadline,
                last: Box::new(advised(error)),
            });
        }
        let pause = pause(self.failures, retry_after(&error), rand::random());
        self.failures += 1;
        tracing::debug!(%error, ?pause, "trying again");
        let (started, is_busy) = (Instant::now(), error.code() == ErrorCode::TooManyRequests);
        tokio::time::sleep(pause.min(left)).await;
        timing::paused(started, is_busy);
        Ok(())
    }
}

impl Attempts {
    /// The endpoints of the cluster, if each of them refused every connection.
    fn refusing_endpoints(&self) -> Option<&[String]> {
        let (contact, endpoints) = self.cluster.as_ref()?;
        contact.is_refused_by_all(endpoints).then_some(&**endpoints)
    }
}

fn retry_after(error: &Error) -> Option<Duration> {
    match error {
        Error::Api(e) => e.retry_after_s.map(|s| Duration::from_secs(s.into())),
        _ => None,
    }
}

/// The error with advice for the user.
fn advised(error: Error) -> Error {
    match error {
        Error::Api(e) if e.code == ErrorCode::TooManyRequests && e.hint.is_none() => Error::Api(
            e.hint("lower `concurrency` or `num_workers`, or raise the client's `timeout`"),
        ),
        other => other,
    }
}

/// Length of the pause. `jitter` in 0..1 spreads the pauses of many clients over half of their
/// length.
fn pause(failures: u32, asked: Option<Duration>, jitter: f64) -> Duration {
    let grown = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    match asked {
        Some(asked) => asked.max(grown).mul_f64(1.0 + jitter / 4.0),
        None => grown.mul_f64(0.5 + jitter / 2.0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_grant_is_replaced_once_also_where_parts_of_a_batch_sent_it() {
        let renewal = GrantRenewal::default();
        let of_another_part = renewal.clone();
        let refusal = CoreError::new(ErrorCode::AccessDenied, "no");
        assert!(renewal.is_worth_it("first", &refusal));
        assert!(of_another_part.is_worth_it("first", &refusal));
        assert!(!renewal.is_worth_it("second", &refusal));
        assert!(!of_another_part.is_worth_it("second", &refusal));
        let without = GrantRenewal::default();
        assert!(without.is_worth_it("", &refusal) && !without.is_worth_it("", &refusal));
    }

    #[test]
    fn a_refusal_that_asks_for_another_try_is_never_final() {
        let renewal = GrantRenewal::default();
        let passing = CoreError::new(ErrorCode::AccessDenied, "no such key").retry_after(1);
        for grant in ["first", "second", "second", ""] {
            assert!(renewal.is_worth_it(grant, &passing), "{grant}");
        }
    }

    #[test]
    fn pauses_grow_to_a_bound_and_respect_what_the_server_asks() {
        assert_eq!(pause(0, None, 1.0), FIRST_PAUSE);
        assert_eq!(pause(0, None, 0.0), FIRST_PAUSE / 2);
        assert_eq!(pause(99, None, 1.0), LONGEST_PAUSE);
        let three = Duration::from_secs(3);
        assert!(pause(0, Some(three), 0.0) >= three);
        assert!(pause(0, Some(three), 0.99) < three * 2);
    }

    #[tokio::test]
    async fn permanent_errors_are_not_retried_and_transient_ones_until_the_deadline() {
        let mut tries = Attempts::new("http://h:1", Duration::from_millis(80));
        let gone = Error::Api(CoreError::new(ErrorCode::ObjectNotFound, "no"));
        assert_eq!(tries.again(gone).await.unwrap_err().code(), ErrorCode::ObjectNotFound);
        let mut count = 0;
        let last = loop {
            count += 1;
            if let Err(e) = tries.again(Error::broken("http://h:2", "reset")).await {
                break e;
            }
        };
        assert!(count > 1 && tries.ambiguous);
        assert!(last.to_string().contains("cluster at http://h:1 did not answer"), "{last}");
        assert_eq!(last.code(), ErrorCode::Timeout);
    }

    /// Returns the error with which tries end that always fail like this, and the number of tries.
    async fn given_up(mut tries: Attempts, error: impl Fn() -> Error) -> (Error, u32) {
        for count in 1.. {
            if let Err(e) = tries.again(error()).await {
                return (e, count);
            }
        }
        unreachable!()
    }

    #[tokio::test]
    async fn answers_without_sense_end_soon_as_an_error_of_their_own() {
        let garbled = || Error::garbled("http://h:2", "checksum of entry 3 does not match");
        let tries = Attempts::new("http://h:1", Duration::from_secs(60));
        let (e, count) = given_up(tries, garbled).await;
        assert_eq!((e.code(), count), (ErrorCode::CorruptAnswer, MAX_GARBLED));
        assert!(e.to_string().contains("checksum of entry 3"), "{e}");
        let short = Attempts::new("http://h:1", Duration::from_millis(1));
        assert_eq!(given_up(short, garbled).await.0.code(), ErrorCode::CorruptAnswer);
    }

    #[tokio::test]
    async fn refusals_by_all_end_as_one_error_unless_the_cluster_was_met_before() {
        let endpoints: Arc<[String]> = ["http://a:1", "http://b:2"].map(str::to_owned).into();
        let refused = |endpoint: &str| Error::Connect {
            endpoint: endpoint.to_owned(),
            is_refused: true,
            source: crate::error::Reason("connection refused".into()),
        };
        let soon = Duration::from_millis(30);
        for met in [false, true] {
            let contact = if met { Contact::made() } else { Contact::default() };
            for endpoint in endpoints.iter() {
                contact.note::<()>(endpoint, &Err(refused(endpoint)));
            }
            let tries = Attempts::new(&endpoints[0], soon).of_cluster(&contact, &endpoints);
            let (e, _) = given_up(tries, || refused("http://a:1")).await;
            assert_eq!(matches!(e, Error::Timeout { .. }), met, "{e}");
            assert_eq!(matches!(e, Error::Refused { .. }), !met, "{e}");
            if !met {
                assert_eq!(e.code(), ErrorCode::Unavailable);
                assert!(e.to_string().contains("http://a:1, http://b:2"), "{e}");
                assert!(e.hint().is_some_and(|hint| hint.contains("FOREBAY_ENDPOINT")));
            }
        }
    }

    #[tokio::test]
    async fn a_few_bytes_do_not_renew_the_deadline_and_the_readers_own_time_does_not_count() {
        let mut tries = Attempts::new("http://h:1", Duration::from_millis(100));
        tries.arrived(1, Duration::ZERO);
        tokio::time::sleep(Duration::from_millis(120)).await;
        let broken = || Error::broken("http://h:2", "reset");
        assert!(tries.again(broken()).await.is_ok(), "the reader took its time");
        tries.arrived(1, Duration::ZERO);
        tries.arrived(1, Duration::from_millis(100));
        assert_eq!(tries.again(broken()).await.unwrap_err().code(), ErrorCode::Timeout);
        tries.arrived(PROGRESS_BYTES, Duration::from_secs(9));
        assert!(tries.again(broken()).await.is_ok(), "that is progress");
    }

    #[tokio::test]
    async fn the_last_of_many_refusals_says_what_to_change() {
        let busy = || Error::Api(CoreError::new(ErrorCode::TooManyRequests, "slow down"));
        let mut tries = Attempts::new("http://h:1", Duration::from_millis(80));
        let last = loop {
            if let Err(e) = tries.again(busy()).await {
                break e;
            }
        };
        assert_eq!(last.code(), ErrorCode::TooManyRequests);
        assert!(last.hint().is_some_and(|hint| hint.contains("concurrency")), "{last:?}");
    }
}

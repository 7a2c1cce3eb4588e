//! Limits how often somebody may try a password. Pure: the caller passes the time.

use std::collections::BTreeMap;

/// Failed logins of one user from one address, and of one address over all users, before further
/// ones wait.
const FREE_FAILURES: u32 = 5;
const FREE_FAILURES_OF_ADDRESS: u32 = 50;
/// Wait after the first failure above the limit; each further one doubles it.
const FIRST_WAIT_S: u64 = 1;
const MAX_WAIT_S: u64 = 60;
/// Failures are dropped this long after the last one.
const FORGET_AFTER_S: u64 = 900;
/// Pairs that are recorded; if there are more, the oldest are dropped.
const MAX_ENTRIES: usize = 10_000;
/// Longest part of a user name that is recorded.
const MAX_NAME_BYTES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last_s: u64,
}

/// The failed logins of the last minutes, by user and address.
#[derive(Debug, Default)]
pub struct LoginLimiter {
    failures: BTreeMap<(String, String), Failures>,
}

impl LoginLimiter {
    /// Seconds after which a login may be tried; 0: now.
    pub fn wait_s(&self, user: &str, address: &str, now_s: u64) -> u64 {
        let pair = self.wait(&key(user, address), FREE_FAILURES, now_s);
        pair.max(self.wait(&key("", address), FREE_FAILURES_OF_ADDRESS, now_s))
    }

    fn wait(&self, key: &(String, String), free: u32, now_s: u64) -> u64 {
        let Some(failures) = self.failures.get(key) else { return 0 };
        let Some(over) = failures.count.checked_sub(free) else { return 0 };
        let wait = FIRST_WAIT_S.checked_shl(over.min(32)).map_or(MAX_WAIT_S, |s| s.min(MAX_WAIT_S));
        (failures.last_s + wait).saturating_sub(now_s)
    }

    /// Records a failed login.
    pub fn failed(&mut self, user: &str, address: &str, now_s: u64) {
        for key in [key(user, address), key("", address)] {
            let failures = self.failures.entry(key).or_insert(Failures { count: 0, last_s: now_s });
            if now_s.saturating_sub(failures.last_s) > FORGET_AFTER_S {
                failures.count = 0;
            }
            failures.count = failures.count.saturating_add(1);
            failures.last_s = now_s;
        }
        if self.failures.len() > MAX_ENTRIES {
            self.failures.retain(|_, f| now_s.saturating_sub(f.last_s) <= FORGET_AFTER_S);
        }
        while self.failures.len() > MAX_ENTRIES {
            let oldest = self.failures.iter().min_by_key(|(_, f)| f.last_s);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            self.failures.remove(&oldest);
        }
    }

    /// Records that a login succeeded that [`Self::failed`] counted before its password was checked:
    /// the user's failures from this address no longer count, and this one not for the address.
    pub fn succeeded(&mut self, user: &str, address: &str) {
        self.failures.remove(&key(user, address));
        if let Some(failures) = self.failures.get_mut(&key("", address)) {
            failures.count = failures.count.saturating_sub(1);
        }
    }
}

fn key(user: &str, address: &str) -> (String, String) {
    let end = (0..=MAX_NAME_BYTES.min(user.len())).rev().find(|end| user.is_char_boundary(*end));
    (user[..end.unwrap_or(0)].to_owned(), address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_some_failures_each_further_one_doubles_the_wait() {
        let mut limiter = LoginLimiter::default();
        for n in 0..FREE_FAILURES {
            assert_eq!(limiter.wait_s("ann", "a", 100), 0, "{n}");
            limiter.failed("ann", "a", 100);
        }
        assert_eq!(limiter.wait_s("ann", "a", 100), 1);
        limiter.failed("ann", "a", 101);
        assert_eq!(limiter.wait_s("ann", "a", 101), 2);
        for _ in 0..100 {
            limiter.failed("ann", "a", 101);
        }
        assert_eq!(limiter.wait_s("ann", "a", 101), MAX_WAIT_S);
        assert_eq!(limiter.wait_s("ann", "b", 101), 0, "another address");
        assert_eq!(limiter.wait_s("bob", "a", 101), MAX_WAIT_S, "an address that tries many");
    }

    #[test]
    fn a_login_and_time_end_the_wait() {
        let mut limiter = LoginLimiter::default();
        for _ in 0..10 {
            limiter.failed("ann", "a", 100);
        }
        assert!(limiter.wait_s("ann", "a", 100) > 0);
        limiter.succeeded("ann", "a");
        assert_eq!(limiter.wait_s("ann", "a", 100), 0);
        for _ in 0..10 {
            limiter.failed("ann", "a", 100);
        }
        limiter.failed("ann", "a", 101 + FORGET_AFTER_S);
        assert_eq!(limiter.wait_s("ann", "a", 101 + FORGET_AFTER_S), 0);
    }

    #[test]
    fn many_logins_that_succeed_do_not_limit_their_address() {
        let mut limiter = LoginLimiter::default();
        for n in 0..10 * FREE_FAILURES_OF_ADDRESS {
            assert_eq!(limiter.wait_s("ann", "a", 100), 0, "{n}");
            limiter.failed("ann", "a", 100);
            limiter.succeeded("ann", "a");
        }
    }

    #[test]
    fn the_record_is_bounded() {
        let mut limiter = LoginLimiter::default();
        for n in 0..MAX_ENTRIES + 20 {
            limiter.failed(&format!("user-{n}"), "a", n as u64 / 100);
        }
        assert!(limiter.failures.len() <= MAX_ENTRIES);
    }
}

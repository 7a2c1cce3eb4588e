//! Limits of buckets, and the fair limiter: rates, order, weights, and memory.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::name::{Bucket, Provider};

fn info() -> BucketInfo {
    BucketInfo::requested(Bucket::new(Provider::Aws, "b").unwrap(), None)
}

/// Runs flows that always have `backlog` requests waiting, for some seconds. Returns what each flow got.
fn compete(rate: Rate, flows: &[(f64, f64)], seconds: f64) -> Vec<f64> {
    let mut limiter = FairLimiter::new(rate, 0.0);
    let mut waiting: Vec<(usize, Ticket)> = Vec::new();
    let mut got = vec![0.0; flows.len()];
    let mut now = 0.0;
    while now < seconds {
        for (n, (weight, cost)) in flows.iter().enumerate() {
            while waiting.iter().filter(|(flow, _)| *flow == n).count() < 8 {
                let name = n.to_string();
                match limiter.request(&name, *weight, *cost, now, f64::INFINITY) {
                    Turn::Now => got[n] += cost,
                    Turn::At(ticket, _) => waiting.push((n, ticket)),
                    Turn::Refused(_) => unreachable!("the wait has no bound"),
                }
            }
        }
        waiting.sort_by_key(|(_, ticket)| *ticket);
        waiting.retain(|(flow, ticket)| match limiter.poll(ticket, now) {
            None => {
                got[*flow] += flows[*flow].1;
                false
            }
            Some(_) => true,
        });
        now += 0.01;
    }
    got
}

#[test]
fn limits_of_a_bucket_are_set_read_and_removed() {
    let mut info = info();
    assert_eq!((info.request_rate(), info.byte_rate()), (None, None));
    info.set_rates(&json!({"requests_per_second": "50", "bytes_per_second": "8MiB"})).unwrap();
    assert_eq!(info.request_rate(), Some(Rate { per_second: 50.0, burst: 50.0 }));
    assert_eq!(info.byte_rate().unwrap().burst, f64::from(2 << 20));
    info.set_rates(&json!({"requests_per_second": "none"})).unwrap();
    assert_eq!(info.request_rate(), None);
    for (bad, words) in [
        (json!({"requests_per_second": 0}), "rate.requests_per_second"),
        (json!({"bytes_per_second": "fast"}), "rate.bytes_per_second"),
        (json!({"request_per_second": 1}), "rate.request_per_second"),
        (json!(5), "JSON object"),
    ] {
        let e = info.set_rates(&bad).unwrap_err();
        assert!(e.message.contains(words), "{e}");
    }
    info.set_rates(&json!({"bytes_per_second": null})).unwrap();
    assert!(info.extra.is_empty());
}

#[test]
fn the_frontend_limit_of_aistore_counts_while_it_is_enabled() {
    let mut info = info();
    let frontend = json!({"interval": "10s", "max_tokens": 200, "burst_size": 30});
    info.set_section("rate_limit", json!({ "frontend": frontend }));
    assert_eq!(info.request_rate(), None);
    info.set_section("rate_limit", json!({"frontend": {"enabled": true}}));
    assert_eq!(info.request_rate(), Some(Rate { per_second: 20.0, burst: 30.0 }));
    assert_eq!(info.request_rate().unwrap().over(4), Rate { per_second: 5.0, burst: 7.5 });
}

#[test]
fn a_request_beyond_the_rate_waits_its_time_and_one_that_would_wait_too_long_costs_nothing() {
    let mut limiter = FairLimiter::new(Rate { per_second: 10.0, burst: 2.0 }, 0.0);
    let mut ask = |now| limiter.request("a", 1.0, 1.0, now, 0.15);
    assert_eq!((ask(0.0), ask(0.0)), (Turn::Now, Turn::Now));
    let Turn::At(ticket, at) = ask(0.0) else { panic!("it waits") };
    assert!((at - 0.1).abs() < 1e-9);
    assert!(matches!(ask(0.0), Turn::Refused(wait) if (wait - 0.2).abs() < 1e-9));
    assert!(limiter.poll(&ticket, 0.05).is_some());
    assert_eq!(limiter.poll(&ticket, 0.1), None);
    assert!(limiter.is_idle());
    assert_eq!(limiter.request("a", 1.0, 2.0, 9.0, 0.0), Turn::Now, "a pause fills the burst");
}

#[test]
fn a_request_that_is_given_up_makes_place() {
    let mut limiter = FairLimiter::new(Rate { per_second: 1.0, burst: 1.0 }, 0.0);
    assert_eq!(limiter.request("a", 1.0, 1.0, 0.0, 9.0), Turn::Now);
    let Turn::At(first, _) = limiter.request("a", 1.0, 1.0, 0.0, 9.0) else { panic!() };
    let Turn::At(second, at) = limiter.request("a", 1.0, 1.0, 0.0, 9.0) else { panic!() };
    assert!((at - 2.0).abs() < 1e-9);
    limiter.cancel(&first);
    assert_eq!(limiter.poll(&second, 1.0), None);
}

#[test]
fn a_request_larger_than_the_burst_passes_once_and_later_ones_pay_for_it() {
    let mut limiter = FairLimiter::new(Rate { per_second: 10.0, burst: 5.0 }, 0.0);
    assert_eq!(limiter.request("a", 1.0, 25.0, 0.0, 2.0), Turn::Now);
    let next = limiter.request("a", 1.0, 1.0, 0.0, 2.0);
    assert!(matches!(next, Turn::Refused(wait) if (wait - 2.1).abs() < 1e-9), "{next:?}");
    let Turn::At(_, at) = limiter.request("a", 1.0, 25.0, 1.0, 2.0) else { panic!("it waits") };
    assert!((at - 2.5).abs() < 1e-9, "a full burst is free then, {at}");
}

#[test]
fn a_flow_does_not_pay_for_what_it_gave_up() {
    let mut limiter = FairLimiter::new(Rate { per_second: 10.0, burst: 1.0 }, 0.0);
    limiter.request("other", 1.0, 1.0, 0.0, 9.0);
    limiter.request("other", 1.0, 1.0, 0.0, 9.0);
    let Turn::At(given_up, _) = limiter.request("a", 1.0, 50.0, 0.0, 9.0) else { panic!() };
    limiter.cancel(&given_up);
    let Turn::At(_, at) = limiter.request("a", 1.0, 1.0, 0.0, 9.0) else { panic!() };
    assert!(at < 0.25, "{at}");
}

#[test]
fn flows_that_are_gone_are_forgotten_while_others_wait() {
    let mut limiter = FairLimiter::new(Rate { per_second: 100.0, burst: 1.0 }, 0.0);
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..5000 {
        let now = f64::from(n) / 100.0;
        if let Turn::At(ticket, _) = limiter.request(&format!("user {n}"), 1.0, 1.0, now, 9.0) {
            waiting.push_back(ticket);
        }
        if waiting.len() > 10 {
            waiting.retain(|ticket| limiter.poll(ticket, now).is_some());
        }
    }
    assert!(limiter.flows.len() < 1100, "{}", limiter.flows.len());
}

#[test]
fn weights_are_numbers_of_users() {
    let entries = ["ann=4".to_owned(), "team=b=0.5".to_owned()];
    let weights = Weights::parse(&entries).unwrap();
    assert_eq!((weights.of("ann"), weights.of("team=b"), weights.of("bob")), (4.0, 0.5, 1.0));
    for bad in [&["ann"][..], &["ann=0"], &["=2"], &["ann=1", "ann=2"], &["ann=many"]] {
        let entries: Vec<_> = bad.iter().map(|entry| (*entry).to_owned()).collect();
        let e = Weights::parse(&entries).unwrap_err();
        assert!(e.message.contains("limits.weights"), "{e}");
    }
}

#[test]
fn a_flow_that_arrives_later_does_not_wait_behind_the_queue_of_another() {
    let mut limiter = FairLimiter::new(Rate { per_second: 10.0, burst: 1.0 }, 0.0);
    for _ in 0..15 {
        limiter.request("greedy", 1.0, 1.0, 0.0, 9.0);
    }
    let Turn::At(_, at) = limiter.request("late", 1.0, 1.0, 0.0, 9.0) else { panic!() };
    assert!(at < 0.25, "{at}");
}

proptest! {
    #[test]
    fn never_more_than_rate_times_time_and_burst_passes(
        per_second in 1.0..1000.0f64,
        burst in 1.0..500.0f64,
        weights in prop::collection::vec(0.1..10.0f64, 1..6),
        cost in 0.5..50.0f64,
    ) {
        let rate = Rate { per_second, burst };
        let cost = cost.min(burst);
        let flows: Vec<_> = weights.iter().map(|weight| (*weight, cost)).collect();
        let passed: f64 = compete(rate, &flows, 5.0).iter().sum();
        prop_assert!(passed <= per_second * 5.0 + burst + 1e-3, "{passed}");
        // Requests always wait here, and the clock is milliseconds coarse: one may pass 2 ms late, when
        // a burst of its size has no room for what comes meanwhile.
        let least = 4.98 / (cost / per_second + 2e-3) * cost - cost;
        prop_assert!(passed >= least.min(8.0 * 100.0 * cost), "{passed}");
    }

    #[test]
    fn flows_get_parts_by_their_weights_and_none_starves(
        weights in prop::collection::vec(1.0..8.0f64, 2..5),
    ) {
        let rate = Rate { per_second: 100.0, burst: 1.0 };
        let flows: Vec<_> = weights.iter().map(|weight| (*weight, 1.0)).collect();
        let got = compete(rate, &flows, 40.0);
        let (all, total): (f64, f64) = (got.iter().sum(), weights.iter().sum());
        for (n, weight) in weights.iter().enumerate() {
            let fair = all * weight / total;
            prop_assert!((got[n] - fair).abs() < fair * 0.05 + 16.0, "{n}: {} of {fair}", got[n]);
        }
    }
}

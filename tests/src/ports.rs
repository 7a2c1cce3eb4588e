//! Ports for servers under test: free now, and below those the system gives to outgoing
//! connections.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: u64 = 12_000;
const PAST: u64 = 32_000;

/// The first of `count` ports in a row that nobody listens on.
pub fn free(count: u16) -> u16 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    for _ in 0..1000 {
        // Starts at a random port, so that tests in other processes seldom try the same one.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(CALLS.fetch_add(1, Ordering::Relaxed));
        let base = FIRST + hasher.finish() % (PAST - FIRST - u64::from(count));
        let base = u16::try_from(base).unwrap();
        let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let all: Vec<_> = (base..base + count).map(listen).collect();
        if all.iter().all(Result::is_ok) {
            return base;
        }
    }
    panic!("no {count} free ports in a row between {FIRST} and {PAST}");
}

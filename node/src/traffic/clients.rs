//! Counters by client: a user, or the address of a client without one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use forebay_core::locks::MutexExt;
use forebay_core::traffic::TrafficCounts;

use super::Counter;

/// Clients with counters of their own; the requests of further ones are summed.
const MAX_CLIENTS: usize = 1_000;
/// A client without requests for this long gives its counters up.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// The counters of all clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Read without a lock.
    known: ArcSwap<Known>,
    /// Held while clients are added or removed, never while a request counts.
    changing: Mutex<()>,
    other: Counter,
    /// Requests at the last sample and when they last changed, by client.
    uses: Mutex<HashMap<String, (u64, Instant)>>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    users: HashMap<String, Arc<Counter>>,
    addresses: HashMap<IpAddr, Arc<Counter>>,
}

impl Known {
    fn get(&self, from: &IpAddr, user: Option<&str>) -> Option<&Arc<Counter>> {
        match user {
            Some(user) => self.users.get(user),
            None => self.addresses.get(from),
        }
    }

    fn len(&self) -> usize {
        self.users.len() + self.addresses.len()
    }

    fn all(&self) -> impl Iterator<Item = (String, &Arc<Counter>)> {
        let users = self.users.iter().map(|(name, counter)| (name.clone(), counter));
        users.chain(self.addresses.iter().map(|(from, counter)| (from.to_string(), counter)))
    }
}

impl Clients {
    /// Calls `count` with the counters of a client.
    pub(super) fn count(&self, from: IpAddr, user: Option<&str>, count: impl FnOnce(&Counter)) {
        let from = from.to_canonical();
        match self.known.load().get(&from, user) {
            Some(counter) => count(counter),
            None => match self.added(from, user) {
                Some(counter) => count(&counter),
                None => count(&self.other),
            },
        }
    }

    /// The counters of a new client; `None` if there are too many clients.
    fn added(&self, from: IpAddr, user: Option<&str>) -> Option<Arc<Counter>> {
        if self.known.load().len() >= MAX_CLIENTS {
            return None;
        }
        let _changing = self.changing.locked();
        let known = self.known.load_full();
        if let Some(counter) = known.get(&from, user) {
            return Some(counter.clone());
        }
        if known.len() >= MAX_CLIENTS {
            return None;
        }
        let counter = Arc::<Counter>::default();
        let mut known = Known::clone(&known);
        match user {
            Some(user) => drop(known.users.insert(user.to_owned(), counter.clone())),
            None => drop(known.addresses.insert(from, counter.clone())),
        }
        self.known.store(Arc::new(known));
        Some(counter)
    }

    /// Removes clients that sent nothing for a while, and returns their names.
    pub(super) fn forget_idle(&self, now: Instant) -> Vec<String> {
        let mut idle = Vec::new();
        let mut uses = self.uses.locked();
        for (name, counter) in self.known.load().all() {
            let requests = counter.counts().requests;
            let (last, at) = uses.entry(name.clone()).or_insert((requests, now));
            if *last != requests {
                (*last, *at) = (requests, now);
            } else if now.saturating_duration_since(*at) >= IDLE_AFTER {
                idle.push(name);
            }
        }
        if idle.is_empty() {
            return idle;
        }
        let _changing = self.changing.locked();
        let mut known = Known::clone(&self.known.load());
        known.users.retain(|name, _| !idle.contains(name));
        known.addresses.retain(|from, _| !idle.contains(&from.to_string()));
        self.known.store(Arc::new(known));
        for name in &idle {
            uses.remove(name);
        }
        idle
    }

    /// The counts of all clients with counters of their own.
    pub(super) fn counts(&self) -> HashMap<String, TrafficCounts> {
        let known = self.known.load();
        known.all().map(|(name, counter)| (name, counter.counts())).collect()
    }

    /// The counts of all other clients together.
    pub(super) fn other(&self) -> TrafficCounts {
        self.other.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(clients: &Clients, n: usize) {
        let from = IpAddr::from([10, 1, (n >> 8) as u8, n as u8]);
        clients.count(from, None, |counter| counter.add(false, 1, 2));
    }

    #[test]
    fn clients_past_the_bound_are_summed_until_others_are_idle() {
        let clients = Clients::default();
        for n in 0..MAX_CLIENTS + 7 {
            send(&clients, n);
        }
        assert_eq!(clients.counts().len(), MAX_CLIENTS);
        assert_eq!(clients.other().requests, 7);
        let start = Instant::now();
        assert!(clients.forget_idle(start).is_empty());
        send(&clients, 0);
        assert!(clients.forget_idle(start + Duration::from_secs(30)).is_empty());
        let forgotten = clients.forget_idle(start + Duration::from_secs(61));
        assert_eq!(forgotten.len(), MAX_CLIENTS - 1);
        let left = clients.counts();
        assert_eq!(left.len(), 1);
        assert_eq!(left.get("10.1.0.0").map(|counts| counts.requests), Some(2));
        send(&clients, MAX_CLIENTS + 1);
        assert_eq!((clients.counts().len(), clients.other().requests), (2, 7));
    }

    #[test]
    fn a_user_is_one_client_from_all_addresses() {
        let clients = Clients::default();
        for last in 1..=3 {
            let from = IpAddr::from([10, 0, 0, last]);
            clients.count(from, Some("eva"), |counter| counter.add(true, 5, 0));
        }
        let counts = clients.counts();
        assert_eq!(counts.len(), 1);
        assert_eq!(
            counts.get("eva").map(|c| (c.requests, c.errors, c.read_bytes)),
            Some((3, 3, 15))
        );
    }
}

//! The cluster's map as this client knows it: fetched at first use, replaced when it turns out to
//! be stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use http::Method;

use forebay_core::Error as CoreError;
use forebay_core::intra::MapReply;
use forebay_core::sign::GRANT_TTL_S;

use crate::body::Upload;
use crate::error::{Error, Result};
use crate::transport::{self, Transport};

/// A map (and its grant) older than this is fetched again. The age is measured with the client's
/// clock, so the clocks of client and server need not agree.
const MAX_AGE: Duration = Duration::from_secs(GRANT_TTL_S / 2);
/// Minimum interval between two background fetches.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(300);
/// Timeout for one gateway to return the map.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A map and when it came.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) reply: Arc<MapReply>,
    fetched: Instant,
    /// The monotonic clock stops while a machine sleeps, but its grant still ages.
    fetched_wall: SystemTime,
}

impl Snapshot {
    fn new(reply: Arc<MapReply>) -> Self {
        Self { reply, fetched: Instant::now(), fetched_wall: SystemTime::now() }
    }

    /// Whether both clocks say that it is younger than `age`. If the wall clock was set back, the
    /// answer is no.
    fn is_younger_than(&self, age: Duration) -> bool {
        self.fetched.elapsed() < age && self.fetched_wall.elapsed().is_ok_and(|wall| wall < age)
    }
}

/// The current map and the ways to fetch a newer one.
#[derive(Debug)]
pub(crate) struct MapCache {
    transport: Transport,
    /// Gateways as configured, without a trailing slash; never empty.
    endpoints: Arc<[String]>,
    /// Which of the gateways answered last.
    preferred: AtomicUsize,
    current: ArcSwapOption<Snapshot>,
    fetching: tokio::sync::Mutex<()>,
    background: AtomicBool,
}

impl MapCache {
    pub(crate) fn new(transport: &Transport, idle: Duration, endpoints: Arc<[String]>) -> Self {
        let within = idle.min(ANSWER_WITHIN);
        Self {
            transport: transport.with_idle(within).with_limit(within),
            endpoints,
            preferred: AtomicUsize::new(0),
            current: ArcSwapOption::empty(),
            fetching: tokio::sync::Mutex::new(()),
            background: AtomicBool::new(false),
        }
    }

    /// Returns the map; fetches it if there is none or if half of the grant's time has passed.
    pub(crate) async fn get(&self) -> Result<Arc<MapReply>> {
        match self.current.load_full() {
            Some(known) if known.is_younger_than(MAX_AGE) => Ok(known.reply.clone()),
            known => self.replace(known.as_ref().map(|k| &k.reply)).await,
        }
    }

    /// Returns a map other than `old`; if several callers find the same map stale, one of them
    /// fetches.
    pub(crate) async fn replace(&self, old: Option<&Arc<MapReply>>) -> Result<Arc<MapReply>> {
        let _one = self.fetching.lock().await;
        if let Some(known) = self.current.load_full()
            && old.is_none_or(|old| !Arc::ptr_eq(old, &known.reply))
            && known.is_younger_than(MAX_AGE)
        {
            return Ok(known.reply.clone());
        }
        self.fetch().await
    }

    /// The map that came last, whatever its age.
    pub(crate) fn known(&self) -> Option<Arc<MapReply>> {
        self.current.load().as_ref().map(|snapshot| snapshot.reply.clone())
    }

    /// Returns a map that is younger than `age`.
    pub(crate) async fn younger_than(&self, age: Duration) -> Result<Arc<MapReply>> {
        let young = || self.current.load_full().filter(|known| known.is_younger_than(age));
        if let Some(known) = young() {
            return Ok(known.reply.clone());
        }
        let _one = self.fetching.lock().await;
        match young() {
            Some(known) => Ok(known.reply.clone()),
            None => self.fetch().await,
        }
    }

    /// A node acts by `version`: if that is newer than the map here, starts a background fetch.
    pub(crate) fn saw(self: &Arc<Self>, version: u64) {
        let Some(known) = self.current.load_full() else { return };
        if version <= known.reply.state.version
            || known.fetched.elapsed() < BACKGROUND_PAUSE
            || self.background.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            if let Err(error) = this.replace(Some(&known.reply)).await {
                tracing::debug!(%error, "the newer map could not be fetched");
            }
            this.background.store(false, Ordering::Release);
        });
    }

    /// Gateways to try; the one that answered last comes first.
    pub(crate) fn gateways(&self) -> Vec<String> {
        let mut all = self.endpoints.to_vec();
        if let Some(known) = self.current.load_full() {
            for node in known.reply.state.gateways().filter(|n| n.alive) {
                if !all.contains(&node.url) {
                    all.push(node.url.clone());
                }
            }
        }
        let first = self.preferred.load(Ordering::Relaxed) % all.len();
        all.rotate_left(first);
        all
    }

    /// The gateway to ask now.
    pub(crate) fn gateway(&self) -> String {
        self.gateways().swap_remove(0)
    }

    /// Moves on to the next gateway, after the current one did not answer.
    pub(crate) fn next_gateway(&self) {
        self.preferred.fetch_add(1, Ordering::Relaxed);
    }

    async fn fetch(&self) -> Result<Arc<MapReply>> {
        let mut first_error = None;
        for base in self.gateways() {
            match self.fetch_from(&base).await {
                Ok(reply) => return Ok(self.accept(reply)),
                Err(e) => {
                    self.next_gateway();
                    first_error.get_or_insert(e);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| CoreError::invalid("no endpoint is configured").into()))
    }

    async fn fetch_from(&self, base: &str) -> Result<MapReply> {
        let request = transport::finish(
            transport::request(Method::GET, base, "/api/v1/map"),
            Upload::empty(),
        )?;
        let answer = self.transport.send_ok(base, request, None).await.map_err(|(e, _)| e)?;
        let body = answer.into_body().collect().await?;
        serde_json::from_slice(&body).map_err(|e| {
            let what = format!("{base} does not answer as a Forebay gateway does: {e}");
            Error::Api(CoreError::invalid(what).hint("is the endpoint's address right?"))
        })
    }

    /// Stores a map; from an older map (of a gateway that lags) only the grant is used.
    fn accept(&self, mut reply: MapReply) -> Arc<MapReply> {
        if let Some(known) = self.current.load_full() {
            let known = &known.reply.state;
            if known.cluster_id == reply.state.cluster_id && known.version > reply.state.version {
                reply.state = known.clone();
            }
        }
        let reply = Arc::new(reply);
        let snapshot = Snapshot::new(reply.clone());
        self.current.store(Some(Arc::new(snapshot)));
        reply
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::NodeId;
    use forebay_core::state::ClusterState;

    use super::*;

    #[test]
    fn a_map_is_fetched_again_after_the_machine_slept_or_its_clock_was_set_back() {
        let primary = NodeId::new("gateway-1").unwrap_or_else(|e| panic!("{e}"));
        let state = ClusterState::default();
        let reply = MapReply {
            state,
            primary,
            grant: String::new(),
            grant_expires_s: 0,
            version: None,
            oldest_client: None,
        };
        let mut snapshot = Snapshot::new(Arc::new(reply));
        assert!(snapshot.is_younger_than(MAX_AGE));
        let now = SystemTime::now();
        for wall in [now - 2 * MAX_AGE, now + MAX_AGE] {
            snapshot.fetched_wall = wall;
            assert!(!snapshot.is_younger_than(MAX_AGE), "{wall:?}");
        }
    }
}

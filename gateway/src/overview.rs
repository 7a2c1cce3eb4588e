//! Collects the overview of the cluster: asks all nodes at once, and shares the result among all who
//! ask this gateway.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_client::PeerClient;
use forebay_core::access::{Access, Right, Scope};
use forebay_core::date::format_rfc3339;
use forebay_core::intra::{NodeInfo, NodeUsage};
use forebay_core::job::JobStatus;
use forebay_core::overview::{
    Alert, HISTORY_SLOT_S, MAX_OVERVIEW_JOBS, MAX_OVERVIEW_ROWS, NodeHistory, NodeView, Overview,
    OverviewBucket, OverviewClient, OverviewDisk, OverviewHistory, OverviewJob, OverviewNode,
    Rates, alerts, busiest, is_shown_job, summed_history,
};
use forebay_core::state::{ClusterState, NodeStatus, ShownUrls};
use forebay_core::traffic::{
    LatencyCounts, NodeTraffic, OTHER_TRAFFIC, TRAFFIC_WINDOW_S, TrafficCounts,
};
use forebay_core::{Bucket, Error, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::traffic::Traffic;
use forebay_routes::native;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, Notify, watch};

use crate::cluster_view::ClusterView;
use crate::http::list;
use crate::job_control::{JobControl, JobFilter};

/// Path at which a node returns its part.
const TRAFFIC: &str = "/internal/v1/traffic";
/// Path at which a node returns its last minutes.
const TRAFFIC_HISTORY: &str = "/internal/v1/traffic/history";
/// A node that does not answer within this time is shown as such.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// Time between two collections while somebody watches; a younger overview is not collected anew.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for a collection.
const COLLECTED_WITHIN: Duration = Duration::from_secs(10);

/// The figures of all nodes at one time, for viewers with any rights.
pub(crate) struct Collected {
    taken: Instant,
    at_ns: u64,
    cluster: Rates,
    nodes: Vec<OverviewNode>,
    alerts: Vec<Alert>,
    /// By bucket; `None`: buckets that are not named.
    buckets: Vec<(Option<Bucket>, Rates)>,
    clients: Vec<OverviewClient>,
    jobs: Vec<JobStatus>,
}

/// The overviews of a gateway; cheap to clone.
#[derive(Clone)]
pub(crate) struct Overviews {
    view: ClusterView,
    jobs: JobControl,
    traffic: Traffic,
    latest: watch::Sender<Option<Arc<Collected>>>,
    /// The last history, and when it was collected. The lock is held during a collection, so that
    /// pages that open together share one.
    history: Arc<Mutex<Option<(Instant, Arc<OverviewHistory>)>>>,
    wanted: Arc<Notify>,
}

/// Watches the overviews; while one exists, they are collected.
pub(crate) struct OverviewWatch(watch::Receiver<Option<Arc<Collected>>>);

impl OverviewWatch {
    /// The next overview; `None` once the gateway ends.
    pub(crate) async fn next(&mut self) -> Option<Arc<Collected>> {
        loop {
            self.0.changed().await.ok()?;
            if let Some(collected) = self.0.borrow_and_update().clone() {
                return Some(collected);
            }
        }
    }
}

impl Overviews {
    pub(crate) fn new(view: ClusterView, jobs: JobControl, traffic: Traffic) -> Self {
        let (latest, _) = watch::channel(None);
        Self { view, jobs, traffic, latest, history: Arc::default(), wanted: Arc::default() }
    }

    /// The current state of the cluster.
    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.view.maps.load()
    }

    /// The client for other nodes.
    pub(crate) fn peer(&self) -> &PeerClient {
        &self.view.peer
    }

    /// Begins to watch. The first overview comes at once if one was just collected.
    pub(crate) fn watch(&self) -> OverviewWatch {
        let mut receiver = self.latest.subscribe();
        if receiver.borrow().as_ref().is_some_and(|last| last.taken.elapsed() < INTERVAL) {
            receiver.mark_changed();
        }
        self.wanted.notify_one();
        OverviewWatch(receiver)
    }

    /// An overview that is at most a second old.
    pub(crate) async fn now(&self) -> Result<Arc<Collected>> {
        let mut watch = self.watch();
        let next = tokio::time::timeout(COLLECTED_WITHIN, watch.next()).await;
        let missing = || Error::unavailable("the overview could not be collected in time");
        next.ok().flatten().ok_or_else(missing)
    }

    /// Collects overviews while somebody watches, until the gateway stops.
    pub(crate) async fn run(self, lifecycle: Lifecycle) {
        let stop = lifecycle.token();
        let collecting = async {
            let mut jobs = Vec::new();
            loop {
                self.wanted.notified().await;
                while self.latest.receiver_count() > 0 {
                    let next = tokio::time::Instant::now() + INTERVAL;
                    let collected = self.collect(&mut jobs).await;
                    self.latest.send_replace(Some(Arc::new(collected)));
                    tokio::time::sleep_until(next).await;
                }
            }
        };
        tokio::select! {
            () = collecting => {}
            () = stop.cancelled() => {}
        }
    }

    /// Asks all nodes. `jobs` are those of the last collection, which stay if targets do not answer in
    /// time.
    async fn collect(&self, jobs: &mut Vec<JobStatus>) -> Collected {
        let state = self.view.maps.load();
        let no_filter = JobFilter::default();
        let listed = tokio::time::timeout(ANSWER_WITHIN, self.jobs.list(&no_filter));
        let (info, traffic, listed) = tokio::join!(
            self.view.info(),
            self.parts(&state, TRAFFIC, || self.traffic.window()),
            listed
        );
        if let Ok(Ok(listed)) = listed {
            *jobs = listed;
        }
        // Without a leader there is still the map.
        let info = info.ok();
        let led = info.as_ref().is_some_and(|info| info.led.unwrap_or(true));
        let leader = info.as_ref().filter(|_| led).map(|info| info.primary.clone());
        let infos = info.map_or_else(|| without_reports(&state), |info| info.nodes);
        let mut jobs = jobs.clone();
        jobs.retain(|job| is_shown_job(job, unix_ns()));
        summed(&state, &infos, (led, leader.as_ref()), &traffic, jobs)
    }

    /// The overview for a viewer, with the URLs by which it reaches the nodes.
    pub(crate) fn shown(&self, found: &Collected, access: &Access, urls: &ShownUrls) -> Overview {
        let (mut overview, state) = (found.shown_to(access), self.view.maps.load());
        for node in &mut overview.nodes {
            let known = state.nodes.values().find(|known| known.id.as_str() == node.id);
            match (known, urls) {
                (Some(known), _) => urls.of(known).clone_into(&mut node.url),
                (None, ShownUrls::External { here }) => node.url.clone_from(here),
                (None, _) => {}
            }
        }
        overview
    }

    /// The last minutes of the cluster, at most a second old.
    pub(crate) async fn history(&self) -> Arc<OverviewHistory> {
        let mut last = self.history.lock().await;
        if let Some((_, known)) = last.as_ref().filter(|(taken, _)| taken.elapsed() < INTERVAL) {
            return known.clone();
        }
        let state = self.view.maps.load();
        let parts = self.parts(&state, TRAFFIC_HISTORY, || self.traffic.history()).await;
        let found = Arc::new(history_of(&state, &parts, unix_ns()));
        *last = Some((Instant::now(), found.clone()));
        found
    }

    /// The parts of the nodes that answer in time; `own` is that of this gateway.
    async fn parts<T: DeserializeOwned>(
        &self,
        state: &ClusterState,
        path: &str,
        own: impl Fn() -> T,
    ) -> BTreeMap<NodeId, T> {
        let own = &own;
        let asked = state.nodes.values().filter(|node| node.alive).map(|node| async move {
            if node.id == self.view.identity.id {
                return Some((node.id.clone(), own()));
            }
            let answer = self.view.peer.get_json::<T>(&node.url, path);
            match tokio::time::timeout(ANSWER_WITHIN, answer).await {
                Ok(Ok(part)) => Some((node.id.clone(), part)),
                Ok(Err(e)) => {
                    tracing::debug!(node = %node.id, error = %e, "no part of the overview");
                    None
                }
                Err(_) => None,
            }
        });
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }
}

/// Sums the last minutes of the nodes that answered, and names the others.
fn history_of(
    state: &ClusterState,
    parts: &BTreeMap<NodeId, NodeHistory>,
    now_ns: u64,
) -> OverviewHistory {
    let nodes = state.nodes.values();
    let answered = nodes.clone().filter_map(|node| Some((node.role, parts.get(&node.id)?)));
    let silent = nodes.filter(|node| !parts.contains_key(&node.id));
    OverviewHistory {
        at: format_rfc3339(now_ns),
        interval_s: HISTORY_SLOT_S,
        points: summed_history(answered, now_ns),
        silent_nodes: silent.map(|node| node.id.to_string()).collect(),
    }
}

/// The nodes of the map, whose reports are not known.
fn without_reports(state: &ClusterState) -> Vec<NodeInfo> {
    state.nodes.values().map(|node| NodeInfo::of(node, NodeUsage::default())).collect()
}

/// Puts the parts together.
fn summed(
    state: &ClusterState,
    infos: &[NodeInfo],
    (led, leader): (bool, Option<&NodeId>),
    traffic: &BTreeMap<NodeId, NodeTraffic>,
    jobs: Vec<JobStatus>,
) -> Collected {
    let (mut cluster, mut latency) = (Rates::default(), LatencyCounts::default());
    let mut buckets: BTreeMap<Option<u64>, Rates> = BTreeMap::new();
    let mut clients: HashMap<String, Rates> = HashMap::new();
    let names: BTreeMap<u64, &Bucket> =
        state.buckets.values().map(|info| (info.id, &info.bucket)).collect();
    let (mut nodes, mut views) = (Vec::new(), Vec::new());
    for info in infos {
        let part = traffic.get(&info.id).filter(|_| info.alive);
        let rates = part.map_or_else(Rates::default, |part| {
            let rates = Rates::of(&part.total, part.seconds);
            cluster.add(&rates.of_cluster(info.role));
            latency.add(&part.latency);
            rates.with_latency(&part.latency)
        });
        if let Some(part) = part {
            let of = |counts: &TrafficCounts| Rates::of(counts, part.seconds);
            for row in &part.buckets {
                let known = names.contains_key(&row.bucket_id).then_some(row.bucket_id);
                buckets.entry(known).or_default().add(&of(&row.counts));
            }
            if !part.other_buckets.is_zero() {
                buckets.entry(None).or_default().add(&of(&part.other_buckets));
            }
            for row in &part.clients {
                clients.entry(row.client.clone()).or_default().add(&of(&row.counts));
            }
            if !part.other_clients.is_zero() {
                let other = clients.entry(OTHER_TRAFFIC.to_owned()).or_default();
                other.add(&of(&part.other_clients));
            }
        }
        nodes.push(row_of(info, part.is_some(), leader == Some(&info.id), rates));
        views.push(NodeView { info, answered: part.is_some(), rates });
    }
    let buckets = buckets.into_iter().map(|(id, rates)| {
        let bucket = id.and_then(|id| names.get(&id)).map(|bucket| (*bucket).clone());
        (bucket, rates)
    });
    Collected {
        taken: Instant::now(),
        at_ns: unix_ns(),
        cluster: cluster.with_latency(&latency),
        alerts: alerts(led, &views),
        nodes,
        buckets: buckets.collect(),
        clients: clients
            .into_iter()
            .map(|(client, rates)| OverviewClient { client, rates })
            .collect(),
        jobs,
    }
}

fn row_of(info: &NodeInfo, answered: bool, leads: bool, rates: Rates) -> OverviewNode {
    let disks = info.usage.mountpaths.iter().map(|disk| OverviewDisk {
        path: disk.path.clone(),
        used_bytes: disk.used,
        size_bytes: disk.budget,
        state: disk.state.as_str().to_owned(),
    });
    OverviewNode {
        id: info.id.to_string(),
        role: info.role.name().to_owned(),
        state: NodeStatus::of(info.alive, info.maintenance, info.emptied).as_str().to_owned(),
        url: info.url.clone(),
        answered,
        leads,
        uptime_s: info.usage.uptime_s,
        memory_bytes: info.usage.machine.mem_used,
        cpu_percent: info.usage.machine.pct_cpu_used,
        rates,
        disks: disks.collect(),
    }
}

impl Collected {
    /// The overview for a viewer: buckets and jobs that it sees, and of clients only itself, unless it
    /// is an admin. The others are summed under `other`.
    pub(crate) fn shown_to(&self, access: &Access) -> Overview {
        let of_jobs = native::JOBS.row().of(access);
        let is_admin = access.has(Right::Admin, &Scope::Cluster);
        let named = |bucket: &Bucket| !list::is_system(bucket) && access.sees(bucket);
        let (mut buckets, mut rest) = (Vec::new(), Rates::default());
        for (bucket, rates) in &self.buckets {
            match bucket.as_ref().filter(|bucket| named(bucket)) {
                Some(bucket) => buckets.push(bucket_row(bucket, *rates)),
                None => rest.add(rates),
            }
        }
        let other_bucket = |rates| OverviewBucket {
            name: OTHER_TRAFFIC.to_owned(),
            uri: OTHER_TRAFFIC.to_owned(),
            provider: String::new(),
            rates,
        };
        let buckets = with_rest(buckets, rest, |row| &mut row.rates, other_bucket);
        let (mut clients, mut rest) = (Vec::new(), Rates::default());
        for row in &self.clients {
            let is_shown = is_admin || access.user() == Some(&row.client);
            match is_shown && row.client != OTHER_TRAFFIC {
                true => clients.push(row.clone()),
                false => rest.add(&row.rates),
            }
        }
        let other_client = |rates| OverviewClient { client: OTHER_TRAFFIC.to_owned(), rates };
        let jobs = self.jobs.iter().filter(|job| of_jobs.sees_job(job));
        Overview {
            at: format_rfc3339(self.at_ns),
            interval_s: TRAFFIC_WINDOW_S,
            cluster: self.cluster,
            nodes: self.nodes.clone(),
            buckets,
            clients: with_rest(clients, rest, |row| &mut row.rates, other_client),
            jobs: jobs
                .take(MAX_OVERVIEW_JOBS)
                .map(|job| OverviewJob::of(job, self.at_ns))
                .collect(),
            alerts: self.alerts.clone(),
        }
    }
}

fn bucket_row(bucket: &Bucket, rates: Rates) -> OverviewBucket {
    OverviewBucket {
        name: bucket.name.to_string(),
        provider: bucket.provider.as_str().to_owned(),
        uri: bucket.to_string(),
        rates,
    }
}

/// The busiest rows, and at most one row for the others.
fn with_rest<T>(
    rows: Vec<T>,
    mut rest: Rates,
    rates: impl Fn(&mut T) -> &mut Rates + Copy,
    other: impl Fn(Rates) -> T,
) -> Vec<T> {
    let named = rows.len().min(MAX_OVERVIEW_ROWS);
    let mut rows = busiest(rows, MAX_OVERVIEW_ROWS, rates, &other);
    for mut row in rows.drain(named..) {
        rest.add(rates(&mut row));
    }
    if rest != Rates::default() {
        rows.push(other(rest));
    }
    rows
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "overview_tests.rs"]
mod tests;

//! This gateway's member of the Raft group: opens it, reports the leader, decides commands. `enter`
//! describes how a gateway joins, `change` how the group changes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, NodeId, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use openraft::error::RaftError;
use openraft::{BasicNode, RaftMetrics, ServerState, SnapshotPolicy};
use serde_json::Value;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::change::Asked;
use super::file::{Closing, MetaFile};
use super::log_store::{LogStore, on_disk};
use super::member::{Beginning, Mine};
use super::network::{self, Network, VOTE_PATH};
use super::state_machine::StateMachine;
use super::{MetaLog, Raft, Verdict};

/// A leader confirms its leadership about every 1.5 times this interval.
const HEARTBEAT_MS: u64 = 200;
/// A follower that gets no heartbeat for the greater value plus a random time between both starts
/// an election.
const ELECTION_MS: (u64, u64) = (450, 700);
/// A leader that no majority confirmed for this long does not count as leader: slightly less than
/// the earliest time at which a follower starts an election. A candidate that was cut off before
/// may be elected 0.3 s earlier: then two gateways act as leader for that long, and only one of
/// them has a majority for its decisions.
const LEASE_MS: u64 = ELECTION_MS.0 + ELECTION_MS.1 - 150;
/// Entries between two snapshots, and entries that stay in the log for gateways that lag.
const SNAPSHOT_EVERY: u64 = 1_000;
const KEEP: u64 = 500;
/// Timeout for deciding a command.
pub(crate) const DECIDE_WITHIN: Duration = Duration::from_secs(5);
/// Timeout for a new leader to catch up; after it, the gateway checks again whether it still leads.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(2);

/// The leader of the group, as this gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    /// This gateway, recently confirmed by a majority.
    Here {
        term: u64,
    },
    /// The gateway at this URL.
    At(String),
    Unknown,
}

/// Why a command has no version.
#[derive(Debug)]
pub(crate) enum Undecided {
    /// The command will not take effect here: it may be proposed again, elsewhere.
    Untouched(Error),
    /// The command was refused, or its outcome is unknown.
    Final(Error),
}

/// This gateway's member of the group; cheap to clone.
#[derive(Clone)]
pub(crate) struct Group {
    pub(super) raft: Raft,
    pub(super) maps: Maps,
    pub(super) peer: PeerClient,
    pub(super) lifecycle: Lifecycle,
    pub(super) me: u64,
    pub(super) my_url: String,
    /// Id of the node; empty in tests without one.
    pub(super) node: String,
    pub(super) mine: Mine,
    pub(super) beginning: Arc<Beginning>,
    /// The other gateways in the configuration.
    pub(super) configured: Arc<Vec<String>>,
    pub(super) leader: watch::Receiver<Leader>,
    /// Held while a gateway joins or leaves: there is one change at a time.
    pub(super) changing: Arc<Mutex<Asked>>,
    /// Whether a gateway without a log may vote anyway.
    pub(super) lends_vote: Arc<AtomicBool>,
    /// Why this gateway ended by itself.
    pub(super) ended: Arc<OnceLock<Error>>,
    /// Whether other gateways need to know how far the log is committed here.
    several: Arc<AtomicBool>,
}

impl Group {
    /// Opens the metadata in `path`. `gateways` are the URLs of the configuration: of all gateways
    /// of a new group, or of some of an existing one; none means a group of this gateway alone. The
    /// second value reports when the file is closed at the end.
    pub(crate) async fn open(
        path: &Path,
        my_url: &str,
        gateways: &[String],
        peer: PeerClient,
        maps: Maps,
        lifecycle: &Lifecycle,
    ) -> Result<(Self, Closing)> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking({
            let path = path.clone();
            move || MetaFile::open(&path)
        });
        let file = opened
            .await
            .map_err(|e| Error::internal(format!("opening the metadata log: {e}")))??;
        let (url, listed) = (my_url.to_owned(), gateways.to_vec());
        let (mine, beginning) =
            on_disk(file.clone(), move |file| Mine::open(&file, &path, &url, &listed)).await?;
        let me = mine.id();
        let closing = file.closing();
        let several = Arc::new(AtomicBool::new(false));
        let log = LogStore::new(file.clone(), several.clone());
        let shown = maps.clone();
        let machine = on_disk(file, move |file| StateMachine::open(file, shown)).await?;
        let network = Network::new(peer.clone());
        let raft = Raft::new(me, Arc::new(settings()?), network, log, machine).await;
        let raft = raft.map_err(|e| Error::internal(format!("metadata log: {e}")))?;
        let (seen, leader) = watch::channel(Leader::Unknown);
        let configured = gateways.iter().map(|url| url.trim_end_matches('/').to_owned());
        let group = Self {
            raft,
            maps,
            peer,
            lifecycle: lifecycle.clone(),
            me,
            my_url: my_url.to_owned(),
            node: String::new(),
            mine,
            beginning: Arc::new(beginning),
            configured: Arc::new(configured.filter(|url| url != my_url).collect()),
            leader,
            changing: Arc::default(),
            lends_vote: Arc::default(),
            ended: Arc::default(),
            several,
        };
        // From here on the members of the group are known. In a group of several, the gateway first
        // asks whether it still is a member.
        let began = group.raft.is_initialized().await;
        began.map_err(|e| Error::internal(format!("metadata log: {e}")))?;
        group.raft.runtime_config().elect(group.is_alone());
        lifecycle.spawn(group.clone().watch(seen, lifecycle.clone()));
        Ok((group, closing))
    }

    /// The same group, with the id of this node.
    pub(crate) fn of_node(self, id: &NodeId) -> Self {
        Self { node: id.to_string(), ..self }
    }

    /// The URL of this gateway.
    pub(crate) fn url(&self) -> &str {
        &self.my_url
    }

    /// Whether this gateway is the whole group.
    pub(crate) fn is_alone(&self) -> bool {
        match self.seats().as_slice() {
            [] => matches!(&*self.beginning, Beginning::Form(urls) if urls.len() == 1),
            seats => seats.iter().all(|seat| seat.id == self.me),
        }
    }

    /// The gateways with which this one would form a group.
    pub(super) fn planned(&self) -> &[String] {
        match &*self.beginning {
            Beginning::Form(urls) => urls,
            Beginning::Resume | Beginning::Enter => &[],
        }
    }

    /// Returns a watch of the leader.
    pub(crate) fn leader(&self) -> watch::Receiver<Leader> {
        self.leader.clone()
    }

    async fn watch(self, seen: watch::Sender<Leader>, lifecycle: Lifecycle) {
        let stop = lifecycle.token();
        let mut metrics = self.raft.metrics();
        loop {
            let now = {
                let metrics = metrics.borrow_and_update();
                if let Err(e) = &metrics.running_state
                    && !stop.is_cancelled()
                {
                    tracing::error!(error = %e, "metadata log failed; no more changes go through here");
                }
                self.several
                    .store(metrics.membership_config.nodes().count() > 1, Ordering::Relaxed);
                leader_of(&metrics, self.me)
            };
            seen.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
            if metrics.changed().await.is_err() {
                seen.send_replace(Leader::Unknown);
                return;
            }
        }
    }

    /// Waits until everything that any earlier leader acknowledged is applied here.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let caught_up = timeout(CATCH_UP_WITHIN, self.raft.ensure_linearizable()).await;
        let caught_up = caught_up.map_err(|_| Error::unavailable("no majority: time-out"))?;
        caught_up.map(drop).map_err(|e| Error::unavailable(format!("no majority: {e}")))
    }

    /// Decides a command at this gateway, which should be the leader.
    pub(crate) async fn decide(
        &self,
        command: Command,
        within: Duration,
    ) -> Result<u64, Undecided> {
        // A command that the state refuses now need not be logged. A command that the state refuses
        // only when it is applied is logged, and every gateway refuses it then.
        let state = self.maps.load();
        command.check_limits(&state).map_err(Undecided::Final)?;
        let mut trial = state.as_ref().clone();
        trial.apply(state.version + 1, command.clone()).map_err(Undecided::Final)?;
        let unknown = |why: &str| {
            Undecided::Final(Error::unavailable(format!(
                "the change may or may not take effect: {why}"
            )))
        };
        match timeout(within, self.raft.client_write(command)).await {
            Ok(Ok(written)) => {
                let Verdict(verdict) = written.data;
                verdict.map_err(Undecided::Final)?;
                Ok(written.log_id.index)
            }
            Ok(Err(RaftError::APIError(e))) => {
                Err(Undecided::Untouched(Error::unavailable(e.to_string())))
            }
            Ok(Err(RaftError::Fatal(e))) => Err(unknown(&e.to_string())),
            Err(_) => Err(unknown("no majority of the gateways confirmed it in time")),
        }
    }

    /// The current term: it grows with each election.
    pub(crate) fn term(&self) -> u64 {
        self.raft.metrics().borrow().current_term
    }

    /// Answers a Raft message of another member.
    pub(crate) async fn answer(&self, path: &str, body: &Bytes) -> Result<Value> {
        if path == VOTE_PATH && !self.may_vote() {
            return Err(Error::unavailable("this gateway has no vote: it is not in the group yet"));
        }
        network::answer(&self.raft, path, body).await
    }

    /// Stops this member of the group.
    pub(crate) async fn stop(&self) {
        if let Err(e) = self.raft.shutdown().await {
            tracing::error!(error = %e, "metadata log did not stop cleanly");
        }
        self.mine.close();
    }
}

/// The log of this gateway: decides only while this gateway leads.
#[async_trait]
impl MetaLog for Group {
    async fn propose(&self, command: Command) -> Result<u64> {
        self.decide(command, DECIDE_WITHIN).await.map_err(|undecided| match undecided {
            Undecided::Untouched(e) | Undecided::Final(e) => e,
        })
    }

    fn state(&self) -> Arc<ClusterState> {
        self.maps.load()
    }

    fn has_voter(&self, url: &str) -> bool {
        self.seats().iter().any(|seat| seat.votes && seat.url == url)
    }
}

fn settings() -> Result<openraft::Config> {
    let settings = openraft::Config {
        cluster_name: "forebay".into(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MS.0,
        election_timeout_max: ELECTION_MS.1,
        enable_elect: false,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_EVERY),
        max_in_snapshot_log_to_keep: KEEP,
        ..openraft::Config::default()
    };
    settings.validate().map_err(|e| Error::internal(format!("settings of the metadata log: {e}")))
}

fn leader_of(metrics: &RaftMetrics<u64, BasicNode>, me: u64) -> Leader {
    if metrics.running_state.is_err() {
        return Leader::Unknown;
    }
    match metrics.current_leader {
        Some(id) if id == me => {
            let confirmed = metrics.millis_since_quorum_ack.is_some_and(|ms| ms < LEASE_MS);
            if metrics.state == ServerState::Leader && confirmed {
                Leader::Here { term: metrics.current_term }
            } else {
                Leader::Unknown
            }
        }
        Some(id) => {
            let node = metrics.membership_config.membership().get_node(&id);
            node.map_or(Leader::Unknown, |node| Leader::At(node.addr.clone()))
        }
        None => Leader::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests;

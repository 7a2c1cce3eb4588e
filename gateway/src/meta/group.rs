//! This gateway's part in the Raft group: opens it, forms it, says who leads, decides commands.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::HeaderMap;
use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result, placement};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use openraft::error::RaftError;
use openraft::{BasicNode, RaftMetrics, ServerState, SnapshotPolicy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::file::{Closing, MetaFile};
use super::log_store::{LogStore, on_disk};
use super::network::{self, Network};
use super::state_machine::StateMachine;
use super::{MetaLog, Raft, Verdict};
use crate::raw_http;

/// A leader says that it is there about every 1.5 times this.
const HEARTBEAT_MS: u64 = 200;
/// A follower that hears nothing for the greater one and then a time between both asks for votes.
const ELECTION_MS: (u64, u64) = (450, 700);
/// A leader that no majority has confirmed for so long does not count as leader: a little less
/// than the earliest time at which the others may have another.
const LEASE_MS: u64 = ELECTION_MS.0 + ELECTION_MS.1 - 150;
/// Entries between two snapshots, and how many stay in the log for gateways that lag.
const SNAPSHOT_EVERY: u64 = 1_000;
const KEEP: u64 = 500;
/// A command must be decided within this time.
pub(crate) const DECIDE_WITHIN: Duration = Duration::from_secs(5);
/// A new leader that has not caught up by then looks again whether it still leads.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(2);
/// A new group waits so long for a majority to be up before its first election.
const FORM_WITHIN: Duration = Duration::from_secs(3);

/// Who this gateway is in its group, for good.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Member {
    id: u64,
    url: String,
}

/// Who leads the group, as this gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    /// This gateway, confirmed by a majority a moment ago.
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
    /// It will not take effect here: it may be proposed again, elsewhere.
    Untouched(Error),
    /// It was refused, or nobody can say what became of it.
    Final(Error),
}

/// The member of the group that runs here; cheap to clone.
#[derive(Clone)]
pub(crate) struct Group {
    raft: Raft,
    maps: Maps,
    me: u64,
    /// URLs of all members by id.
    urls: Arc<BTreeMap<u64, String>>,
    leader: watch::Receiver<Leader>,
}

impl Group {
    /// Opens the metadata in `path`. `gateways` are the URLs of the group; none means a group of
    /// this gateway alone. The second value tells at the end when the file is closed.
    pub(crate) async fn open(
        path: &Path,
        my_url: &str,
        gateways: &[String],
        peer: PeerClient,
        maps: Maps,
        lifecycle: &Lifecycle,
    ) -> Result<(Self, Closing)> {
        let gateways = group_of(gateways, my_url)?;
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || MetaFile::open(&path)).await;
        let file =
            opened.map_err(|e| Error::internal(format!("opening the metadata log: {e}")))??;
        let (mine, group) = (my_url.to_owned(), gateways.clone());
        let me = on_disk(file.clone(), move |file| member(&file, &mine, &group)).await?;
        let urls = Arc::new(match gateways.len() {
            1 => BTreeMap::from([(me, my_url.to_owned())]),
            _ => members(&gateways),
        });
        check_membership(&file, &urls)?;
        let closing = file.closing();
        let log = LogStore::new(file.clone(), urls.len() > 1);
        let shown = maps.clone();
        let machine = on_disk(file, move |file| StateMachine::open(file, shown)).await?;
        let network = Network::new(peer, urls.as_ref().clone());
        let raft = Raft::new(me, Arc::new(settings()?), network, log, machine).await;
        let raft = raft.map_err(|e| Error::internal(format!("metadata log: {e}")))?;
        let (seen, leader) = watch::channel(Leader::Unknown);
        let group = Self { raft, maps, me, urls, leader };
        lifecycle.spawn(group.clone().watch(seen, lifecycle.clone()));
        Ok((group, closing))
    }

    /// Whether this gateway is the whole group.
    pub(crate) fn is_alone(&self) -> bool {
        self.urls.len() == 1
    }

    /// Makes the group at its very first start; does nothing later. All gateways do this with the
    /// same members, so it does not matter which of them is first.
    pub(crate) async fn form(&self) -> Result<()> {
        let failed = |e: &dyn std::fmt::Display| Error::internal(format!("metadata log: {e}"));
        if self.raft.is_initialized().await.map_err(|e| failed(&e))? {
            return Ok(());
        }
        self.wait_for_majority().await;
        let nodes: BTreeMap<u64, BasicNode> =
            self.urls.iter().map(|(id, url)| (*id, BasicNode::new(url))).collect();
        match self.raft.initialize(nodes).await {
            // Another one was first, and its log has come here already.
            Ok(()) | Err(RaftError::APIError(_)) => Ok(()),
            Err(RaftError::Fatal(e)) => Err(failed(&e)),
        }
    }

    /// An election among gateways that do not listen yet costs a second.
    async fn wait_for_majority(&self) {
        let deadline = Instant::now() + FORM_WITHIN;
        let headers = HeaderMap::new();
        while Instant::now() < deadline {
            let others = self.urls.iter().filter(|(id, _)| **id != self.me);
            let asked = others
                .map(|(_, url)| raw_http::get(url, "/healthz", &headers, Duration::from_secs(1)));
            let up = futures::future::join_all(asked).await.iter().filter(|a| a.is_ok()).count();
            if up + 1 > self.urls.len() / 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Follows who leads.
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
                leader_of(&metrics, self.me, &self.urls)
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

    /// Waits until everything is applied here that any leader before this one acknowledged.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let caught_up = timeout(CATCH_UP_WITHIN, self.raft.ensure_linearizable()).await;
        let caught_up = caught_up.map_err(|_| Error::unavailable("no majority: time-out"))?;
        caught_up.map(drop).map_err(|e| Error::unavailable(format!("no majority: {e}")))
    }

    /// Has a command decided by this gateway, which should be the leader.
    pub(crate) async fn decide(
        &self,
        command: Command,
        within: Duration,
    ) -> Result<u64, Undecided> {
        // What the state refuses need not be logged; what it refuses only when its turn comes is,
        // and every gateway refuses it then.
        let state = self.maps.load();
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

    /// Answers a message of another member.
    pub(crate) async fn answer(&self, path: &str, body: &Bytes) -> Result<Value> {
        network::answer(&self.raft, path, body).await
    }

    /// Leaves the work to the others.
    pub(crate) async fn stop(&self) {
        if let Err(e) = self.raft.shutdown().await {
            tracing::error!(error = %e, "metadata log did not stop cleanly");
        }
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
}

fn settings() -> Result<openraft::Config> {
    let settings = openraft::Config {
        cluster_name: "forebay".into(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MS.0,
        election_timeout_max: ELECTION_MS.1,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_EVERY),
        max_in_snapshot_log_to_keep: KEEP,
        ..openraft::Config::default()
    };
    settings.validate().map_err(|e| Error::internal(format!("settings of the metadata log: {e}")))
}

/// The URLs of the group in one form each.
pub(super) fn group_of(gateways: &[String], my_url: &str) -> Result<Vec<String>> {
    if gateways.is_empty() {
        return Ok(vec![my_url.to_owned()]);
    }
    let urls: Vec<String> = gateways.iter().map(|u| u.trim_end_matches('/').to_owned()).collect();
    if let Some(twice) = urls.iter().find(|url| urls.iter().filter(|u| u == url).count() > 1) {
        return Err(Error::invalid(format!("cluster.gateways names {twice} twice")));
    }
    if !urls.iter().any(|url| url == my_url) {
        return Err(Error::invalid(format!(
            "cluster.gateways ({}) does not name this gateway, {my_url}",
            urls.join(" ")
        ))
        .hint("list the URL of every gateway, as listen.advertise of each says it"));
    }
    if urls.len().is_multiple_of(2) {
        tracing::warn!(
            gateways = urls.len(),
            "an even number of gateways survives no more failures than one less; use 1, 3 or 5"
        );
    }
    Ok(urls)
}

/// Ids and URLs of a new group's members.
pub(super) fn members(gateways: &[String]) -> BTreeMap<u64, String> {
    gateways.iter().map(|url| (placement::digest(url), url.clone())).collect()
}

/// The id of this gateway in its group; made from its URL at the first start and kept.
fn member(file: &MetaFile, my_url: &str, gateways: &[String]) -> Result<u64> {
    let Some(known) = file.member::<Member>()? else {
        let member = Member { id: placement::digest(my_url), url: my_url.to_owned() };
        file.set_member(&member)?;
        return Ok(member.id);
    };
    // The others know a member by its URL. One that is alone may move.
    if known.url != my_url && gateways.len() > 1 {
        return Err(Error::invalid(format!(
            "this gateway was {} and is now to be {my_url}",
            known.url
        ))
        .hint("gateways of one group keep their URLs; start it where it was"));
    }
    Ok(known.id)
}

/// Refuses another set of gateways than the group was made with.
fn check_membership(file: &MetaFile, urls: &BTreeMap<u64, String>) -> Result<()> {
    let Some(members) = file.membership()? else { return Ok(()) };
    if members.voter_ids().eq(urls.keys().copied()) {
        return Ok(());
    }
    let list = |urls: Vec<&str>| urls.join(" ");
    Err(Error::invalid(format!(
        "the metadata belongs to the gateways {}, cluster.gateways names {}",
        list(members.nodes().map(|(_, node)| node.addr.as_str()).collect()),
        list(urls.values().map(String::as_str).collect())
    ))
    .hint("a group keeps the gateways it was made with; put back the list"))
}

fn leader_of(
    metrics: &RaftMetrics<u64, BasicNode>,
    me: u64,
    urls: &BTreeMap<u64, String>,
) -> Leader {
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
        Some(id) => urls.get(&id).map_or(Leader::Unknown, |url| Leader::At(url.clone())),
        None => Leader::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests;

//! Joins, heartbeats and leaves, as the leading gateway handles them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_client::PeerClient;
use forebay_core::intra::{
    Heartbeat, HeartbeatReply, JoinRequest, LeaveReply, LeaveRequest, NodeUsage,
};
use forebay_core::lease::{DEAD_AFTER_MS, LEASE_MS, Leases};
use forebay_core::locks::MutexExt;
use forebay_core::quota::Ledger;
use forebay_core::sign::PublicKey;
use forebay_core::state::{ClusterState, Command, Role, check_key};
use forebay_core::{Error, ErrorCode, NodeId, Result, membership};
use forebay_node::clock::{Clock, unix_ns};

use super::port_probe;
use super::publish::Publisher;
use crate::meta::MetaLog;

/// A gateway that received no heartbeats for this long was itself paused; it gives its nodes new
/// leases.
const INATTENTIVE_MS: u64 = 1_500;
/// A process that was silent for this long is not probed when another process replaces it.
const FORGOTTEN_AFTER_MS: u64 = 4 * DEAD_AFTER_MS;

/// The members and the time of the last report of each.
pub(crate) struct Members {
    me: NodeId,
    /// Id of this gateway's process.
    instance: u64,
    peer: PeerClient,
    meta: Arc<dyn MetaLog>,
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    /// When, by `clock`, a majority last confirmed that this gateway leads.
    confirmed: AtomicU64,
    /// Held from a liveness decision until it is in the log: a node that joins meanwhile gets a
    /// lease, and must not be declared dead because of older data.
    turn: tokio::sync::Mutex<()>,
    table: Mutex<Table>,
}

struct Table {
    leases: Leases,
    usage: BTreeMap<NodeId, NodeUsage>,
    /// The newest format of the state that each node reads.
    formats: BTreeMap<NodeId, u32>,
    quotas: Ledger,
    looked_ms: u64,
}

impl Members {
    /// Nodes that are alive in the state count as having reported now: they get time to report to
    /// this leader.
    pub(crate) fn new(
        me: NodeId,
        instance: u64,
        peer: PeerClient,
        meta: Arc<dyn MetaLog>,
        publisher: Publisher,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.now_ms();
        let mut leases = Leases::default();
        for node in meta.state().nodes.values().filter(|n| n.alive) {
            leases.assume(&node.id, now);
        }
        let (usage, formats, quotas) = Default::default();
        let table = Table { leases, usage, formats, quotas, looked_ms: now };
        let confirmed = AtomicU64::new(now);
        let turn = tokio::sync::Mutex::default();
        let table = Mutex::new(table);
        Self { me, instance, peer, meta, publisher, clock, confirmed, turn, table }
    }

    /// The current time of the clock that [`Self::confirmed`] uses.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Records that a majority of the gateways, asked at `at_ms` or later, confirmed this one as
    /// leader.
    pub(crate) fn confirmed(&self, at_ms: u64) {
        self.confirmed.fetch_max(at_ms, Ordering::Relaxed);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is a cache of reports: after a panic, the next reports correct it.
        self.table.locked()
    }

    /// Admits a node, also after a restart.
    pub(crate) async fn join(&self, request: JoinRequest) -> Result<HeartbeatReply> {
        let id = NodeId::new(request.id.as_str())?;
        let url = request.url.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Error::invalid(format!("node {id} has no usable URL: \"{url}\""))
                .hint("set listen.advertise to http://host:port"));
        }
        if request.role == Role::Gateway && id != self.me && !self.meta.has_voter(&url) {
            let text = format!("gateway {url} is not in the group of gateways");
            return Err(Error::unavailable(text).retry_after(1));
        }
        let request = JoinRequest { url, ..request };
        membership::check_cluster(&self.meta.state(), &request)?;
        membership::check_format(&self.meta.state(), &id, request.state_format)?;
        check_key(&self.meta.state().node_keys, &id, request.key.as_ref(), false)?;
        if let Some(token) = &request.token {
            check_token(&self.meta.state(), &request, token)?;
        }
        let replaced = self.check_predecessor(&request).await?;
        membership::check_disks(&self.meta.state(), &request)?;
        let _turn = self.turn.lock().await;
        if replaced != self.recorded(&id) {
            let text = format!("another process of {id} joined at the same time");
            return Err(Error::unavailable(text).retry_after(1));
        }
        self.publisher.forget(&id);
        self.table().formats.insert(id.clone(), request.state_format);
        let state = self.meta.state();
        // Another process counts as gone only where it was looked for.
        let was_replaced = membership::predecessor(&state, &request).is_some();
        let lives = !was_replaced && state.node(&id).is_some_and(|node| node.alive);
        self.record_key(&id, request.role, request.key.as_ref(), lives, request.token.clone())
            .await?;
        for command in membership::join(&self.meta.state(), &request) {
            let version = self.meta.propose(command).await?;
            tracing::info!(node = %id, url = request.url, version, "node joined");
        }
        let mut table = self.table();
        table.leases.joined(&id, self.clock.now_ms());
        // Reports of an earlier process do not apply to this one.
        table.usage.remove(&id);
        drop(table);
        self.reply(&id, 0)
    }

    /// The process of a node that joined last.
    fn recorded(&self, id: &NodeId) -> u64 {
        self.meta.state().node(id).map_or(0, |node| node.instance)
    }

    /// Rejects a process if another process of its node is alive or may still act by its lease.
    /// Returns the recorded process, which the new one may replace.
    async fn check_predecessor(&self, request: &JoinRequest) -> Result<u64> {
        let state = self.meta.state();
        let recorded = state.node(&request.id).map_or(0, |node| node.instance);
        let Some(known) = membership::predecessor(&state, request) else { return Ok(recorded) };
        let silent_ms = || self.table().leases.silent_ms(&request.id, self.clock.now_ms());
        // This gateway itself rejoins, or the other process left or has been dead for long.
        let is_me = request.id == self.me && request.instance == self.instance;
        if is_me || silent_ms() >= FORGOTTEN_AFTER_MS {
            return Ok(recorded);
        }
        let probe = port_probe::probe(&self.peer, &known.url).await;
        let replaceable = membership::may_replace(known, request, silent_ms(), probe);
        replaceable.inspect_err(|e| {
            tracing::warn!(node = %request.id, url = request.url, "join rejected: {e}");
        })?;
        Ok(recorded)
    }

    /// Handles a node's heartbeat, which also reports its usage.
    pub(crate) async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply> {
        let (id, mut usage) = (beat.id, beat.usage);
        let quotas = usage.quotas.take();
        let known = self.meta.state();
        if let Some(node) = known.node(&id) {
            membership::check_instance(node, beat.instance)?;
            membership::check_format(&known, &id, beat.state_format)?;
        }
        let Some(was_alive) = known.node(&id).map(|n| n.alive) else {
            let state = self.meta.state();
            return Ok(HeartbeatReply {
                version: state.version,
                primary: self.me.clone(),
                state: None,
                lease: false,
                confirmed_ms: 0,
                unknown: true,
                clock_ns: unix_ns(),
                s3_key: None,
                quotas: None,
            });
        };
        let may_live = {
            let mut table = self.table();
            table.usage.insert(id.clone(), usage);
            table.formats.insert(id.clone(), beat.state_format);
            table.leases.record_heartbeat(&id, self.clock.now_ms())
        };
        if let Some(node) = known.node(&id) {
            self.record_key(&id, node.role, beat.key.as_ref(), true, None).await?;
        }
        self.publisher.note(&id, beat.version);
        if !was_alive && may_live {
            let version = self.meta.propose(set_alive(&id, true)).await?;
            tracing::info!(node = %id, version, "node is alive again");
        }
        let mut reply = self.reply(&id, beat.version)?;
        let mut table = self.table();
        reply.lease &= table.leases.may_lease(&id);
        let state = self.meta.state();
        if state.node(&id).is_some_and(|node| node.role == Role::Target) {
            let grants = table.quotas.report(&state, &id, quotas, self.clock.now_ms());
            reply.quotas = Some(grants);
        }
        Ok(reply)
    }

    /// Records the node's key, unless a member of the cluster could not read that yet. `lives`: the
    /// process that the recorded key belongs to may still act. `token`: id of the join token that
    /// this uses.
    async fn record_key(
        &self,
        id: &NodeId,
        role: Role,
        key: Option<&PublicKey>,
        lives: bool,
        token: Option<String>,
    ) -> Result<()> {
        let state = self.meta.state();
        if state.node(id).is_some_and(|node| node.role != role) {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("node {id} is known with another role"),
            ));
        }
        let keys = state.node_keys.clone();
        check_key(&keys, id, key, lives)
            .inspect_err(|e| tracing::warn!(node = %id, "key refused: {e}"))?;
        // A cluster without users keeps its way back to earlier versions.
        let Some(key) = key.filter(|_| state.access.has_users()) else { return Ok(()) };
        let known = keys.get(id.as_str());
        if known.is_some_and(|known| known.key == *key && known.role == role) {
            return Ok(());
        }
        let now_s = unix_ns() / 1_000_000_000;
        let command = Command::NodeKey { id: id.clone(), role, key: key.clone(), now_s, token };
        if let Err(e) = self.check_readable(&command) {
            tracing::debug!(node = %id, error = %e, "the key of this node is not recorded yet");
            return Ok(());
        }
        let version = self.meta.propose(command).await?;
        tracing::info!(node = %id, version, "key of this node recorded");
        Ok(())
    }

    fn reply(&self, id: &NodeId, has: u64) -> Result<HeartbeatReply> {
        let state = self.meta.state();
        let version = state.version;
        let newer = version > has;
        if newer {
            self.publisher.note(id, version);
        }
        let confirmed_ms =
            self.clock.now_ms().saturating_sub(self.confirmed.load(Ordering::Relaxed));
        Ok(HeartbeatReply {
            version,
            primary: self.me.clone(),
            state: newer.then(|| state.as_ref().clone()),
            lease: confirmed_ms < LEASE_MS,
            confirmed_ms,
            unknown: false,
            clock_ns: unix_ns(),
            s3_key: None,
            quotas: None,
        })
    }

    /// Handles a clean stop of a node: the node is down now, not only after its lease. A node that
    /// steps down first keeps running for a moment, but no longer serves objects that other nodes
    /// have too, once all nodes know.
    pub(crate) async fn leave(&self, request: LeaveRequest) -> Result<LeaveReply> {
        let turn = self.turn.lock().await;
        let leaves = membership::may_leave(&self.meta.state(), &request);
        let id = request.id;
        if request.yields {
            drop(turn);
            if leaves {
                self.step_down(id).await?;
            }
            return Ok(LeaveReply::default());
        }
        if leaves {
            self.table().leases.left(&id);
            let version = self.meta.propose(set_alive(&id, false)).await?;
            drop(turn);
            tracing::info!(node = %id, version, "node left");
            self.publisher.wait_published(version).await;
        }
        Ok(LeaveReply { state: Some(self.meta.state().as_ref().clone()) })
    }

    async fn step_down(&self, id: NodeId) -> Result<()> {
        let state = self.meta.state();
        let answers = state.node(&id).is_some_and(|n| n.alive && !n.lagging) && state.has_copies();
        if answers {
            let yields = Command::SetAlive { id: id.clone(), alive: true, yields: true };
            let version = self.meta.propose(yields).await?;
            tracing::info!(node = %id, version, "node is about to leave");
            self.publisher.wait_published(version).await;
        }
        Ok(())
    }

    /// Marks nodes dead whose heartbeat is overdue; slightly earlier if the node's machine refuses
    /// connections.
    pub(crate) async fn check(&self) {
        let state = self.meta.state();
        let alive = || state.nodes.values().filter(|n| n.alive && n.id != self.me).map(|n| &n.id);
        {
            let now = self.clock.now_ms();
            let mut table = self.table();
            let away = now.saturating_sub(std::mem::replace(&mut table.looked_ms, now));
            if away >= INATTENTIVE_MS {
                for id in alive() {
                    table.leases.record_heartbeat(id, now);
                }
            }
        }
        let silent = self.table().leases.silent(alive(), self.clock.now_ms());
        let knocks = silent
            .iter()
            .filter_map(|id| state.node(id))
            .map(async |node| port_probe::is_refused(&node.url).await.then(|| node.id.clone()));
        let refused = futures::future::join_all(knocks).await;
        let _turn = self.turn.lock().await;
        let mut dead = self.table().leases.overdue(alive(), self.clock.now_ms());
        for id in refused.into_iter().flatten() {
            if !dead.contains(&id) && self.table().leases.refused(&id, self.clock.now_ms()) {
                dead.push(id);
            }
        }
        for id in dead {
            match self.meta.propose(set_alive(&id, false)).await {
                Ok(version) => tracing::warn!(node = %id, version, "node is silent, marked dead"),
                Err(e) => tracing::error!(node = %id, error = %e, "cannot mark node dead"),
            }
        }
    }

    /// Rejects a command that a member could not read.
    pub(crate) fn check_readable(&self, command: &Command) -> Result<()> {
        let state = self.meta.state();
        // The format of a state with many buckets takes a while to find.
        if command.format() == 0 || command.format() <= state.format() {
            return Ok(());
        }
        let table = self.table();
        let formats = |id: &NodeId| table.formats.get(id).copied();
        membership::check_formats(&state, &self.me, command.format(), formats)
    }

    /// The last reported usage of each node.
    pub(crate) fn usage(&self) -> BTreeMap<NodeId, NodeUsage> {
        self.table().usage.clone()
    }
}

/// Refuses a join by a token unless it is that of a target, in a cluster whose nodes all have keys.
fn check_token(state: &ClusterState, request: &JoinRequest, token: &str) -> Result<()> {
    if request.role != Role::Target || !state.node_keys.are_required() {
        return Err(Error::new(ErrorCode::AccessDenied, "only a target joins by a token")
            .hint("give a gateway cluster.secret_file"));
    }
    let now_s = unix_ns() / 1_000_000_000;
    state.access.check_join_token(token, &request.id, now_s)
}

fn set_alive(id: &NodeId, alive: bool) -> Command {
    Command::SetAlive { id: id.clone(), alive, yields: false }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod key_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

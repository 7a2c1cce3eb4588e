//! The gateways' service for nodes: the leader handles joins, reports and leaves, decides who is
//! alive, and publishes each new state to all nodes. The real [`Leases`] decide when a silent node
//! is dead, the real [`membership::join`] the result of a join.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use forebay_core::bucket::Versioning;
use forebay_core::intra::{JoinRequest, LeaveRequest};
use forebay_core::lease::{DEAD_AFTER_MS, LEASE_MS, Leases};
use forebay_core::state::{ClusterState, Command, Role};
use forebay_core::{Error, NodeId, Result, membership};
use futures::future::join_all;

use crate::broken::Broken;
use crate::exec::{Bell, Locks, MS, Micros, SECOND};
use crate::group::Member;
use crate::world::{At, W, World, at_of, bucket_of, id_of, info_in};

const LOOK_EVERY: Micros = 100 * MS;
/// A gateway that received nothing for this time, in milliseconds, was itself paused or cut off.
const INATTENTIVE_MS: u64 = 1_500;
const PUSHED_WITHIN: Micros = SECOND;
const ACKNOWLEDGED_WITHIN: Micros = 2 * SECOND;
const KNOCKED_WITHIN: Micros = 500 * MS;
const ANSWERED_WITHIN: Micros = 2 * SECOND;

/// A gateway; state that ends with its leadership is in `lead`.
#[derive(Default)]
pub(crate) struct Gateway {
    pub(crate) up: Cell<bool>,
    pub(crate) member: Member,
    pub(crate) turns: Locks<()>,
    /// Rings when the gateway has a newer state.
    pub(crate) news: Bell,
    pub(crate) lead: RefCell<Option<Rc<Lead>>>,
}

/// One term of a leader.
pub(crate) struct Lead {
    pub(crate) term: u64,
    leases: RefCell<Leases>,
    looked_ms: Cell<u64>,
    /// Held from the decision which nodes are alive until the log has it.
    turn: Locks<()>,
    /// The version of the state that each node has.
    acknowledged: RefCell<BTreeMap<NodeId, u64>>,
    observed: Bell,
}

/// A node's message to a gateway.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    Join(JoinRequest),
    Beat { id: NodeId, version: u64 },
    Leave(LeaveRequest),
}

/// The answer to a report.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) state: Arc<ClusterState>,
    pub(crate) lease: bool,
    pub(crate) confirmed_ms: u64,
    pub(crate) unknown: bool,
}

impl World {
    fn lead_of(&self, me: At, term: u64) -> Option<Rc<Lead>> {
        let leads = self.gateways[me].member.leads.get() == Some(term);
        self.gateways[me].lead.borrow().clone().filter(|lead| leads && lead.term == term)
    }

    /// Runs a leader's duties while it leads in this term.
    pub(crate) async fn lead(self: W, me: At, term: u64) {
        let now = self.exec.now_ms();
        let lead = Lead {
            term,
            leases: RefCell::default(),
            looked_ms: Cell::new(now),
            turn: Locks::default(),
            acknowledged: RefCell::default(),
            observed: Bell::default(),
        };
        for node in self.state_at(me).nodes.values().filter(|n| n.alive) {
            // New leases for all: an election must not look like the death of many nodes.
            lead.leases.borrow_mut().assume(&node.id, now);
        }
        *self.gateways[me].lead.borrow_mut() = Some(Rc::new(lead));
        let is_coded = self.plan.erasure.is_some();
        if is_coded || self.state_at(me).buckets.len() < self.plan.copies.len() {
            self.begin_cluster(me).await;
        }
        if is_coded {
            self.exec.spawn(me, self.clone().create_coded_bucket(me, term));
        }
        self.exec.spawn(me, self.clone().publish(me, term));
        self.exec.spawn(me, self.clone().keep(me, term));
        while self.lead_of(me, term).is_some() {
            self.judge(me, term).await;
            self.exec.sleep(LOOK_EVERY).await;
        }
    }

    async fn begin_cluster(self: &W, me: At) {
        let init = Command::Init { cluster_id: "simulated".into(), now_ns: 1 };
        if self.state_at(me).cluster_id.is_empty() && self.propose(me, init).await.is_err() {
            return;
        }
        for (n, copies) in self.plan.copies.iter().enumerate() {
            if info_in(&self.state_at(me), n).is_some() {
                continue;
            }
            let mut info = self.state_at(me).requested(bucket_of(n), None);
            info.copies = *copies;
            if self.plan.keeps_versions(n) {
                info.s3.versioning = Versioning::Enabled;
            }
            let _ = self.propose(me, Command::CreateBucket { info: info.into(), now_ns: 1 }).await;
        }
    }

    /// Creates the bucket with erasure coding, which needs enough targets.
    async fn create_coded_bucket(self: W, me: At, term: u64) {
        let n = self.plan.copies.len();
        while self.lead_of(me, term).is_some() && info_in(&self.state_at(me), n).is_none() {
            let mut info = self.state_at(me).requested(bucket_of(n), None);
            info.erasure = self.plan.erasure;
            let _ = self.propose(me, Command::CreateBucket { info: info.into(), now_ns: 1 }).await;
            self.exec.sleep(LOOK_EVERY).await;
        }
    }

    /// Marks targets as dead that were silent for too long.
    async fn judge(self: &W, me: At, term: u64) {
        let Some(lead) = self.lead_of(me, term) else { return };
        let state = self.state_at(me);
        let alive = || state.nodes.values().filter(|n| n.alive).map(|n| &n.id);
        let now = self.exec.now_ms();
        {
            let mut leases = lead.leases.borrow_mut();
            if now - lead.looked_ms.replace(now) >= INATTENTIVE_MS {
                for id in alive() {
                    leases.record_heartbeat(id, now);
                }
            }
        }
        let mut refused = lead.leases.borrow().silent(alive(), now);
        let knocks = refused.iter().map(|id| self.port_probe(me, at_of(id)));
        let knocks = join_all(knocks).await;
        let mut knocks = knocks.iter();
        refused.retain(|_| knocks.next() == Some(&true));
        let _turn = lead.turn.lock(&()).await;
        if self.lead_of(me, term).is_none() {
            return;
        }
        let early = if self.is_broken(Broken::DeadTooEarly) { DEAD_AFTER_MS - 900 } else { 0 };
        let now = self.exec.now_ms();
        let mut dead = lead.leases.borrow_mut().overdue(alive(), now + early);
        for id in refused {
            if !dead.contains(&id) && lead.leases.borrow_mut().refused(&id, now) {
                dead.push(id);
            }
        }
        for id in dead {
            let _ = self.propose(me, Command::SetAlive { id, alive: false, yields: false }).await;
        }
    }

    /// Whether the machine of a node refuses connections, because no process listens.
    async fn port_probe(self: &W, me: At, at: At) -> bool {
        let port_probe = self.call((me, at), async { Ok(()) });
        // A paused process still accepts connections.
        self.exec.within(KNOCKED_WITHIN, port_probe).await.is_some_and(|taken| taken.is_err())
            && !self.is_up(at)
    }

    /// Sends each new state to all nodes that are alive.
    async fn publish(self: W, me: At, term: u64) {
        while let Some(lead) = self.lead_of(me, term) {
            let state = self.state_at(me);
            let news = self.gateways[me].news.rung();
            for node in state.nodes.values().filter(|n| n.alive) {
                let known = lead.acknowledged.borrow().get(&node.id).copied().unwrap_or(0);
                if known < state.version {
                    let (world, lead, state) = (self.clone(), lead.clone(), state.clone());
                    let id = node.id.clone();
                    self.exec.spawn(me, async move { world.push(me, &lead, id, state).await });
                }
            }
            self.exec.within(SECOND, news).await;
        }
    }

    async fn push(self: &W, me: At, lead: &Lead, id: NodeId, state: Arc<ClusterState>) {
        let (at, version) = (at_of(&id), state.version);
        let world = self.clone();
        let taken = async move {
            world.target(at).offer(&state);
            Ok(())
        };
        let pushed = self.call_within(PUSHED_WITHIN, (me, at), taken).await;
        if pushed.is_ok() || self.port_probe(me, at).await {
            lead.note(&id, version);
        }
    }

    /// Waits until all living nodes have `version`, or until a timeout.
    async fn wait_acknowledged(self: &W, me: At, lead: &Lead, version: u64) {
        let all = async {
            loop {
                let observed = lead.observed.rung();
                let state = self.state_at(me);
                let is_acknowledged =
                    |id| lead.acknowledged.borrow().get(id).is_some_and(|known| *known >= version);
                if state.nodes.values().filter(|n| n.alive).all(|n| is_acknowledged(&n.id)) {
                    return;
                }
                observed.await;
            }
        };
        self.exec.within(ACKNOWLEDGED_WITHIN, all).await;
    }

    /// Handles a node's report, through any gateway.
    pub(crate) async fn handle_report(
        self: &W,
        me: At,
        report: Report,
        passed_on: bool,
    ) -> Result<Reply> {
        let member = &self.gateways[me].member;
        if let Some(lead) = member.leads.get().and_then(|term| self.lead_of(me, term)) {
            return self.take(me, &lead, report).await;
        }
        let leader = member.leader.get().filter(|at| *at != me && !passed_on);
        let leader = leader.ok_or_else(|| Error::unavailable("no leader is known here"))?;
        let world = self.clone();
        let passed = async move { Box::pin(world.handle_report(leader, report, true)).await };
        self.call_within(ANSWERED_WITHIN, (me, leader), passed).await
    }

    async fn take(self: &W, me: At, lead: &Lead, report: Report) -> Result<Reply> {
        let now = || self.exec.now_ms();
        let state = self.state_at(me);
        match report {
            Report::Join(request) => {
                let _turn = lead.turn.lock(&()).await;
                let state = self.state_at(me);
                lead.acknowledged.borrow_mut().remove(&request.id);
                let unnoticed = self.is_broken(Broken::QuickRestartUnnoticed)
                    && state.node(&request.id).is_some_and(|n| n.alive);
                for command in membership::join(&state, &request) {
                    if !unnoticed {
                        self.propose(me, command).await?;
                    }
                }
                lead.leases.borrow_mut().joined(&request.id, now());
                Ok(self.reply(me, lead, &request.id, 0))
            }
            Report::Beat { id, version } => {
                let Some(alive) = state.node(&id).map(|n| n.alive) else {
                    return Ok(Reply { state, lease: false, confirmed_ms: 0, unknown: true });
                };
                let may_live = lead.leases.borrow_mut().record_heartbeat(&id, now());
                lead.note(&id, version);
                if !alive && may_live {
                    let back = Command::SetAlive { id: id.clone(), alive: true, yields: false };
                    self.propose(me, back).await?;
                }
                let mut reply = self.reply(me, lead, &id, version);
                reply.lease &= lead.leases.borrow().may_lease(&id);
                Ok(reply)
            }
            Report::Leave(request) => {
                let turn = lead.turn.lock(&()).await;
                let state = self.state_at(me);
                let leaves = membership::may_leave(&state, &request);
                let LeaveRequest { id, yields, .. } = request;
                let known = state.node(&id).filter(|_| leaves).cloned();
                if yields {
                    drop(turn);
                    if known.is_some_and(|n| n.alive && !n.lagging) && state.has_copies() {
                        let yields = Command::SetAlive { id, alive: true, yields: true };
                        let version = self.propose(me, yields).await?;
                        self.wait_acknowledged(me, lead, version).await;
                    }
                } else if leaves {
                    lead.leases.borrow_mut().left(&id);
                    let left = Command::SetAlive { id, alive: false, yields: false };
                    let version = self.propose(me, left).await?;
                    drop(turn);
                    self.wait_acknowledged(me, lead, version).await;
                }
                let state = self.state_at(me);
                Ok(Reply { state, lease: false, confirmed_ms: 0, unknown: false })
            }
        }
    }

    fn reply(&self, me: At, lead: &Lead, id: &NodeId, has: u64) -> Reply {
        let state = self.state_at(me);
        if state.version > has {
            lead.note(id, state.version);
        }
        let confirmed = self.gateways[me].member.confirmed.get().unwrap_or_default() / MS;
        let confirmed_ms = self.exec.now_ms().saturating_sub(confirmed);
        let lease = confirmed_ms < LEASE_MS || self.is_broken(Broken::LeaseFromTheAnswer);
        Reply { state, lease, confirmed_ms, unknown: false }
    }
}

impl Lead {
    fn note(&self, id: &NodeId, version: u64) {
        let mut acknowledged = self.acknowledged.borrow_mut();
        let known = acknowledged.entry(id.clone()).or_default();
        *known = version.max(*known);
        self.observed.ring();
    }
}

/// The join request of the process at `at`.
pub(crate) fn join_of(at: At) -> JoinRequest {
    let url = format!("http://{at}");
    let (zone, cluster) = (String::new(), String::new());
    JoinRequest {
        id: id_of(at),
        role: Role::Target,
        url,
        zone,
        instance: 0,
        cluster,
        empty: false,
        https: String::new(),
        external: String::new(),
        state_format: 0,
        key: None,
        token: None,
        needs_s3_key: false,
        returns: false,
    }
}

impl Gateway {
    /// Resets the state of a process that starts; it keeps only what is on disk.
    pub(crate) fn restart(&self, now: Micros) {
        self.member.restart(now);
        *self.lead.borrow_mut() = None;
    }
}

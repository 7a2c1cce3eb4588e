//! Joins, heartbeats and leaves, as the leading gateway answers them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::intra::{
    Heartbeat, HeartbeatReply, JoinRequest, LeaveReply, LeaveRequest, NodeUsage,
};
use forebay_core::lease::{LEASE_MS, Leases};
use forebay_core::state::{Command, Role};
use forebay_core::{Error, NodeId, Result, membership};
use forebay_node::clock::Clock;

use super::knock;
use super::publish::Publisher;
use crate::meta::MetaLog;

/// A gateway that heard nothing for so long was itself away; its nodes get a new lease.
const INATTENTIVE_MS: u64 = 1_500;

/// The members and when each was heard of last.
pub(crate) struct Members {
    me: NodeId,
    meta: Arc<dyn MetaLog>,
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    /// When, by the clock, a majority confirmed that this gateway leads.
    confirmed: AtomicU64,
    /// Held from the decision who is alive until it is in the log: a node that joins meanwhile has a lease, and
    /// must not be found dead by what was known before.
    turn: tokio::sync::Mutex<()>,
    table: Mutex<Table>,
}

struct Table {
    leases: Leases,
    usage: BTreeMap<NodeId, NodeUsage>,
    looked_ms: u64,
}

impl Members {
    /// Nodes that are alive in the state count as heard of now: they get time to report to this
    /// leader.
    pub(crate) fn new(
        me: NodeId,
        meta: Arc<dyn MetaLog>,
        publisher: Publisher,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.now_ms();
        let mut leases = Leases::default();
        for node in meta.state().nodes.values().filter(|n| n.alive) {
            leases.assume(&node.id, now);
        }
        let table = Table { leases, usage: BTreeMap::new(), looked_ms: now };
        let confirmed = AtomicU64::new(now);
        let turn = tokio::sync::Mutex::default();
        Self { me, meta, publisher, clock, confirmed, turn, table: Mutex::new(table) }
    }

    /// The time by which [`Self::confirmed`] goes.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Asked at `at_ms`, or later, a majority of the gateways said that this one leads.
    pub(crate) fn confirmed(&self, at_ms: u64) {
        self.confirmed.fetch_max(at_ms, Ordering::Relaxed);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is a cache of reports: whatever a panic left there is replaced by the next.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a node in, or in again after a restart.
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
        let _turn = self.turn.lock().await;
        self.publisher.forget(&id);
        for command in membership::join(&self.meta.state(), &request) {
            let version = self.meta.propose(command).await?;
            tracing::info!(node = %id, url = request.url, version, "node joined");
        }
        self.table().leases.joined(&id, self.clock.now_ms());
        self.reply(&id, 0)
    }

    /// A node is alive and says what it uses.
    pub(crate) async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply> {
        let id = beat.id;
        let Some(settled) = self.meta.state().node(&id).map(|n| n.alive) else {
            let state = self.meta.state();
            return Ok(HeartbeatReply {
                version: state.version,
                primary: self.me.clone(),
                state: None,
                lease: false,
                confirmed_ms: 0,
                unknown: true,
            });
        };
        let may_live = {
            let mut table = self.table();
            table.usage.insert(id.clone(), beat.usage);
            table.leases.heard(&id, self.clock.now_ms())
        };
        self.publisher.note(&id, beat.version);
        if !settled && may_live {
            let version = self.meta.propose(set_alive(&id, true)).await?;
            tracing::info!(node = %id, version, "node is alive again");
        }
        let mut reply = self.reply(&id, beat.version)?;
        reply.lease &= self.table().leases.may_lease(&id);
        Ok(reply)
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
        })
    }

    /// A node stops on purpose: it is down now, not in some seconds. One that yields is there for a
    /// moment more, and answers for nothing that others have too once all have heard of it.
    pub(crate) async fn leave(&self, request: LeaveRequest) -> Result<LeaveReply> {
        let turn = self.turn.lock().await;
        let leaves = membership::may_leave(&self.meta.state(), &request);
        let id = request.id;
        if request.yields {
            drop(turn);
            if leaves {
                self.give_way(id).await?;
            }
            return Ok(LeaveReply::default());
        }
        if leaves {
            self.table().leases.left(&id);
            let version = self.meta.propose(set_alive(&id, false)).await?;
            drop(turn);
            tracing::info!(node = %id, version, "node left");
            self.publisher.settled(version).await;
        }
        Ok(LeaveReply { state: Some(self.meta.state().as_ref().clone()) })
    }

    async fn give_way(&self, id: NodeId) -> Result<()> {
        let state = self.meta.state();
        let answers = state.node(&id).is_some_and(|n| n.alive && !n.lagging) && state.has_copies();
        if answers {
            let yields = Command::SetAlive { id: id.clone(), alive: true, yields: true };
            let version = self.meta.propose(yields).await?;
            tracing::info!(node = %id, version, "node is about to leave");
            self.publisher.settled(version).await;
        }
        Ok(())
    }

    /// Marks the nodes dead whose heartbeat is overdue, a little earlier where their machine says
    /// that nobody listens.
    pub(crate) async fn check(&self) {
        let state = self.meta.state();
        let alive = || state.nodes.values().filter(|n| n.alive && n.id != self.me).map(|n| &n.id);
        {
            let now = self.clock.now_ms();
            let mut table = self.table();
            let away = now.saturating_sub(std::mem::replace(&mut table.looked_ms, now));
            if away >= INATTENTIVE_MS {
                for id in alive() {
                    table.leases.heard(id, now);
                }
            }
        }
        let silent = self.table().leases.silent(alive(), self.clock.now_ms());
        let knocks = silent
            .iter()
            .filter_map(|id| state.node(id))
            .map(async |node| knock::is_refused(&node.url).await.then(|| node.id.clone()));
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

    /// What each node reported last.
    pub(crate) fn usage(&self) -> BTreeMap<NodeId, NodeUsage> {
        self.table().usage.clone()
    }
}

fn set_alive(id: &NodeId, alive: bool) -> Command {
    Command::SetAlive { id: id.clone(), alive, yields: false }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use forebay_core::lease::DEAD_AFTER_MS;
    use forebay_core::sign::ClusterSecret;
    use forebay_core::state::ClusterState;
    use forebay_node::identity::Identity;

    use super::*;
    use crate::meta::group::tests::Alone;
    use crate::targets::Targets;

    #[derive(Default)]
    struct TestClock(AtomicU64);
    impl Clock for TestClock {
        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }
    }

    struct World {
        members: Members,
        clock: Arc<TestClock>,
        meta: Arc<dyn MetaLog>,
        _alone: Alone,
        _dir: tempfile::TempDir,
    }

    async fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let alone = Alone::start(&dir.path().join("meta.redb")).await;
        let maps = alone.maps.clone();
        let meta: Arc<dyn MetaLog> = Arc::new(alone.group.clone());
        let identity = Identity {
            id: NodeId::new("gateway-1").unwrap(),
            role: Role::Gateway,
            url: "http://127.0.0.1:1".into(),
            secret: ClusterSecret::new("0123456789abcdef").unwrap(),
            zone: String::new(),
            started: std::time::Instant::now(),
        };
        let clock = Arc::new(TestClock::default());
        let publisher =
            Publisher::new(identity.id.clone(), maps.clone(), Targets::new(&identity, maps));
        let members = Members::new(identity.id, meta.clone(), publisher, clock.clone());
        World { members, clock, meta, _alone: alone, _dir: dir }
    }

    impl World {
        fn state(&self) -> Arc<ClusterState> {
            self.meta.state()
        }

        async fn pass(&self, ms: u64) {
            // In steps, as the loop looks: one long step means that the gateway itself was away.
            for _ in 0..ms / 250 {
                self.clock.0.fetch_add(250, Ordering::SeqCst);
                self.members.check().await;
            }
        }

        async fn beat(&self, id: &NodeId) -> HeartbeatReply {
            let beat = Heartbeat {
                id: id.clone(),
                version: 0,
                usage: NodeUsage { objects: 3, ..Default::default() },
            };
            self.members.heartbeat(beat).await.unwrap()
        }
    }

    fn id() -> NodeId {
        NodeId::new("target-01").unwrap()
    }

    fn join() -> JoinRequest {
        JoinRequest {
            id: id(),
            role: Role::Target,
            // Nobody answers there, and nobody refuses either: not an address to connect to.
            url: "http://nowhere.invalid:2".into(),
            zone: String::new(),
        }
    }

    fn alive(w: &World) -> bool {
        w.state().node(&id()).unwrap().alive
    }

    #[tokio::test]
    async fn a_silent_node_dies_and_its_heartbeat_revives_it_after_the_hold() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        w.pass(DEAD_AFTER_MS - 250).await;
        assert!(alive(&w));
        w.pass(250).await;
        assert!(!alive(&w));
        w.beat(&id()).await;
        assert!(!alive(&w), "a flapping node must wait");
        for _ in 0..5 {
            w.pass(2_000).await;
            w.beat(&id()).await;
        }
        assert!(alive(&w));
        assert_eq!(w.members.usage()[&id()].objects, 3);
    }

    #[tokio::test]
    async fn a_silent_node_whose_port_is_closed_is_dead_before_the_others_would_be() {
        let w = world().await;
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        w.members.join(JoinRequest { url: format!("http://{closed}"), ..join() }).await.unwrap();
        w.pass(LEASE_MS + 200).await;
        assert!(alive(&w), "its lease may last");
        w.pass(500).await;
        assert!(!alive(&w));
    }

    #[tokio::test]
    async fn a_restarted_node_lives_at_once_and_an_unchanged_join_changes_nothing() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        let version = w.state().version;
        let reply = w.members.join(join()).await.unwrap();
        assert_eq!((w.state().version, reply.state.unwrap().version), (version, version));
        w.pass(DEAD_AFTER_MS).await;
        assert!(!alive(&w));
        w.members.join(join()).await.unwrap();
        assert!(alive(&w));
    }

    #[tokio::test]
    async fn a_lease_counts_from_when_a_majority_confirmed_the_leader() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        w.pass(1_000).await;
        let reply = w.beat(&id()).await;
        assert_eq!((reply.lease, reply.confirmed_ms), (true, 1_000));
        w.pass(1_000).await;
        assert!(!w.beat(&id()).await.lease, "who hears of no majority gives none");
        w.members.confirmed(w.members.now_ms() - 250);
        let reply = w.beat(&id()).await;
        assert_eq!((reply.lease, reply.confirmed_ms), (true, 250));
    }

    #[tokio::test]
    async fn a_leave_counts_at_once() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        let leave = LeaveRequest { id: id(), yields: false, since: 0 };
        let state = w.members.leave(leave).await.unwrap().state.unwrap();
        assert!(!state.node(&id()).unwrap().alive, "it hears of that itself");
        assert!(!alive(&w));
        assert_eq!(w.state().targets().count(), 1, "it stays a member");
    }

    #[tokio::test]
    async fn a_leave_of_the_process_before_does_not_end_the_one_that_has_a_lease() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        let since = w.state().node(&id()).unwrap().alive_since;
        w.pass(DEAD_AFTER_MS).await;
        w.members.join(join()).await.unwrap();
        let late = LeaveRequest { id: id(), yields: false, since };
        w.members.leave(late).await.unwrap();
        assert!(alive(&w));
    }

    #[tokio::test]
    async fn a_join_waits_for_a_death_that_is_on_its_way_into_the_log() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        let turn = w.members.turn.lock().await;
        let mut again = std::pin::pin!(w.members.join(join()));
        assert!(futures::poll!(again.as_mut()).is_pending());
        w.meta.propose(set_alive(&id(), false)).await.unwrap();
        drop(turn);
        again.await.unwrap();
        assert!(alive(&w), "who has a lease is not dead by the log");
    }

    #[tokio::test]
    async fn who_reports_while_it_is_found_dead_gets_no_lease() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        w.members.confirmed(w.members.now_ms());
        assert!(w.beat(&id()).await.lease);
        // As `check` does before its change is in the log.
        w.members.table().leases.overdue([&id()].into_iter(), DEAD_AFTER_MS);
        assert!(alive(&w) && !w.beat(&id()).await.lease);
    }

    #[tokio::test]
    async fn an_unknown_node_is_told_to_join_and_a_bad_one_is_refused() {
        let w = world().await;
        assert!(w.beat(&id()).await.unknown);
        let bad = JoinRequest { url: "nowhere".into(), ..join() };
        assert!(w.members.join(bad).await.is_err());
        assert!(w.state().nodes.is_empty());
    }

    #[tokio::test]
    async fn a_gateway_that_slept_does_not_bury_its_nodes() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        w.clock.0.fetch_add(60_000, Ordering::SeqCst);
        w.members.check().await;
        assert!(alive(&w));
        w.pass(DEAD_AFTER_MS).await;
        assert!(!alive(&w));
    }

    #[tokio::test]
    async fn a_new_leader_gives_nodes_time_to_report() {
        let w = world().await;
        w.members.join(join()).await.unwrap();
        let publisher = w.members.publisher.clone();
        let again = Members::new(w.members.me.clone(), w.meta.clone(), publisher, w.clock.clone());
        again.check().await;
        assert!(alive(&w));
    }
}

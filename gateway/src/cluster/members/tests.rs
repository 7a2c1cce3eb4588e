//! Tests of joins, heartbeats, leaves and deaths, with a clock of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::state::ClusterState;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;

use super::*;
use crate::cluster::liveness::watch;
use crate::meta::group::tests::Alone;
use crate::targets::Targets;

#[derive(Default)]
struct TestClock(AtomicU64);
impl Clock for TestClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(super) struct World {
    pub(super) members: Members,
    clock: Arc<TestClock>,
    pub(super) meta: Arc<dyn MetaLog>,
    _alone: Alone,
    _dir: tempfile::TempDir,
}

pub(super) async fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let alone = Alone::start(&dir.path().join("meta.redb")).await;
    let maps = alone.maps.clone();
    let meta: Arc<dyn MetaLog> = Arc::new(alone.group.clone());
    let secret = ClusterSecret::new("0123456789abcdef").unwrap();
    let identity = Identity {
        id: NodeId::new("gateway-1").unwrap(),
        role: Role::Gateway,
        url: "http://127.0.0.1:1".into(),
        signer: Signer::new(secret, NodeId::new("gateway-1").unwrap(), 1),
        zone: String::new(),
        started: std::time::Instant::now(),
        instance: 1,
        cluster: String::new(),
        empty: false,
        https: String::new(),
        external: String::new(),
        sealer: Arc::default(),
        token_join: None,
        scale_down: Default::default(),
    };
    let clock = Arc::new(TestClock::default());
    let targets = Targets::new(&identity, maps.clone());
    let peer = targets.peer().clone();
    let publisher = Publisher::new(identity.id.clone(), maps, targets);
    let members = Members::new(identity.id, 1, peer, meta.clone(), publisher, clock.clone());
    World { members, clock, meta, _alone: alone, _dir: dir }
}

impl World {
    pub(super) fn state(&self) -> Arc<ClusterState> {
        self.meta.state()
    }

    pub(super) async fn pass(&self, ms: u64) {
        // In steps of the check interval: one long step would mean that the gateway itself was
        // paused.
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
            instance: 0,
            state_format: 0,
            key: None,
        };
        self.members.heartbeat(beat).await.unwrap()
    }
}

pub(super) fn id() -> NodeId {
    NodeId::new("target-01").unwrap()
}

pub(super) fn join() -> JoinRequest {
    JoinRequest {
        id: id(),
        role: Role::Target,
        // An address that neither answers nor refuses: connections to it cannot be made.
        url: "http://nowhere.invalid:2".into(),
        zone: String::new(),
        instance: 0,
        cluster: String::new(),
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

fn alive(w: &World) -> bool {
    w.state().node(&id()).unwrap().alive
}

#[tokio::test]
async fn a_check_that_has_not_ended_with_its_term_marks_nobody_dead() {
    let w = world().await;
    w.members.join(join()).await.unwrap();
    w.pass(DEAD_AFTER_MS - 500).await;
    let members = Arc::new(w.members);
    let turn = members.turn.lock().await;
    w.clock.0.fetch_add(1_000, Ordering::SeqCst);
    let term = Lifecycle::new();
    let watching = tokio::spawn(watch(members.clone(), term.clone()));
    // The check waits for its turn by now.
    tokio::time::sleep(Duration::from_millis(50)).await;
    term.token().cancel();
    drop(turn);
    watching.await.unwrap();
    assert!(w.meta.state().node(&id()).unwrap().alive);
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
async fn a_restarted_node_is_alive_immediately_and_an_unchanged_join_changes_nothing() {
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
    assert!(!w.beat(&id()).await.lease, "a leader that no majority confirmed gives no lease");
    w.members.confirmed(w.members.now_ms() - 250);
    let reply = w.beat(&id()).await;
    assert_eq!((reply.lease, reply.confirmed_ms), (true, 250));
}

#[tokio::test]
async fn a_leave_takes_effect_immediately() {
    let w = world().await;
    w.members.join(join()).await.unwrap();
    let leave = LeaveRequest { id: id(), yields: false, since: 0, instance: 0 };
    let state = w.members.leave(leave).await.unwrap().state.unwrap();
    assert!(!state.node(&id()).unwrap().alive, "the answer to the leave shows it");
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
    let late = LeaveRequest { id: id(), yields: false, since, instance: 0 };
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
    assert!(alive(&w), "a node with a lease is not dead in the log");
}

#[tokio::test]
async fn who_reports_while_it_is_found_dead_gets_no_lease() {
    let w = world().await;
    w.members.join(join()).await.unwrap();
    w.members.confirmed(w.members.now_ms());
    assert!(w.beat(&id()).await.lease);
    // Like `check` before its change is in the log.
    w.members.table().leases.overdue([&id()].into_iter(), DEAD_AFTER_MS);
    assert!(alive(&w) && !w.beat(&id()).await.lease);
}

#[tokio::test]
async fn an_unknown_node_has_to_join_and_an_invalid_one_is_refused() {
    let w = world().await;
    assert!(w.beat(&id()).await.unknown);
    let bad = JoinRequest { url: "nowhere".into(), ..join() };
    assert!(w.members.join(bad).await.is_err());
    assert!(w.state().nodes.is_empty());
}

#[tokio::test]
async fn a_gateway_that_was_paused_does_not_mark_its_nodes_dead() {
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
    let (me, peer) = (w.members.me.clone(), w.members.peer.clone());
    let again = Members::new(me, 1, peer, w.meta.clone(), publisher, w.clock.clone());
    again.check().await;
    assert!(alive(&w));
}

#[tokio::test]
async fn a_second_process_waits_until_the_first_has_no_lease_and_replaces_it_then() {
    let w = world().await;
    let first = JoinRequest { instance: 7, ..join() };
    let second = JoinRequest { instance: 8, url: "http://elsewhere.invalid:2".into(), ..join() };
    w.members.join(first.clone()).await.unwrap();
    let e = w.members.join(second.clone()).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::Unavailable, "nobody replies there, and its lease lasts: {e}");
    assert_eq!(w.state().node(&id()).unwrap().url, first.url);
    w.pass(DEAD_AFTER_MS).await;
    w.members.join(second.clone()).await.unwrap();
    let node = w.state().node(&id()).unwrap().clone();
    assert_eq!((node.url, node.instance, node.alive), (second.url, 8, true));
    let beat = |instance| {
        let usage = NodeUsage::default();
        w.members.heartbeat(Heartbeat {
            id: id(),
            version: 0,
            usage,
            instance,
            state_format: 0,
            key: None,
        })
    };
    assert_eq!(beat(7).await.unwrap_err().code, ErrorCode::Conflict, "it was replaced");
    assert!(beat(8).await.is_ok());
    let late = LeaveRequest { id: id(), yields: false, since: 0, instance: 7 };
    w.members.leave(late).await.unwrap();
    assert!(alive(&w), "the leave of a replaced process does not affect its successor");
}

#[tokio::test]
async fn a_process_that_left_is_replaced_immediately() {
    let w = world().await;
    w.members.join(JoinRequest { instance: 7, ..join() }).await.unwrap();
    let leave = LeaveRequest { id: id(), yields: false, since: 0, instance: 7 };
    w.members.leave(leave).await.unwrap();
    w.members.join(JoinRequest { instance: 8, ..join() }).await.unwrap();
    assert!(alive(&w));
}

//! Tests of the keys of nodes that join and report.

use forebay_core::access::{AccessChange, Role as RoleName, User};
use forebay_core::sign::NodeKey;
use forebay_core::state::STATE_FORMAT;

use super::tests::{World, id, join, world};
use super::*;

fn key(seed: u8) -> Option<PublicKey> {
    Some(NodeKey::of_seed(&[seed; 32]).unwrap().public().clone())
}

fn keyed(seed: u8) -> JoinRequest {
    JoinRequest { key: key(seed), state_format: STATE_FORMAT, instance: 1, ..join() }
}

fn beat(key: Option<PublicKey>, state_format: u32) -> Heartbeat {
    let (version, usage) = (0, NodeUsage::default());
    Heartbeat { id: id(), version, usage, instance: 1, state_format, key }
}

/// A cluster with an administrator: keys are recorded.
async fn world_with_users() -> World {
    let w = world().await;
    let user = User { roles: vec![RoleName::Admin.name().to_owned()], ..User::default() };
    let change = Box::new(AccessChange::AddUser { name: "root".into(), user: Box::new(user) });
    w.meta.propose(Command::Access { change, now_ns: 1 }).await.unwrap();
    w
}

#[tokio::test]
async fn a_cluster_without_users_records_no_keys() {
    let w = world().await;
    w.members.join(keyed(1)).await.unwrap();
    assert!(w.state().node_keys.is_untouched(), "it can go back to an earlier version");
}

#[tokio::test]
async fn a_live_node_keeps_its_key_and_a_new_process_of_a_dead_one_brings_its_own() {
    let w = world_with_users().await;
    w.members.join(keyed(1)).await.unwrap();
    let state = w.state();
    assert_eq!(Some(&state.node_keys.get("target-01").unwrap().key), key(1).as_ref());
    assert!(state.node_keys.are_required());
    w.members.join(keyed(1)).await.unwrap();
    assert_eq!(w.state().node_keys, state.node_keys, "the same key is recorded once");
    for other in [keyed(2), JoinRequest { instance: 0, ..keyed(2) }] {
        let e = w.members.join(other).await.unwrap_err();
        assert!(e.code == ErrorCode::Conflict && e.message.contains("another key"), "{e}");
    }
    let e = w.members.heartbeat(beat(key(2), STATE_FORMAT)).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::Conflict, "{e}");
    w.members.heartbeat(beat(key(1), STATE_FORMAT)).await.unwrap();
    let promoted = JoinRequest { role: Role::Gateway, ..keyed(1) };
    w.members
        .record_key(&promoted.id, promoted.role, promoted.key.as_ref(), true, None)
        .await
        .unwrap_err();
    assert_eq!(w.state().node_keys.get("target-01").unwrap().role, Role::Target);
    w.pass(4 * DEAD_AFTER_MS).await;
    w.members.join(JoinRequest { instance: 2, ..keyed(2) }).await.unwrap();
    assert_eq!(Some(&w.state().node_keys.get("target-01").unwrap().key), key(2).as_ref());
}

#[tokio::test]
async fn a_node_without_a_key_cannot_join_where_all_have_keys() {
    let w = world_with_users().await;
    w.members.join(keyed(1)).await.unwrap();
    let other = NodeId::new("target-02").unwrap();
    let earlier = JoinRequest { id: other, key: None, ..keyed(1) };
    let e = w.members.join(earlier).await.unwrap_err();
    assert!(e.code == ErrorCode::Unsupported && e.message.contains("target-02"), "{e}");
}

#[tokio::test]
async fn keys_are_recorded_when_the_last_member_can_read_them() {
    let w = world_with_users().await;
    let other = NodeId::new("target-02").unwrap();
    let url = "http://nowhere.invalid:3".to_owned();
    // It reads users, but no keys.
    let earlier = JoinRequest { id: other.clone(), url, state_format: 1, ..join() };
    w.members.join(earlier.clone()).await.unwrap();
    w.members.join(keyed(1)).await.unwrap();
    assert!(w.state().node_keys.is_untouched(), "a member reads the earlier format");
    let upgraded = JoinRequest { instance: 7, key: key(2), state_format: STATE_FORMAT, ..earlier };
    w.members.join(upgraded).await.unwrap();
    assert!(!w.state().node_keys.are_required(), "the first node has reported no key since");
    w.members.heartbeat(beat(key(1), STATE_FORMAT)).await.unwrap();
    assert!(w.state().node_keys.are_required());
    w.meta.propose(Command::Remove { id: other }).await.unwrap();
    assert_eq!(w.state().node_keys.get("target-02"), None);
}

//! Tests of the section of users and of the rights that result from it.

use super::*;
use crate::access::{
    Access, BucketRights, ClusterRights, Opaque, Right, Rights, RoleBinding, Scope, UserAccess,
};
use crate::name::{Bucket, Provider};

const NOW: u64 = 1_000_000_000_000;

fn user(roles: &[&str]) -> Box<User> {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    Box::new(User { roles, password: Opaque::new("$argon2id$planted"), ..User::default() })
}

fn add_user(name: &str, roles: &[&str]) -> AccessChange {
    AccessChange::AddUser { name: name.into(), user: user(roles) }
}

fn with_admin() -> AccessState {
    let mut state = AccessState::default();
    state.apply(5, add_user("root", &["admin"]), NOW).unwrap();
    state
}

fn access(state: &AccessState, name: &str) -> UserAccess {
    state.user_access(name, "c1").unwrap()
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(Provider::Ais, name).unwrap()
}

#[test]
fn the_first_user_is_an_administrator_and_the_last_one_stays() {
    let mut state = AccessState::default();
    let e = state.apply(5, add_user("ann", &["reader"]), NOW).unwrap_err();
    assert_eq!(e.code, ErrorCode::Conflict, "{e}");
    assert!(state.is_untouched() && !state.has_users());
    let mut state = with_admin();
    assert_eq!((state.version, state.epoch), (SECTION_VERSION, 5));
    state.apply(6, add_user("ann", &["reader"]), NOW).unwrap();
    let demote = AccessChange::SetUser {
        name: "root".into(),
        password: None,
        roles: Some(vec!["reader".into()]),
    };
    for change in [AccessChange::DeleteUser { name: "root".into() }, demote] {
        assert!(state.apply(7, change, NOW).is_err());
    }
    assert_eq!(state.epoch, 6, "a refused change is no change");
}

#[test]
fn roles_on_patterns_and_prefixes_give_their_rights_there() {
    let mut state = with_admin();
    state.apply(6, add_user("ann", &[]), NOW).unwrap();
    let binding = |role: &str, buckets: &str, prefix: &str| AccessChange::Bind {
        user: "ann".into(),
        binding: RoleBinding { role: role.into(), buckets: buckets.into(), prefix: prefix.into() },
    };
    assert!(state.apply(7, binding("no-such", "*", ""), NOW).is_err());
    state.apply(7, binding("reader", "ais://team-*", ""), NOW).unwrap();
    state.apply(8, binding("writer", "ais://runs", "ann/"), NOW).unwrap();
    let ann = access(&state, "ann");
    assert!(ann.has(Right::GetObject, &Scope::Object(&bucket("team-a"), "x")));
    assert!(!ann.has(Right::PutObject, &Scope::Object(&bucket("team-a"), "x")));
    assert!(ann.has(Right::PutObject, &Scope::Object(&bucket("runs"), "ann/x")));
    assert!(!ann.has(Right::GetObject, &Scope::Object(&bucket("runs"), "bob/x")));
    let AccessChange::Bind { user, binding } = binding("writer", "ais://runs", "ann/") else {
        panic!()
    };
    let unbind = AccessChange::Unbind { user, binding };
    state.apply(9, unbind.clone(), NOW).unwrap();
    assert!(!access(&state, "ann").has(Right::GetObject, &Scope::Object(&bucket("runs"), "ann/x")));
    assert!(state.apply(10, unbind, NOW).is_err());
}

#[test]
fn a_role_of_aistore_counts_on_this_cluster_and_not_on_another() {
    let mut state = with_admin();
    let one = |cluster: &str, name: &str| BucketRights {
        cluster: cluster.into(),
        provider: "ais".into(),
        name: name.into(),
        rights: Rights::of(&[Right::GetObject]),
        ..BucketRights::default()
    };
    let role = RoleDefinition {
        clusters: vec![
            ClusterRights { cluster: "c1".into(), rights: Rights::of(&[Right::ListBuckets]) },
            ClusterRights { cluster: "c2".into(), rights: Rights::of(&[Right::Admin]) },
        ],
        buckets: vec![one("c1", "mine"), one("c2", "theirs")],
        ..RoleDefinition::default()
    };
    let add = AccessChange::AddRole { name: "r".into(), role: Box::new(role) };
    state.apply(6, add, NOW).unwrap();
    state.apply(7, add_user("ann", &["r"]), NOW).unwrap();
    let ann = access(&state, "ann");
    assert!(ann.has(Right::ListBuckets, &Scope::Cluster));
    assert!(!ann.has(Right::ShowCluster, &Scope::Cluster));
    assert!(ann.has(Right::GetObject, &Scope::Object(&bucket("mine"), "x")));
    assert!(!ann.has(Right::GetObject, &Scope::Object(&bucket("theirs"), "x")));
    state.apply(8, AccessChange::DeleteRole { name: "r".into() }, NOW).unwrap();
    let ann = Access::User(access(&state, "ann").into());
    assert!(!ann.has(Right::ListBuckets, &Scope::Cluster));
}

#[test]
fn the_keys_of_a_deleted_user_are_deleted() {
    let mut state = with_admin();
    state.apply(6, add_user("ann", &[]), NOW).unwrap();
    let key = |user: &str| AccessChange::AddKey {
        access: format!("AK-{user}"),
        key: S3KeyRecord { user: user.into(), ..S3KeyRecord::default() },
    };
    assert_eq!(state.apply(7, key("bob"), NOW).unwrap_err().code, ErrorCode::AccountNotFound);
    state.apply(7, key("ann"), NOW).unwrap();
    assert_eq!(state.apply(8, key("ann"), NOW).unwrap_err().code, ErrorCode::Conflict);
    state.apply(8, AccessChange::DeleteUser { name: "ann".into() }, NOW).unwrap();
    assert!(state.keys.is_empty());
}

#[test]
fn revoked_tokens_are_kept_until_they_expire() {
    let mut state = with_admin();
    let revoke = |id: &str, expires_s| AccessChange::RevokeToken { id: id.into(), expires_s };
    state.apply(6, revoke("a", 1_010), NOW).unwrap();
    assert!(state.is_revoked("a"));
    state.apply(7, revoke("b", 2_000), 1_011_000_000_000).unwrap();
    assert!(!state.is_revoked("a") && state.is_revoked("b"));
}

#[test]
fn an_accepted_token_ends_with_its_revocation_and_with_its_user() {
    let mut state = with_admin();
    state.apply(6, add_user("ann", &[]), NOW).unwrap();
    let own = |state: &AccessState| state.is_kept("ann", "a", 6);
    let foreign = |state: &AccessState| state.is_kept("k8s:job", "sha256:00", 6);
    assert!(own(&state) && foreign(&state));
    let revoke = |id: &str| AccessChange::RevokeToken { id: id.into(), expires_s: u64::MAX };
    state.apply(7, revoke("a"), NOW).unwrap();
    assert!(!own(&state) && state.is_kept("ann", "b", 6) && foreign(&state));
    state.apply(8, revoke("sha256:00"), NOW).unwrap();
    assert!(!foreign(&state));
    state.apply(9, AccessChange::RevokeUser { name: "ann".into() }, NOW).unwrap();
    assert!(!state.is_kept("ann", "b", 8) && state.is_kept("ann", "b", 9));
    state.apply(10, AccessChange::DeleteUser { name: "ann".into() }, NOW).unwrap();
    assert!(!state.is_kept("ann", "b", 10));
}

#[test]
fn an_unused_section_is_not_written_and_a_later_version_is_not_read() {
    let json = serde_json::to_string(&crate::state::ClusterState::default()).unwrap();
    assert!(!json.contains("access") && !json.contains("quotas"), "{json}");
    let json = serde_json::to_string(&with_admin()).unwrap();
    assert_eq!(serde_json::from_str::<AccessState>(&json).unwrap(), with_admin());
    let later = json.replacen("\"version\":1", "\"version\":2", 1);
    let e = serde_json::from_str::<AccessState>(&later).unwrap_err();
    assert!(e.to_string().contains("section of version 2"), "{e}");
}

#[test]
fn secrets_are_neither_printed_nor_in_the_state_of_clients() {
    let state = with_admin();
    let printed = format!("{state:?} {:?}", add_user("ann", &[]));
    assert!(!printed.contains("planted"), "{printed}");
    let mut whole = crate::state::ClusterState::default();
    whole.access = state.into();
    assert!(serde_json::to_string(&whole).unwrap().contains("planted"));
    let json = serde_json::to_string(&whole.for_clients()).unwrap();
    assert!(!json.contains("planted") && !json.contains("root"), "{json}");
    let (_, _, detail) = add_user("ann", &[]).summary();
    assert!(!detail.contains("planted"));
}

#[test]
fn nothing_in_the_section_is_larger_than_its_limit() {
    let state = with_admin();
    let long = "x".repeat(5_000);
    let refused = |change: AccessChange| change.check_limits(&state, NOW).unwrap_err();
    refused(add_user(&long, &[]));
    for name in ["", "a b", "a/b", "a\"b", "ä", "a\nb"] {
        refused(add_user(name, &[]));
    }
    let bind = |buckets: &str| AccessChange::Bind {
        user: "root".into(),
        binding: RoleBinding { buckets: buckets.into(), ..RoleBinding::default() },
    };
    refused(bind(&format!("ais://{long}")));
    let hint = refused(bind("team-*")).hint.unwrap();
    assert!(hint.contains("provider://name"), "{hint}");
    add_user("k8s:system:serviceaccount:ns:name", &[]).check_limits(&state, NOW).unwrap();
    let mut full = state.clone();
    for n in 0..10_000 {
        full.users.insert(format!("u{n}"), User::default());
    }
    assert!(add_user("more", &[]).check_limits(&full, NOW).is_err());
}

#[test]
fn join_tokens_that_have_expired_do_not_count_towards_the_limit() {
    let mut full = with_admin();
    for n in 0..256 {
        let token = JoinTokenRecord { uses: 1, expires_s: 1_010, ..JoinTokenRecord::default() };
        full.join_tokens.insert(format!("t{n}"), token);
    }
    let add = AccessChange::AddJoinToken {
        id: "more".into(),
        token: JoinTokenRecord { uses: 1, expires_s: 2_000, ..JoinTokenRecord::default() },
    };
    let e = add.check_limits(&full, 1_010_000_000_000).unwrap_err();
    assert!(e.message.contains("256 join tokens"), "{e}");
    add.check_limits(&full, 1_011_000_000_000).unwrap();
    full.apply(6, add, 1_011_000_000_000).unwrap();
    assert_eq!(full.join_tokens.len(), 1);
}

#[test]
fn revoked_tokens_that_have_expired_do_not_count_towards_the_limit() {
    let mut full = with_admin();
    full.revoked = (0..50_000).map(|n| (format!("t{n}"), 1_010)).collect();
    let revoke = AccessChange::RevokeToken { id: "more".into(), expires_s: 2_000 };
    let e = revoke.check_limits(&full, 1_010_000_000_000).unwrap_err();
    assert!(e.message.contains("50000 revoked tokens"), "{e}");
    revoke.check_limits(&full, 1_011_000_000_000).unwrap();
    full.apply(6, revoke, 1_011_000_000_000).unwrap();
    assert_eq!(full.revoked.len(), 1);
}

//! Tests of proofs by keys of nodes.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::name::NodeId;
use crate::sign::{NO_BODY, NodeKey};
use crate::state::{ClusterState, Command};

const SECRET: &str = "0123456789abcdef";
/// When the last node got its key.
const SINCE: u64 = 1_000_000;
const PATH: &str = "/internal/v1/job";
const NODES: [(&str, Role, &str); 3] = [
    ("gateway-1", Role::Gateway, "http://g:1"),
    ("target-01", Role::Target, "http://t:1"),
    ("target-02", Role::Target, "http://t:2"),
];

fn key(seed: u8) -> NodeKey {
    NodeKey::of_seed(&[seed; 32]).unwrap()
}

fn signer(id: &str, key: NodeKey) -> Signer {
    let secret = ClusterSecret::new(SECRET).unwrap();
    Signer::new(secret, NodeId::new(id).unwrap(), 1).with_key(key)
}

/// A state with the first `keyed` nodes' keys; the nodes sign as they do with this state.
fn cluster(keyed: usize) -> (ClusterState, Vec<Signer>) {
    let mut state = ClusterState::default();
    for (n, (id, role, url)) in NODES.into_iter().enumerate() {
        let (id, url) = (NodeId::new(id).unwrap(), url.to_owned());
        let (zone, https, instance, weight) = (String::new(), String::new(), 1, 1);
        let external = String::new();
        let join = Command::Join { id, role, url, weight, zone, instance, https, external };
        state.apply(n as u64 + 1, join).unwrap();
    }
    for (n, (id, role, _)) in NODES.into_iter().enumerate().take(keyed) {
        let (id, key) = (NodeId::new(id).unwrap(), key(n as u8).public().clone());
        let record = Command::NodeKey { id, role, key, now_s: SINCE, token: None };
        state.apply(n as u64 + 4, record).unwrap();
    }
    let signers = NODES.into_iter().enumerate().map(|(n, (id, ..))| {
        let signer = signer(id, key(n as u8));
        signer.follow(&state);
        signer
    });
    let signers = signers.collect();
    (state, signers)
}

fn call(receiver: &str) -> Claims<'_> {
    let purpose = Purpose::NodeCall;
    Claims { purpose, method: "POST", target: PATH, body: NO_BODY, receiver, ..NOTHING }
}

/// Whether `me` accepts this call.
fn takes(state: &ClusterState, me: &Signer, text: &str, target: &str) -> bool {
    let proof = Proof::parse(text).unwrap();
    let claims = Claims { target, ..call(proof.receiver) };
    Trust::new(me, &state.node_keys).verify(&proof, &claims)
}

fn tag(proof: &str) -> &str {
    proof.rsplit_once('~').unwrap().1
}

#[test]
fn nodes_prove_with_their_keys_once_all_members_have_keys() {
    let (state, nodes) = cluster(3);
    let now = SINCE + 1_000;
    let text = nodes[0].node_call("POST", PATH, NO_BODY, "http://t:1", now);
    assert_eq!(Proof::parse(&text).unwrap().made_with, MadeWith::PairKey);
    assert!(takes(&state, &nodes[1], &text, PATH) && !takes(&state, &nodes[1], &text, "/other"));
    assert!(!takes(&state, &nodes[2], &text, PATH), "another node has another key");
    // Of a receiver that goes by another name, the key is not known.
    let text = nodes[1].node_call("POST", PATH, NO_BODY, "http://service:1", now);
    assert_eq!(Proof::parse(&text).unwrap().made_with, MadeWith::OwnKey);
    assert!(takes(&state, &nodes[0], &text, PATH) && !takes(&state, &nodes[0], &text, "/other"));

    let (state, nodes) = cluster(2);
    let text = nodes[0].node_call("POST", PATH, NO_BODY, "http://t:1", now);
    assert_eq!(Proof::parse(&text).unwrap().made_with, MadeWith::ClusterSecret);
    assert!(takes(&state, &nodes[1], &text, PATH));
}

#[test]
fn with_keys_the_cluster_secret_proves_only_joins_and_messages_among_gateways() {
    let (state, nodes) = cluster(3);
    let thief = signer("target-02", key(2));
    let call = |path, at| thief.node_call("POST", path, NO_BODY, "http://g:1", at);
    for path in ["/internal/v1/join?x", "/internal/v1/instance", "/internal/v1/raft/vote"] {
        assert!(takes(&state, &nodes[0], &call(path, SINCE + 1_000), path), "{path}");
    }
    for path in [PATH, "/internal/v1/joins", "/internal/v1/heartbeat", "/internal/v1/raft"] {
        assert!(!takes(&state, &nodes[0], &call(path, SINCE + 1_000), path), "{path}");
    }
    let during_the_change = call(PATH, SINCE + 10);
    assert!(takes(&state, &nodes[0], &during_the_change, PATH));
    let trust = Trust::new(&nodes[1], &state.node_keys);
    let query = "x=1";
    let redirect = thief.redirect("PUT", "/v1/objects/b/o", query, "http://t:1", SINCE + 1_000);
    let redirect = redirect.unwrap();
    let proof = redirect.strip_prefix("fbs=").unwrap();
    let held = |proof| {
        trust.verify_redirect("PUT", "/v1/objects/b/o", query, proof, "http://t:1", SINCE + 1_000)
    };
    assert_eq!(held(proof), Held::No);
    assert_eq!(trust.verify_grant(&thief.grant(SINCE + 1_000), SINCE + 1_000), Held::No);
    let user = GrantUser { user: "ann".into(), token: "t".into(), epoch: 1 };
    for user in [user, GrantUser::node()] {
        let grant = thief.user_grant(&user, SINCE + 1_000);
        assert_eq!(trust.verify_user_grant(&grant, SINCE + 1_000), None);
    }
    // Grants of clients from before the change count until they expire.
    let earlier = thief.grant(SINCE - 5);
    assert_eq!(trust.verify_grant(&earlier, SINCE + 1_000), Held::Yes);
}

#[test]
fn a_redirect_counts_at_the_target_that_it_was_made_for() {
    let (state, nodes) = cluster(3);
    let now = SINCE + 1_000;
    let (path, query) = ("/v1/objects/b/o", "x=1");
    let redirect = nodes[0].redirect("PUT", path, query, "http://t:1", now).unwrap();
    let proof = redirect.strip_prefix("fbs=").unwrap();
    assert_eq!(Proof::parse(proof).unwrap().made_with, MadeWith::PairKey);
    let held = |me: usize, url, at| {
        let trust = Trust::new(&nodes[me], &state.node_keys);
        trust.verify_redirect("PUT", path, query, proof, url, at)
    };
    assert_eq!(held(1, "http://t:1", now), Held::Yes);
    let late = Held::Late { signer: "gateway-1", signed_s: now };
    assert_eq!(held(1, "http://t:1", now + REDIRECT_TTL_S + 1), late);
    // The key of a target makes nothing that another one accepts.
    assert_eq!(held(2, "http://t:2", now), Held::No);
    assert_eq!(held(2, "http://t:1", now), Held::No);
    let target = NodeId::new("gateway-1").unwrap();
    let secret = ClusterSecret::new(SECRET).unwrap();
    let thief = Signer::new(secret, target, 1).with_key(key(1));
    thief.peers_for_tests(&state);
    let forged = thief.redirect("PUT", path, query, "http://t:2", now).unwrap();
    let trust = Trust::new(&nodes[2], &state.node_keys);
    let forged = forged.strip_prefix("fbs=").unwrap();
    assert_eq!(Proof::parse(forged).unwrap().made_with, MadeWith::PairKey);
    let held = trust.verify_redirect("PUT", path, query, forged, "http://t:2", now);
    assert_eq!(held, Held::No);
}

#[test]
fn grants_are_made_by_gateways_and_count_at_every_target() {
    let (state, nodes) = cluster(3);
    let now = SINCE + 1_000;
    let ann = GrantUser { user: "ann".into(), token: "t".into(), epoch: 1 };
    let (plain, of_ann) = (nodes[0].grant(now), nodes[0].user_grant(&ann, now));
    for me in &nodes[1..] {
        let trust = Trust::new(me, &state.node_keys);
        assert_eq!(trust.verify_grant(&plain, now), Held::Yes);
        let late = Held::Late { signer: "gateway-1", signed_s: now };
        assert_eq!(trust.verify_grant(&plain, now + GRANT_TTL_S + 1), late);
        assert_eq!(trust.verify_user_grant(&of_ann, now), Some(ann.clone()));
        assert_eq!(trust.verify_user_grant(&of_ann, now + GRANT_TTL_S + 1), None);
        let other = of_ann.replace(tag(&of_ann), tag(&plain));
        assert_eq!(trust.verify_user_grant(&other, now), None);
        assert_eq!(trust.verify_grant(&plain.replace("gateway-1", "target-01"), now), Held::No);
        // A target makes none but for itself, as a client of the cluster.
        assert_eq!(trust.verify_grant(&nodes[1].grant(now), now), Held::No);
        assert_eq!(trust.verify_user_grant(&nodes[1].user_grant(&ann, now), now), None);
        let own = nodes[1].user_grant(&GrantUser::node(), now);
        assert_eq!(trust.verify_user_grant(&own, now), Some(GrantUser::node()));
    }
    let mut without = state.clone();
    let id = NodeId::new("gateway-1").unwrap();
    without.apply(9, Command::Remove { id }).unwrap();
    let trust = Trust::new(&nodes[1], &without.node_keys);
    assert_eq!(trust.verify_grant(&plain, now), Held::No, "it is no member any more");
    assert_eq!(trust.unknown_sender(&plain), Some("gateway-1"));
    assert_eq!(trust.unknown_sender(&of_ann), Some("gateway-1"));
    assert_eq!(Trust::new(&nodes[1], &state.node_keys).unknown_sender(&plain), None);
}

#[test]
fn a_grant_by_another_key_of_its_gateway_is_recognized() {
    let (mut state, nodes) = cluster(3);
    let ann = GrantUser { user: "ann".into(), token: "t".into(), epoch: 1 };
    let grants = [nodes[0].grant(SINCE + 100), nodes[0].user_grant(&ann, SINCE + 100)];
    let by_target = nodes[1].grant(SINCE + 100);
    let sender = |state: &ClusterState, grant: &str| {
        let trust = Trust::new(&nodes[2], &state.node_keys);
        trust.sender_with_other_key(grant).map(str::to_owned)
    };
    for grant in &grants {
        assert_eq!(sender(&state, grant), None, "{grant}");
    }
    let (id, key) = (NodeId::new("gateway-1").unwrap(), key(9).public().clone());
    let record = Command::NodeKey { id, role: Role::Gateway, key, now_s: SINCE, token: None };
    state.apply(9, record).unwrap();
    for grant in &grants {
        assert_eq!(sender(&state, grant).as_deref(), Some("gateway-1"), "{grant}");
    }
    assert_eq!(sender(&state, &by_target), None, "targets make no grants");
    assert_eq!(sender(&state, "no grant"), None);
}

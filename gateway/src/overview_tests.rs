//! Tests of the sums of an overview and of what its viewers see.

use forebay_core::access::{Role as UserRole, UserAccess};
use forebay_core::bucket::BucketInfo;
use forebay_core::overview::NodeSlot;
use forebay_core::state::{Command, Role};
use forebay_core::traffic::{BucketTraffic, ClientTraffic};

use super::*;

fn state() -> ClusterState {
    let mut state = ClusterState::default();
    for (i, uri) in ["ais://a", "s3://b"].iter().enumerate() {
        let info = BucketInfo::requested(Bucket::parse_uri(uri).unwrap().0, None);
        let create = Command::CreateBucket { info: Box::new(info), now_ns: 1 };
        state.apply(i as u64 + 1, create).unwrap();
    }
    state
}

fn node(id: &str, role: Role, alive: bool) -> NodeInfo {
    NodeInfo {
        id: NodeId::new(id).unwrap(),
        role,
        url: format!("http://{id}"),
        alive,
        maintenance: false,
        emptied: false,
        usage: NodeUsage::default(),
    }
}

fn counts(requests: u64, read_bytes: u64) -> TrafficCounts {
    TrafficCounts { requests, read_bytes, hits: requests, ..TrafficCounts::default() }
}

/// Two targets and a gateway answer, and one target is down.
fn collected() -> Collected {
    let state = state();
    let ids: Vec<u64> = state.buckets.values().map(|info| info.id).collect();
    let infos = [
        node("gateway1", Role::Gateway, true),
        node("target01", Role::Target, true),
        node("target02", Role::Target, true),
        node("target03", Role::Target, false),
        node("target04", Role::Target, true),
    ];
    let part = |requests, bytes, client: &str| NodeTraffic {
        seconds: 5.0,
        total: counts(requests, bytes),
        latency: LatencyCounts(vec![0, 0, requests]),
        buckets: vec![
            BucketTraffic { bucket_id: ids[0], counts: counts(requests, bytes) },
            BucketTraffic { bucket_id: 999, counts: counts(5, 0) },
        ],
        other_buckets: TrafficCounts::default(),
        clients: vec![ClientTraffic { client: client.into(), counts: counts(requests, bytes) }],
        other_clients: counts(5, 5),
    };
    let gateway = NodeTraffic { buckets: Vec::new(), ..part(10, 1_000, "eva") };
    let traffic = [
        ("gateway1", gateway),
        ("target01", part(20, 500, "eva")),
        ("target02", part(30, 500, "10.0.0.9")),
    ];
    let traffic = traffic.map(|(id, part)| (NodeId::new(id).unwrap(), part)).into();
    let leader = NodeId::new("gateway1").unwrap();
    summed(&state, &infos, (true, Some(&leader)), &traffic, Vec::new())
}

#[test]
fn requests_add_up_over_all_nodes_and_bytes_over_targets() {
    let overview = collected().shown_to(&Access::Open);
    assert_eq!(overview.cluster.requests_per_s, 12.0);
    assert_eq!(overview.cluster.read_bytes_per_s, 200.0);
    assert!(overview.cluster.p99_s.unwrap() <= 50e-6);
    let answered: Vec<_> =
        overview.nodes.iter().map(|n| (n.id.as_str(), n.answered, n.state.as_str())).collect();
    assert_eq!(answered[..2], [("gateway1", true, "alive"), ("target01", true, "alive")]);
    assert_eq!(answered[3..], [("target03", false, "down"), ("target04", false, "alive")]);
    assert!(overview.nodes[0].leads && !overview.nodes[1].leads);
    assert_eq!(overview.nodes[0].rates.read_bytes_per_s, 200.0);
    let alerts: Vec<_> = overview.alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(alerts, ["ForebayTargetDead", "ForebayNodeSilent"]);
}

#[test]
fn buckets_and_clients_are_summed_over_nodes_with_the_rest_under_other() {
    let overview = collected().shown_to(&Access::Open);
    let buckets: Vec<_> =
        overview.buckets.iter().map(|b| (b.uri.as_str(), b.rates.requests_per_s)).collect();
    // A bucket that is no longer in the map is not named.
    assert_eq!(buckets, [("ais://a", 10.0), ("other", 2.0)]);
    let clients: Vec<_> =
        overview.clients.iter().map(|c| (c.client.as_str(), c.rates.requests_per_s)).collect();
    assert_eq!(clients, [("eva", 6.0), ("10.0.0.9", 6.0), ("other", 3.0)]);
}

#[test]
fn a_viewer_sees_its_buckets_and_itself_and_the_sum_of_the_others() {
    let viewer = |name: &str, role: UserRole| {
        let everywhere = role.rights();
        Access::User(Arc::new(UserAccess { name: name.into(), everywhere, bindings: vec![] }))
    };
    let overview = collected().shown_to(&viewer("eva", UserRole::Viewer));
    let clients: Vec<_> =
        overview.clients.iter().map(|c| (c.client.as_str(), c.rates.requests_per_s)).collect();
    assert_eq!(clients, [("eva", 6.0), ("other", 9.0)]);
    assert_eq!(overview.buckets[0].uri, "ais://a");
    let admin = collected().shown_to(&viewer("root", UserRole::Admin));
    assert_eq!(admin.clients.len(), 3);
    let nobody = UserAccess { name: "x".into(), ..UserAccess::default() };
    let nothing = collected().shown_to(&Access::User(Arc::new(nobody)));
    assert_eq!(nothing.buckets.len(), 1);
    assert_eq!(nothing.buckets[0].name, "other");
}

#[test]
fn a_history_names_the_nodes_that_did_not_answer() {
    let mut state = state();
    let nodes =
        [("gateway1", Role::Gateway), ("target01", Role::Target), ("target02", Role::Target)];
    for (id, role) in nodes {
        let join = Command::Join {
            id: NodeId::new(id).unwrap(),
            role,
            url: format!("http://{id}"),
            weight: 1,
            zone: String::new(),
            instance: 1,
            https: String::new(),
            external: String::new(),
        };
        state.apply(state.version + 1, join).unwrap();
    }
    let now_ns = 10_000_000_000_000;
    let slot = NodeSlot {
        slot: 1_999,
        seconds: 5.0,
        total: counts(10, 500),
        latency: LatencyCounts(vec![0, 0, 10]),
    };
    let part = NodeHistory { slots: vec![slot] };
    let parts = ["gateway1", "target01"].map(|id| (NodeId::new(id).unwrap(), part.clone()));
    let history = history_of(&state, &parts.into(), now_ns);
    assert_eq!((history.interval_s, history.silent_nodes), (5, vec!["target02".to_owned()]));
    assert_eq!((history.points.len(), history.points[0].nodes), (1, 2));
    let rates = &history.points[0].rates;
    assert_eq!((rates.requests_per_s, rates.read_bytes_per_s), (4.0, 100.0));
}

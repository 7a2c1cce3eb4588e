//! Copies of an object lie in different zones: all machines of a zone may die at once.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_core::placement;
use forebay_tests::cluster::{Cluster, Options, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::wait;

const ZONES: [&str; 3] = ["rack-a", "rack-b", "rack-c"];
const OBJECTS: usize = 60;
const SIZE: usize = 3_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Starts a target again as a machine of a zone.
fn move_to_zone(cluster: &Cluster, id: &str, zone: &str) {
    let path = cluster.dir().join(id).join("cmd");
    let line = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("env FOREBAY_NODE__ZONE={zone} {line}")).unwrap();
    cluster.kill9(id);
    cluster.restart(id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_copies_in_three_zones_a_zone_may_die_without_a_loss() {
    let cluster = Cluster::start(Options { targets: 6, ..Options::default() });
    let zone_of = |n: usize| ZONES[n / 2];
    for (n, target) in cluster.targets.iter().enumerate() {
        move_to_zone(&cluster, &target.id, zone_of(n));
    }
    let client = cluster.client();
    let bucket = native("zoned");
    client.create_bucket(&bucket, None).await.unwrap();
    let (text, code) = cluster.cli(&["bucket", "set", "ais://zoned", "copies=2"]);
    assert_eq!(code, 0, "{text}");
    wait::until("the cluster is quiescent", DEADLINE, || cluster.map().state.is_quiescent());
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("o/{n:03}")).collect();
    for name in &names {
        client.put(&bucket, name, content(name, SIZE), None).await.unwrap();
    }

    let map = cluster.map();
    let info = map.state.bucket(&bucket).unwrap();
    for name in &names {
        let holders = placement::holders(&map.state, info, placement::digest_in(&bucket, name));
        let zones: BTreeSet<_> = holders.iter().map(|node| node.zone.as_str()).collect();
        assert_eq!((holders.len(), zones.len()), (2, 2), "{name}: {holders:?}");
    }

    for target in &cluster.targets[..2] {
        cluster.kill9(&target.id);
    }
    for name in &names {
        let got = client.get_bytes(&bucket, name, None).await;
        let got = got.unwrap_or_else(|e| panic!("{name} without {}: {e}", ZONES[0]));
        assert_same(name, &got, &content(name, SIZE));
    }
    for target in &cluster.targets[..2] {
        cluster.restart(&target.id);
    }
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), OBJECTS);
}

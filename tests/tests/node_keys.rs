//! Keys of nodes in real clusters: what the secret of the cluster proves, and what it does not.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_core::NodeId;
use forebay_core::sign::{ClusterSecret, GrantUser, NO_BODY, NODE_AUTH_HEADER, Signer};
use forebay_tests::cluster::{Cluster, NodeHandle};
use forebay_tests::http::{self, Answer};
use forebay_tests::users::send;
use forebay_tests::{Options, Users, wait};
use serde_json::Value;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Signs with the secret alone, in the name of a gateway, as if the change to keys was long ago.
fn thief(cluster: &Cluster) -> Signer {
    let secret = std::fs::read_to_string(cluster.dir().join("secret")).unwrap();
    let id = NodeId::new(&cluster.gateways[0].id).unwrap();
    Signer::new(ClusterSecret::new(secret.trim()).unwrap(), id, 1 << 41)
}

fn call(signer: &Signer, node: &NodeHandle, method: &'static str, path: &str) -> Answer {
    let proof = signer.node_call(method, path, NO_BODY, &node.url, now() + 100);
    http::request(method, &format!("{}{path}", node.url)).header(NODE_AUTH_HEADER, &proof).send()
}

#[test]
fn the_secret_of_the_cluster_opens_no_node_and_makes_no_redirects_and_grants() {
    let users = Users::start(Options { gateways: 1, targets: 3, ..Options::default() });
    let cluster = &users.cluster;
    let (gateway, target) = (&cluster.gateways[0], &cluster.targets[0]);
    for node in [gateway, target] {
        let file = cluster.dir().join(&node.id).join("state").join("node.key");
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let url = format!("{}/api/v1/map", cluster.endpoint);
    let map = send("GET", &url, Some(&users.root), &Value::Null).json();
    assert!(map["state"].get("node_keys").is_none(), "clients do not get the keys of nodes");

    // Proofs that were signed within a minute of the change still count, so these are of later.
    let thief = thief(cluster);
    wait::until("keys of nodes are required", Duration::from_secs(10), || {
        call(&thief, target, "GET", "/internal/v1/job").status == 403
    });
    assert_eq!(call(&thief, target, "GET", "/internal/v1/instance").status, 200);
    let path = "/v1/objects/b/o";
    let redirect = thief.redirect("PUT", path, "provider=ais", &target.url, now() + 100).unwrap();
    let url = format!("{}{path}?provider=ais&{redirect}", target.url);
    let put = http::request("PUT", &url).body("x").send();
    assert_eq!(put.status, 400, "{}", put.text());
    assert!(put.text().contains("expected to be redirected"), "{}", put.text());
    let url = format!("{}{path}?provider=ais", target.url);
    for grant in [thief.grant(now() + 100), thief.user_grant(&GrantUser::node(), now() + 100)] {
        let put = http::request("PUT", &url).header("forebay-grant", &grant).body("x").send();
        assert_eq!(put.status, 400, "{}", put.text());
    }
    let grant = map["grant"].as_str().unwrap();
    let put = http::request("PUT", &url).header("forebay-grant", grant).body("x").send();
    assert_eq!(
        put.status,
        404,
        "a gateway's grant counts, and the bucket is missing: {}",
        put.text()
    );
}

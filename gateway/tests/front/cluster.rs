//! Several gateways, restarts, and the views of the cluster.

use forebay_client::PeerClient;
use forebay_core::intra::DecommissionRequest;
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::{Error, ErrorCode, NodeId};
use forebay_node::scale_down::DECOMMISSION_PATH;
use serde_json::{Value, json};

use crate::wire::{act, get, send};
use crate::world::{SECRET, World, map, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_through_any_gateway_is_visible_at_every_gateway_when_acknowledged() {
    let w = World::new(3, 1).await;
    for (i, via) in w.gateways.iter().enumerate() {
        let path = format!("/v1/buckets/b{i}?provider=ais");
        act(&via.url, "POST", &path, "create-bck", Value::Null).await.expect(200);
        for gateway in &w.gateways {
            send(&gateway.url, "HEAD", &path, &[], "").await.expect(200);
        }
        let e = act(&via.url, "POST", &path, "create-bck", Value::Null).await.expect(409).json();
        assert_eq!(e["tcode"], "ErrBucketAlreadyExists");
        act(&via.url, "DELETE", &path, "destroy-bck", Value::Null).await.expect(200);
        for gateway in &w.gateways {
            send(&gateway.url, "HEAD", &path, &[], "").await.expect(404);
        }
    }
    let leader = until("one leader that all agree on", async || leader(&w).await).await;
    let follower = w.gateways[(leader + 1) % 3].url.clone();
    until("report of the target at a follower", async || {
        let info = get(&follower, "/api/v1/cluster").await.expect(200).json();
        let nodes = info["nodes"].as_array().unwrap().clone();
        nodes.iter().any(|n| n["role"] == "target" && n["usage"]["objects"] == 7).then_some(())
    })
    .await;
}

/// Position of the gateway that all gateways name as leader.
async fn leader(w: &World) -> Option<usize> {
    let mut said = Vec::new();
    for gateway in &w.gateways {
        said.push(map(&gateway.url).await?.primary);
    }
    said.dedup();
    let [leader] = said.as_slice() else { return None };
    leader.as_str().strip_prefix("gateway-")?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_three_gateways_accept_changes_and_one_alone_serves_reads_only() {
    let mut w = World::new(3, 1).await;
    act(w.url(), "POST", "/v1/buckets/kept", "create-bck", Value::Null).await.expect(200);
    let leading = until("one leader that all agree on", async || leader(&w).await).await;
    let gone = format!("gateway-{leading}");
    w.gateways.remove(leading).stop().await;
    for (i, gateway) in w.gateways.iter().enumerate() {
        let state = map(&gateway.url).await.unwrap().state;
        let left = state.nodes.values().find(|n| n.id.as_str() == gone).unwrap();
        assert!(!left.alive, "it said so before it went");
        get(&gateway.url, "/v1/objects/kept/o").await.expect(301);
        // During an election, a change waits for its end.
        let path = format!("/v1/buckets/after{i}");
        act(&gateway.url, "POST", &path, "create-bck", Value::Null).await.expect(200);
        for gateway in &w.gateways {
            get(&gateway.url, &format!("/v1/objects/after{i}/o")).await.expect(301);
        }
    }
    until("the target is alive for the new leader", async || {
        let state = map(w.url()).await?.state;
        (state.alive_targets().count() == 1 && map(w.url()).await?.primary.as_str() != gone)
            .then_some(())
    })
    .await;

    w.gateways.remove(0).stop().await;
    get(w.url(), "/v1/objects/kept/o").await.expect(301);
    let e = act(w.url(), "POST", "/v1/buckets/c", "create-bck", Value::Null).await.expect(503);
    assert!(!e.header("retry-after").is_empty());
    act(w.url(), "DELETE", "/v1/buckets/kept", "destroy-bck", Value::Null).await.expect(503);
    get(w.url(), "/v1/objects/kept/o").await.expect(301);
    get(w.url(), "/v1/cluster?what=node_stats").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_gateway_knows_everything_and_its_targets_stay_alive() {
    let mut w = World::new(1, 2).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let before = map(w.url()).await.unwrap().state;
    w.gateways.remove(0).stop().await;
    let again = w.start_gateway(0).await;
    w.gateways.push(again);
    let after = map(w.url()).await.unwrap().state;
    assert_eq!(after.cluster_id, before.cluster_id);
    assert_eq!(after.buckets, before.buckets);
    assert_eq!(after.alive_targets().count(), 2);
    get(w.url(), "/v1/objects/b/o").await.expect(301);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_get_no_word_in() {
    let w = World::new(1, 0).await;
    for path in [
        "join",
        "heartbeat",
        "leave",
        "decommission",
        "command",
        "state",
        "raft/append",
        "raft/vote",
        "raft/snapshot",
        "raft/enter",
        "raft/remove",
        "raft/removed",
    ] {
        let path = format!("/internal/v1/{path}");
        send(w.url(), "POST", &path, &[], "{}").await.expect(403);
        send(w.url(), "POST", &path, &[("forebay-auth", "99999999999.ab")], "{}").await.expect(403);
    }
    assert_eq!(map(w.url()).await.unwrap().state.targets().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v1_clients_find_the_map_the_nodes_and_their_numbers() {
    let w = World::new(1, 2).await;
    let smap = get(w.url(), "/v1/daemon?what=smap").await.expect(200).json();
    assert_eq!(smap["proxy_si"]["daemon_id"], "gateway-0");
    assert_eq!(smap["tmap"]["target-01"]["public_net"]["direct_url"], w.targets[1].url);
    assert!(smap["version"].is_string() && smap["tmap"]["target-01"]["id_digest"].is_u64());
    let of_target = [("ais-node-id", "target-00")];
    until("report of the target", async || {
        let path = "/v1/reverse/daemon?what=node_status";
        let status = send(w.url(), "GET", path, &of_target, "").await.expect(200).json();
        (status["capacity"]["total_used"] == "70").then_some(())
    })
    .await;
    let path = "/v1/reverse/daemon?what=node_status";
    send(w.url(), "GET", path, &[("ais-node-id", "target-99")], "").await.expect(404);
    get(w.url(), path).await.expect(400);
    let health = get(w.url(), "/v1/health?prr=true").await.expect(200);
    assert!(health.header("ais-node-uptime").parse::<u64>().unwrap() > 0);
    for what in ["cluster_config", "backends", "sysinfo", "node_stats", "remote", "target_ips"] {
        get(w.url(), &format!("/v1/cluster?what={what}")).await.expect(200);
    }
    get(w.url(), "/v1/cluster?what=nonsense").await.expect(400);
    assert_eq!(
        get(w.url(), "/v1/sort?only_active=true&regex=").await.expect(200).json(),
        json!([])
    );
    assert_eq!(get(w.url(), "/v1/etl").await.expect(200).json(), json!([]));
    let s3 = get(w.url(), "/s3/nobodys/k").await.expect(404).text();
    assert!(s3.contains("<Code>NoSuchBucket</Code>"), "{s3}");
    get(w.url(), "/readyz").await.expect(200);
    let metrics = get(w.url(), "/metrics").await.expect(200).text();
    assert!(metrics.contains("forebay_cluster_get_bytes_total{result=\"hit\"} 10"), "{metrics}");
    assert!(
        metrics.contains("forebay_cluster_nodes{role=\"target\",state=\"alive\"} 2"),
        "{metrics}"
    );
    assert!(metrics.contains("\nforebay_cluster_has_leader 1\n"), "{metrics}");
    assert!(
        metrics.contains("forebay_http_requests_total{api=\"v1\",op=\"daemon\",result=\"ok\"}")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_decommissions_itself_by_its_proof_and_no_other_node() {
    let w = World::new(1, 3).await;
    let secret = ClusterSecret::new(SECRET).unwrap();
    let id = |n: usize| NodeId::new(&w.targets[n].id).unwrap();
    let peer = PeerClient::new(Signer::new(secret, id(0), 1 << 40));
    let ask = async |n: usize| {
        let request = DecommissionRequest { id: id(n) };
        peer.post_json::<_, ()>(w.url(), DECOMMISSION_PATH, &request).await.map_err(Error::from)
    };
    let refused = ask(1).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::AccessDenied, "{refused}");
    assert!(refused.message.contains("target-00 asks to decommission target-01"), "{refused}");
    assert!(!map(w.url()).await.unwrap().state.targets().any(|node| node.maintenance));
    ask(0).await.unwrap();
    // Without objects nothing has to move.
    until("removal of the target", async || {
        let state = map(w.url()).await?.state;
        state.node(&id(0)).is_none_or(|node| node.leaving.is_some()).then_some(())
    })
    .await;
    assert!(map(w.url()).await.unwrap().state.node(&id(1)).is_some());
}

//! Several gateways, restarts, and what is shown of the cluster.

use serde_json::{Value, json};

use crate::wire::{act, get, send};
use crate::world::{World, map, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_through_any_gateway_is_seen_at_once_at_every_gateway() {
    let mut w = World::new(3, 1).await;
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
    let map = map(&w.gateways[2].url).await.unwrap();
    assert_eq!(map.primary.as_str(), "gateway-0");
    until("report of the target at a follower", async || {
        let info = get(&w.gateways[1].url, "/api/v1/cluster").await.expect(200).json();
        let nodes = info["nodes"].as_array().unwrap().clone();
        nodes.iter().any(|n| n["role"] == "target" && n["usage"]["objects"] == 7).then_some(())
    })
    .await;
    // Without the primary, what is known is still served and changes are refused for now.
    act(w.url(), "POST", "/v1/buckets/kept", "create-bck", Value::Null).await.expect(200);
    w.gateways.remove(0).stop().await;
    let follower = &w.gateways[0].url;
    get(follower, "/v1/objects/kept/o").await.expect(301);
    act(follower, "POST", "/v1/buckets/c", "create-bck", Value::Null).await.expect(503);
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
    for path in ["join", "heartbeat", "leave", "command", "state"] {
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
    get(w.url(), "/v1/etl").await.expect(501);
    let s3 = get(w.url(), "/s3/b/k").await.expect(501).text();
    assert!(s3.contains("<Code>NotImplemented</Code>"));
    get(w.url(), "/readyz").await.expect(200);
    let metrics = get(w.url(), "/metrics").await.expect(200).text();
    assert!(metrics.contains("forebay_get_bytes_total{result=\"hit\"} 10"), "{metrics}");
    assert!(
        metrics.contains("forebay_http_requests_total{api=\"v1\",op=\"daemon\",result=\"ok\"}")
    );
}

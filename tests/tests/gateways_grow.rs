//! Gateways that come and go while the cluster works: the group grows, shrinks, and replaces those
//! that died.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_tests::cluster::{NodeHandle, is_running, native};
use forebay_tests::data::{content, names};
use forebay_tests::{Cluster, Options, http, wait};

use crate::leader::{BUCKET, SIZE, knows, read, try_create};

const TIMEOUT: Duration = Duration::from_secs(30);

/// One gateway, two targets, and a bucket with objects.
async fn one() -> (Cluster, Vec<String>) {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let client = cluster.client();
    client.create_bucket(&native(BUCKET), None).await.unwrap();
    let names = names(12);
    for name in &names {
        client.put(&native(BUCKET), name, content(name, SIZE), None).await.unwrap();
    }
    (cluster, names)
}

/// The first gateway of a cluster and two that came later.
fn grow(cluster: &Cluster) -> [NodeHandle; 3] {
    let first = cluster.gateways[0].clone();
    let second = cluster.add_gateway("gateway-b", &[&first.url]);
    // It need not know of the first one.
    let third = cluster.add_gateway("gateway-c", &[&second.url]);
    [first, second, third]
}

/// The status of the response; 0 without a response.
fn create(gateway: &NodeHandle, bucket: &str) -> u16 {
    try_create(&gateway.url, bucket).map_or(0, |answer| answer.status)
}

/// Removes a gateway through another one, as an operator does.
fn remove(through: &NodeHandle, id: &str) -> http::Answer {
    let body = serde_json::json!({"action": "decommission-node", "value": {"sid": id}});
    let asked = http::request("PUT", &format!("{}/v1/cluster", through.url)).json(&body);
    asked.within(TIMEOUT).send()
}

/// Ids of the gateways in the map of one of them.
fn gateways_of(cluster: &Cluster, gateway: &NodeHandle) -> Vec<String> {
    let map = cluster.map_of(&gateway.url).map(|map| map.state);
    map.iter().flat_map(|state| state.gateways()).map(|node| node.id.to_string()).collect()
}

/// The one of `gateways` that all of them have as the leader.
fn leader(cluster: &Cluster, gateways: &[&NodeHandle]) -> usize {
    let mut found = None;
    wait::until("the gateways agree on a leader", TIMEOUT, || {
        let mut said =
            gateways.iter().map(|gateway| cluster.map_of(&gateway.url).map(|m| m.primary));
        let first = said.next().flatten();
        let at = gateways.iter().position(|g| first.as_ref().is_some_and(|id| id.as_str() == g.id));
        found = at.filter(|_| said.all(|other| other == first));
        found.is_some()
    });
    found.unwrap()
}

/// Reads, and makes and removes buckets, through one gateway until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Vec<String>>,
}

impl Load {
    fn start(gateway: &NodeHandle, names: &[String]) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (stop.clone(), done.clone());
        let (gateway, names) = (gateway.clone(), names.to_vec());
        let thread = std::thread::spawn(move || {
            let mut failed = Vec::new();
            let mut made = 0;
            for (n, name) in names.iter().cycle().enumerate() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                failed.extend(read(&gateway.url, name).err());
                if n % 10 == 0 {
                    made += 1;
                    let status = create(&gateway, &format!("load-{}-{made}", gateway.id));
                    failed.extend((status != 200).then(|| format!("create: {status}")));
                }
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
            failed
        });
        Self { stop, done, thread }
    }

    fn wait_for(&self, more: usize) {
        let enough = self.done.load(Ordering::SeqCst) + more;
        wait::until("the load goes on", TIMEOUT, || self.done.load(Ordering::SeqCst) >= enough);
    }

    fn assert_none_failed(self) {
        self.stop.store(true, Ordering::SeqCst);
        let failed = self.thread.join().unwrap();
        assert!(failed.is_empty(), "{} requests failed: {:?}", failed.len(), &failed[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_becomes_three_under_load_and_the_first_may_die() {
    let (cluster, names) = one().await;
    let load = Load::start(&cluster.gateways[0], &names);
    load.wait_for(20);
    let [first, second, third] = grow(&cluster);
    load.wait_for(20);
    load.assert_none_failed();
    for gateway in [&first, &second, &third] {
        assert_eq!(gateways_of(&cluster, gateway), ["gateway-b", "gateway-c", "gateway1"]);
        assert!(names.iter().all(|name| read(&gateway.url, name).is_ok()));
        assert_eq!(create(gateway, &format!("by-{}", gateway.id)), 200);
    }
    // A client that has the addresses of all three works without the first one, and so do targets.
    let client = cluster.client();
    client.refresh_map().await.unwrap();
    cluster.kill9(&first.id);
    for (n, gateway) in [&second, &third].into_iter().enumerate() {
        let bucket = format!("after{n}");
        wait::until("changes go on", TIMEOUT, || matches!(create(gateway, &bucket), 200 | 409));
        assert!(knows(&second.url, &bucket) && knows(&third.url, &bucket));
    }
    wait::until("the dead one is known as such", TIMEOUT, || {
        !is_alive(&cluster, &second, &first.id)
    });
    client.put(&native("after1"), "new", content("new", SIZE), None).await.unwrap();
    assert!(names.iter().all(|name| read(&second.url, name).is_ok()));
    // It restarts with its own configuration, which names only itself.
    cluster.launch(&first, "");
    wait::until("the first is back", TIMEOUT, || is_alive(&cluster, &third, &first.id));
    wait::until("it knows what came meanwhile", TIMEOUT, || knows(&first.url, "after1"));
    assert_eq!(create(&first, "through-it"), 200);
    assert!(knows(&second.url, "through-it") && knows(&third.url, "through-it"));
}

fn is_ready(gateway: &NodeHandle) -> bool {
    let asked = http::request("GET", &format!("{}/readyz", gateway.url)).try_send();
    asked.is_ok_and(|answer| answer.status == 200)
}

fn is_alive(cluster: &Cluster, through: &NodeHandle, id: &str) -> bool {
    let map = cluster.map_of(&through.url);
    map.is_some_and(|map| map.state.nodes.values().any(|n| n.alive && n.id.as_str() == id))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_removed_and_another_one_leads() {
    let (cluster, names) = one().await;
    let [first, second, third] = grow(&cluster);
    let all = [&first, &second, &third];
    let led = leader(&cluster, &all);
    let rest: Vec<&NodeHandle> = all.into_iter().filter(|g| g.id != all[led].id).collect();
    let pid = cluster.pid(&all[led].id);
    // The request goes to the gateway that is removed.
    let answer = remove(all[led], &all[led].id);
    assert_eq!(answer.status, 200, "{}", answer.text());
    wait::until("its process ends", TIMEOUT, || !is_running(pid));
    for gateway in &rest {
        wait::until("the map is without it", TIMEOUT, || {
            !gateways_of(&cluster, gateway).contains(&all[led].id)
        });
        assert!(names.iter().all(|name| read(&gateway.url, name).is_ok()));
        wait::until("changes go on", TIMEOUT, || {
            matches!(create(gateway, &format!("after-{}", gateway.id)), 200 | 409)
        });
    }
    leader(&cluster, &rest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_gateway_is_removed_and_replaced_and_its_return_disturbs_nothing() {
    let (cluster, names) = one().await;
    let [first, second, third] = grow(&cluster);
    cluster.kill9(&third.id);
    // With the other gateway dead, a removal of the living one would leave no majority.
    let refused = remove(&first, &second.id);
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("cannot be taken out"), "{}", refused.text());
    assert_eq!(gateways_of(&cluster, &first).len(), 3);
    assert_eq!(remove(&second, &third.id).status, 200);
    wait::until("the other one knows", TIMEOUT, || {
        gateways_of(&cluster, &first) == ["gateway-b", "gateway1"]
    });

    let fourth = cluster.add_gateway("gateway-d", &[&first.url, &second.url]);
    let three = [&first, &second, &fourth];
    let led = leader(&cluster, &three);
    let term = http::get(&format!("{}/api/v1/leader", three[led].url)).json()["term"].clone();
    let load = Load::start(&first, &names);
    cluster.launch(&third, "");
    let log = cluster.dir().join(&third.id).join("log");
    let said = || std::fs::read_to_string(&log).unwrap();
    wait::until("it says what happened", TIMEOUT, || {
        said().contains("was removed from the cluster's gateways") && said().contains("meta.redb")
    });
    wait::until("it ends", TIMEOUT, || !is_running(cluster.pid(&third.id)));
    load.wait_for(20);
    load.assert_none_failed();
    assert_eq!(leader(&cluster, &three), led);
    let after = http::get(&format!("{}/api/v1/leader", three[led].url)).json()["term"].clone();
    assert_eq!(term, after, "nobody asked for votes");
    assert_eq!(gateways_of(&cluster, &first).len(), 3);

    // It may join again as a new gateway.
    std::fs::remove_file(cluster.dir().join(&third.id).join("state/meta.redb")).unwrap();
    cluster.launch(&third, "");
    wait::until("it is one of four", TIMEOUT, || gateways_of(&cluster, &third).len() == 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_came_later_and_lost_its_disk_gets_all_of_it_again() {
    let (cluster, names) = one().await;
    let [first, second, third] = grow(&cluster);
    cluster.kill9(&third.id);
    std::fs::remove_file(cluster.dir().join(&third.id).join("state/meta.redb")).unwrap();
    assert_eq!(create(&first, "meanwhile"), 200);
    cluster.launch(&third, "");
    wait::until("it knows what came meanwhile", TIMEOUT, || knows(&third.url, "meanwhile"));
    wait::until("it is ready", TIMEOUT, || is_ready(&third));
    assert!(is_alive(&cluster, &first, &third.id));
    assert!(names.iter().all(|name| read(&third.url, name).is_ok()));
    // It votes once it is ready: with it, the rest is a majority.
    cluster.kill9(&second.id);
    wait::until("two agree", TIMEOUT, || create(&third, "by-two") == 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_gateway_is_not_removed() {
    let (cluster, _) = one().await;
    let (text, code) = cluster.cli(&["node", "remove", "gateway1"]);
    assert_eq!(code, 6, "{text}");
    assert!(text.contains("only gateway"), "{text}");
    let second = cluster.add_gateway("gateway-b", &[&cluster.endpoint]);
    let (text, code) = cluster.cli(&["node", "remove", "gateway-b"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(gateways_of(&cluster, &cluster.gateways[0]), ["gateway1"]);
    wait::until("it stops answering", TIMEOUT, || {
        http::request("GET", &format!("{}/healthz", second.url)).try_send().is_err()
    });
    assert_eq!(create(&cluster.gateways[0], "alone-again"), 200);
}

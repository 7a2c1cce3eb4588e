//! Three gateways, one of which leads: requests while gateways die, and state that survives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::state::Role;
use forebay_tests::cluster::native;
use forebay_tests::data::{content, names};
use forebay_tests::http::Answer;
use forebay_tests::{Cluster, Options, http, wait};

pub(crate) const SIZE: usize = 20_000;
const TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const BUCKET: &str = "before";

/// Three gateways, three targets, and a bucket with objects.
async fn three() -> (Cluster, Vec<String>) {
    let cluster = Cluster::start(Options { gateways: 3, ..Options::default() });
    let client = cluster.client();
    client.create_bucket(&native(BUCKET), None).await.unwrap();
    let names = names(24);
    for name in &names {
        client.put(&native(BUCKET), name, content(name, SIZE), None).await.unwrap();
    }
    (cluster, names)
}

/// Id of the gateway that leads, once all `gateways` (ids) agree on one of them.
fn leader(cluster: &Cluster, gateways: &[String]) -> String {
    let mut found = None;
    wait::until("the gateways agree on a leader", TIMEOUT, || {
        let mut said = gateways
            .iter()
            .map(|id| cluster.map_of(&url(cluster, id)).map(|map| map.primary.to_string()));
        let first = said.next().flatten();
        found = first.filter(|id| gateways.contains(id));
        said.all(|other| other == found) && found.is_some()
    });
    found.unwrap()
}

fn all(cluster: &Cluster) -> Vec<String> {
    cluster.gateways.iter().map(|gateway| gateway.id.clone()).collect()
}

fn url(cluster: &Cluster, id: &str) -> String {
    cluster.gateways.iter().find(|gateway| gateway.id == id).unwrap().url.clone()
}

fn without(ids: &[String], gone: &str) -> Vec<String> {
    ids.iter().filter(|id| *id != gone).cloned().collect()
}

fn create(gateway: &str, bucket: &str) -> Answer {
    try_create(gateway, bucket).unwrap_or_else(|e| panic!("{gateway}: {e}"))
}

pub(crate) fn try_create(gateway: &str, bucket: &str) -> std::io::Result<Answer> {
    let body = serde_json::json!({"action": "create-bck"});
    http::request("POST", &format!("{gateway}/v1/buckets/{bucket}")).json(&body).try_send()
}

pub(crate) fn knows(gateway: &str, bucket: &str) -> bool {
    let asked = http::request("HEAD", &format!("{gateway}/v1/buckets/{bucket}")).try_send();
    asked.is_ok_and(|answer| answer.status == 200)
}

/// Whether a read of an object of [`BUCKET`] through this gateway returns the right bytes; else the
/// failure.
pub(crate) fn read(gateway: &str, name: &str) -> Result<(), String> {
    let answer = http::request("GET", &format!("{gateway}/v1/objects/{BUCKET}/{name}")).follow();
    match answer.status {
        200 if answer.body == content(name, SIZE) => Ok(()),
        status => Err(format!("{status} {}", answer.text())),
    }
}

/// Reads continuously through some gateways, until stopped.
struct Readers {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<Vec<String>>>,
}

impl Readers {
    fn start(gateways: Vec<String>, names: &[String]) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let reader = |gateway: String| {
            let (stop, done, names) = (stop.clone(), done.clone(), names.to_vec());
            std::thread::spawn(move || {
                let mut failed = Vec::new();
                for name in names.iter().cycle().take_while(|_| !stop.load(Ordering::SeqCst)) {
                    failed.extend(read(&gateway, name).err());
                    done.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                }
                failed
            })
        };
        let threads = gateways.into_iter().map(reader).collect();
        Self { stop, done, threads }
    }

    fn wait_for(&self, more: usize) {
        let enough = self.done.load(Ordering::SeqCst) + more;
        wait::until("reads go on", TIMEOUT, || self.done.load(Ordering::SeqCst) >= enough);
    }

    fn assert_none_failed(self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            let failed = thread.join().unwrap();
            assert!(failed.is_empty(), "{} reads failed: {:?}", failed.len(), &failed[0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_the_leader_fails_no_read_and_another_takes_over() {
    let (cluster, names) = three().await;
    let killed = leader(&cluster, &all(&cluster));
    let others = without(&all(&cluster), &killed);
    let urls: Vec<String> = others.iter().map(|id| url(&cluster, id)).collect();
    let readers = Readers::start(urls.clone(), &names);
    readers.wait_for(50);
    cluster.kill9(&killed);
    readers.wait_for(50);
    for (i, gateway) in urls.iter().enumerate() {
        assert!(knows(gateway, BUCKET));
        let made = format!("after{i}");
        wait::until("a bucket can be created again", TIMEOUT, || {
            matches!(create(gateway, &made).status, 200 | 409)
        });
        assert!(urls.iter().all(|gateway| knows(gateway, &made)), "both know {made}");
    }
    assert_ne!(leader(&cluster, &others), killed);
    // The new leader uses its own heartbeats: only the killed gateway is dead.
    let dead = |gateway: &String| -> Vec<String> {
        let state = cluster.map_of(gateway).unwrap().state;
        state.nodes.values().filter(|n| !n.alive).map(|n| n.id.to_string()).collect()
    };
    wait::until("both have it dead", TIMEOUT, || {
        urls.iter().all(|url| dead(url) == [killed.clone()])
    });
    readers.wait_for(50);
    readers.assert_none_failed();

    cluster.restart(&killed);
    let back = url(&cluster, &killed);
    wait::until("it knows what was made meanwhile", TIMEOUT, || knows(&back, "after1"));
    for name in &names {
        read(&back, name).unwrap();
    }
    assert_eq!(create(&back, "through-it").status, 200);
    assert!(urls.iter().all(|gateway| knows(gateway, "through-it")));
    // It votes again: with it, the rest is a majority when another one dies.
    cluster.kill9(&others[0]);
    wait::until("the two that are left agree", TIMEOUT, || create(&back, "by-two").status == 200);
    assert!(knows(&urls[1], "by-two"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_made_through_any_gateway_is_immediately_visible_at_all() {
    let cluster = Cluster::start(Options { gateways: 3, ..Options::default() });
    for via in &cluster.gateways {
        for n in 0..5 {
            let bucket = format!("{}-{n}", via.id);
            assert_eq!(create(&via.url, &bucket).status, 200, "{bucket}");
            for gateway in &cluster.gateways {
                assert!(knows(&gateway.url, &bucket), "{} does not know {bucket}", gateway.id);
            }
            assert_eq!(create(&via.url, &bucket).status, 409, "{bucket} is there");
        }
    }
    let states: Vec<_> =
        cluster.gateways.iter().map(|g| cluster.map_of(&g.url).unwrap().state).collect();
    assert_eq!(states[0].buckets, states[1].buckets);
    assert_eq!(states[0].buckets, states[2].buckets);
    assert_eq!(states[0].nodes.values().filter(|n| n.role == Role::Gateway).count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_of_three_gateways_answers_reads_and_changes_nothing() {
    let (cluster, names) = three().await;
    // The former leader is left: it must notice that no majority confirms it any more.
    let left = leader(&cluster, &all(&cluster));
    let gone = without(&all(&cluster), &left);
    for id in &gone {
        cluster.kill9(id);
    }
    let gateway = url(&cluster, &left);
    for attempt in ["first", "second"] {
        let answer = create(&gateway, attempt);
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
        for name in &names {
            read(&gateway, name).unwrap();
        }
    }
    assert!(knows(&gateway, BUCKET));
    let answer = http::request("PUT", &format!("{gateway}/v1/objects/{BUCKET}/new"));
    let answer = answer.body("bytes").follow();
    assert_eq!(answer.status, 503, "others may decide who answers for it: {}", answer.text());
    assert!(answer.header("retry-after").is_some());
    cluster.restart(&gone[0]);
    wait::until("two make a majority", TIMEOUT, || create(&gateway, "third").status == 200);
    assert!(knows(&url(&cluster, &gone[0]), "third"));
    for name in &names {
        read(&gateway, name).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_all_gateways_die_simultaneously() {
    let (mut cluster, names) = three().await;
    let acknowledged: Vec<String> = (0..10).map(|n| format!("b{n}")).collect();
    for (n, bucket) in acknowledged.iter().enumerate() {
        assert_eq!(create(&cluster.gateways[n % 3].url, bucket).status, 200);
    }
    let before = cluster.map().state;
    for id in all(&cluster) {
        cluster.kill9(&id);
    }
    cluster.stop();
    let cluster = cluster.start_again(None);
    for gateway in &cluster.gateways {
        let after = cluster.map_of(&gateway.url).unwrap().state;
        assert_eq!((&after.cluster_id, &after.buckets), (&before.cluster_id, &before.buckets));
        assert!(after.version >= before.version);
        for name in &names {
            read(&gateway.url, name).unwrap();
        }
    }
    assert_eq!(create(&cluster.endpoint, "after").status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_lost_its_metadata_gets_all_of_it_again() {
    let (cluster, names) = three().await;
    let leading = leader(&cluster, &all(&cluster));
    let lost = without(&all(&cluster), &leading)[0].clone();
    cluster.kill9(&lost);
    std::fs::remove_file(cluster.dir().join(&lost).join("state/meta.redb")).unwrap();
    cluster.restart(&lost);
    let gateway = url(&cluster, &lost);
    assert!(knows(&gateway, BUCKET));
    for name in &names {
        read(&gateway, name).unwrap();
    }
    // The leader kept running, and replicates the log to the gateway that came back empty.
    assert_eq!(create(&gateway, "after").status, 200);
    assert_eq!(leader(&cluster, &all(&cluster)), leading);
    let third = without(&without(&all(&cluster), &leading), &lost)[0].clone();
    cluster.kill9(&third);
    wait::until("the two that are left agree", TIMEOUT, || {
        create(&gateway, "by-two").status == 200
    });
}

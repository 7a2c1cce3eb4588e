//! Backups of what the gateways know, and clusters that begin from one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::intra::ClusterInfo;
use forebay_tests::cluster::native;
use forebay_tests::data::{content, names};
use forebay_tests::{Cluster, Options, http, wait};

const SIZE: usize = 20_000;
const TIMEOUT: Duration = Duration::from_secs(30);

fn settings(cluster: &Cluster, id: &str) -> PathBuf {
    cluster.dir().join(id).join("forebay.toml")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Kills all gateways and takes what they kept.
fn lose_gateways(cluster: &Cluster) {
    for gateway in &cluster.gateways {
        cluster.kill9(&gateway.id);
        let file = cluster.dir().join(&gateway.id).join("state/meta.redb");
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_lost_their_disks_come_back_from_a_backup_with_every_object() {
    let cluster = Cluster::start(Options { gateways: 3, ..Options::default() });
    let client = cluster.client();
    let (bucket, later) = (native("kept"), native("later"));
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(24);
    for name in &names {
        client.put(&bucket, name, content(name, SIZE), None).await.unwrap();
    }
    let file = cluster.dir().join("cluster.forebay");
    let (said, code) = cluster.cli(&["cluster", "backup", text(&file)]);
    assert_eq!(code, 0, "{said}");
    let before = cluster.map().state;
    client.create_bucket(&later, None).await.unwrap();
    client.put(&later, "o", content("o", SIZE), None).await.unwrap();

    lose_gateways(&cluster);
    for gateway in &cluster.gateways {
        let config = settings(&cluster, &gateway.id);
        let restore = ["cluster", "restore", text(&file), "--config", text(&config)];
        let (said, code) = cluster.cli(&restore);
        assert_eq!(code, 0, "{said}");
        let (said, code) = cluster.cli(&restore);
        assert!(code != 0 && said.contains("holds the metadata of a cluster"), "{said}");
    }
    std::thread::scope(|scope| {
        for gateway in &cluster.gateways {
            let cluster = &cluster;
            scope.spawn(|| cluster.restart(&gateway.id));
        }
    });
    let is_whole = || cluster.targets.iter().all(|target| cluster.is_alive(&target.id));
    wait::until("the targets are back", TIMEOUT, is_whole);

    let state = cluster.map().state;
    assert_eq!(state.cluster_id, before.cluster_id);
    assert!(state.version > before.version, "{} after {}", state.version, before.version);
    // The client knew a later state of the lost cluster.
    for name in &names {
        let bytes = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_eq!(bytes, content(name, SIZE), "{name}");
    }
    let listed = client.list_all(&bucket, "").await.unwrap();
    assert_eq!(listed.len(), names.len(), "{listed:?}");
    let fresh = cluster.client();
    let gone = fresh.get_bytes(&later, "o", None).await.unwrap_err();
    assert!(gone.to_string().contains("later"), "{gone}");
    // Its id is not given to another: what lies under it would be taken for that one's.
    fresh.create_bucket(&later, None).await.unwrap();
    let empty = fresh.list_all(&later, "").await.unwrap();
    assert!(empty.is_empty(), "{empty:?}");
    fresh.put(&bucket, "new", content("new", SIZE), None).await.unwrap();
    assert_eq!(fresh.get_bytes(&bucket, "new", None).await.unwrap(), content("new", SIZE));
    let kept = || {
        let info = http::request("GET", &format!("{}/api/v1/cluster", cluster.endpoint)).send();
        let info: ClusterInfo = serde_json::from_slice(&info.body).unwrap();
        info.nodes.iter().map(|node| node.usage.objects).sum::<u64>()
    };
    let all = names.len() as u64 + 2;
    wait::until("what the backup does not tell of lies there too", TIMEOUT, || kept() == all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_whole_backup_is_refused_and_begins_nothing() {
    let cluster = Cluster::plain();
    cluster.client().create_bucket(&native("b"), None).await.unwrap();
    let file = cluster.dir().join("cluster.forebay");
    let (said, code) = cluster.cli(&["cluster", "backup", text(&file)]);
    assert_eq!(code, 0, "{said}");
    let (said, code) = cluster.cli(&["cluster", "restore", text(&file), "--dry-run", "-o", "json"]);
    assert_eq!(code, 0, "{said}");
    let shown: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&shown["buckets"], &shown["restored"]), (&1.into(), &false.into()), "{said}");

    let config = settings(&cluster, &cluster.gateways[0].id);
    let restore = ["cluster", "restore", text(&file), "--config", text(&config)];
    let (said, code) = cluster.cli(&restore);
    assert!(code != 0 && said.contains("meta.redb"), "a gateway runs there: {said}");

    lose_gateways(&cluster);
    let whole = std::fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let cases = [
        (whole[..whole.len() / 2].to_vec(), "damaged"),
        (flipped, "damaged"),
        (b"[cluster]\n".to_vec(), "no backup"),
    ];
    for (bytes, why) in cases {
        std::fs::write(&file, bytes).unwrap();
        let (said, code) = cluster.cli(&restore);
        assert!(code != 0 && said.contains(why), "{said}");
    }
    std::fs::write(&file, whole).unwrap();
    let (said, code) = cluster.cli(&restore);
    assert_eq!(code, 0, "{said}");
}

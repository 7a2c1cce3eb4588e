//! Targets that come back under their id with empty disks.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_tests::cluster::{Process, command, native, wait_for_end};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::{Cluster, http, wait};

const TIMEOUT: Duration = Duration::from_secs(90);

/// Kills a target and empties its disks.
fn lose_disks(cluster: &Cluster, id: &str) {
    cluster.kill9(id);
    wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(id));
    let text = std::fs::read_to_string(cluster.dir().join("dev.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let target = json["targets"].as_array().unwrap().iter().find(|t| t["id"] == id).unwrap();
    for disk in target["disks"].as_array().unwrap() {
        let disk = PathBuf::from(disk.as_str().unwrap());
        std::fs::remove_dir_all(&disk).unwrap();
        std::fs::create_dir(&disk).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_disks_under_a_known_id_are_refused_until_what_it_had_is_given_up() {
    let cluster = Cluster::plain();
    let (client, bucket) = (cluster.client(), native("once"));
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(60);
    for name in &names {
        client.put(&bucket, name, content(name, 1000), None).await.unwrap();
    }
    let lost = cluster.targets[1].clone();
    let on_it = |name: &&String| cluster.owner(&bucket, name).id == lost.id;
    let (gone, left): (Vec<&String>, Vec<&String>) = names.iter().partition(on_it);
    assert!(!gone.is_empty() && !left.is_empty());
    lose_disks(&cluster, &lost.id);

    // Twice: files that the first start left on the disks make no difference.
    for _ in 0..2 {
        let config = cluster.dir().join(&lost.id).join("forebay.toml");
        let mut start = command(["target", "--config", config.to_str().unwrap()]);
        let child = start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut process = Process(child);
        let status = wait_for_end(&mut process.0, TIMEOUT).expect("it ends by itself");
        let mut said = String::new();
        std::io::Read::read_to_string(process.0.stderr.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(status.code(), Some(2), "{said}");
        let remove = format!("forebay node remove {} --lost", lost.id);
        for part in ["the disks of target02 are empty", "ais://once", &remove] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
    assert!(!cluster.is_alive(&lost.id));
    for name in &gone {
        let read = http::request("GET", &cluster.object_url("once", name)).follow();
        assert_eq!(read.status, 503, "{name}: {}", read.text());
    }
    for name in &left {
        assert_same(
            name,
            &client.get_bytes(&bucket, name, None).await.unwrap(),
            &content(name, 1000),
        );
    }

    let (text, code) = cluster.cli(&["node", "remove", &lost.id, "--lost"]);
    assert_eq!(code, 0, "{text}");
    cluster.launch(&lost, "");
    wait::until("it is a member again", TIMEOUT, || cluster.is_alive(&lost.id));
    wait::until("all is in its place", TIMEOUT, || cluster.map().state.is_quiescent());
    for name in &gone {
        let missing = client.get_bytes(&bucket, name, None).await.unwrap_err();
        assert_eq!(missing.code(), ErrorCode::ObjectNotFound, "{name} was given up");
    }
    for name in &left {
        assert_same(
            name,
            &client.get_bytes(&bucket, name, None).await.unwrap(),
            &content(name, 1000),
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_disks_are_filled_again_where_all_objects_have_copies_elsewhere() {
    let cluster = Cluster::plain();
    let (client, bucket) = (cluster.client(), native("twice"));
    client.create_bucket(&bucket, None).await.unwrap();
    let (text, code) = cluster.cli(&["bucket", "set", "ais://twice", "copies=2"]);
    assert_eq!(code, 0, "{text}");
    let names = names(40);
    for name in &names {
        client.put(&bucket, name, content(name, 1000), None).await.unwrap();
    }
    let lost = cluster.targets[1].clone();
    lose_disks(&cluster, &lost.id);
    cluster.restart(&lost.id);
    wait::until("all have their copies", TIMEOUT, || cluster.map().state.is_quiescent());
    for name in &names {
        assert_same(
            name,
            &client.get_bytes(&bucket, name, None).await.unwrap(),
            &content(name, 1000),
        );
    }
}

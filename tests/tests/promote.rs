//! Promotion of files: which files of the machine a job makes objects of.

use forebay_tests::cluster::native;
use forebay_tests::{Cluster, Options, http, wait};
use serde_json::{Value, json};
use std::time::Duration;

/// Starts a promotion of everything below a folder, and waits until the job ends.
fn promote(cluster: &Cluster, bucket: &str, source: &str) -> Value {
    let value = json!({"src": source, "obj": "", "rcr": true});
    let action = json!({"action": "promote", "name": source, "value": value});
    let url = format!("{}/v1/objects/{bucket}?provider=ais", cluster.endpoint);
    let started = http::request("POST", &url).json(&action).follow();
    assert_eq!(started.status, 200, "{}", started.text());
    let question = json!({"id": started.text(), "kind": ""});
    let url = format!("{}/v1/cluster?what=status", cluster.endpoint);
    let mut status = Value::Null;
    wait::until("the promotion ends", Duration::from_secs(20), || {
        status = http::request("GET", &url).json(&question).send().json();
        status["end_time"].as_i64().is_some_and(|end| end != 0)
    });
    status
}

#[tokio::test]
async fn links_and_sockets_below_the_root_become_no_objects() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let env = vec![("FOREBAY_PROMOTE__ROOT".to_owned(), root.path().display().to_string())];
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let bucket = native("links");
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    let folder = root.path().join("in");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::create_dir(outside.path().join("deep")).unwrap();
    for file in ["secret", "deep/secret"] {
        std::fs::write(outside.path().join(file), "of another").unwrap();
    }
    std::fs::write(folder.join("sub/file"), "bytes").unwrap();
    let link = |to: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    };
    link(&outside.path().join("secret"), "to-a-file");
    link(outside.path(), "to-a-folder");
    link(std::path::Path::new("../../../../../../etc/passwd"), "relative");
    link(std::path::Path::new("/dev/zero"), "sub/to-a-device");
    link(&folder, "sub/to-itself");
    let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
    let status = promote(&cluster, "links", folder.to_str().unwrap());
    assert_eq!(status["err"], "", "{status}");
    let listed = cluster.client().list_all(&bucket, "").await.unwrap();
    let names: Vec<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["sub/file"]);
}

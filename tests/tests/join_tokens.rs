//! Targets that join by a token, without the secret of the cluster.

use std::fs;
use std::time::Duration;

use forebay_tests::cluster::{Cluster, NodeHandle};
use forebay_tests::http;
use forebay_tests::private_file::write_private;
use forebay_tests::s3::{self, User};
use forebay_tests::users::send;
use forebay_tests::{Options, Users, wait};
use serde_json::{Value, json};

fn users(gateways: u16) -> Users {
    let users = Users::start(Options { gateways, targets: 2, ..Options::default() });
    wait::until("all nodes have keys", Duration::from_secs(10), || {
        let answer = ask(&users, "POST", "join-tokens", &json!({"ttl_s": 1}));
        assert!(matches!(answer.status, 200 | 409), "{}", answer.text());
        answer.status == 200
    });
    users
}

fn ask(users: &Users, method: &str, path: &str, body: &Value) -> http::Answer {
    let url = format!("{}/api/v1/auth/{path}", users.cluster.endpoint);
    send(method, &url, Some(&users.root), body)
}

fn token(users: &Users, request: &Value) -> (String, String) {
    let reply = users.auth("POST", "join-tokens", request).json();
    let text = |name: &str| reply[name].as_str().unwrap().to_owned();
    (text("id"), text("token"))
}

/// Starts a target that has the token in a file, and no secret of the cluster.
fn launch(cluster: &Cluster, id: &str, token: &str) -> NodeHandle {
    launch_as(cluster, id, id, token)
}

/// [`launch`], with the id of another target than the folder is named after.
fn launch_as(cluster: &Cluster, id: &str, claimed: &str, token: &str) -> NodeHandle {
    let node = cluster.prepare_target(id);
    let settings = cluster.dir().join(id).join("forebay.toml");
    let file = cluster.dir().join(id).join("join-token");
    write_private(&file, token);
    let text = fs::read_to_string(&settings).unwrap();
    let lines = text.lines().map(|line| match line.split(" = ").next() {
        Some("secret_file") => "secret_file = \"\"".to_owned(),
        Some("join_token_file") => format!("join_token_file = {file:?}"),
        Some("id") => format!("id = {claimed:?}"),
        _ => line.to_owned(),
    });
    let text: Vec<_> = lines.collect();
    assert!(text.iter().any(|line| line.starts_with("join_token_file")), "{text:?}");
    fs::write(&settings, text.join("\n")).unwrap();
    cluster.launch(&node, "");
    node
}

/// Whether the map has the target, alive. It takes a token.
fn is_alive(users: &Users, id: &str) -> bool {
    let url = format!("{}/api/v1/map", users.cluster.endpoint);
    let map = send("GET", &url, Some(&users.root), &Value::Null).json();
    map["state"]["nodes"][id]["alive"] == true
}

fn joined(users: &Users, id: &str) {
    wait::until("the target is a member", Duration::from_secs(20), || is_alive(users, id));
}

/// Waits until the target has logged that it is refused, and checks that it is no member.
fn refused(users: &Users, id: &str) {
    let cluster = &users.cluster;
    let log = cluster.dir().join(id).join("log");
    wait::until("the refusal is logged", Duration::from_secs(20), || {
        fs::read_to_string(&log).unwrap().contains("forebay node join-token create")
    });
    assert!(!is_alive(users, id));
    cluster.kill9(id);
}

/// Writes and reads objects by S3 at this node, which verifies the signatures.
fn serves_s3(node: &NodeHandle, user: User) {
    for n in 0..8 {
        let what = format!("joined/o{n}");
        let put = s3::request("PUT", &node.url, &what).body("content").send_as(user);
        assert_eq!(put.status, 200, "{}", put.text());
        let get = s3::request("GET", &node.url, &what).send_as(user);
        assert_eq!((get.status, get.text().as_str()), (200, "content"));
    }
}

#[test]
fn a_target_joins_by_a_token_and_returns_without_one() {
    let users = users(3);
    let cluster = &users.cluster;
    users.add("ann", &["admin"]);
    let key = users.key("ann");
    let made = s3::request("PUT", &cluster.endpoint, "joined").send_as(key);
    assert_eq!(made.status, 200, "{}", made.text());
    let (id, text) = token(&users, &json!({"node": "target-09"}));
    let listed = users.auth("GET", "join-tokens", &Value::Null);
    assert!(listed.text().contains(&id) && !listed.text().contains(&text), "{}", listed.text());
    let node = launch(cluster, "target-09", &text);
    joined(&users, "target-09");
    serves_s3(&node, key);
    let listed = users.auth("GET", "join-tokens", &Value::Null);
    assert!(!listed.text().contains(&id), "used up: {}", listed.text());
    // Its proofs are by its own key: it asks other targets, which ask it.
    for other in &cluster.targets {
        serves_s3(other, key);
    }
    // After a crash, with the file of the token gone, the recorded key proves who it is.
    fs::remove_file(cluster.dir().join("target-09/join-token")).unwrap();
    cluster.kill9("target-09");
    wait::until("the target counts as down", Duration::from_secs(20), || {
        !is_alive(&users, "target-09")
    });
    cluster.launch(&node, "");
    joined(&users, "target-09");
    // A member may be restarted before it has the cluster's users.
    wait::until("the target has the cluster's users", Duration::from_secs(20), || {
        let get = s3::request("GET", &node.url, "joined/o0").send_as(key);
        assert!([200, 503].contains(&get.status), "{}", get.text());
        get.status == 200
    });
    serves_s3(&node, key);
    let folder = cluster.dir().join("target-09");
    assert!(!fs::read_to_string(folder.join("log")).unwrap().contains(&text));
}

#[test]
fn a_restarted_target_without_gateways_refuses_no_key_for_good() {
    let users = users(1);
    let cluster = &users.cluster;
    users.add("ann", &["admin"]);
    let key = users.key("ann");
    let target = &cluster.targets[0];
    cluster.kill9("target01");
    for gateway in &cluster.gateways {
        cluster.kill9(&gateway.id);
    }
    cluster.launch(target, "");
    let health = format!("{}/healthz", target.url);
    wait::until("the target answers", Duration::from_secs(20), || {
        http::request("GET", &health).try_send().is_ok()
    });
    // It cannot know whether the key exists.
    let get = s3::request("GET", &target.url, "some/object").send_as(key);
    assert_eq!(get.status, 503, "{}", get.text());
    assert_eq!(get.header("retry-after"), Some("1"));
}

#[test]
fn a_token_that_is_used_up_removed_expired_or_of_another_node_admits_no_target() {
    let users = users(1);
    let cluster = &users.cluster;
    let (_, once) = token(&users, &json!({}));
    let first = launch(cluster, "target-07", &once);
    joined(&users, "target-07");
    let (_, bound) = token(&users, &json!({"node": "target-99"}));
    let (gone, removed) = token(&users, &json!({"uses": 5}));
    users.auth("DELETE", &format!("join-tokens/{gone}"), &Value::Null);
    let (_, expired) = token(&users, &json!({"ttl_s": 1}));
    std::thread::sleep(Duration::from_millis(2_100));
    let forged = format!("fbj-{gone}-0123456789012345678901234567890123456789012");
    for (n, text) in [once, bound, removed, expired, forged].iter().enumerate() {
        let id = format!("target-1{n}");
        launch(cluster, &id, text);
        refused(&users, &id);
    }
    // A second process with the id of a member needs the member's key.
    let (_, fresh) = token(&users, &json!({}));
    launch_as(cluster, "target-08", "target-07", &fresh);
    let log = cluster.dir().join("target-08/log");
    wait::until("the second process is refused", Duration::from_secs(20), || {
        fs::read_to_string(&log).unwrap().contains("is alive")
    });
    cluster.kill9("target-08");
    assert_eq!(http::get(&format!("{}/healthz", first.url)).status, 200);
    assert!(is_alive(&users, "target-07"));
}

#[test]
fn the_list_of_join_tokens_has_only_those_that_have_not_expired() {
    let users = users(1);
    let (expired, _) = token(&users, &json!({"ttl_s": 1}));
    let (valid, _) = token(&users, &json!({}));
    let listed = || users.auth("GET", "join-tokens", &Value::Null).text();
    wait::until("the token is no longer listed", Duration::from_secs(10), || {
        !listed().contains(&expired)
    });
    assert!(listed().contains(&valid));
}

#[test]
fn a_cluster_without_users_makes_no_join_tokens() {
    let cluster = Cluster::plain();
    let url = format!("{}/api/v1/auth/join-tokens", cluster.endpoint);
    let answer = send("POST", &url, None, &json!({}));
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert!(answer.text().contains("needs users"), "{}", answer.text());
}

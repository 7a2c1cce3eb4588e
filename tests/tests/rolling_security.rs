//! A cluster in use changes from open HTTP to HTTPS with users and new keys of its nodes, by the steps
//! of `docs/auth.md`. Our client sends requests through every gateway meanwhile, and none fails.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_client::tls::{TlsClient, TlsOptions};
use forebay_client::{Client, ClientConfig, TokenSource};
use forebay_core::NodeId;
use forebay_core::sign::{ClusterSecret, NO_BODY, NODE_AUTH_HEADER, NodeKey, Signer};
use forebay_tests::client_load::ClientLoad;
use forebay_tests::cluster::{self, NodeHandle, is_running, native};
use forebay_tests::users::PASSWORD;
use forebay_tests::{Cluster, Options, http, wait};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tls::{is_ready, make_certificates};

const TIMEOUT: Duration = Duration::from_secs(30);
/// A client looks for a changed token file once a second.
const TOKEN_FILE_INTERVAL: Duration = Duration::from_secs(1);

/// The person who runs the cluster: files, and the command line.
struct Operator {
    cluster: Cluster,
    ca: PathBuf,
    home: tempfile::TempDir,
}

/// A changed setting: section, key, value as TOML.
type Setting = (&'static str, &'static str, String);

impl Operator {
    fn gateways(&self, scheme: &str) -> Vec<String> {
        let url = |node: &NodeHandle| node.url.replace("http://", scheme);
        self.cluster.gateways.iter().map(url).collect()
    }

    /// The file that clients read their token from.
    fn token_file(&self) -> PathBuf {
        self.home.path().join("token")
    }

    /// One client for each gateway, which begins with this one and has the other endpoints too.
    fn clients(&self, scheme: &str) -> Vec<Client> {
        let mut endpoints = self.gateways(scheme);
        let mut clients = Vec::new();
        for _ in 0..endpoints.len() {
            let ca_file = Some(self.ca.clone());
            let tls = Some(TlsOptions { ca_file, ..TlsOptions::default() });
            let token = TokenSource::file(self.token_file());
            let config = ClientConfig { tls, token, ..ClientConfig::new(endpoints.join(",")) };
            clients.push(Client::new(config).unwrap());
            endpoints.rotate_left(1);
        }
        clients
    }

    /// Runs a command over HTTPS; returns its output, and whether it succeeded.
    fn try_forebay(&self, args: &[&str]) -> (String, bool) {
        let mut command = cluster::command(args);
        command.env("FOREBAY_ENDPOINT", self.gateways("https://").join(","));
        command.env("FOREBAY_CA_FILE", &self.ca).env("HOME", self.home.path());
        let done = command.env_remove("XDG_CONFIG_HOME").output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        (String::from_utf8(text).unwrap(), done.status.success())
    }

    #[track_caller]
    fn forebay(&self, args: &[&str]) -> String {
        let (text, is_done) = self.try_forebay(args);
        assert!(is_done, "{args:?}: {text}");
        text
    }

    /// Targets, then gateways; the leading one is the last.
    async fn order(&self, client: &Client) -> Vec<NodeHandle> {
        let leader = client.refresh_map().await.unwrap().primary.to_string();
        let mut gateways = self.cluster.gateways.clone();
        gateways.sort_by_key(|gateway| gateway.id == leader);
        self.cluster.targets.iter().cloned().chain(gateways).collect()
    }

    /// The file with the key of a node.
    fn key_file(&self, id: &str) -> PathBuf {
        self.cluster.dir().join(id).join("state/node.key")
    }

    fn key(&self, id: &str) -> NodeKey {
        let seed = std::fs::read_to_string(self.key_file(id)).unwrap();
        NodeKey::of_seed(&URL_SAFE_NO_PAD.decode(seed.trim()).unwrap().try_into().unwrap()).unwrap()
    }

    /// Stops a node, changes its settings, and starts it. Waits until it is ready. With `new_key` its key
    /// is removed meanwhile.
    async fn restart(&self, node: &NodeHandle, settings: &[Setting], new_key: bool) {
        let path = self.cluster.dir().join(&node.id).join("forebay.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let text = settings.iter().fold(text, |text, setting| with_setting(&text, setting));
        std::fs::write(&path, text).unwrap();
        let pid = self.cluster.pid(&node.id);
        cluster::signal(pid, "TERM");
        wait::until_async("the node stops", TIMEOUT, || async { !is_running(pid) }).await;
        if new_key {
            std::fs::remove_file(self.key_file(&node.id)).unwrap();
        }
        self.cluster.launch(node, "");
        let url = node.url.replace("http://", "https://");
        wait::until_async("the node is ready", TIMEOUT, || is_ready(&self.ca, &url)).await;
    }

    async fn restart_all(&self, client: &Client, settings: &[Setting], new_keys: bool) {
        for node in self.order(client).await {
            self.restart(&node, settings, new_keys).await;
        }
    }

    /// Status of a GET over HTTPS.
    async fn get(&self, node: &NodeHandle, path: &str, header: Option<(&str, &str)>) -> u16 {
        let url = node.url.replace("http://", "https://");
        let tls = TlsOptions { ca_file: Some(self.ca.clone()), ..TlsOptions::default() };
        let (mut stream, host) = TlsClient::new(tls).connect(&url, TIMEOUT).await.unwrap();
        let header = header.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{header}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer);
        text.split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("{text}"))
    }

    /// Status of a request of nodes to `to`, that `from` signs with this key.
    async fn get_signed(&self, from: &NodeHandle, key: NodeKey, to: &NodeHandle) -> u16 {
        const PATH: &str = "/internal/v1/job";
        let secret = std::fs::read_to_string(self.cluster.dir().join("secret")).unwrap();
        let secret = ClusterSecret::new(secret.trim()).unwrap();
        let signer = Signer::new(secret, NodeId::new(&from.id).unwrap(), 1 << 40);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let signer = signer.with_key(key).as_member();
        let proof = signer.node_call("GET", PATH, NO_BODY, &to.url, now);
        self.get(to, PATH, Some((NODE_AUTH_HEADER, &proof))).await
    }
}

/// A configuration with another value of a setting.
fn with_setting(text: &str, (section, key, value): &Setting) -> String {
    let header = format!("[{section}]\n");
    let (before, rest) = text.split_once(&header).unwrap();
    let is_old = |line: &&str| line.starts_with(&format!("{key} = "));
    let end = rest.find("\n[").map_or(rest.len(), |at| at + 1);
    let others: Vec<&str> = rest[..end].lines().filter(|line| !is_old(line)).collect();
    format!("{before}{header}{key} = {value}\n{}\n{}", others.join("\n"), &rest[end..])
}

fn quoted(path: &Path) -> String {
    format!("{path:?}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_open_cluster_gets_tls_users_and_new_node_keys_without_a_failed_request() {
    let cluster = Cluster::start(Options { gateways: 3, targets: 3, ..Options::default() });
    let ca = make_certificates(&cluster);
    let operator = Operator { cluster, ca, home: tempfile::tempdir().unwrap() };
    let cluster = &operator.cluster;
    let (single, copies) = (native("single"), native("copies"));
    let first = cluster.client();
    first.create_bucket(&single, None).await.unwrap();
    first.create_bucket(&copies, None).await.unwrap();
    let props = json!({"mirror": {"enabled": true, "copies": 2}});
    first.set_bucket(&copies, props).await.unwrap();
    let load = ClientLoad::start(operator.clients("http://"), vec![single, copies]).await;
    load.wait_for(20).await;
    let began = Instant::now();

    // 1. HTTPS beside HTTP; requests need no user.
    let tls = cluster.dir().join("tls");
    let both = [
        ("tls", "cert", quoted(&tls.join("node.pem"))),
        ("tls", "key", quoted(&tls.join("node-key.pem"))),
        ("tls", "ca", quoted(&operator.ca)),
        ("tls", "http", "true".into()),
        ("auth", "optional", "true".into()),
    ];
    operator.restart_all(&first, &both, false).await;
    wait::until_async("every node has HTTPS", TIMEOUT, || async {
        let (shown, is_done) = operator.try_forebay(&["tls", "show"]);
        is_done && shown.matches("trusted").count() == 6
    })
    .await;

    // 2. The clients use HTTPS; the file of their token does not exist yet.
    load.exchange(operator.clients("https://"));
    load.wait_for(20).await;

    // 3. Users, and tokens for the clients.
    let password = operator.home.path().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let file = password.to_str().unwrap();
    operator.forebay(&["auth", "user", "add", "root", "--role", "admin", "--password-file", file]);
    operator.forebay(&["auth", "login", "root", "--password-file", file]);
    operator.forebay(&["auth", "user", "add", "train", "--role", "writer"]);
    let token = ["auth", "token", "create", "--user", "train", "--ttl", "30d", "-q"];
    let token = operator.forebay(&token);
    load.wait_for(20).await;
    std::fs::write(operator.token_file(), &token).unwrap();
    tokio::time::sleep(TOKEN_FILE_INTERVAL).await;
    load.wait_for(20).await;

    // 4. HTTPS and users alone; each node makes another key.
    let nodes: Vec<_> = cluster.targets.iter().chain(&cluster.gateways).cloned().collect();
    let former: Vec<_> = nodes.iter().map(|node| operator.key(&node.id)).collect();
    let closed = [
        ("tls", "http", "false".into()),
        ("auth", "optional", "false".into()),
        ("auth", "required", "true".into()),
    ];
    let client = operator.clients("https://").swap_remove(0);
    operator.restart_all(&client, &closed, true).await;
    load.wait_for(20).await;

    let took = began.elapsed();
    let report = load.finish(&client).await;
    println!("{report:?} in {took:.1?}");
    assert_eq!(report.failures, [""; 0]);
    for node in &nodes {
        let answer = http::get(&format!("{}/healthz", node.url));
        assert!(
            answer.status == 400 && answer.text().contains("this port speaks HTTPS"),
            "{node:?}"
        );
        assert_eq!(operator.get(node, "/v1/objects/single/o", None).await, 401, "{node:?}");
        assert_eq!(operator.get(node, "/metrics", None).await, 401, "{node:?}");
    }
    let (target, others) = (&nodes[0], former.into_iter().enumerate().skip(1));
    for (n, former) in others {
        let current = operator.key(&nodes[n].id);
        assert_eq!(operator.get_signed(&nodes[n], former, target).await, 403, "{:?}", nodes[n]);
        assert_ne!(operator.get_signed(&nodes[n], current, target).await, 403, "{:?}", nodes[n]);
    }
}

//! Invalid input is refused with the right status or exit code, and a message that names the fault.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_client::{Client, ClientConfig};
use forebay_tests::cluster::{self, Cluster, native};
use forebay_tests::private_file::write_private;
use forebay_tests::{Shared, http, ports};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(Cluster::plain)
}

/// How long a command may take that ends by itself.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The output of a command. A node that starts although it must not is killed, and has no exit code.
fn output_of(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + COMMAND_TIMEOUT;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

fn run(args: &[&str]) -> Output {
    output_of(&mut cluster::command(args))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts the exit code, and that the message has these words.
#[track_caller]
fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let text = said(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

/// A target's settings that are right but for what the test adds.
fn target_config(dir: &Path, port: u16, more: &str) -> String {
    let path = dir.join("forebay.toml");
    let secret = dir.join("secret");
    write_private(&secret, "0123456789abcdef0123456789abcdef\n");
    let text = format!(
        "{more}\n[cluster]\ngateways = [\"http://127.0.0.1:1\"]\nsecret_file = \"{secret}\"\n\
         [node]\nid = \"target01\"\ndir = \"{dir}/state\"\n\
         [listen]\nhttp = \"127.0.0.1:{port}\"\n[[disk]]\npath = \"{dir}/disk\"\n",
        secret = secret.display(),
        dir = dir.display(),
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_port_in_use_is_exit_code_10_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let port = ports::free(5);
    let _taken = TcpListener::bind(("127.0.0.1", port + 2)).unwrap();
    let taken = (port + 2).to_string();
    let dev = run(&["dev", "--dir", path, "--targets", "3", "--port", &port.to_string()]);
    assert_refused(&dev, 10, &[&taken, "in use", "hint: "]);
    assert!(!dir.path().join("dev.json").exists());
    assert_refused(&run(&["serve", "--dir", path, "--port", &taken]), 10, &[&taken]);
    let config = target_config(dir.path(), port + 2, "");
    assert_refused(&run(&["target", "--config", &config]), 10, &[&taken]);
}

#[test]
fn a_folder_that_cannot_be_written_is_exit_code_11() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let inside = file.join("inside");
    let path = inside.to_str().unwrap();
    let port = ports::free(4).to_string();
    for command in ["dev", "serve"] {
        let output = run(&[command, "--dir", path, "--port", &port]);
        assert_refused(&output, 11, &[path, "hint: "]);
    }
    let config = target_config(dir.path(), ports::free(1), "");
    let text = std::fs::read_to_string(&config).unwrap();
    let disk = format!("{}/disk", dir.path().display());
    std::fs::write(&config, text.replace(&disk, path)).unwrap();
    assert_refused(&run(&["target", "--config", &config]), 11, &[path]);
}

#[test]
fn settings_that_are_wrong_are_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let port = ports::free(1);
    let refused = |more: &str, words: &[&str]| {
        let config = target_config(dir.path(), port, more);
        assert_refused(&run(&["target", "--config", &config]), 2, words);
    };
    refused("[cashe]\nhigh = 90", &["cashe", "did you mean `cache`"]);
    refused("[cache]\nhihg = 90", &["hihg", "did you mean `high`"]);
    refused("[cache]\nhigh = 50\nlow = 60", &["cache.low", "60"]);
    refused("[cache]\nout_of_space = 60", &["cache.out_of_space", "90"]);
    refused("[cache]\npolicy = \"mru\"", &["mru", "density"]);
    refused("[log]\nformat = \"xml\"", &["xml"]);
    refused("[limits]\nbatches = \"many\"", &["many"]);
    refused("this is not TOML", &["forebay.toml"]);
    let missing = run(&["target", "--config", "/nowhere/forebay.toml"]);
    assert_refused(&missing, 2, &["/nowhere/forebay.toml"]);

    let config = target_config(dir.path(), port, "");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("target01", "t1")).unwrap();
    assert_refused(&run(&["target", "--config", &config]), 2, &["t1", "8"]);
    std::fs::write(&config, text.replace("127.0.0.1:", "0.0.0.0:")).unwrap();
    assert_refused(&run(&["target", "--config", &config]), 2, &["insecure"]);
    std::fs::write(&config, text.replace("/secret", "/no-secret")).unwrap();
    assert_refused(&run(&["target", "--config", &config]), 2, &["no-secret"]);

    let mut target = cluster::command(["target", "--config", &config]);
    let env = output_of(target.env("FOREBAY_LISTEN__HTPP", "x"));
    assert_refused(&env, 2, &["htpp", "did you mean `http`"]);
    assert_refused(&run(&["serve", "--dir", path, "--host", "0.0.0.0"]), 2, &["--insecure"]);
    let published = "[s3]\nkeys = [{ access = \"me\", secret = \"forebaysecret\" }]\n";
    std::fs::write(&config, text.replace("127.0.0.1:", "0.0.0.0:") + published).unwrap();
    let mut target = cluster::command(["target", "--config", &config]);
    let insecure = output_of(target.env("FOREBAY_LISTEN__INSECURE", "true"));
    assert_refused(&insecure, 2, &["s3.keys", "published", "hint: "]);
    let keys = r#"[{access = "forebay2", secret = "forebaysecret2"}]"#;
    let mut serve = cluster::command(["serve", "--dir", path, "--host", "0.0.0.0", "--insecure"]);
    let insecure = output_of(serve.env("FOREBAY_S3__KEYS", keys));
    assert_refused(&insecure, 2, &["s3.keys", "published"]);
    let mut target = cluster::command(["target", "--config", &config]);
    let hosts = output_of(target.env("FOREBAY_LISTEN__HOSTS", r#"["http://cache.lab"]"#));
    assert_refused(&hosts, 2, &["listen.hosts", "http://cache.lab", "hint: "]);
    assert_refused(&run(&["serve", "--dir", path, "--size", "10 parsecs"]), 2, &["10 parsecs"]);
    assert_refused(&run(&["serve", "--dir", path, "--folder-root", "/no/such"]), 2, &["/no/such"]);
    assert_refused(&run(&["dev", "--dir", path, "--port", "32766"]), 2, &["32767", "--port"]);
    assert_refused(&run(&["dev", "--dir", path, "--targets", "0"]), 2, &["--targets"]);
    assert_refused(&run(&["dev", "--port", "7400"]), 2, &["--dir"]);
    assert_refused(&run(&["serv"]), 2, &["serve"]);
}

#[test]
fn a_node_without_a_secret_of_its_cluster_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = target_config(dir.path(), ports::free(1), "");
    let text = std::fs::read_to_string(&config).unwrap();
    let secret = text.lines().find(|line| line.starts_with("secret_file")).unwrap();
    let file = dir.path().join("secret");
    for role in ["target", "gateway"] {
        for host in ["127.0.0.1:", "0.0.0.0:"] {
            let refused = |setting: &str, content: &str, words: &[&str]| {
                write_private(&file, content);
                let text = text.replace(secret, setting).replace("127.0.0.1:", host);
                std::fs::write(&config, text).unwrap();
                let mut node = cluster::command([role, "--config", &config]);
                let output = output_of(node.env("FOREBAY_LISTEN__INSECURE", "true"));
                assert_refused(&output, 2, words);
            };
            refused("", "", &["cluster.secret_file is not set", "hint: "]);
            refused("secret_file = \"\"", "", &["cluster.secret_file is not set"]);
            refused(secret, "", &["shorter than 16"]);
            refused(secret, "  \n\n", &["shorter than 16"]);
            refused(secret, "fifteen-letters", &["shorter than 16"]);
        }
    }
}

#[test]
fn version_says_what_it_is_to_people_and_to_programs() {
    let json = run(&["version", "-o", "json"]);
    assert_eq!(json.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["commit"].is_string() && json["features"].is_array());
    assert!(json["formats"]["disk"].is_u64() && json["formats"]["batch_stream"].is_u64());
    let text = run(&["version"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn bucket_names_that_break_the_rules_are_400() {
    let cluster = cluster();
    let too_long = "x".repeat(65);
    for name in ["%2A", ".", ".hidden", "a..b", "%20", "b%C3%A4d", "%23badname", "~bad", &too_long]
    {
        let create = http::request("POST", &format!("{}/v1/buckets/{name}", cluster.endpoint));
        let refused = create.json(&serde_json::json!({"action": "create-bck"})).send();
        assert_eq!(refused.status, 400, "{name}: {}", refused.text());
        assert_eq!(refused.json()["status"], 400);
    }
    let nothing = http::request("DELETE", &format!("{}/v1/buckets/", cluster.endpoint));
    let nothing = nothing.json(&serde_json::json!({"action": "destroy-bck"})).send();
    assert_eq!(nothing.status, 400, "{}", nothing.text());
    assert!(cluster.map().state.buckets.values().all(|b| !b.bucket.name.contains("bad")));
}

#[tokio::test]
async fn object_names_that_break_the_rules_are_400_and_store_nothing() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("names");
    client.create_bucket(&bucket, None).await.unwrap();
    let too_long = "x".repeat(1025);
    for name in ["nul%00", "a/%2E%2E/b", "trail/", "a//b", "bad%FFutf8", &too_long] {
        for method in ["PUT", "GET"] {
            let refused = http::request(method, &cluster.object_url("names", name));
            let refused = if method == "PUT" { refused.body("x") } else { refused };
            let refused = refused.follow();
            assert_eq!(refused.status, 400, "{method} {name}: {}", refused.text());
        }
    }
    assert!(client.list_all(&bucket, "").await.unwrap().is_empty());
}

#[tokio::test]
async fn metadata_of_the_s3_front_is_not_set_over_v1() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("fronts");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let set = http::request("PATCH", &cluster.object_url("fronts", "x"));
    let set = set.json(&serde_json::json!({"value": {"s3:tags": "a=b", "k": "v"}})).follow();
    assert_eq!(set.status, 400, "{}", set.text());
    assert!(set.message().contains("s3:tags"), "{}", set.message());
    assert!(client.head(&bucket, "x").await.unwrap().custom.is_empty());
}

/// Sets custom metadata of an object; returns the answer.
fn set_custom(url: &str, value: serde_json::Value) -> http::Answer {
    let set = http::request("PATCH", url);
    set.json(&serde_json::json!({"action": "set-custom", "value": value})).follow()
}

/// The custom metadata of an object as HEAD returns it.
fn custom_of(url: &str) -> Vec<String> {
    let head = http::request("HEAD", url).follow();
    assert_eq!(head.status, 200);
    let lines = head.headers().filter(|(name, _)| *name == "ais-custom-md");
    lines.map(|(_, value)| value.to_owned()).collect()
}

#[tokio::test]
async fn metadata_with_symbols_stays_what_it_is_at_every_target() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("symbols");
    client.create_bucket(&bucket, None).await.unwrap();
    let url = |object: &str| cluster.object_url("symbols", object);
    for name in ["x", "beside"] {
        client.put(&bucket, name, "bytes", None).await.unwrap();
    }
    let symbols = ["a=b", "a;b,c|d:e", "\\\"'`<>&%", "{}[]()$*?~^", "ünï", "=", "\u{1f600}"];
    let value: serde_json::Map<_, _> =
        symbols.iter().enumerate().map(|(n, text)| (format!("k;,|{n}"), (*text).into())).collect();
    assert_eq!(set_custom(&url("x"), value.into()).status, 200);
    let expected: Vec<_> =
        symbols.iter().enumerate().map(|(n, text)| format!("k;,|{n}={text}")).collect();
    assert_eq!(custom_of(&url("x")), expected);
    assert!(custom_of(&url("beside")).is_empty());
    for n in 0..8 {
        let copy = format!("copy-{n}");
        let to = format!("{}?object_to=ais/@%23/symbols/{copy}", url("x"));
        let copied = http::request("PUT", &to).follow();
        assert_eq!(copied.status, 200, "{}", copied.text());
        assert_eq!(custom_of(&url(&copy)), expected, "{copy}");
    }
}

#[tokio::test]
async fn metadata_that_targets_cannot_send_to_each_other_is_refused() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("large-metadata");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let url = cluster.object_url("large-metadata", "x");
    let many: serde_json::Map<_, _> = (0..3000).map(|n| (format!("k{n}"), "v".into())).collect();
    for value in [
        serde_json::json!({"k": "right", "k=l": "wrong"}),
        serde_json::json!({"": "v"}),
        serde_json::json!({"k": "v".repeat(70_000)}),
        serde_json::json!({"k".repeat(70_000): "v"}),
        many.into(),
    ] {
        let set = set_custom(&url, value);
        assert_eq!(set.status, 400, "{}", set.text());
    }
    // The limit counts what an object has already.
    let half = "v".repeat(20_000);
    assert_eq!(set_custom(&url, serde_json::json!({"a": half})).status, 200);
    assert_eq!(set_custom(&url, serde_json::json!({"b": half})).status, 400);
    let lines = custom_of(&url);
    assert_eq!(lines, [format!("a={half}")]);
}

#[test]
fn requests_that_make_no_sense_are_4xx_and_leave_the_gateway_alive() {
    let cluster = cluster();
    let endpoint = &cluster.endpoint;
    let unknown = http::get(&format!("{endpoint}/v1/nope"));
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    assert!(unknown.message().contains("/v1/nope"), "{}", unknown.message());
    let post = http::request("POST", &format!("{endpoint}/v1/buckets/some"));
    let action = post.clone().json(&serde_json::json!({"action": "dance"})).send();
    assert_eq!(action.status, 400, "{}", action.text());
    assert!(action.message().contains("dance"), "{}", action.message());
    for body in ["", "{", "[1,2", "null", "\u{0}"] {
        let odd = post.clone().header("content-type", "application/json").body(body).send();
        assert_eq!(odd.status, 400, "{body:?}: {}", odd.text());
    }
    let provider = http::get(&format!("{endpoint}/v1/objects/some/x?provider=floppy"));
    assert_eq!(provider.status, 400, "{}", provider.text());
    assert!(provider.message().contains("floppy"), "{}", provider.message());
    let method = http::request("PATCH", &format!("{endpoint}/healthz")).send();
    assert_eq!(method.status, 405, "{}", method.text());
    let node = http::request("POST", &format!("{endpoint}/internal/v1/join"));
    let node =
        node.json(&serde_json::json!({"id": "intruder1", "role": "target", "url": "http://x"}));
    let node = node.send();
    assert!(matches!(node.status, 401 | 403), "{}: {}", node.status, node.text());
    assert!(cluster.map().state.targets().count() == 3, "nobody joins without the secret");
    assert_eq!(http::get(&format!("{endpoint}/healthz")).status, 200);
}

#[tokio::test]
async fn a_cluster_that_is_down_is_one_error_at_the_deadline_that_names_the_endpoint() {
    let endpoint = format!("http://127.0.0.1:{}", ports::free(1));
    let deadline = Duration::from_millis(1500);
    let client = Client::new(ClientConfig { deadline, ..ClientConfig::new(&endpoint) }).unwrap();
    let started = Instant::now();
    let error = client.get_bytes(&native("b"), "x", None).await.unwrap_err();
    let took = started.elapsed();
    assert!(error.message().contains(&endpoint), "{error}");
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(10), "after {took:?}");

    let ls = cluster::command(["ls", "ais://b", "--timeout", "2s"])
        .env("FOREBAY_ENDPOINT", &endpoint)
        .output()
        .unwrap();
    assert_refused(&ls, 7, &[&endpoint]);
}

#[test]
fn the_command_line_tells_kinds_of_failure_apart_by_its_exit_code() {
    let cluster = cluster();
    let run = |args: &[&str]| {
        cluster::command(args).env("FOREBAY_ENDPOINT", &cluster.endpoint).output().unwrap()
    };
    assert_eq!(run(&["mb", "ais://codes"]).status.code(), Some(0));
    assert_refused(&run(&["mb", "ais://codes"]), 6, &["ais://codes", "already exists"]);
    assert_refused(&run(&["ls", "ais://nowhere"]), 4, &["ais://nowhere"]);
    assert_refused(&run(&["cat", "ais://codes/nothing"]), 4, &["ais://codes/nothing"]);
    assert_refused(&run(&["mb", "ais://bad name"]), 2, &["bad name"]);
    assert_refused(&run(&["put", "/no/such/file", "ais://codes/x"]), 4, &["/no/such/file"]);
}

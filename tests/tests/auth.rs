//! Users, roles, keys and tokens on a live cluster.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use forebay_tests::http::{self, Answer};
use forebay_tests::s3::{User, request as s3_request};
use forebay_tests::users::{PASSWORD, login, send, token_of};
use forebay_tests::{Cluster, Options, Users, wait};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const REVOKED_WITHIN: Duration = Duration::from_secs(2);

/// A cluster with the administrator `root`.
fn cluster(gateways: u16) -> Cluster {
    Users::start(Options { gateways, targets: 2, ..Options::default() }).cluster
}

fn token(cluster: &Cluster, user: &str, password: &str) -> String {
    token_of(&login(cluster, user, password))
}

/// The user of a token at one gateway.
fn whoami(gateway: &str, token: Option<&str>) -> Option<String> {
    let answer = send("GET", &format!("{gateway}/api/v1/auth/whoami"), token, &Value::Null);
    if answer.status == 401 {
        return None;
    }
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["user"].as_str().map(str::to_owned)
}

fn can(cluster: &Cluster, token: &str, right: &str, bucket: &str, object: &str) -> bool {
    let query = format!("right={right}&bucket={bucket}&object={object}");
    let url = format!("{}/api/v1/auth/can-i?{query}", cluster.endpoint);
    send("GET", &url, Some(token), &Value::Null).json()["allowed"] == true
}

#[test]
fn a_login_names_the_user_and_a_wrong_one_has_one_answer() {
    let cluster = cluster(1);
    let root = token(&cluster, "root", PASSWORD);
    assert_eq!(whoami(&cluster.endpoint, Some(&root)).as_deref(), Some("root"));
    assert_eq!(whoami(&cluster.endpoint, None), None);
    let wrong = login(&cluster, "root", "wrong");
    let unknown = login(&cluster, "nobody", "wrong");
    assert_eq!((wrong.status, unknown.status), (401, 401));
    let text = |answer: &Answer| answer.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(text(&wrong), text(&unknown));
    assert!(text(&wrong).contains("invalid credentials"));
    let limited = (0..20).any(|_| login(&cluster, "root", "wrong").status == 429);
    assert!(limited, "tries are limited");
}

#[test]
fn roles_count_on_globs_and_prefixes_and_only_an_administrator_gives_them() {
    let cluster = cluster(1);
    let root = token(&cluster, "root", PASSWORD);
    let auth = format!("{}/api/v1/auth", cluster.endpoint);
    let call = |method: &str, path: &str, token: Option<&str>, body: Value| {
        send(method, &format!("{auth}/{path}"), token, &body).status
    };
    let ann = json!({"name": "ann", "password": "planted-ann", "roles": []});
    assert_eq!(call("POST", "users", None, ann.clone()), 401);
    assert_eq!(call("POST", "users", Some(&root), ann.clone()), 200);
    assert_eq!(call("POST", "users", Some(&root), ann), 409);
    let binding = |role: &str, buckets: &str, prefix: &str| json!({"role": role, "buckets": buckets, "prefix": prefix});
    let reader = binding("reader", "ais://team-*", "");
    let writer = binding("writer", "ais://runs", "ann/");
    for bound in [&reader, &writer] {
        assert_eq!(call("PUT", "users/ann/bindings", Some(&root), bound.clone()), 200);
    }
    let token = token(&cluster, "ann", "planted-ann");
    assert!(can(&cluster, &token, "get-object", "ais://team-a", "x"));
    assert!(!can(&cluster, &token, "put-object", "ais://team-a", "x"));
    assert!(!can(&cluster, &token, "get-object", "ais://other", "x"));
    assert!(can(&cluster, &token, "put-object", "ais://runs", "ann/x"));
    assert!(!can(&cluster, &token, "put-object", "ais://runs", "bob/x"));
    assert_eq!(call("PUT", "users/ann/bindings", Some(&token), binding("admin", "*", "")), 403);
    assert_eq!(call("GET", "users", Some(&token), Value::Null), 403);
    assert_eq!(call("DELETE", "users/ann/bindings", Some(&root), writer), 200);
    assert!(!can(&cluster, &token, "put-object", "ais://runs", "ann/x"), "at once");
}

#[test]
fn a_revoked_token_is_refused_by_every_gateway_within_two_seconds() {
    let cluster = cluster(3);
    let one = token(&cluster, "root", PASSWORD);
    let other = token(&cluster, "root", PASSWORD);
    let urls: Vec<_> = cluster.gateways.iter().map(|g| g.url.clone()).collect();
    for url in &urls {
        assert_eq!(whoami(url, Some(&one)).as_deref(), Some("root"), "{url}");
    }
    let revoke =
        send("DELETE", &format!("{}/v1/tokens", urls[0]), Some(&other), &json!({"token": one}));
    assert_eq!(revoke.status, 200, "{}", revoke.text());
    let since = Instant::now();
    wait::until("no gateway accepts the token", REVOKED_WITHIN, || {
        urls.iter().all(|url| whoami(url, Some(&one)).is_none())
    });
    assert!(since.elapsed() < REVOKED_WITHIN);
    for url in &urls {
        assert_eq!(whoami(url, Some(&other)).as_deref(), Some("root"), "{url}");
    }
}

/// The status of a GET with a token on a connection that stays open.
fn get_on(connection: &mut BufReader<TcpStream>, path: &str, token: &str) -> u16 {
    let lines = format!("host: 127.0.0.1\r\nauthorization: Bearer {token}");
    write!(connection.get_mut(), "GET {path} HTTP/1.1\r\n{lines}\r\n\r\n").unwrap();
    let (mut status, mut length, mut line) = (0, 0, String::new());
    while connection.read_line(&mut line).unwrap() > 2 {
        if status == 0 {
            status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    connection.read_exact(&mut vec![0; length]).unwrap();
    status
}

#[test]
fn a_revoked_token_is_refused_on_a_connection_that_used_it() {
    let users = Users::start(Options { gateways: 1, targets: 1, ..Options::default() });
    users.add("ann", &["writer"]);
    let (ann, endpoint) = (users.token("ann", 600), users.cluster.endpoint.as_str());
    let make = json!({"action": "create-bck"});
    let url = format!("{endpoint}/v1/buckets/b");
    assert_eq!(send("POST", &url, Some(&users.root), &make).status, 200);
    let put = http::request("PUT", &format!("{endpoint}/v1/objects/b/o"));
    let put = put.header("authorization", &format!("Bearer {ann}")).body("content").follow();
    assert_eq!(put.status, 200, "{}", put.text());
    let (address, _) = http::split(&users.cluster.targets[0].url);
    let mut connection = BufReader::new(TcpStream::connect(address).unwrap());
    let mut get = || get_on(&mut connection, "/v1/objects/b/o", &ann);
    for _ in 0..3 {
        assert_eq!(get(), 200);
    }
    let url = format!("{endpoint}/v1/tokens");
    assert_eq!(send("DELETE", &url, Some(&users.root), &json!({"token": ann})).status, 200);
    wait::until("the open connection is refused", REVOKED_WITHIN, || get() == 401);
    assert_eq!(get(), 401);
}

#[test]
fn while_users_are_optional_only_requests_with_a_token_are_checked() {
    let env = vec![("FOREBAY_AUTH__OPTIONAL".to_owned(), "true".to_owned())];
    let users = Users::start(Options { gateways: 1, targets: 2, env, ..Options::default() });
    users.add("ann", &["viewer"]);
    let (token, endpoint) = (users.token("ann", 600), users.cluster.endpoint.as_str());
    let bucket = |name: &str| format!("{endpoint}/v1/buckets/{name}");
    let make = json!({"action": "create-bck"});
    assert_eq!(send("POST", &bucket("open"), None, &make).status, 200, "as before");
    let added = json!({"name": "eve", "roles": ["admin"]});
    let url = format!("{endpoint}/api/v1/auth/users");
    assert_eq!(send("POST", &url, None, &added).status, 401, "users are the administrator's");
    assert_eq!(send("POST", &bucket("more"), Some(&token), &make).status, 403, "a viewer");
    assert_eq!(send("POST", &bucket("more"), Some("a.b.c"), &make).status, 401, "no token of ours");
}

#[test]
fn a_key_of_a_user_signs_s3_requests_until_it_is_removed() {
    let cluster = cluster(1);
    let root = token(&cluster, "root", PASSWORD);
    let keys = format!("{}/api/v1/auth/keys", cluster.endpoint);
    let key = send("POST", &keys, Some(&root), &json!({"user": ""})).json();
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    let (access, secret) = (text("access"), text("secret"));
    let (a, s) = (access.clone().leak(), secret.clone().leak());
    let user = User { access: a, secret: s };
    let make = |user: User| s3_request("PUT", &cluster.endpoint, "of-root").send_as(user);
    let made = make(user);
    assert_eq!(made.status, 200, "{}", made.text());
    let put = s3_request("PUT", &cluster.endpoint, "of-root/x").body("x").send_as(user);
    assert_eq!(put.status, 200, "{}", put.text());
    let got = s3_request("GET", &cluster.endpoint, "of-root/x").send_as(user);
    assert_eq!((got.status, got.text()), (200, "x".into()));
    let forged = User { secret: "another-secret", ..user };
    assert_eq!(s3_request("GET", &cluster.endpoint, "of-root/x").send_as(forged).status, 403);
    let removed = send("DELETE", &format!("{keys}/{access}"), Some(&root), &Value::Null);
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(s3_request("GET", &cluster.endpoint, "of-root/x").send_as(user).status, 403);
}

fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn no_password_secret_or_token_is_stored_logged_or_returned() {
    let cluster = cluster(1);
    let root = token(&cluster, "root", PASSWORD);
    let keys = format!("{}/api/v1/auth/keys", cluster.endpoint);
    let key = send("POST", &keys, Some(&root), &json!({"user": ""})).json();
    let secret = key["secret"].as_str().unwrap().to_owned();
    let planted = [PASSWORD, secret.as_str(), root.as_str()];
    let mut texts = Vec::new();
    for path in [
        "/api/v1/map",
        "/api/v1/auth/section",
        "/api/v1/auth/users",
        "/v1/users",
        "/v1/daemon?what=smap",
        "/v1/daemon?what=config",
        "/v1/cluster?what=cluster_config",
        "/metrics",
        "/.well-known/jwks.json",
    ] {
        let url = format!("{}{path}", cluster.endpoint);
        texts.push((path.to_owned(), send("GET", &url, Some(&root), &Value::Null).body.to_vec()));
    }
    let map = String::from_utf8_lossy(&texts[0].1).into_owned();
    assert!(!map.contains("argon2id") && !map.contains("signing_keys"), "{map}");
    let mut found = Vec::new();
    files(cluster.dir(), &mut found);
    for path in found {
        texts.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default()));
    }
    for (place, text) in texts {
        for secret in planted {
            let is_there = text.windows(secret.len()).any(|w| w == secret.as_bytes());
            assert!(!is_there, "{place} has a secret");
        }
    }
}

#[test]
fn the_command_line_logs_in_and_manages_users() {
    let cluster = cluster(1);
    let home = tempfile::tempdir().unwrap();
    let password = home.path().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let run = |args: &[&str]| {
        let done = forebay_tests::cluster::command(args)
            .env("FOREBAY_ENDPOINT", &cluster.endpoint)
            .env("HOME", home.path())
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        (text.into_owned(), done.status.code().unwrap())
    };
    let (text, code) = run(&["auth", "user", "list"]);
    assert_eq!(code, 5, "{text}");
    let file = password.to_str().unwrap();
    let (text, code) = run(&["auth", "login", "root", "--password-file", file]);
    assert_eq!(code, 0, "{text}");
    let mut kept = Vec::new();
    files(&home.path().join(".config/forebay/tokens"), &mut kept);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&kept[0]).unwrap().permissions(),
    );
    assert_eq!((kept.len(), mode & 0o777), (1, 0o600));
    let (text, _) = run(&["auth", "whoami", "-o", "json"]);
    assert!(text.contains("\"root\""), "{text}");
    assert_eq!(run(&["auth", "user", "add", "ann", "--role", "viewer"]).1, 0);
    let bind = ["auth", "role", "bind", "writer", "ann", "--bucket", "ais://runs"];
    assert_eq!(run(&bind).1, 0);
    let (text, code) = run(&["auth", "user", "list"]);
    assert!(code == 0 && text.contains("writer:ais://runs"), "{text}");
    assert_eq!(run(&["auth", "can-i", "put-object", "ais://any/x"]).1, 0);
    let (token, code) = run(&["auth", "token", "create", "--user", "ann", "--ttl", "1h", "-q"]);
    assert_eq!(code, 0, "{token}");
    assert_eq!(whoami(&cluster.endpoint, Some(token.trim())).as_deref(), Some("ann"));
    assert_eq!(run(&["auth", "token", "revoke", "--user", "ann"]).1, 0);
    assert_eq!(whoami(&cluster.endpoint, Some(token.trim())), None);
    assert_eq!(run(&["auth", "logout"]).1, 0);
    assert_eq!(run(&["auth", "user", "list"]).1, 5);
}

/// HMAC-SHA-256 as RFC 2104 defines it.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    let key = if key.len() > 64 { Sha256::digest(key).to_vec() } else { key.to_vec() };
    block[..key.len()].copy_from_slice(&key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

/// The public keys of a cluster.
fn public_keys(endpoint: &str) -> Value {
    let answer = http::get(&format!("{endpoint}/.well-known/jwks.json"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["keys"].clone()
}

#[test]
fn no_node_accepts_a_token_with_another_algorithm_or_key_than_the_cluster_has() {
    let cluster = cluster(1);
    let root = token(&cluster, "root", PASSWORD);
    let part = |json: &Value| BASE64.encode(json.to_string());
    let parts: Vec<&str> = root.split('.').collect();
    let header: Value = serde_json::from_slice(&BASE64.decode(parts[0]).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&BASE64.decode(parts[1]).unwrap()).unwrap();
    let key = public_keys(&cluster.endpoint)[0].clone();
    let kid = header["kid"].clone();
    assert_eq!((&header["alg"], &key["kid"]), (&json!("EdDSA"), &kid));
    let public = BASE64.decode(key["x"].as_str().unwrap()).unwrap();

    let mut forged = Vec::new();
    let with = |header: &Value, claims: &Value, signature: &str| {
        format!("{}.{}.{signature}", part(header), part(claims))
    };
    for algorithm in ["none", "None", "NONE", ""] {
        let header = json!({"alg": algorithm, "kid": kid});
        forged.push((format!("alg {algorithm:?}"), with(&header, &claims, "")));
        forged.push((format!("alg {algorithm:?}, signed"), with(&header, &claims, parts[2])));
    }
    let texts = [key["x"].as_str().unwrap().to_owned(), key.to_string(), String::new()];
    let secrets = texts.iter().map(|text| text.as_bytes()).chain([public.as_slice()]);
    for (n, secret) in secrets.enumerate() {
        let signed = format!("{}.{}", part(&json!({"alg": "HS256", "kid": kid})), parts[1]);
        let signature = BASE64.encode(hmac(secret, signed.as_bytes()));
        forged.push((format!("HS256 with public key {n}"), format!("{signed}.{signature}")));
    }
    for kid in [
        json!("/dev/null"),
        json!("../../../../dev/null"),
        json!("http://127.0.0.1:9/jwks.json"),
        json!("' OR '1'='1"),
        json!(""),
        json!("x".repeat(10_000)),
        json!([kid]),
        json!({"kid": kid}),
        Value::Null,
    ] {
        let signed = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": kid})), parts[1]);
        forged.push((format!("kid {kid}"), format!("{signed}.{}", parts[2])));
        let signed = format!("{}.{}", part(&json!({"alg": "HS256", "kid": kid})), parts[1]);
        let signature = BASE64.encode(hmac(b"", signed.as_bytes()));
        forged.push((format!("HS256, kid {kid}"), format!("{signed}.{signature}")));
    }
    for more in [
        json!({"jwk": key}),
        json!({"jku": "http://127.0.0.1:9/jwks.json"}),
        json!({"x5u": "http://127.0.0.1:9/cert.pem"}),
        json!({"crit": ["exp"], "exp": 0}),
    ] {
        let mut header = json!({"alg": "EdDSA", "kid": kid});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        forged.push((format!("header with {more}"), with(&header, &claims, parts[2])));
    }
    let mut other = claims.clone();
    other["sub"] = json!("admin");
    forged.push(("other claims".to_owned(), with(&header, &other, parts[2])));
    for node in cluster.gateways.iter().chain(&cluster.targets) {
        let url = format!("{}/metrics", node.url);
        assert_eq!(send("GET", &url, Some(&root), &Value::Null).status, 200, "{url}");
        for (what, token) in &forged {
            let answer = send("GET", &url, Some(token), &Value::Null);
            assert_eq!(answer.status, 401, "{what} at {url}: {}", answer.text());
        }
    }
}

#[test]
fn two_clusters_have_different_keys_and_neither_accepts_a_token_of_the_other() {
    let start = || Users::start(Options { targets: 1, ..Options::default() });
    let (one, other) = (start(), start());
    let secret = |users: &Users| std::fs::read(users.cluster.dir().join("secret")).unwrap();
    assert_ne!(secret(&one), secret(&other));
    let (keys, others) = (public_keys(&one.cluster.endpoint), public_keys(&other.cluster.endpoint));
    assert!(keys[0]["x"].is_string());
    assert_ne!((&keys[0]["x"], &keys[0]["kid"]), (&others[0]["x"], &others[0]["kid"]));
    assert_ne!(keys[0]["x"], others[0]["x"]);
    let (key, another) = (one.key("root"), other.key("root"));
    assert!(key.access != another.access && key.secret != another.secret);
    for (users, foreign) in [(&one, &other), (&other, &one)] {
        assert_eq!(whoami(&users.cluster.endpoint, Some(&users.root)).as_deref(), Some("root"));
        assert_eq!(whoami(&users.cluster.endpoint, Some(&foreign.root)), None);
    }
}

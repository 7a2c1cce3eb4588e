//! Secrets that are planted in every setting, URL and token of a cluster, and searched for in all that
//! comes out of nodes and commands: answers, logs, metrics, errors, spans, backups and files.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_routes::{Rule, Verb, table};
use forebay_tests::http::{self, Answer};
use forebay_tests::hunt::{Hunt, echoing_cloud, set, text};
use forebay_tests::s3::{User, request as s3_request};
use forebay_tests::users::{send, token_of};
use forebay_tests::web::{Received, Reply, Web};
use forebay_tests::{Cluster, Options, Users, cluster, wait};
use serde_json::{Value, json};

use crate::routes::{Message, Sender};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for an answer of a node that calls an unreachable cloud.
const CLOUD_TIMEOUT: Duration = Duration::from_secs(3);
/// A closed port.
const NOWHERE: &str = "127.0.0.1:1";

/// A web server: `/there…` exists, everything else does not.
fn web_server() -> Web {
    Web::start(|request: &Received| match request.target.starts_with("/there") {
        true => Reply::new(200, "page").header("etag", "\"1\""),
        false => Reply::new(404, "missing"),
    })
}

/// A cluster with users and a secret in each of its settings. Returns it with its environment.
fn planted_cluster(hunt: &mut Hunt, cloud: &Web, traces: &Web) -> (Users, Vec<(String, String)>) {
    let traces = traces.url.replace("http://", "");
    let (trace_user, trace_query) =
        (hunt.plant("password of the collector of traces"), hunt.plant("token for traces"));
    let trace_headers =
        hunt.plant_file("header for traces", |token| format!("authorization: Bearer {token}\n"));
    let collector = Web::start(|_| Reply::new(503, "not now"));
    let collector = collector.url.replace("http://", "");
    let (password, user, query) = (
        hunt.plant_file("password of root", str::to_owned),
        hunt.plant("password of the collector"),
        hunt.plant("token of the collector"),
    );
    let (shared, sent) = (
        hunt.plant_file("secret of an issuer", str::to_owned),
        hunt.plant_file("token for an issuer", str::to_owned),
    );
    let issuer = hunt.plant("password of an issuer");
    let s3 = hunt.plant("key of S3");
    let settings = format!(
        "[audit]\nfile = \"audit.jsonl\"\nurl = \"http://log:{user}@{collector}/in?token={query}\"\n\
         [auth]\nadmin = \"root\"\nadmin_password_file = {password:?}\n\
         [[auth.issuer]]\nname = \"shared\"\nissuer = \"https://shared\"\nsecret_file = {shared:?}\n\
         algorithms = [\"HS256\"]\n\
         [[auth.issuer]]\nname = \"far\"\nurl = \"http://me:{issuer}@{NOWHERE}\"\naudience = \"a\"\n\
         algorithms = [\"RS256\"]\ntoken_file = {sent:?}\n\
         [[s3.keys]]\naccess = \"someone\"\nsecret = \"{s3}\"\n\
         [egress]\nallow = [\"127.0.0.1\"]\n[download]\nallow_private = true\n\
         [trace]\nendpoint = \"http://otlp:{trace_user}@{traces}/in?token={trace_query}\"\n\
         headers_file = {trace_headers:?}\nsample = 1.0\nslow_ms = 100\n\
         [log]\nlevel = \"trace\"\n"
    );
    let (proxy, session) = (hunt.plant("password of a proxy"), hunt.plant("session of AWS"));
    let account = hunt.plant("key of Azure");
    let account = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, account);
    let google = hunt.plant("client secret of Google");
    let google = hunt.plant_file("refresh token of Google", |token| {
        let (kind, client) = ("authorized_user", "client.apps.example");
        json!({"type": kind, "client_id": client, "client_secret": google, "refresh_token": token})
            .to_string()
    });
    let env = vec![
        set("AWS_ENDPOINT_URL_S3", &cloud.url),
        set("AWS_ACCESS_KEY_ID", "planted-user"),
        set("AWS_SECRET_ACCESS_KEY", &hunt.plant("secret key of AWS")),
        set("AWS_SESSION_TOKEN", &session),
        set("AZURE_STORAGE_ACCOUNT", "account"),
        set("AZURE_STORAGE_KEY", &account),
        set("GOOGLE_APPLICATION_CREDENTIALS", text(&google)),
        set("HTTPS_PROXY", &format!("http://me:{proxy}@{NOWHERE}")),
        set("SOME_SETTING", &hunt.plant("a variable")),
    ];
    let settings = settings.leak();
    let options = Options { targets: 2, settings, env: env.clone(), ..Options::default() };
    let cluster = Cluster::start(options);
    let password = json!({"password": std::fs::read_to_string(password).unwrap()});
    let login = || send("POST", &format!("{}/v1/users/root", cluster.endpoint), None, &password);
    wait::until("the administrator can log in", TIMEOUT, || login().status == 200);
    let root = token_of(&login());
    hunt.secrets.add("token of root", &root);
    hunt.secrets.add("signature of the token of root", root.rsplit('.').next().unwrap());
    (Users { cluster, root }, env)
}

/// Requests that fail, or store something, with secrets in their URLs and bodies. Returns where the status
/// of the jobs is that they started.
fn send_failing(hunt: &mut Hunt, users: &Users, web: &Web) -> Vec<(String, Value)> {
    let endpoint = users.cluster.endpoint.as_str();
    let host = web.url.replace("http://", "");
    let url = |hunt: &mut Hunt, what: &str, host: &str, path: &str| {
        let user = hunt.plant(&format!("password in the URL of {what}"));
        let query = hunt.plant(&format!("query in the URL of {what}"));
        let more = if path.is_empty() { "" } else { "/" };
        format!("http://me:{user}@{host}{more}{path}?token={query}&X-Amz-Signature={query}")
    };
    let ais = |name: &str| json!({"name": name, "provider": "ais"});
    let mut messages: Vec<(&str, String, Value)> = Vec::new();
    for (kind, host, path) in [
        ("there", host.as_str(), "there.txt"),
        ("missing", &host, "missing.txt"),
        ("refused", NOWHERE, "x.txt"),
        ("closed", "169.254.169.254", "x.txt"),
        ("invalid", "host:port", "x.txt"),
    ] {
        let link = url(hunt, &format!("a download, {kind}"), host, path);
        let header = json!({"Authorization": [hunt.plant("header of a download")]});
        let single =
            json!({"type": "single", "bucket": ais("web"), "link": link, "headers": header});
        messages.push(("POST", "/v1/download".into(), single));
        let link = url(hunt, &format!("a range, {kind}"), host, "there-{0..1}");
        let range = json!({"type": "range", "bucket": ais("web"), "template": link});
        messages.push(("POST", "/v1/download".into(), range));
        let link = url(hunt, &format!("a transform, {kind}"), host, "");
        let etl = json!({"name": format!("etl-{kind}"), "url": link});
        messages.push(("PUT", "/v1/etl".into(), etl));
        let map = url(hunt, &format!("a key map, {kind}"), host, path);
        let dsort = json!({
            "input_bck": ais("web"), "output_bck": ais("web"), "input_extension": ".tar",
            "output_extension": ".tar", "input_format": {"template": "in-{0..1}"},
            "ekm_file": map, "output_shard_size": "1MB", "algorithm": {"kind": "alphanumeric"},
        });
        messages.push(("POST", "/v1/sort".into(), dsort));
        let far = url(hunt, &format!("a cluster, {kind}"), host, "");
        let far = http_encoded(&far);
        messages.push((
            "PUT",
            format!("/v1/cluster/attach?what=remote&alias=far&url={far}"),
            Value::Null,
        ));
        let backend = url(hunt, &format!("an endpoint, {kind}"), host, "");
        let props = json!({"extra": {"aws": {"endpoint": backend}}});
        let message = json!({"action": "create-bck", "value": props});
        messages.push(("POST", format!("/v1/buckets/s3-{kind}?provider=aws"), message));
        let backend = json!({"type": "s3", "bucket": "b", "endpoint": backend});
        let message = json!({"action": "create-bck", "value": {"backend": backend}});
        messages.push(("POST", format!("/v1/buckets/near-{kind}"), message));
        let origin = http_encoded(&url(hunt, &format!("an origin, {kind}"), host, path));
        messages.push((
            "GET",
            format!("/v1/objects/web/{path}?original_url={origin}"),
            Value::Null,
        ));
    }
    let wrong = hunt.plant("a wrong password");
    messages.push(("POST", "/v1/users/root".into(), json!({"password": wrong})));
    let ann =
        json!({"name": "ann", "password": hunt.plant("password of ann"), "roles": ["viewer"]});
    messages.push(("POST", "/api/v1/auth/users".into(), ann));
    messages.push(("PUT", "/api/v1/auth/users/ann".into(), json!({"password": [wrong]})));
    let mut jobs = Vec::new();
    for (method, path, message) in messages {
        let answer = send(method, &format!("{endpoint}{path}"), Some(&users.root), &message);
        if answer.status == 200 && path == "/v1/download" {
            jobs.push((path.clone(), json!({"id": answer.json()["id"]})));
        } else if answer.status == 200 && path == "/v1/sort" {
            jobs.push((format!("{path}?id={}", answer.text().trim_matches('"')), Value::Null));
        }
        hunt.search_answer(
            &format!("{method} {} {message}", path.split('?').next().unwrap()),
            &answer,
        );
    }
    // The clouds of the environment.
    for node in users.cluster.gateways.iter().chain(&users.cluster.targets) {
        for provider in ["aws", "gcp", "azure"] {
            let url = format!("{}/v1/objects/planted/o?provider={provider}", node.url);
            let bearer = format!("Bearer {}", users.root);
            let request = http::request("GET", &url).header("authorization", &bearer);
            let request = request.header("forebay-cloud-retry", "attempts=1");
            if let Ok(answer) = request.within(CLOUD_TIMEOUT).try_send() {
                hunt.search_answer(&url, &answer);
                if let Some(location) = answer.header("location") {
                    let request = http::request("GET", location).header("authorization", &bearer);
                    let answer = request.within(CLOUD_TIMEOUT).try_send();
                    answer.iter().for_each(|answer| hunt.search_answer(location, answer));
                }
            }
        }
    }
    jobs
}

/// Searches the status of jobs, and the metadata of an object that one of them downloaded.
fn search_results(hunt: &mut Hunt, users: &Users, jobs: &[(String, Value)]) {
    assert!(jobs.len() >= 5, "{jobs:?}");
    let (endpoint, bearer) = (&users.cluster.endpoint, format!("Bearer {}", users.root));
    let url = format!("{endpoint}/v1/objects/web/there.txt?props=custom");
    let head = || http::request("HEAD", &url).header("authorization", &bearer).follow();
    wait::until("an object was downloaded", TIMEOUT, || head().status == 200);
    let answer = head();
    assert!(answer.headers().any(|(_, value)| value.contains("orig_url")), "{answer:?}");
    hunt.search_answer("metadata of a downloaded object", &answer);
    for (path, message) in jobs {
        let answer = send("GET", &format!("{endpoint}{path}"), Some(&users.root), message);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        hunt.search_answer(&format!("status of {path}"), &answer);
    }
}

fn http_encoded(url: &str) -> String {
    url.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Presigned URLs, signatures and keys of S3.
fn send_s3(hunt: &mut Hunt, users: &Users) {
    let key = users.key("root");
    hunt.secrets.add("key of S3 of root", key.secret);
    let forged = User { secret: hunt.plant("a wrong key of S3").leak(), ..key };
    for node in users.cluster.gateways.iter().chain(&users.cluster.targets) {
        for user in [key, forged] {
            for what in ["", "planted-bucket", "planted-bucket/o"] {
                let url = s3_request("GET", &node.url, what).presign(user, 60);
                let signature = url.rsplit('=').next().unwrap().to_owned();
                search_signed(hunt, "a URL", &signature, &http::get(&url));
                let (signed, signature) = s3_request("PUT", &node.url, what).body("x").sign(user);
                search_signed(hunt, "a request", &signature.value, &signed.send());
            }
        }
    }
}

/// The answer to a wrong signature has this signature, as that of AWS does. No other place has one.
fn search_signed(hunt: &mut Hunt, what: &str, signature: &str, answer: &Answer) {
    if answer.text().contains("<Code>SignatureDoesNotMatch</Code>") {
        hunt.search_answer(what, answer);
        hunt.secrets.add(&format!("signature of {what}"), signature);
    } else {
        hunt.secrets.add(&format!("signature of {what}"), signature);
        hunt.search_answer(what, answer);
    }
}

/// Sends a request of each row of the table to each kind of node, as the administrator, as a stranger and
/// with an invalid token. Returns their number.
fn walk(hunt: &mut Hunt, users: &Users) -> usize {
    let wrong = format!("eyJhbGciOiJFZERTQSJ9.{}.e30", hunt.plant("an invalid token"));
    let bearer = |token: &str| vec![("authorization".to_owned(), format!("Bearer {token}"))];
    let senders = [
        Sender { name: "root", headers: &|_| bearer(&users.root) },
        Sender { name: "stranger", headers: &|_| Vec::new() },
        Sender { name: "wrong", headers: &|_| bearer(&wrong) },
    ];
    let mut count = 0;
    for row in table().flat_map(Rule::rows) {
        let gateway = row.rule.is_of_gateways().then(|| &users.cluster.gateways[0]);
        let target = row.rule.is_of_targets().then(|| &users.cluster.targets[0]);
        for node in gateway.into_iter().chain(target) {
            for sender in &senders {
                let message = Message::new(row, node, sender.name);
                let place = format!("{} of {} by {}", row.operation(), message.path, sender.name);
                hunt.search_answer(&place, &message.send(sender));
                count += 1;
            }
        }
    }
    // Pages that other servers have.
    for node in users.cluster.gateways.iter().chain(&users.cluster.targets) {
        for path in ["/", "/env", "/debug", "/debug/pprof/cmdline", "/config", "/metrics?x=1"] {
            for verb in [Verb::Get, Verb::Post] {
                let url = format!("{}{path}", node.url);
                let answer = send(verb.name(), &url, Some(&users.root), &Value::Null);
                hunt.search_answer(&url, &answer);
            }
        }
    }
    count
}

/// Commands with tokens, passwords and endpoints, of which most fail.
fn run_commands(hunt: &mut Hunt, users: &Users) {
    let up = users.cluster.endpoint.clone();
    let (down, home) = (format!("http://{NOWHERE}"), hunt.dir.path().to_owned());
    let password = hunt.plant("password in an endpoint");
    let with_password = up.replace("http://", &format!("http://me:{password}@"));
    let with_query = format!("{up}/?token={password}");
    let wrong = hunt.plant("a token of the environment");
    let backup = home.join("backup.forebay");
    let file = hunt.plant_file("password in a file", str::to_owned);
    let commands: [&[&str]; 14] = [
        &["ls"],
        &["ls", "s3://planted"],
        &["cluster", "info"],
        &["cluster", "map"],
        &["cluster", "backup", text(&backup)],
        &["cluster", "restore", text(&backup), "--dry-run"],
        &["doctor"],
        &["doctor", "s3://planted"],
        &["tls", "show"],
        &["job", "list"],
        &["auth", "whoami"],
        &["auth", "user", "list"],
        &["auth", "login", "root", "--password-file", text(&file)],
        &["auth", "token", "revoke", text(&file)],
    ];
    let valid = users.root.as_str();
    for (endpoint, token, form) in [
        (&up, valid, "table"),
        (&up, valid, "json"),
        (&up, &wrong, "json"),
        (&down, valid, "json"),
        (&with_password, valid, "table"),
        (&with_query, valid, "json"),
    ] {
        for args in commands {
            // A few commands are enough where none can succeed.
            if endpoint != &up && !["ls", "doctor", "auth"].contains(&args[0]) {
                continue;
            }
            let mut command = cluster::command(args);
            command.args(["--timeout", "1s", "-o", form]);
            command.env("FOREBAY_ENDPOINT", endpoint).env("FOREBAY_TOKEN", token);
            let place = format!("forebay {args:?} at {endpoint}");
            let (text, code) = hunt.run(&place, &mut command);
            let is_up = endpoint == &up && token == valid;
            if is_up && ["info", "map", "backup", "whoami"].iter().any(|word| args.contains(word)) {
                assert_eq!(code, 0, "{args:?}: {text}");
            }
        }
    }
    let bytes = std::fs::read(&backup).unwrap();
    hunt.search("the backup", &bytes);
}

/// Searches all spans that a collector received, those that nodes keep, and exemplars.
fn search_traces(hunt: &mut Hunt, users: &Users, received: &Mutex<Vec<Vec<u8>>>) {
    let (endpoint, bearer) = (&users.cluster.endpoint, format!("Bearer {}", users.root));
    let get = |url: &str, accept: &str| {
        let request = http::request("GET", url).header("authorization", &bearer);
        request.header("accept", accept).send()
    };
    wait::until("the collector has spans", TIMEOUT, || !received.lock().unwrap().is_empty());
    let list = get(&format!("{endpoint}/api/v1/traces"), "*/*");
    hunt.search_answer("the list of traces", &list);
    let traces = list.json()["traces"].as_array().cloned().unwrap_or_default();
    assert!(traces.len() > 100, "{} traces", traces.len());
    for trace in traces.iter().map(|trace| trace["trace"].as_str().unwrap()) {
        let answer = get(&format!("{endpoint}/api/v1/traces/{trace}"), "*/*");
        hunt.search_answer("a trace", &answer);
    }
    for node in users.cluster.gateways.iter().chain(&users.cluster.targets) {
        let page = get(&format!("{}/metrics", node.url), "application/openmetrics-text");
        assert!(page.text().contains(" # {trace_id="), "no exemplar at {}", node.id);
        hunt.search_answer("metrics with exemplars", &page);
    }
    for spans in received.lock().unwrap().iter() {
        hunt.search("spans at the collector", spans);
    }
}

#[test]
fn planted_secrets_are_in_no_answer_log_file_error_or_backup() {
    let (began, mut hunt) = (Instant::now(), Hunt::default());
    let (cloud, web) = (echoing_cloud(), web_server());
    let received = Arc::new(Mutex::new(Vec::new()));
    let kept = received.clone();
    let traces = Web::start(move |request| {
        assert!(request.target.starts_with("/in/v1/traces?token="), "{}", request.target);
        kept.lock().unwrap().push(request.body.clone());
        Reply::new(200, "")
    });
    let (users, env) = planted_cluster(&mut hunt, &cloud, &traces);
    let jobs = send_failing(&mut hunt, &users, &web);
    send_s3(&mut hunt, &users);
    println!("requests sent after {:.1?}", began.elapsed());
    run_commands(&mut hunt, &users);
    println!("commands run after {:.1?}", began.elapsed());
    search_results(&mut hunt, &users, &jobs);
    let count = walk(&mut hunt, &users);
    println!("{count} requests of the table after {:.1?}", began.elapsed());
    search_traces(&mut hunt, &users, &received);
    let whoami = format!("{}/api/v1/auth/whoami", users.cluster.endpoint);
    assert_eq!(send("GET", &whoami, Some(&users.root), &Value::Null).status, 200);
    hunt.search_files(&users.cluster, &env);
    println!("{} bytes of answers searched after {:.1?}", hunt.searched, began.elapsed());
    hunt.assert_nothing_found();
}

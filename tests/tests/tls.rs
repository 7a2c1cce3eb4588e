//! TLS: clients, nodes among themselves, plain HTTP beside it, and certificates that change.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_client::tls::{TlsClient, TlsOptions};
use forebay_client::{Client, ClientConfig};
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::certificate::CertificateInfo;
use forebay_core::ishard::IshardSpec;
use forebay_core::job::JobState;
use forebay_core::{Bucket, ObjectName};
use forebay_tests::cluster::native;
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::s3::{self, OWNER};
use forebay_tests::{Cluster, Options, http, wait};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Larger than what is read in one piece, so that files are sent.
const LARGE: usize = 3 << 20;

fn cluster(options: Options) -> Cluster {
    Cluster::start(Options { tls: true, ..options })
}

/// Writes a certificate of the cluster's CA for a node, valid until the end of `year`.
fn replace_certificate(cluster: &Cluster, node: &str, year: i32) {
    let dir = cluster.dir().join("tls");
    let ca_key = KeyPair::from_pem(&std::fs::read_to_string(dir.join("ca-key.pem")).unwrap());
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "forebay dev CA");
    let issuer = Issuer::new(ca, ca_key.unwrap());
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(year, 12, 31);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let write = |name: String, text: String| {
        let (new, path) = (dir.join(format!("{name}.new")), dir.join(name));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(new, path).unwrap();
    };
    write(format!("{node}-key.pem"), key.serialize_pem());
    write(format!("{node}.pem"), certificate.pem());
}

/// The end of the certificate that a node has now, unix seconds.
async fn expiry(url: &str) -> i64 {
    let tls = TlsClient::unverified().unwrap();
    let (stream, _) = tls.connect(url, TIMEOUT).await.unwrap();
    CertificateInfo::read(&stream.peer_certificates()[0]).unwrap().not_after_s
}

/// The answer to a request over TLS, with its head.
async fn raw(ca: &Path, url: &str, request: &str) -> String {
    let options = TlsOptions { ca_file: Some(ca.to_owned()), ..TlsOptions::default() };
    let (mut stream, host) = TlsClient::new(options).connect(url, TIMEOUT).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Writes, reads, lists and fetches objects of several sizes, and some in a batch.
async fn use_bucket(client: &Client, bucket: &Bucket) {
    client.create_bucket(bucket, None).await.unwrap();
    let names = names(40);
    let size = |n: usize| match n % 4 {
        0 => LARGE,
        1 => 200_000,
        _ => 1000 + n,
    };
    for (n, name) in names.iter().enumerate() {
        client.put(bucket, name, content(name, size(n)), None).await.unwrap();
    }
    for (n, name) in names.iter().enumerate() {
        let bytes = client.get_bytes(bucket, name, None).await.unwrap();
        assert_same(name, &bytes, &content(name, size(n)));
    }
    let entries = names.iter().map(|name| BatchEntry::whole(0, ObjectName::new(name).unwrap()));
    let request =
        BatchRequest { buckets: vec![bucket.clone()], entries: entries.collect(), ordered: true };
    let batch = client.batch_all(&request).await.unwrap();
    for (n, (entry, name)) in batch.into_iter().zip(&names).enumerate() {
        assert_same(name, &entry.unwrap(), &content(name, size(n)));
    }
    assert_eq!(client.list_all(bucket, "").await.unwrap().len(), names.len());
}

/// Packs the objects of a bucket into a shard, and sorts this shard by a key map that is an object.
async fn use_jobs(client: &Client, bucket: &Bucket, endpoint: &str) {
    let wait = |id: String| async move {
        wait::until_async("the job is over", TIMEOUT, || async {
            client.job(&id).await.unwrap().is_over()
        })
        .await;
        let status = client.job(&id).await.unwrap();
        assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    };
    let shards = native(&format!("{}-shards", bucket.name));
    let spec = IshardSpec { create: true, ..IshardSpec::new(bucket.clone(), shards.clone()) };
    wait(client.start_ishard(&spec).await.unwrap()).await;
    client.put(&shards, "map.json", r#"{"sorted-%d.tar": ["0"]}"#, None).await.unwrap();
    let spec = serde_json::json!({
        "input_bck": {"name": shards.name}, "output_bck": {"name": bucket.name},
        "output_shard_size": "1GiB", "ekm_missing_key": "warn",
        "ekm_file": format!("{endpoint}/v1/objects/{}/map.json", shards.name),
    });
    wait(client.start_dsort(spec.to_string().into()).await.unwrap()).await;
    let sorted = client.get_bytes(bucket, "sorted-0.tar", None).await.unwrap();
    assert!(sorted.len() > LARGE, "{}", sorted.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_pack_and_sort_shards_run_over_tls() {
    let cluster = cluster(Options { targets: 2, ..Options::default() });
    let client = cluster.client();
    use_bucket(&client, &native("packed")).await;
    use_jobs(&client, &native("packed"), &cluster.endpoint).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_nodes_work_over_tls() {
    let cluster = cluster(Options { gateways: 3, targets: 2, ..Options::default() });
    assert!(cluster.endpoint.starts_with("https://"), "{}", cluster.endpoint);
    let client = cluster.client();
    use_bucket(&client, &native("tls")).await;
    let map = client.map().await.unwrap();
    assert!(map.state.nodes.values().all(|node| node.url.starts_with("https://")));
    // Two copies: targets send each other objects.
    let copies = native("copies");
    client.create_bucket(&copies, None).await.unwrap();
    let props = serde_json::json!({"mirror": {"enabled": true, "copies": 2}});
    client.set_bucket(&copies, props).await.unwrap();
    client.put(&copies, "o", content("o", LARGE), None).await.unwrap();
    let (shown, code) = cluster.cli(&["tls", "show"]);
    assert_eq!((code, shown.matches("trusted").count()), (0, 5), "{shown}");
    assert!(shown.contains("TLSv1.3") && shown.contains("forebay dev CA"), "{shown}");
    let (checked, code) = cluster.cli(&["doctor"]);
    assert_eq!(code, 0, "{checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_ca_is_an_error_that_names_the_setting() {
    let cluster = cluster(Options { targets: 1, ..Options::default() });
    let tls = Some(TlsOptions::default());
    let config = ClientConfig { tls, ..ClientConfig::new(&cluster.endpoint) };
    let e = Client::new(config).unwrap().map().await.unwrap_err();
    assert!(e.message().contains("is not trusted"), "{e}");
    assert!(e.hint().unwrap().contains("FOREBAY_CA_FILE"), "{e:?}");
    let (text, code) = {
        let done = forebay_tests::cluster::command(["ls"])
            .env("FOREBAY_ENDPOINT", &cluster.endpoint)
            .output()
            .unwrap();
        (String::from_utf8_lossy(&done.stderr).into_owned(), done.status.code())
    };
    assert!(code != Some(0) && text.contains("FOREBAY_CA_FILE"), "{text}");
    // Plain HTTP on the same port.
    let plain = cluster.endpoint.replace("https://", "http://");
    let answer = http::get(&format!("{plain}/v1/buckets"));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("this port speaks HTTPS"), "{}", answer.text());
    let e = Client::new(ClientConfig::new(plain)).unwrap().map().await.unwrap_err();
    assert!(e.message().contains("this port speaks HTTPS"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_to_a_port_without_tls_names_the_reason() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let endpoint = cluster.endpoint.replace("http://", "https://");
    let e = Client::new(ClientConfig::new(endpoint)).unwrap().map().await.unwrap_err();
    assert!(e.message().contains("does not speak TLS"), "{e}");
    let log = std::fs::read_to_string(cluster.dir().join("gateway1/log")).unwrap();
    assert!(log.contains("a client began TLS"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_stays_with_its_scheme_where_both_are_served() {
    let settings = "[tls]\nhttp = true\n";
    let cluster = cluster(Options { targets: 2, settings, ..Options::default() });
    let plain = cluster.endpoint.replace("https://", "http://");
    for (endpoint, scheme) in [(&cluster.endpoint, "https://"), (&plain, "http://")] {
        let client = Client::new(cluster.config(endpoint)).unwrap();
        use_bucket(&client, &native(&format!("over-{}", &scheme[..scheme.len() - 3]))).await;
        let map = client.map().await.unwrap();
        assert!(map.state.nodes.values().all(|node| node.url.starts_with(scheme)), "{scheme}");
    }
    let name = &names(1)[0];
    let path = format!("/v1/objects/over-https/{}", name.replace(' ', "%20"));
    let answer = http::get(&format!("{plain}{path}"));
    assert!(answer.header("location").unwrap().starts_with("http://"), "{}", answer.text());
    let ca = cluster.ca.clone().unwrap();
    let answer = raw(&ca, &cluster.endpoint, &format!("GET {path}")).await;
    assert!(answer.contains("\r\nlocation: https://"), "{answer}");
    let smap = raw(&ca, &cluster.endpoint, "GET /v1/daemon?what=smap").await;
    assert!(smap.contains("\"direct_url\":\"https://"), "{smap}");
    let smap = http::get(&format!("{plain}/v1/daemon?what=smap")).text();
    assert!(smap.contains("\"direct_url\":\"http://"), "{smap}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_requires_tls_refuses_plain_http_at_every_node() {
    let settings = "[tls]\nhttp = true\n";
    let cluster = cluster(Options { targets: 2, settings, ..Options::default() });
    let plain = |url: &str| url.replace("https://", "http://");
    let send = |what: &str, query: &str, body: &str| {
        let put = s3::request("PUT", &plain(&cluster.endpoint), what).body(body);
        let put = if query.is_empty() { put } else { put.query(query, "") };
        put.send_as(OWNER)
    };
    let policy = r#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
        "Resource": "arn:aws:s3:::secure/*", "Condition": {"Bool": {"aws:SecureTransport": "true"}}}}"#;
    for (what, query, body) in
        [("secure", "", ""), ("secure/o", "", "content"), ("secure", "policy", policy)]
    {
        let answer = send(what, query, body);
        assert!(matches!(answer.status, 200 | 204), "{what}: {}", answer.text());
    }
    let ca = cluster.ca.clone().unwrap();
    for node in cluster.targets.iter().chain(&cluster.gateways) {
        let url = plain(&node.url);
        let get = s3::request("GET", &url, "secure/o");
        assert_eq!(get.send().status, 403, "{url}");
        let pretended = http::request("GET", &format!("{url}/s3/secure/o"))
            .header("x-forwarded-proto", "https")
            .header("forebay-s3-secure", "true");
        assert_eq!(pretended.send().status, 403, "{url}");
        let over_tls = raw(&ca, &url.replace("http://", "https://"), "GET /s3/secure/o").await;
        assert!(over_tls.starts_with("HTTP/1.1 200"), "{url}: {over_tls}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_under_load_without_a_failed_request() {
    let cluster = cluster(Options { targets: 2, ..Options::default() });
    let bucket = native("load");
    let client = cluster.client();
    client.create_bucket(&bucket, None).await.unwrap();
    for name in names(8) {
        client.put(&bucket, &name, content(&name, 100_000), None).await.unwrap();
    }
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let readers = (0..4).map(|n| {
        let (stop, done, bucket) = (stop.clone(), done.clone(), bucket.clone());
        let config = cluster.config(&cluster.endpoint);
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                // A client of its own has connections of its own.
                let client = Client::new(config.clone()).unwrap();
                for name in names(8) {
                    let bytes = client.get_bytes(&bucket, &name, None).await.unwrap();
                    assert_same(&name, &bytes, &content(&name, 100_000));
                    client.put(&bucket, &format!("new-{n}"), "x", None).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let nodes: Vec<_> = cluster.gateways.iter().chain(&cluster.targets).cloned().collect();
    for year in [2090, 2091] {
        for node in &nodes {
            let former = expiry(&node.url).await;
            replace_certificate(&cluster, &node.id, year);
            let deadline = std::time::Instant::now() + TIMEOUT;
            while expiry(&node.url).await == former {
                assert!(std::time::Instant::now() < deadline, "{} keeps its certificate", node.id);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(done.load(Ordering::Relaxed) > 100, "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_named_and_fails_tls_show() {
    let cluster = cluster(Options { targets: 1, ..Options::default() });
    let gateway = &cluster.gateways[0];
    let former = expiry(&gateway.url).await;
    // A broken file changes nothing.
    let cert = cluster.dir().join("tls").join(format!("{}.pem", gateway.id));
    std::fs::write(&cert, "broken").unwrap();
    let log = cluster.dir().join(&gateway.id).join("log");
    wait::until("the node reports the broken file", TIMEOUT, || {
        std::fs::read_to_string(&log).unwrap().contains("the former certificate stays")
    });
    assert_eq!(expiry(&gateway.url).await, former);
    replace_certificate(&cluster, &gateway.id, 2021);
    let deadline = std::time::Instant::now() + TIMEOUT;
    while expiry(&gateway.url).await == former {
        assert!(std::time::Instant::now() < deadline, "the former certificate stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let e = cluster.client().map().await.unwrap_err();
    assert!(e.message().contains("has expired"), "{e}");
    let target = &cluster.targets[0];
    let (shown, code) = cluster.cli(&["tls", "show"]);
    assert!(code == 1 && shown.contains("has expired"), "{shown}");
    assert_eq!(shown.matches("trusted").count(), 1, "the target's is valid: {shown}");
    let metrics = raw(cluster.ca.as_deref().unwrap(), &target.url, "GET /metrics").await;
    assert!(metrics.contains("forebay_tls_certificate_expiry_seconds{"), "{metrics}");
    assert!(metrics.contains("forebay_tls_handshakes_total{result=\"ok\"}"), "{metrics}");
}

/// Makes a CA and one certificate for all nodes in the cluster's folder, as `dev --tls` does.
pub(crate) fn make_certificates(cluster: &Cluster) -> PathBuf {
    let dir = cluster.dir().join("tls");
    std::fs::create_dir(&dir).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "forebay dev CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = dir.join("ca.pem");
    std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(dir.join("ca-key.pem"), key.serialize_pem()).unwrap();
    replace_certificate(cluster, "node", 2090);
    ca
}

/// Changes `[tls]` of a node's file, and starts the node again.
async fn restart_with_tls(cluster: &Cluster, id: &str, ca: &Path, http: bool) {
    let path = cluster.dir().join(id).join("forebay.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("[tls]\n").unwrap();
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let dir = cluster.dir().join("tls");
    let (cert, key) = (dir.join("node.pem"), dir.join("node-key.pem"));
    let tls = format!("cert = {cert:?}\nkey = {key:?}\nca = {ca:?}\nhttp = {http}\n");
    std::fs::write(&path, format!("{before}[tls]\n{tls}\n{after}")).unwrap();
    cluster.kill9(id);
    let node = cluster.gateways.iter().chain(&cluster.targets).find(|n| n.id == id).unwrap();
    cluster.launch(node, "");
    let url = node.url.replace("http://", "https://");
    let deadline = std::time::Instant::now() + TIMEOUT;
    while !is_ready(ca, &url).await {
        assert!(std::time::Instant::now() < deadline, "{id} is not ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn is_ready(ca: &Path, url: &str) -> bool {
    let options = TlsOptions { ca_file: Some(ca.to_owned()), ..TlsOptions::default() };
    let Ok((mut stream, _)) = TlsClient::new(options).connect(url, TIMEOUT).await else {
        return false;
    };
    let request = b"GET /readyz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    let mut answer = Vec::new();
    let sent = stream.write_all(request).await.is_ok();
    sent && stream.read_to_end(&mut answer).await.is_ok() && answer.starts_with(b"HTTP/1.1 200")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_changes_from_http_to_https_without_a_failed_request() {
    let cluster = Cluster::start(Options { gateways: 3, targets: 2, ..Options::default() });
    let endpoints: Vec<_> = cluster.gateways.iter().map(|node| node.url.clone()).collect();
    let (plain, bucket) = (endpoints.join(","), native("moving"));
    let secure = plain.replace("http://", "https://");
    let ca = make_certificates(&cluster);
    let client = cluster.client();
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "o", content("o", 100_000), None).await.unwrap();
    let reader = |endpoint: String, stop: Arc<AtomicBool>| {
        let (tls, bucket) =
            (TlsOptions { ca_file: Some(ca.clone()), ..Default::default() }, bucket.clone());
        tokio::spawn(async move {
            let config = ClientConfig { tls: Some(tls), ..ClientConfig::new(endpoint) };
            let client = Client::new(config).unwrap();
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                let bytes = client.get_bytes(&bucket, "o", None).await.unwrap();
                assert_same("o", &bytes, &content("o", 100_000));
                client.put(&bucket, &format!("new-{}", done % 16), "x", None).await.unwrap();
                done += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(done > 20, "{done}");
        })
    };
    let (stop_plain, stop_secure) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let over_http = reader(plain.clone(), stop_plain.clone());
    for node in cluster.gateways.iter().chain(&cluster.targets) {
        restart_with_tls(&cluster, &node.id, &ca, true).await;
    }
    let over_https = reader(secure.clone(), stop_secure.clone());
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop_plain.store(true, Ordering::Relaxed);
    over_http.await.unwrap();
    for node in cluster.targets.iter().chain(&cluster.gateways) {
        restart_with_tls(&cluster, &node.id, &ca, false).await;
    }
    stop_secure.store(true, Ordering::Relaxed);
    over_https.await.unwrap();
    assert_eq!(http::get(&format!("{}/healthz", cluster.endpoint)).status, 400);
    let tls = Some(TlsOptions { ca_file: Some(ca.clone()), ..TlsOptions::default() });
    let client = Client::new(ClientConfig { tls, ..ClientConfig::new(&secure) }).unwrap();
    use_bucket(&client, &native("after")).await;
    // The map still has the gateways' URLs of HTTP, which they no longer serve.
    let first = secure.split(',').next().unwrap();
    use_jobs(&client, &native("after"), first).await;
}

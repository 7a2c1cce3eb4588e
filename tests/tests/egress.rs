//! Destinations of URLs that callers name: what a target may call, and what `egress.allow` opens.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_tests::http::{self, Answer};
use forebay_tests::s3::{self, OWNER};
use forebay_tests::web::{Reply, Web};
use forebay_tests::{Cluster, Options, Shared, cluster, ports};
use serde_json::json;

static CLUSTER: Shared<Cluster> = Shared::new();

/// A cluster on loopback without entries.
fn plain() -> Arc<Cluster> {
    CLUSTER.get(|| Cluster::start(Options { targets: 1, ..Options::default() }))
}

fn create(endpoint: &str, bucket: &str, kind: &str, url: &str, query: &str) -> Answer {
    let value = json!({"backend": {"type": kind, "bucket": "far-bucket", "endpoint": url}});
    http::request("POST", &format!("{endpoint}/v1/buckets/{bucket}{query}"))
        .json(&json!({"action": "create-bck", "value": value}))
        .send()
}

fn attach(endpoint: &str, url: &str) -> Answer {
    let path = format!("/v1/cluster/attach?what=remote&alias=far&url={url}");
    http::request("PUT", &format!("{endpoint}{path}")).send()
}

/// A server that counts its requests and answers them with this status.
fn counting(status: u16) -> (Web, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let web = Web::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Reply::new(status, "content")
    });
    (web, count)
}

#[test]
fn a_bucket_with_a_closed_endpoint_is_refused_when_it_is_made() {
    let cluster = plain();
    for (n, url) in ["http://169.254.169.254", "http://10.255.0.1:9", "http://[::ffff:10.0.0.1]:9"]
        .into_iter()
        .enumerate()
    {
        for (m, kind) in ["s3", "gcs", "azure", "ais"].into_iter().enumerate() {
            // The flag skips the call of the backend, not the rule.
            for query in ["", "?dont_head_remote_bck=true"] {
                let made = create(&cluster.endpoint, &format!("closed-{n}-{m}"), kind, url, query);
                assert_eq!(made.status, 403, "{kind} {url}{query}: {}", made.text());
                assert!(made.text().contains("egress.allow"), "{}", made.text());
            }
        }
    }
    let scheme = create(&cluster.endpoint, "no-url", "s3", "file:///etc/passwd", "");
    assert_eq!(scheme.status, 400, "{}", scheme.text());
}

#[test]
fn a_cluster_or_a_transform_at_a_closed_address_is_refused() {
    let cluster = plain();
    for url in ["http://169.254.169.254", "http://10.255.0.1:9"] {
        let attached = attach(&cluster.endpoint, url);
        assert_eq!(attached.status, 403, "{url}: {}", attached.text());
        let etl = http::request("PUT", &format!("{}/v1/etl", cluster.endpoint));
        let etl = etl.json(&json!({"name": "closed-service", "url": url})).send();
        assert_eq!(etl.status, 403, "{url}: {}", etl.text());
    }
    let listed = http::get(&format!("{}/v1/cluster?what=remote", cluster.endpoint));
    assert!(!listed.text().contains("10.255.0.1"), "{}", listed.text());
}

#[test]
fn an_attached_cluster_cannot_redirect_to_a_closed_address() {
    let cluster = plain();
    let far = Web::start(|_| {
        Reply::new(307, "").header("location", "http://169.254.169.254/latest/meta-data/")
    });
    assert_eq!(attach(&cluster.endpoint, &far.url).status, 200);
    let url = format!("{}/v1/objects/behind/x?namespace=%40far%23", cluster.endpoint);
    let read = http::request("GET", &url).follow();
    assert_eq!(read.status, 403, "{}", read.text());
    assert!(read.text().contains("169.254.169.254"), "{}", read.text());
}

#[test]
fn an_entry_opens_one_web_server_and_no_redirect_from_it() {
    let (closed, reached) = counting(200);
    let hidden = format!("{}/x/a", closed.url);
    let open = Web::start(move |request| match request.target.as_str() {
        "/away/a" => Reply::new(302, "").header("location", &hidden),
        _ => Reply::new(200, "open"),
    });
    let entry = open.url.strip_prefix("http://").unwrap();
    let env = vec![("FOREBAY_EGRESS__ALLOW".to_owned(), format!("[\"{entry}\"]"))];
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    // A bucket stands for one folder of one server.
    let read = |bucket: &str, url: &str| {
        let url = format!("{}/v1/objects/{bucket}/a?original_url={url}", cluster.endpoint);
        http::request("GET", &url).follow()
    };
    let opened = read("open", &format!("{}/file/a", open.url));
    assert_eq!((opened.status, opened.text().as_str()), (200, "open"));
    let (away, closed) = (format!("{}/away/a", open.url), format!("{}/x/a", closed.url));
    for (bucket, url) in [("away", away), ("closed", closed)] {
        let refused = read(bucket, &url);
        assert_eq!(refused.status, 403, "{url}: {}", refused.text());
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0);
}

/// `forebay serve` for other machines; ends with this value.
struct Serve {
    process: Child,
    endpoint: String,
    dir: tempfile::TempDir,
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serve {
    fn start(env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = ports::free(2);
        let port_text = port.to_string();
        let args = ["serve", "--host", "0.0.0.0", "--insecure", "--port", &port_text, "--dir"];
        let mut command = cluster::command(args);
        command.arg(dir.path()).envs(env.iter().copied());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")), "it does not start");
        Self { process, endpoint: format!("http://127.0.0.1:{port}"), dir }
    }
}

#[test]
fn a_node_that_other_machines_reach_calls_loopback_only_if_an_entry_opens_it() {
    let (minio, asked) = counting(200);
    let entry = minio.url.strip_prefix("http://").unwrap();
    let closed = Serve::start(&[]);
    let made = create(&closed.endpoint, "near", "s3", &minio.url, "");
    assert_eq!(made.status, 403, "{}", made.text());
    assert!(made.text().contains(entry), "{}", made.text());
    assert_eq!(attach(&closed.endpoint, &minio.url).status, 403);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    drop(closed);

    let open = Serve::start(&[
        ("FOREBAY_EGRESS__ALLOW", &format!("[\"{entry}\"]")),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
    ]);
    let made = create(&open.endpoint, "near", "s3", &minio.url, "");
    assert_eq!(made.status, 200, "{}", made.text());
    assert!(asked.load(Ordering::SeqCst) > 0);
    drop(open);

    let own = Serve::start(&[("AWS_ENDPOINT_URL", &minio.url), ("AWS_REGION", "us-east-1")]);
    let made = create(&own.endpoint, "near", "s3", &minio.url, "?dont_head_remote_bck=true");
    assert_eq!(made.status, 200, "the endpoint of the environment: {}", made.text());
    let other = "http://127.0.0.1:9";
    assert_eq!(create(&own.endpoint, "other", "s3", other, "").status, 403, "another port of it");
}

#[test]
fn a_node_that_other_machines_reach_attaches_disks_below_its_roots_alone() {
    let roots = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let disk = roots.path().join("nvme1");
    std::fs::create_dir(&disk).unwrap();
    let link = roots.path().join("out");
    std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
    let setting = format!("[{:?}]", roots.path());
    let serve = Serve::start(&[("FOREBAY_DISKS__ROOTS", &setting)]);
    let ids = std::fs::read_to_string(serve.dir.path().join("ids.toml")).unwrap();
    let target = ids.lines().find_map(|line| line.strip_prefix("target = ")).unwrap();
    let target = target.trim_matches('"');
    let attach = |path: &std::path::Path| {
        let args = ["disk", "attach", target, path.to_str().unwrap(), "--size", "1GiB"];
        let mut command = cluster::command(args);
        command.env("FOREBAY_ENDPOINT", &serve.endpoint).output().unwrap()
    };
    for closed in [elsewhere.path(), link.as_path()] {
        let refused = attach(closed);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("disks.roots"), "{said}");
    }
    let attached = attach(&disk);
    assert!(attached.status.success(), "{}", String::from_utf8_lossy(&attached.stderr));
}

#[test]
fn the_region_of_a_signature_names_no_host() {
    let (foreign, reached) = counting(200);
    let cloud = Web::start(|request| {
        let own = request.headers["authorization"].contains("/eu-north-1/s3/");
        // Not an MD5, which would be compared with the bytes.
        let tag = "\"0123456789abcdef-2\"";
        let reply = Reply::new(200, if own { "of the cloud" } else { "another region" });
        let reply = reply.header("etag", tag);
        reply.header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
    });
    let env = [
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-north-1"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let backend = json!({"type": "s3", "bucket": "far", "endpoint": cloud.url});
    let url = format!("{}/v1/buckets/regions?dont_head_remote_bck=true", cluster.endpoint);
    let made = http::request("POST", &url)
        .json(&json!({"action": "create-bck", "value": {"backend": backend}}))
        .send();
    assert_eq!(made.status, 200, "{}", made.text());
    let host = foreign.url.strip_prefix("http://").unwrap();
    let regions = [host, "169.254.169.254", "us-east-1.evil.example", "a@evil.example", "x#"];
    let nodes = [&cluster.endpoint, &cluster.targets[0].url];
    for (n, region) in regions.into_iter().enumerate() {
        for node in nodes {
            let get = s3::request("GET", node, &format!("regions/{n}")).region(region);
            let url = get.clone().presign(OWNER, 60);
            for answer in [http::get(&url), get.send_as(OWNER)] {
                assert_eq!(answer.text(), "of the cloud", "{region} at {node}: {}", answer.status);
            }
        }
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0);
}

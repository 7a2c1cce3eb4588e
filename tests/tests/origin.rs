//! Buckets over a web server: read once, kept, compared by its versions, never written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_core::origin::Origin;
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode, Provider};
use forebay_tests::data::{assert_same, content};
use forebay_tests::web::{Reply, Web};
use forebay_tests::{Cluster, Options, http};

/// A web server with files below `/data/`, and how often each was sent.
struct Site {
    web: Web,
    /// Its version, part of every file.
    version: Arc<Mutex<String>>,
    sent: Arc<AtomicU64>,
}

fn file(path: &str, version: &str) -> Vec<u8> {
    let size = if path.ends_with("large") { 20 << 20 } else { 5_000 };
    content(&format!("{path} {version}"), size).to_vec()
}

impl Site {
    fn start() -> Self {
        let version = Arc::new(Mutex::new("v1".to_owned()));
        let sent = Arc::new(AtomicU64::new(0));
        let (kept, counted) = (version.clone(), sent.clone());
        let web = Web::start(move |request| {
            let Some(path) = request.target.strip_prefix("/data/") else {
                return Reply::new(404, "");
            };
            if path.contains("missing") || path.is_empty() {
                return Reply::new(404, "");
            }
            let version = kept.lock().unwrap().clone();
            let bytes = file(path, &version);
            let etag = format!("\"{version}\"");
            if request.method == "HEAD" {
                // This server cannot send a length without a body, so it refuses HEAD.
                return Reply::new(405, "");
            }
            let range = request.headers.get("range").and_then(|r| r.strip_prefix("bytes="));
            let Some((first, last)) = range.and_then(|r| r.split_once('-')) else {
                counted.fetch_add(1, Ordering::SeqCst);
                return Reply::new(200, bytes).header("etag", &etag);
            };
            let first: usize = first.parse().unwrap();
            let last = last.parse::<usize>().unwrap().min(bytes.len() - 1);
            if last > 0 {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            let said = format!("bytes {first}-{last}/{}", bytes.len());
            let reply = Reply::new(206, &bytes[first..=last]);
            reply.header("etag", &etag).header("content-range", &said)
        });
        Self { web, version, sent }
    }

    fn url(&self) -> String {
        format!("{}/data", self.web.url)
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

fn cluster() -> Cluster {
    let open = ("FOREBAY_DOWNLOAD__ALLOW_PRIVATE".to_owned(), "true".to_owned());
    Cluster::start(Options { env: vec![open], ..Options::default() })
}

fn web_bucket(name: &str) -> Bucket {
    Bucket::new(Provider::Ht, name).unwrap()
}

#[tokio::test]
async fn files_of_a_web_server_are_read_once_and_kept() {
    let (site, cluster) = (Site::start(), cluster());
    let client = cluster.client();
    let bucket = web_bucket("site");
    let origin = Origin::parse(&site.url()).unwrap();
    client.create_bucket(&bucket, Some(origin.backend())).await.unwrap();
    for _ in 0..2 {
        for name in ["a.bin", "dir/größe 1%.bin"] {
            let path = origin.url(name).unwrap().split_once("/data/").unwrap().1.to_owned();
            let got = client.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &file(&path, "v1"));
        }
    }
    assert_eq!(site.sent(), 2);
    let labels = ["provider=\"ht\"", "op=\"get\"", "result=\"ok\""];
    assert!(cluster.metric("forebay_backend_requests_total", &labels) >= 2.0);

    let large = file("large", "v1");
    let range = RangeSpec::From(15_000_000, Some(15_999_999));
    let got = client.get_bytes(&bucket, "large", Some(range)).await.unwrap();
    assert_same("a range", &got, &large[15_000_000..16_000_000]);

    let gone = client.get_bytes(&bucket, "missing", None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
}

#[tokio::test]
async fn a_changed_file_is_seen_where_freshness_is_always() {
    let (site, cluster) = (Site::start(), cluster());
    let client = cluster.client();
    let bucket = web_bucket("fresh");
    let backend = Origin::parse(&site.url()).unwrap().backend();
    client.create_bucket(&bucket, Some(backend)).await.unwrap();
    let set = serde_json::json!({ "action": "set-bprops", "value": { "freshness": "always" } });
    let url = format!("{}/v1/buckets/fresh?provider=ht", cluster.endpoint);
    let answer = http::request("PATCH", &url).json(&set).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    for version in ["v1", "v2"] {
        *site.version.lock().unwrap() = version.to_owned();
        let got = client.get_bytes(&bucket, "x", None).await.unwrap();
        assert_same(version, &got, &file("x", version));
    }
}

#[tokio::test]
async fn original_url_makes_the_bucket() {
    let (site, cluster) = (Site::start(), cluster());
    let url = |bucket: &str, path: &str, of: &str| {
        format!("{}/v1/objects/{bucket}/{path}?original_url={of}", cluster.endpoint)
    };
    let first = http::request("GET", &url("web", "a.bin", &format!("{}/a.bin", site.url())));
    let first = first.follow();
    assert_eq!(first.status, 200, "{}", first.text());
    assert_same("the file", &first.body, &file("a.bin", "v1"));
    // From now on the bucket is known by its name alone.
    let again = format!("{}/v1/objects/web/a.bin?provider=ht", cluster.endpoint);
    assert_same("again", &http::request("GET", &again).follow().body, &file("a.bin", "v1"));
    assert_eq!(site.sent(), 1);

    let other = format!("{}/elsewhere/b.bin", site.web.url);
    let other = http::request("GET", &url("web", "b.bin", &other)).follow();
    assert_eq!(other.status, 409, "{}", other.text());
    assert!(other.text().contains("another origin"), "{}", other.text());
    let wrong = http::request("GET", &url("web2", "b.bin", &site.url())).follow();
    assert_eq!(wrong.status, 400, "{}", wrong.text());
}

#[tokio::test]
async fn what_an_origin_cannot_do_is_said_and_what_to_do_instead() {
    let (site, cluster) = (Site::start(), cluster());
    let client = cluster.client();
    let bucket = web_bucket("still");
    let unknown = client.get_bytes(&bucket, "x", None).await.unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::RemoteBucketNotFound, "{unknown}");
    assert!(unknown.to_string().contains("--url"), "{unknown}");

    let backend = Origin::parse(&site.url()).unwrap().backend();
    client.create_bucket(&bucket, Some(backend)).await.unwrap();
    let put = client.put(&bucket, "x", "new", None).await.unwrap_err();
    assert_eq!(put.code(), ErrorCode::Unsupported, "{put}");
    let delete = client.delete(&bucket, "x").await.unwrap_err();
    assert_eq!(delete.code(), ErrorCode::Unsupported, "{delete}");
    let list = client.list_page(&bucket, &Default::default()).await.unwrap_err();
    assert_eq!(list.code(), ErrorCode::Unsupported, "{list}");
    assert!(list.to_string().contains("ht://still"), "{list}");
}

#[tokio::test]
async fn a_cluster_that_may_not_call_private_addresses_says_which_setting() {
    let site = Site::start();
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let url = format!("{}/v1/objects/in/a.bin?original_url={}/a.bin", cluster.endpoint, site.url());
    let refused = http::request("GET", &url).follow();
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("allow_private"), "{}", refused.text());
    assert_eq!(site.sent(), 0);
}

#[tokio::test]
async fn what_a_server_gives_no_version_of_is_fetched_anew_where_freshness_is_always() {
    let size = Arc::new(AtomicU64::new(100));
    let served = size.clone();
    let web =
        Web::start(move |_| Reply::new(200, vec![b'z'; served.load(Ordering::SeqCst) as usize]));
    let cluster = cluster();
    let client = cluster.client();
    let bucket = web_bucket("untold");
    let backend = Origin::parse(&format!("{}/data", web.url)).unwrap().backend();
    client.create_bucket(&bucket, Some(backend)).await.unwrap();
    let etag = || {
        let url = format!("{}?provider=ht", cluster.object_url("untold", "x"));
        http::request("HEAD", &url).follow().header("etag").map(str::to_owned)
    };
    let cold = etag();
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap().len(), 100);
    assert_eq!((etag(), cold.is_some()), (cold, true), "one version, one ETag");
    let set = serde_json::json!({ "action": "set-bprops", "value": { "freshness": "always" } });
    let url = format!("{}/v1/buckets/untold?provider=ht", cluster.endpoint);
    assert_eq!(http::request("PATCH", &url).json(&set).send().status, 200);
    for bytes in [100, 250, 100] {
        size.store(bytes, Ordering::SeqCst);
        let got = client.get_bytes(&bucket, "x", None).await.unwrap();
        assert_eq!(got.len() as u64, bytes);
    }
}

//! A real MinIO (S3), whose counters give the number of requests.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use tempfile::TempDir;

use crate::{http, ports, skip, wait};

const USER: &str = "minioadmin";
const PASSWORD: &str = "minioadmin";

/// A MinIO of this test run, with its data in a folder that goes away with it.
pub struct Minio {
    process: Child,
    pub url: String,
    user: &'static str,
    password: &'static str,
    region: &'static str,
    _data: TempDir,
}

impl Minio {
    /// Starts one; `None` when there is no MinIO here, after saying so. With
    /// `FOREBAY_REQUIRE_MINIO=1` that is a failure.
    pub fn start() -> Option<Self> {
        Self::start_as(USER, PASSWORD, "us-east-1")
    }

    /// Starts one with other keys, in another region.
    pub fn start_as(
        user: &'static str,
        password: &'static str,
        region: &'static str,
    ) -> Option<Self> {
        let Some(program) = program() else {
            let why = "MinIO not found; ci/minio.sh builds it, or set FOREBAY_MINIO";
            skip::skipped_unless("FOREBAY_REQUIRE_MINIO", why);
            return None;
        };
        let data = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", ports::free(1));
        let log = std::fs::File::create(data.path().join("log")).unwrap();
        let process = Command::new(program)
            .args(["server", "--quiet", "--address", &address])
            .arg(data.path().join("data"))
            .env("MINIO_ROOT_USER", user)
            .env("MINIO_ROOT_PASSWORD", password)
            .env("MINIO_SITE_REGION", region)
            .env("MINIO_PROMETHEUS_AUTH_TYPE", "public")
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("MinIO starts");
        let url = format!("http://{address}");
        let minio = Self { process, url, user, password, region, _data: data };
        wait::until("MinIO is ready", Duration::from_secs(60), || {
            let ready = http::request("GET", &format!("{}/minio/health/ready", minio.url));
            ready.try_send().is_ok_and(|answer| answer.status == 200)
        });
        Some(minio)
    }

    /// The environment by which targets reach it.
    pub fn env(&self) -> Vec<(String, String)> {
        env(&self.url, self.user, self.password)
    }

    /// An S3 client that connects to MinIO, not to the cluster.
    pub fn s3(&self) -> Client {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(self.region))
            .endpoint_url(&self.url)
            .credentials_provider(Credentials::new(self.user, self.password, None, None, "tests"))
            .force_path_style(true)
            .build();
        Client::from_conf(config)
    }

    pub async fn create_bucket(&self, bucket: &str) {
        self.s3().create_bucket().bucket(bucket).send().await.unwrap();
    }

    pub async fn put(&self, bucket: &str, key: &str, bytes: Vec<u8>) {
        let put = self.s3().put_object().bucket(bucket).key(key).body(bytes.into());
        put.send().await.unwrap();
    }

    /// Content of the key in MinIO; `None` if it does not exist.
    pub async fn get(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        let answer = self.s3().get_object().bucket(bucket).key(key).send().await.ok()?;
        Some(answer.body.collect().await.unwrap().to_vec())
    }

    /// How many requests of one kind (`GetObject`, `PutObject`, …) MinIO has counted itself.
    pub fn count(&self, api: &str) -> u64 {
        let answer = http::get(&format!("{}/minio/metrics/v3/api/requests", self.url));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let label = format!("name=\"{api}\"");
        http::metric(&answer.text(), "minio_api_requests_total{", &[&label]) as u64
    }
}

impl Drop for Minio {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The environment by which a target reaches some S3.
pub fn env(url: &str, user: &str, password: &str) -> Vec<(String, String)> {
    let pairs = [
        ("AWS_ACCESS_KEY_ID", user),
        ("AWS_SECRET_ACCESS_KEY", password),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", url),
    ];
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec()
}

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FOREBAY_MINIO").filter(|v| !v.is_empty()) {
        return Some(named.into());
    }
    let cache = std::env::var_os("FOREBAY_CACHE").map(PathBuf::from);
    let cache =
        cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/forebay")));
    cache.map(|cache| cache.join("bin/minio")).filter(|path| path.exists())
}

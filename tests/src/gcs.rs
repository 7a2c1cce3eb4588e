//! A real fake-gcs-server (Google Cloud Storage emulator), whose log gives the number of reads.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{http, ports, skip, wait};

/// A fake-gcs-server of this test run. Its objects are in its memory.
pub struct FakeGcs {
    process: Child,
    pub url: String,
    folder: TempDir,
}

impl FakeGcs {
    /// Starts one; `None` when there is none here, after saying so. With
    /// `FOREBAY_REQUIRE_FAKE_GCS=1` that is a failure.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            let why = "fake-gcs-server not found; ci/fake_gcs.sh builds it";
            skip::skipped_unless("FOREBAY_REQUIRE_FAKE_GCS", why);
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let port = ports::free(1);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(program)
            .args(["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"])
            .args(["-port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("fake-gcs-server starts");
        let server = Self { process, url: format!("http://127.0.0.1:{port}"), folder };
        wait::until("fake-gcs-server is ready", Duration::from_secs(60), || {
            let ready = http::request("GET", &format!("{}/_internal/healthcheck", server.url));
            ready.try_send().is_ok_and(|answer| answer.status == 200)
        });
        Some(server)
    }

    /// The environment by which targets reach it.
    pub fn env(&self) -> Vec<(String, String)> {
        vec![("STORAGE_EMULATOR_HOST".to_owned(), self.url.clone())]
    }

    pub fn create_bucket(&self, bucket: &str) {
        let create = http::request("POST", &format!("{}/storage/v1/b", self.url));
        let answer = create.json(&serde_json::json!({ "name": bucket })).send();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Puts an object directly into the emulator, not through the cluster.
    pub fn put(&self, bucket: &str, name: &str, bytes: impl Into<Vec<u8>>) {
        put(&self.url, bucket, name, bytes);
    }

    /// Content of an object; `None` if it does not exist.
    pub fn get(&self, bucket: &str, name: &str) -> Option<Vec<u8>> {
        // Not the path that clusters read by, so that [`Self::reads`] does not count this request.
        let path = format!("/download/storage/v1/b/{bucket}/o/{}", encoded(name));
        let answer = http::get(&format!("{}{path}?alt=media", self.url));
        (answer.status == 200).then_some(answer.body)
    }

    /// Reads of objects of this bucket in its log, without those that found nothing.
    pub fn reads(&self, bucket: &str) -> u64 {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let start = format!("\"GET /storage/v1/b/{bucket}/o/");
        let is_read = |line: &&str| {
            line.contains(&start) && line.contains("alt=media") && line.contains("HTTP/1.1\\\" 20")
        };
        log.lines().filter(is_read).count() as u64
    }
}

impl FakeGcs {
    /// How many listings of this bucket it has logged.
    pub fn lists(&self, bucket: &str) -> u64 {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let start = format!("\"GET /storage/v1/b/{bucket}/o?");
        log.lines().filter(|line| line.contains(&start)).count() as u64
    }
}

impl Drop for FakeGcs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Puts an object at the emulator of this URL.
pub fn put(url: &str, bucket: &str, name: &str, bytes: impl Into<Vec<u8>>) {
    let name = encoded(name);
    let path = format!("/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}");
    let put = http::request("POST", &format!("{url}{path}"));
    let answer = put.header("content-type", "application/octet-stream").body(bytes).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn encoded(name: &str) -> String {
    let encode = |b: u8| match b {
        b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    name.bytes().map(encode).collect()
}

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FOREBAY_FAKE_GCS").filter(|v| !v.is_empty()) {
        return Some(named.into());
    }
    let cache = std::env::var_os("FOREBAY_CACHE").map(PathBuf::from);
    let cache =
        cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/forebay")));
    cache.map(|cache| cache.join("bin/fake-gcs-server")).filter(|path| path.exists())
}

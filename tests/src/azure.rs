//! A real Azurite (Azure Blob Storage emulator), whose log gives the number of reads.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{http, ports, skip, wait};

pub const ACCOUNT: &str = "forebaytest";
/// Of that account at these servers alone.
pub const KEY: &str = "Zm9yZWJheSB0ZXN0cyB3aXRoIEF6dXJpdGU=";
/// A shared access signature for the whole account until 2099, made once with the key above.
pub const SAS: &str = "sv=2019-12-12&ss=b&srt=sco\
    &sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&sig=iWYag%2FhRg8tpodnLeIX3BhZXqTWpjFrSQDlJXwWBD2M%3D";

/// A second account of these servers, with its key and its signature, made in the same way.
pub const OTHER: &str = "forebayother";
pub const OTHER_KEY: &str = "dGhlIG90aGVyIGFjY291bnQgb2YgQXp1cml0ZQ==";
const OTHER_SAS: &str = "sv=2019-12-12&ss=b&srt=sco\
    &sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&sig=dw1q%2FToJSXs37WKYDn0RBSRITVtYmyUHmh6t9e2kBOM%3D";

/// An Azurite of this test run. Its objects are in its folder.
pub struct Azurite {
    process: Child,
    pub url: String,
    folder: TempDir,
}

impl Azurite {
    /// Starts one; `None` when there is none here, after saying so. With
    /// `FOREBAY_REQUIRE_AZURITE=1` that is a failure.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            let why = "Azurite not found; ci/azurite.sh installs it";
            skip::skipped_unless("FOREBAY_REQUIRE_AZURITE", why);
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let port = ports::free(1);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(program)
            .args(["--skipApiVersionCheck", "--disableTelemetry", "--location"])
            .arg(folder.path().join("data"))
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
            .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY};{OTHER}:{OTHER_KEY}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("Azurite starts");
        let server = Self { process, url: format!("http://127.0.0.1:{port}/{ACCOUNT}"), folder };
        wait::until("Azurite is ready", Duration::from_secs(60), || {
            http::request("GET", &server.url).try_send().is_ok()
        });
        Some(server)
    }

    /// The environment by which targets reach it.
    pub fn env(&self) -> Vec<(String, String)> {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            set("AZURE_STORAGE_ACCOUNT", ACCOUNT),
            set("AZURE_STORAGE_KEY", KEY),
            set("AZURE_STORAGE_ENDPOINT", &self.url),
        ]
    }

    fn at(&self, path: &str) -> String {
        at(&self.url, path)
    }

    pub fn create_container(&self, name: &str) {
        create(&self.url, name);
    }

    /// URL of the second account.
    pub fn other_url(&self) -> String {
        self.url.replace(ACCOUNT, OTHER)
    }

    /// Puts an object directly into Azurite, not through the cluster.
    pub fn put(&self, container: &str, name: &str, bytes: impl Into<Vec<u8>>) {
        put(&self.url, container, name, bytes);
    }

    /// Reads an object directly. Sends no range, so that [`Self::reads`] does not count this
    /// request.
    pub fn get(&self, container: &str, name: &str) -> Option<http::Answer> {
        let answer = http::get(&self.at(&format!("{container}/{name}")));
        (answer.status == 200).then_some(answer)
    }

    /// How many reads of objects of this container it has logged: those with a range, as clusters
    /// read.
    pub fn reads(&self, container: &str) -> u64 {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let start = format!("\"GET /{ACCOUNT}/{container}/");
        log.lines().filter(|l| l.contains(&start) && l.contains("\" 206 ")).count() as u64
    }
}

/// Creates a container at the server of this URL.
pub fn create(url: &str, container: &str) {
    let create = http::request("PUT", &at(url, &format!("{container}?restype=container")));
    let answer = create.send();
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// Puts an object at the server of this URL.
pub fn put(url: &str, container: &str, name: &str, bytes: impl Into<Vec<u8>>) {
    let put = http::request("PUT", &at(url, &format!("{container}/{name}")));
    let answer = put.header("x-ms-blob-type", "BlockBlob").body(bytes).send();
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn at(url: &str, path: &str) -> String {
    let and = if path.contains('?') { '&' } else { '?' };
    let signature = if url.ends_with(OTHER) { OTHER_SAS } else { SAS };
    format!("{url}/{path}{and}{signature}")
}

impl Drop for Azurite {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FOREBAY_AZURITE").filter(|v| !v.is_empty()) {
        return Some(named.into());
    }
    let cache = std::env::var_os("FOREBAY_CACHE").map(PathBuf::from);
    let cache =
        cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/forebay")));
    cache.map(|cache| cache.join("bin/azurite-blob")).filter(|path| path.exists())
}

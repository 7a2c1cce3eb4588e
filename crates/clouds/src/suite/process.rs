//! Real servers for this test process. They end with the process, even if it is killed.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::skip;

/// Starts the server, then waits for the end of its input, which closes when the test process ends.
const KEEPER: &str = r#"
folder=$1
shift
HOME=$folder "$@" >>"$folder/log" 2>&1 </dev/null &
server=$!
read -r _
kill $server
wait $server
rm -rf "$folder"
"#;

/// How a server is found and started.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Variable that names its program.
    pub(super) variable: &'static str,
    /// Variable that makes its absence a failure.
    pub(super) required: &'static str,
    /// Its file name, in the cache of `ci/` or on PATH.
    pub(super) file: &'static str,
    /// Arguments of each of its processes, for a port on loopback and a folder of its own.
    pub(super) processes: fn(port: u16, folder: &Path) -> Vec<Vec<OsString>>,
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Path that it answers without a server error once it is ready.
    pub(super) ready: &'static str,
}

/// A server that all tests of this process use: the first of them starts it.
pub(super) struct SharedServer {
    kind: Kind,
    running: OnceLock<Server>,
}

struct Server {
    endpoint: String,
    _keepers: Vec<Keeper>,
}

/// Ends a process: its input is closed when this is dropped, and when the test process ends.
struct Keeper {
    process: Child,
    input: Option<ChildStdin>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

impl SharedServer {
    pub(super) const fn new(kind: Kind) -> Self {
        Self { kind, running: OnceLock::new() }
    }

    /// The endpoint of the running server; `None` if there is none here: the calling test is
    /// skipped.
    pub(super) async fn endpoint(&'static self) -> Option<String> {
        let Some(program) = self.kind.program() else {
            skip::skipped_unless(self.kind.required, &format!("{} not found", self.kind.name));
            return None;
        };
        let start = move || self.running.get_or_init(|| self.kind.start(&program)).endpoint.clone();
        Some(tokio::task::spawn_blocking(start).await.unwrap())
    }
}

impl Kind {
    /// Starts one.
    fn start(&self, program: &Path) -> Server {
        for _ in 0..5 {
            let port = free_port();
            let prefix = format!("forebay-{}-", self.file);
            let folder = tempfile::Builder::new().prefix(&prefix).tempdir().unwrap().keep();
            let keep = |arguments: Vec<OsString>| {
                let mut process = Command::new("sh")
                    .args(["-c", KEEPER, "sh"])
                    .args([folder.as_path(), program])
                    .args(arguments)
                    .envs(self.environment.iter().copied())
                    .stdin(Stdio::piped())
                    .spawn()
                    .expect("sh is there");
                Keeper { input: process.stdin.take(), process }
            };
            let keepers = (self.processes)(port, &folder).into_iter().map(keep).collect();
            if is_ready(port, self.ready) {
                let endpoint = format!("http://127.0.0.1:{port}");
                return Server { endpoint, _keepers: keepers };
            }
            let mut log = String::new();
            if let Ok(mut file) = std::fs::File::open(folder.join("log")) {
                let _ = file.read_to_string(&mut log);
            }
            drop(keepers);
            eprintln!("{} did not start on port {port}:\n{log}", self.name);
        }
        panic!("{} did not start", self.name);
    }

    fn program(&self) -> Option<PathBuf> {
        if let Some(given) = std::env::var_os(self.variable).filter(|v| !v.is_empty()) {
            return Some(given.into());
        }
        let cache = std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache/forebay/bin"));
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        let folders = cache.into_iter().chain(std::env::split_paths(&on_path));
        folders.map(|folder| folder.join(self.file)).find(|path| path.is_file())
    }
}

/// Below the range of ports for outgoing connections.
fn free_port() -> u16 {
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut tries = std::iter::repeat_with(|| rand::random_range(15_000..32_000));
    tries.find(free).expect("the iterator has no end")
}

/// Waits until the health check succeeds.
fn is_ready(port: u16, path: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let mut answer = [0; 12];
            if stream.write_all(request.as_bytes()).is_ok()
                && stream.read_exact(&mut answer).is_ok()
                // Some have no health check: then any status but a server error counts as ready.
                && answer[9] < b'5'
            {
                return true;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

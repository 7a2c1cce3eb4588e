//! A real cluster: `forebay dev` with its nodes as processes, in a folder of its own.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use forebay_client::tls::TlsOptions;
use forebay_client::{Client, ClientConfig};
use forebay_core::bucket::{BackendKind, BackendSpec};
use forebay_core::intra::MapReply;
use forebay_core::job::{JobKind, JobState, Selection};
use forebay_core::locks::MutexExt;
use forebay_core::{Bucket, Provider, placement};
use tempfile::TempDir;

use crate::{ClockShift, http, ports, request_ids, secrets, wait};

/// Longest wait for a cluster to come up or go down.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Lines of a panic that are shown.
const PANIC_LINES: usize = 12;

/// Options of a test cluster.
#[derive(Clone, Debug)]
pub struct Options {
    pub gateways: u16,
    pub targets: u16,
    /// Budget of each disk, as `--size` takes it.
    pub size: Option<&'static str>,
    pub folder_roots: Vec<PathBuf>,
    /// Serves HTTPS.
    pub tls: bool,
    /// More settings of all nodes (TOML tables).
    pub settings: &'static str,
    /// Environment of all nodes. Cloud and Forebay variables of the test's own environment are
    /// removed.
    pub env: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        let (folder_roots, env) = (Vec::new(), Vec::new());
        let (size, tls) = (None, false);
        Self { gateways: 1, targets: 3, size, folder_roots, tls, settings: "", env }
    }
}

/// A running cluster; all its processes end when this value is dropped.
pub struct Cluster {
    options: Options,
    home: Home,
    port: u16,
    dev: Option<Child>,
    /// Nodes started again by their `cmd`.
    again: Mutex<Vec<Child>>,
    pub endpoint: String,
    /// File with the CA of an HTTPS endpoint.
    pub ca: Option<PathBuf>,
    /// Targets by id, in order.
    pub targets: Vec<NodeHandle>,
    pub gateways: Vec<NodeHandle>,
}

/// A node as `dev.json` describes it.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    pub id: String,
    pub url: String,
}

/// The folder a cluster lives in.
struct Home {
    dir: TempDir,
}

impl Cluster {
    pub fn start(options: Options) -> Self {
        let home = Home { dir: tempfile::tempdir().unwrap() };
        // Another test may take a port between the check and the start: then try other ports.
        for _ in 0..5 {
            let port = ports::free(options.gateways + options.targets);
            let mut dev = spawn_dev(&options, home.dir.path(), port);
            match wait_for_description(&mut dev, home.dir.path()) {
                Ok(()) => {
                    let cluster = Self::describe(options, home, port, dev);
                    request_ids::forget(cluster.gateways.iter().chain(&cluster.targets));
                    return cluster;
                }
                Err(status) if status.code() == Some(10) => {}
                Err(status) => panic!("forebay dev ended: {status}\n{}", home.logs()),
            }
        }
        panic!("no free ports in five tries");
    }

    /// One gateway, three targets.
    pub fn plain() -> Self {
        Self::start(Options::default())
    }

    fn describe(options: Options, home: Home, port: u16, dev: Child) -> Self {
        let text = fs::read_to_string(home.dir.path().join("dev.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let nodes = |key: &str| -> Vec<NodeHandle> {
            let list = json[key].as_array().unwrap_or_else(|| panic!("{key} in {text}"));
            let field = |node: &serde_json::Value, f: &str| node[f].as_str().unwrap().to_owned();
            list.iter().map(|n| NodeHandle { id: field(n, "id"), url: field(n, "url") }).collect()
        };
        Self {
            endpoint: json["endpoint"].as_str().unwrap().to_owned(),
            ca: json["ca"].as_str().map(PathBuf::from),
            targets: nodes("targets"),
            gateways: nodes("gateways"),
            options,
            home,
            port,
            dev: Some(dev),
            again: Mutex::default(),
        }
    }

    pub fn dir(&self) -> &Path {
        self.home.dir.path()
    }

    /// A client with the default deadline. Make one per test: its connections belong to the
    /// runtime that made it.
    pub fn client(&self) -> Client {
        Client::new(self.config(&self.endpoint)).unwrap()
    }

    /// The configuration of a client of this cluster, at an endpoint of it.
    pub fn config(&self, endpoint: &str) -> ClientConfig {
        let ca = self.ca.clone();
        let tls = ca.map(|ca| TlsOptions { ca_file: Some(ca), ..TlsOptions::default() });
        ClientConfig { tls, ..ClientConfig::new(endpoint) }
    }

    pub fn client_with_deadline(&self, deadline: Duration) -> Client {
        let config = ClientConfig { deadline, ..ClientConfig::new(&self.endpoint) };
        Client::new(config).unwrap()
    }

    /// Output and exit code of a command of `forebay` on this cluster.
    pub fn cli(&self, args: &[&str]) -> (String, i32) {
        let mut command = command(args);
        command.env("FOREBAY_ENDPOINT", &self.endpoint);
        if let Some(ca) = &self.ca {
            command.env("FOREBAY_CA_FILE", ca);
        }
        let done = command.output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        (text.into_owned(), done.status.code().unwrap())
    }

    /// URL of an object, on the gateway.
    pub fn object_url(&self, bucket: &str, object: &str) -> String {
        format!("{}/v1/objects/{bucket}/{object}", self.endpoint)
    }

    /// The map as the first gateway that answers has it now.
    pub fn map(&self) -> MapReply {
        let mut maps = self.gateways.iter().filter_map(|gateway| self.map_of(&gateway.url));
        maps.next().expect("a gateway answers with the map")
    }

    /// The map as one gateway has it now; none while it does not answer.
    pub fn map_of(&self, gateway_url: &str) -> Option<MapReply> {
        let asked = http::request("GET", &format!("{gateway_url}/api/v1/map")).try_send();
        let answer = asked.ok().filter(|answer| answer.status == 200)?;
        Some(serde_json::from_slice(&answer.body).unwrap())
    }

    /// Changes a setting of the cluster, given as `name=value`.
    pub fn configure(&self, setting: &str) {
        let url = format!("{}/v1/cluster/set-config?{setting}", self.endpoint);
        let answer = http::request("PUT", &url).send();
        assert_eq!(answer.status, 200, "{setting}: {}", answer.text());
    }

    /// Whether the gateway's map has this node alive.
    pub fn is_alive(&self, id: &str) -> bool {
        self.map().state.nodes.values().any(|node| node.alive && node.id.as_str() == id)
    }

    pub fn target(&self, id: &str) -> &NodeHandle {
        self.targets.iter().find(|t| t.id == id).unwrap_or_else(|| panic!("no target {id}"))
    }

    /// The target that owns an object of a bucket that exists.
    pub fn owner(&self, bucket: &Bucket, object: &str) -> NodeHandle {
        let map = self.map();
        let info = map.state.bucket(bucket).unwrap();
        let id = placement::owner(&map.state, info, object).unwrap().id.to_string();
        self.target(&id).clone()
    }

    /// Process id of a node as it runs now.
    pub fn pid(&self, id: &str) -> u32 {
        let path = self.dir().join(id).join("state/pid");
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    /// Kills a node with SIGKILL.
    pub fn kill9(&self, id: &str) {
        let pid = self.pid(id);
        signal(pid, "KILL");
        wait::until("the killed process is gone", TIMEOUT, || !is_running(pid));
    }

    /// Starts a node again by the command in its folder, and waits until the map has it alive.
    pub fn restart(&self, id: &str) {
        self.restart_with(id, "");
    }

    /// The same, with more words at the end of the command.
    pub fn restart_with(&self, id: &str, more: &str) {
        let node = self.gateways.iter().chain(&self.targets).find(|node| node.id == id).cloned();
        self.start_node(&node.unwrap_or_else(|| self.added(id)), more);
    }

    /// A target that [`Self::add_target`] added.
    fn added(&self, id: &str) -> NodeHandle {
        let state = self.map().state;
        let node = state.nodes.values().find(|node| node.id.as_str() == id);
        let node = node.unwrap_or_else(|| panic!("no node {id}"));
        NodeHandle { id: id.to_owned(), url: node.url.clone() }
    }

    fn start_node(&self, node: &NodeHandle, more: &str) {
        self.launch(node, more);
        let ready = format!("{}/readyz", node.url);
        wait::until(&format!("{} is alive again", node.id), TIMEOUT, || {
            let answer = http::request("GET", &ready).try_send();
            answer.is_ok_and(|answer| answer.status == 200) && self.is_alive(&node.id)
        });
    }

    /// Starts a node by the command in its folder; does not wait for it.
    pub fn launch(&self, node: &NodeHandle, more: &str) {
        let dir = self.dir().join(&node.id);
        let line = fs::read_to_string(dir.join("cmd")).unwrap();
        let log = OpenOptions::new().append(true).open(dir.join("log")).unwrap();
        let mut command = Command::new("sh");
        // The shell execs the node, so that a signal to the child reaches the node.
        command.arg("-c").arg(format!("exec {} {more}", line.trim_end())).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        set_env(&mut command, &self.options.env);
        self.again.lock().unwrap().push(command.spawn().unwrap());
    }

    /// From its next start on, the node's wall clock is this many seconds ahead.
    pub fn shift_clock(&self, id: &str, shift: &ClockShift, seconds: i64) {
        let path = self.dir().join(id).join("cmd");
        let line = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{} {line}", shift.words(seconds))).unwrap();
    }

    /// Adds a gateway that knows the gateways at `known`, and waits until it is ready. It is not in
    /// [`Self::gateways`].
    pub fn add_gateway(&self, id: &str, known: &[&str]) -> NodeHandle {
        let (model, to) = (&self.gateways[0], self.dir().join(id));
        let from = self.dir().join(&model.id);
        let node =
            NodeHandle { id: id.to_owned(), url: format!("http://127.0.0.1:{}", ports::free(1)) };
        let (old, new) = (http::split(&model.url).0, http::split(&node.url).0);
        let settings = fs::read_to_string(from.join("forebay.toml")).unwrap();
        let settings = settings.lines().map(|line| match line.split(" = ").next() {
            Some("gateways") => format!("gateways = {known:?}"),
            Some("http") => line.replace(old, new),
            _ => line.replace(&model.id, id),
        });
        let settings: Vec<String> = settings.collect();
        let command = fs::read_to_string(from.join("cmd")).unwrap().replace(&model.id, id);
        fs::create_dir(&to).unwrap();
        fs::write(to.join("forebay.toml"), settings.join("\n")).unwrap();
        fs::write(to.join("cmd"), command).unwrap();
        fs::write(to.join("log"), "").unwrap();
        self.start_node(&node, "");
        node
    }

    /// Adds a target with the settings of the others, and waits until the map has it alive. It is
    /// not in [`Self::targets`].
    pub fn add_target(&self, id: &str) -> NodeHandle {
        let node = self.prepare_target(id);
        self.start_node(&node, "");
        node
    }

    /// Makes the folder of a further target, for [`Self::launch`].
    pub fn prepare_target(&self, id: &str) -> NodeHandle {
        let model = &self.targets[0];
        let (from, to) = (self.dir().join(&model.id), self.dir().join(id));
        let port = ports::free(1);
        let url = format!("http://127.0.0.1:{port}");
        let renamed = |file: &str| {
            let text = fs::read_to_string(from.join(file)).unwrap();
            let text = text.replace(&model.id, id);
            text.replace(http::split(&model.url).0, http::split(&url).0)
        };
        fs::create_dir(&to).unwrap();
        fs::write(to.join("forebay.toml"), renamed("forebay.toml")).unwrap();
        fs::write(to.join("cmd"), renamed("cmd")).unwrap();
        fs::write(to.join("log"), "").unwrap();
        NodeHandle { id: id.to_owned(), url }
    }

    /// Stops all nodes in order; the folder stays.
    pub fn stop(&mut self) -> ExitStatus {
        let mut dev = self.dev.take().expect("it runs");
        signal(dev.id(), "TERM");
        let status = wait_for_end(&mut dev, TIMEOUT).unwrap_or_else(|| {
            let _ = dev.kill();
            let _ = dev.wait();
            panic!("forebay dev did not stop within {TIMEOUT:?}\n{}", self.home.logs())
        });
        for mut child in self.again.lock().unwrap().drain(..) {
            assert!(
                wait_for_end(&mut child, TIMEOUT).is_some(),
                "a node started by hand still runs"
            );
        }
        status
    }

    /// Starts the stopped cluster again in the same folder, on the same ports or on others.
    #[must_use]
    pub fn start_again(mut self, port: Option<u16>) -> Self {
        assert!(self.dev.is_none(), "it runs");
        let port = port.unwrap_or(self.port);
        let mut dev = spawn_dev(&self.options, self.dir(), port);
        if let Err(status) = wait_for_description(&mut dev, self.dir()) {
            panic!("forebay dev ended: {status}\n{}", self.home.logs());
        }
        let home = std::mem::replace(&mut self.home, Home { dir: tempfile::tempdir().unwrap() });
        Self::describe(self.options.clone(), home, port, dev)
    }

    /// Sum over the cluster of a metric's lines that have all these labels.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let start = format!("{name}{{");
        let of = |node: &NodeHandle| {
            let answer = http::request("GET", &format!("{}/metrics", node.url)).try_send();
            answer.map_or(0.0, |answer| http::metric(&answer.text(), &start, labels))
        };
        self.targets.iter().map(of).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.home.logs());
        }
        if let Some(mut dev) = self.dev.take() {
            signal(dev.id(), "TERM");
            if wait_for_end(&mut dev, TIMEOUT).is_none() {
                let _ = dev.kill();
                let _ = dev.wait();
            }
        }
        for mut child in self.again.locked().drain(..) {
            if wait_for_end(&mut child, Duration::from_secs(1)).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        let nodes = fs::read_dir(self.dir()).into_iter().flatten().flatten();
        let logs = nodes.map(|node| node.path().join("log")).chain([self.dir().join("dev.log")]);
        let logs: Vec<_> = logs.collect();
        fail_on_panics(logs.iter().cloned());
        if !std::thread::panicking() {
            secrets::fail_on_secrets(self.dir(), &self.options.env, &logs);
            let nodes = self.gateways.iter().chain(&self.targets);
            request_ids::fail_on_missing(self.dir(), nodes);
        }
    }
}

/// Fails the test if one of these logs of nodes has a panic, whatever else the test saw. A second
/// failure of a test would end all others of its program, so one that fails already is left alone.
pub(crate) fn fail_on_panics(logs: impl IntoIterator<Item = PathBuf>) {
    if std::thread::panicking() {
        return;
    }
    for log in logs {
        let text = fs::read(&log).unwrap_or_default();
        if let Some(panic) = first_panic(&String::from_utf8_lossy(&text)) {
            panic!("a node panicked; {} has\n{panic}", log.display());
        }
    }
}

/// The first panic in a log, with the lines behind it.
fn first_panic(log: &str) -> Option<String> {
    let mut lines = log.lines().skip_while(|line| !line.contains("panicked"));
    let first: Vec<&str> = lines.by_ref().take(PANIC_LINES).collect();
    (!first.is_empty()).then(|| first.join("\n"))
}

impl Home {
    /// The last lines of every log, for a failed test's output.
    fn logs(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            let log = if path.is_dir() { path.join("log") } else { path };
            let is_log = log.file_name().is_some_and(|n| n == "log" || n == "dev.log");
            if let Some(content) = is_log.then(|| fs::read(&log).ok()).flatten() {
                let content = String::from_utf8_lossy(&content);
                let lines: Vec<&str> = content.lines().collect();
                let tail = lines[lines.len().saturating_sub(25)..].join("\n");
                text.push_str(&format!("--- {}\n{tail}\n", log.display()));
            }
        }
        text
    }
}

/// A process that is killed when this value is dropped, also when the test fails.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program under test.
pub fn forebay() -> PathBuf {
    let named = std::env::var_os("FOREBAY_BIN").filter(|v| !v.is_empty()).map(PathBuf::from);
    let path = named
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/release/forebay"));
    assert!(
        path.exists(),
        "{} is missing: build it with `make binary`, or set FOREBAY_BIN",
        path.display()
    );
    path
}

/// `forebay` with these arguments and nothing of the test's own settings.
pub fn command<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(forebay());
    command.args(args).stdin(Stdio::null());
    set_env(&mut command, &[]);
    command
}

/// Removes Forebay and cloud variables of the test's environment from a command's.
pub(crate) fn set_env(command: &mut Command, env: &[(String, String)]) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if [
            "AWS_",
            "AZURE_",
            "FOREBAY_",
            "S3_",
            "AIS_",
            "GOOGLE_",
            "STORAGE_EMULATOR_",
            "GCE_",
            "IDENTITY_",
        ]
        .iter()
        .any(|p| name.starts_with(p))
        {
            command.env_remove(name);
        }
    }
    // No look-up of credentials at the metadata address of the machine's cloud, if it has one.
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    // Every failed request has a line in the log, however many there are.
    command.env("FOREBAY_LOG__FAILURES_PER_S", "0");
    command.envs(env.iter().cloned());
}

fn spawn_dev(options: &Options, dir: &Path, port: u16) -> Child {
    let log = File::options().create(true).append(true).open(dir.join("dev.log")).unwrap();
    let mut command = Command::new(forebay());
    command.arg("dev").arg("--dir").arg(dir);
    command.args(["--gateways", &options.gateways.to_string()]);
    command.args(["--targets", &options.targets.to_string(), "--port", &port.to_string()]);
    if let Some(size) = options.size {
        command.args(["--size", size]);
    }
    if options.tls {
        command.arg("--tls");
    }
    for root in &options.folder_roots {
        command.arg("--folder-root").arg(root);
    }
    if !options.settings.is_empty() {
        let file = dir.join("settings.toml");
        fs::write(&file, options.settings).unwrap();
        command.arg("--config").arg(file);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    set_env(&mut command, &options.env);
    command.spawn().expect("forebay dev starts")
}

/// Waits for `dev.json`; the exit status when the process ends instead.
fn wait_for_description(dev: &mut Child, dir: &Path) -> Result<(), ExitStatus> {
    let deadline = Instant::now() + TIMEOUT;
    while !dir.join("dev.json").exists() {
        if let Some(status) = dev.try_wait().unwrap() {
            return Err(status);
        }
        if Instant::now() >= deadline {
            let _ = dev.kill();
            let _ = dev.wait();
            let home = fs::read_to_string(dir.join("dev.log")).unwrap_or_default();
            panic!("no dev.json within {TIMEOUT:?}\n{home}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The exit status of a process, if it ends in time.
pub fn wait_for_end(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + within;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return Some(status),
            None if Instant::now() >= deadline => return None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends a signal by its name.
pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(done.is_ok(), "kill is missing");
}

/// Whether the process exists and is more than an entry waiting to be read.
pub fn is_running(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// A native bucket.
pub fn native(name: &str) -> Bucket {
    Bucket::new(Provider::Ais, name).unwrap()
}

/// A bucket of the S3 backend.
pub fn cloud(name: &str) -> Bucket {
    Bucket::new(Provider::Aws, name).unwrap()
}

/// A bucket of the backend of Google Cloud Storage.
pub fn google(name: &str) -> Bucket {
    Bucket::new(Provider::Gcp, name).unwrap()
}

/// A bucket of the backend of Azure Blob Storage.
pub fn azure(name: &str) -> Bucket {
    Bucket::new(Provider::Azure, name).unwrap()
}

/// Backend settings of a bucket over a folder.
pub fn folder_backend(root: &Path) -> BackendSpec {
    BackendSpec {
        root: Some(root.to_str().unwrap().to_owned()),
        ..BackendSpec::new(BackendKind::Folder, "")
    }
}

/// Runs a job to its end; returns the number of objects that it processed.
pub async fn run_job(
    cluster: &Cluster,
    kind: JobKind,
    bucket: &Bucket,
    selection: Selection,
) -> u64 {
    let client = cluster.client();
    let id = client.start_job(kind, bucket, &selection).await.unwrap();
    let id = id.as_str();
    wait::until_async("the job is over", TIMEOUT, || {
        let client = client.clone();
        async move { client.job(id).await.unwrap().is_over() }
    })
    .await;
    let status = client.job(id).await.unwrap();
    assert_eq!((status.state, status.errors), (JobState::Done, 0), "{:?}", status.messages);
    status.objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_log_is_found_and_shown() {
        let log = "INFO target listens\n\nthread 'worker' (7) panicked at src/a.rs:1:2:\nwhy\n";
        let found = first_panic(log).unwrap();
        assert!(found.starts_with("thread 'worker'") && found.ends_with("why"), "{found}");
        assert_eq!(first_panic("INFO all is well\n"), None);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log"), log).unwrap();
        let logs = [dir.path().join("log")];
        let failed = std::panic::catch_unwind(|| fail_on_panics(logs));
        assert!(failed.is_err());
        fail_on_panics([dir.path().join("none")]);
    }
}

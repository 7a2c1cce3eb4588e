//! A cluster in a [`Lab`]: each node is a process in a namespace of its own, which can be killed,
//! stopped, paused, cut off and started again, also as another program or under another clock.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use forebay_client::{Client, ClientConfig};
use forebay_core::intra::MapReply;
use forebay_core::locks::MutexExt;
use forebay_core::{Bucket, placement};
use tempfile::TempDir;

use crate::cluster::{fail_on_panics, forebay, set_env, signal, wait_for_end};
use crate::lab::Lab;
use crate::private_file::write_private;
use crate::{http, skip, wait};

const PORT: u16 = 7400;
const TIMEOUT: Duration = Duration::from_secs(30);
/// A node that does not respond to the test within this time is cut off or paused.
const ANSWER: Duration = Duration::from_millis(400);

/// Options of a test cluster.
#[derive(Clone, Debug)]
pub struct Shape {
    pub gateways: u8,
    pub targets: u8,
    /// Targets that are started later.
    pub spare: u8,
    /// Disks of each target.
    pub disks: u8,
    /// Budget of each disk.
    pub disk_size: &'static str,
    /// More settings of all nodes (TOML tables).
    pub settings: String,
    /// The program that nodes run.
    pub program: PathBuf,
}

impl Default for Shape {
    fn default() -> Self {
        let settings = String::new();
        let (disks, disk_size, program) = (1, "2GiB", forebay());
        Self { gateways: 3, targets: 4, spare: 0, disks, disk_size, settings, program }
    }
}

/// A node: its number in the network, and its process while it runs.
pub struct LabNode {
    pub id: String,
    pub url: String,
    /// Its number in the lab.
    pub at: u8,
    process: Mutex<Option<Child>>,
    /// Prefix of the program's command line: `faketime -f +1d`.
    before: Mutex<Vec<OsString>>,
    program: Mutex<PathBuf>,
}

pub struct LabCluster {
    // Dropped in this order: processes end before their network and folder.
    pub gateways: Vec<LabNode>,
    /// Spare ones come last.
    pub targets: Vec<LabNode>,
    pub lab: Lab,
    dir: TempDir,
}

impl LabCluster {
    /// Starts a cluster and waits until it responds. `None`: not possible on this machine; the
    /// test's output has the reason.
    pub fn start(shape: &Shape) -> Option<Self> {
        let cluster = Self::prepare(shape)?;
        cluster.start_all(usize::from(shape.targets));
        Some(cluster)
    }

    /// The network and the folders of all nodes; none of them runs.
    pub fn prepare(shape: &Shape) -> Option<Self> {
        let lab = match Lab::up(shape.gateways + shape.targets + shape.spare) {
            Ok(lab) => lab,
            Err(why) => {
                let why = format!("no network of namespaces: {why}");
                skip::skipped_unless("FOREBAY_REQUIRE_LAB", &why);
                return None;
            }
        };
        let dir = tempfile::tempdir().unwrap();
        write_private(dir.path().join("secret"), "a secret of this network alone\n");
        let node = |word: &str, number: u8, at: u8| LabNode {
            id: format!("{word}{number:02}"),
            url: format!("http://{}:{PORT}", lab.address(at)),
            at,
            process: Mutex::default(),
            before: Mutex::default(),
            program: Mutex::new(shape.program.clone()),
        };
        let gateways: Vec<_> = (1..=shape.gateways).map(|n| node("gateway", n, n)).collect();
        let targets = (1..=shape.targets + shape.spare)
            .map(|n| node("target", n, shape.gateways + n))
            .collect();
        let cluster = Self { gateways, targets, lab, dir };
        for node in cluster.nodes() {
            cluster.write_settings(node, shape);
        }
        Some(cluster)
    }

    fn write_settings(&self, node: &LabNode, shape: &Shape) {
        let home = self.home(node);
        fs::create_dir_all(home.join("state")).unwrap();
        let gateways: Vec<&str> = self.gateways.iter().map(|g| g.url.as_str()).collect();
        let mut text = format!(
            "[cluster]\ngateways = {gateways:?}\nsecret_file = {secret:?}\n\
             [node]\nid = {id:?}\ndir = {state:?}\n\
             [listen]\nhttp = {listen:?}\ninsecure = true\n{settings}\n",
            secret = self.dir.path().join("secret"),
            id = node.id,
            state = home.join("state"),
            listen = http::split(&node.url).0,
            settings = shape.settings,
        );
        if node.is_target() {
            for path in self.disks(node, shape.disks) {
                fs::create_dir_all(&path).unwrap();
                text += &format!("[[disk]]\npath = {path:?}\nsize = {:?}\n", shape.disk_size);
            }
        }
        fs::write(home.join("forebay.toml"), text).unwrap();
    }

    /// Starts all gateways and the first `targets` targets, and waits until all are members.
    pub fn start_all(&self, targets: usize) {
        for node in self.gateways.iter().chain(&self.targets[..targets]) {
            self.spawn(node);
        }
        for node in self.gateways.iter().chain(&self.targets[..targets]) {
            self.is_in(node);
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = &LabNode> {
        self.gateways.iter().chain(&self.targets)
    }

    pub fn home(&self, node: &LabNode) -> PathBuf {
        self.dir.path().join(&node.id)
    }

    pub fn disks(&self, node: &LabNode, count: u8) -> Vec<PathBuf> {
        (1..=count).map(|n| self.home(node).join(format!("disk{n}"))).collect()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn spawn(&self, node: &LabNode) {
        let program = node.program.lock().unwrap().clone();
        let mut words = node.before.lock().unwrap().clone();
        words.push(program.into());
        let mut command = self.lab.command(node.at, &words[0]);
        command.args(&words[1..]).arg(if node.is_target() { "target" } else { "gateway" });
        let home = self.home(node);
        command.arg("--config").arg(home.join("forebay.toml"));
        let log = File::options().create(true).append(true).open(home.join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        set_env(&mut command, &[]);
        *node.process.lock().unwrap() = Some(command.spawn().unwrap());
    }

    /// Waits until a node serves requests and all reachable gateways have it alive.
    pub fn is_in(&self, node: &LabNode) {
        let ready = format!("{}/readyz", node.url);
        wait::until(&format!("{} is in", node.id), TIMEOUT, || {
            let answer = http::request("GET", &ready).within(ANSWER).try_send();
            answer.is_ok_and(|answer| answer.status == 200) && self.is_alive(&node.id)
        });
    }

    /// Starts a node that does not run, and waits until it is a member again.
    pub fn start_node(&self, node: &LabNode) {
        self.spawn(node);
        self.is_in(node);
    }

    /// Kills a process with SIGKILL.
    pub fn kill9(&self, node: &LabNode) {
        let mut child = node.process.lock().unwrap().take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops a process as an operator does.
    pub fn stop(&self, node: &LabNode) {
        let mut child = node.process.lock().unwrap().take().expect("it runs");
        signal(child.id(), "TERM");
        assert!(wait_for_end(&mut child, TIMEOUT).is_some(), "{} does not stop", node.id);
    }

    pub fn client(&self, deadline: Duration) -> Client {
        let endpoint: Vec<&str> = self.gateways.iter().map(|g| g.url.as_str()).collect();
        let config = ClientConfig { deadline, ..ClientConfig::new(endpoint.join(",")) };
        Client::new(config).unwrap()
    }

    /// The map as one gateway has it now; none while it does not answer.
    pub fn map_of(&self, gateway: &LabNode) -> Option<MapReply> {
        let url = format!("{}/api/v1/map", gateway.url);
        let asked = http::request("GET", &url).within(ANSWER).try_send();
        let answer = asked.ok().filter(|answer| answer.status == 200)?;
        serde_json::from_slice(&answer.body).ok()
    }

    /// The newest map that any gateway has.
    pub fn map(&self) -> MapReply {
        let maps = self.gateways.iter().filter_map(|gateway| self.map_of(gateway));
        maps.max_by_key(|map| map.state.version).expect("a gateway answers with the map")
    }

    pub fn is_alive(&self, id: &str) -> bool {
        let newest = self.gateways.iter().filter_map(|gateway| self.map_of(gateway));
        let newest = newest.max_by_key(|map| map.state.version);
        let nodes = newest.iter().flat_map(|map| map.state.nodes.values());
        nodes.into_iter().any(|node| node.alive && node.id.as_str() == id)
    }

    /// Position of the gateway that leads, once more than half of them agree.
    pub fn leader(&self) -> usize {
        let mut found = None;
        wait::until("the gateways agree on a leader", TIMEOUT, || {
            let said: Vec<_> =
                self.gateways.iter().filter_map(|g| self.map_of(g)).map(|m| m.primary).collect();
            found = self.gateways.iter().position(|gateway| {
                let votes = said.iter().filter(|id| id.as_str() == gateway.id).count();
                votes * 2 > self.gateways.len()
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Position of the target that answers for an object, while all are there.
    pub fn owner(&self, bucket: &Bucket, key: &str) -> usize {
        let map = self.map();
        let info = map.state.bucket(bucket).unwrap();
        let id = placement::owner(&map.state, info, key).unwrap().id.to_string();
        self.targets.iter().position(|target| target.id == id).unwrap()
    }

    /// Makes a native bucket with these properties, as `forebay bucket set` takes them: `copies=2`.
    pub async fn bucket(&self, name: &str, properties: &[&str]) -> Bucket {
        let bucket = crate::cluster::native(name);
        self.client(TIMEOUT).create_bucket(&bucket, None).await.unwrap();
        if !properties.is_empty() {
            let mut command = crate::cluster::command(["bucket", "set"]);
            command.arg(format!("ais://{name}")).args(properties);
            let done = command.args(["--endpoint", &self.gateways[0].url]).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        self.quiescent();
        bucket
    }

    /// Waits until all objects are where they belong and nobody misses anything.
    pub fn quiescent(&self) {
        wait::until("the cluster is calm", Duration::from_secs(120), || {
            self.map().state.is_quiescent()
        });
    }

    fn logs(&self) -> String {
        let last = |node: &LabNode| {
            let text = fs::read(self.home(node).join("log")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {}\n{}\n", node.id, lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        self.nodes().map(last).collect()
    }
}

impl LabNode {
    pub fn is_target(&self) -> bool {
        self.id.starts_with("target")
    }

    /// Process id of the node.
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().as_ref().expect("it runs").id()
    }

    /// It stands still, with all its connections, until [`Self::resume`].
    pub fn pause(&self) {
        signal(self.pid(), "STOP");
    }

    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// From its next start on it runs behind these words.
    pub fn run_behind<W: Into<OsString>>(&self, words: impl IntoIterator<Item = W>) {
        *self.before.lock().unwrap() = words.into_iter().map(Into::into).collect();
    }

    /// From its next start on it is this program.
    pub fn run_program(&self, program: &Path) {
        program.clone_into(&mut self.program.lock().unwrap());
    }
}

impl Drop for LabCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for node in self.nodes() {
            let child = node.process.locked().take();
            if let Some(mut child) = child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        fail_on_panics(self.nodes().map(|node| self.home(node).join("log")));
    }
}

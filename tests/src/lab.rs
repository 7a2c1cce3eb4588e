//! A network on one machine: each node has a namespace with an address of its own. All namespaces
//! are connected to one bridge, and links are cut on demand.
//!
//! It needs root, `ip` (iproute2), `nsenter` (util-linux) and python3; no firewall, no `netem`, no
//! module beyond veth and bridge. A link is cut by the sender's neighbour entry: frames then go to
//! a MAC address that no device has, without an error on either side, as with a pulled cable. A
//! process that forwards the frames of one node (`wire.py`) adds loss and delay.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use forebay_core::locks::MutexExt;

use crate::cluster::Process;

const WIRE: &str = include_str!("lab/wire.py");

/// The namespace of the test itself, as a member of cuts.
pub const HOST: u8 = 0;

/// The network; it and everything in it are removed when this value is dropped.
pub struct Lab {
    name: String,
    subnet: String,
    nodes: u8,
    wires: Mutex<Vec<(u8, Process)>>,
}

/// How a node's frames are forwarded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carry {
    /// Loss of frames that the node sends, in percent.
    pub lost_percent: u8,
    /// Delay in both directions, each with a random part of up to `jitter_ms` added.
    pub delay_ms: u32,
    pub jitter_ms: u32,
}

impl Lab {
    /// A network of nodes 1 to `nodes`; an error with the reason if this machine cannot have one.
    pub fn up(nodes: u8) -> Result<Self, String> {
        let root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n");
        if !root {
            return Err("network namespaces need root".into());
        }
        // Two labs of two processes differ in name and addresses.
        let pid = std::process::id();
        let lab = Self {
            name: format!("fb{pid}"),
            subnet: format!("10.{}.{}", 100 + pid % 97, pid / 97 % 250),
            nodes,
            wires: Mutex::default(),
        };
        lab.remove();
        lab.make().inspect_err(|_| lab.remove())?;
        Ok(lab)
    }

    fn make(&self) -> Result<(), String> {
        let switch = self.switch();
        ip("", &format!("netns add {switch}\n"))?;
        ip(&switch, "link add br0 type bridge\nlink set br0 up\n")?;
        for node in HOST..=self.nodes {
            let (space, device) = (self.space(node), self.device(node));
            let mac = mac(node);
            let inside = if node == HOST {
                String::new()
            } else {
                ip("", &format!("netns add {space}\n"))?;
                format!("netns {space}")
            };
            ip(
                "",
                &format!(
                    "link add {device} address {mac} {inside} type veth \
                     peer name p{node} netns {switch}\n"
                ),
            )?;
            let address = self.address(node);
            ip(
                &space,
                &format!(
                    "link set lo up\naddress add {address}/24 dev {device}\nlink set {device} up\n"
                ),
            )?;
            ip(&switch, &format!("link set p{node} master br0 up\n"))?;
        }
        self.heal();
        Ok(())
    }

    fn switch(&self) -> String {
        format!("{}sw", self.name)
    }

    /// Namespace of a node; empty for the host's own.
    fn space(&self, node: u8) -> String {
        if node == HOST { String::new() } else { format!("{}n{node}", self.name) }
    }

    fn device(&self, node: u8) -> String {
        if node == HOST { format!("{}h", self.name) } else { "eth0".into() }
    }

    pub fn address(&self, node: u8) -> String {
        let last = if node == HOST { 254 } else { node };
        format!("{}.{last}", self.subnet)
    }

    /// A command that runs `program` in a node's namespace, in the same process. Not by `ip netns
    /// exec`, whose mount namespace would hide later mounts from it.
    pub fn command(&self, node: u8, program: &std::ffi::OsStr) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.space(node)));
        command.arg("--").arg(program).stdin(Stdio::null());
        command
    }

    /// Drops all frames from `from` to `to`; the other direction stays as it is.
    pub fn cut_one_way(&self, from: u8, to: u8) {
        self.neighbour(from, to, "02:fb:ff:ff:ff:ff");
    }

    /// Cuts every link between the two groups, both ways.
    pub fn cut(&self, some: &[u8], others: &[u8]) {
        for (&one, &other) in some.iter().flat_map(|one| others.iter().map(move |o| (one, o))) {
            self.cut_one_way(one, other);
            self.cut_one_way(other, one);
        }
    }

    /// Restores all links.
    pub fn heal(&self) {
        for from in HOST..=self.nodes {
            let lines: String = (HOST..=self.nodes)
                .filter(|to| *to != from)
                .map(|to| self.neighbour_line(from, to, &mac(to)))
                .collect();
            ip(&self.space(from), &lines).unwrap();
        }
    }

    fn neighbour(&self, from: u8, to: u8, mac: &str) {
        ip(&self.space(from), &self.neighbour_line(from, to, mac)).unwrap();
    }

    fn neighbour_line(&self, from: u8, to: u8, mac: &str) -> String {
        let (address, device) = (self.address(to), self.device(from));
        format!("neighbour replace {address} lladdr {mac} dev {device} nud permanent\n")
    }

    /// From now on a process forwards this node's frames, with this loss and delay.
    pub fn carry(&self, node: u8, how: Carry) {
        self.carry_well(node);
        let (switch, port) = (self.switch(), format!("p{node}"));
        let (near, far) = (format!("w{node}"), format!("b{node}"));
        ip(
            &switch,
            &format!(
                "link add {near} type veth peer name {far}\nlink set {near} up\n\
                 link set {far} master br0 up\nlink set {port} nomaster\n"
            ),
        )
        .unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &switch, "python3", "-c", WIRE, &port, &near]);
        command.args(
            [how.lost_percent.into(), how.delay_ms, how.jitter_ms].map(|n: u32| n.to_string()),
        );
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.wires.lock().unwrap().push((node, Process(process)));
        assert_eq!(line, "ready\n", "the wire of node {node}");
    }

    /// The bridge forwards this node's frames again, without loss or delay.
    pub fn carry_well(&self, node: u8) {
        let mut wires = self.wires.lock().unwrap();
        if let Some(at) = wires.iter().position(|(of, _)| *of == node) {
            wires.remove(at);
            ip(&self.switch(), &format!("link del w{node}\nlink set p{node} master br0\n"))
                .unwrap();
        }
    }

    fn remove(&self) {
        // Devices go with their namespaces.
        let _ = ip("", &format!("link del {}\n", self.device(HOST)));
        for node in HOST + 1..=self.nodes {
            let _ = ip("", &format!("netns del {}\n", self.space(node)));
        }
        let _ = ip("", &format!("netns del {}\n", self.switch()));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.wires.locked().clear();
        self.remove();
    }
}

fn mac(node: u8) -> String {
    format!("02:fb:00:00:00:{node:02x}")
}

/// Runs `ip` with one command per line, in a namespace; an empty name means the test's own.
fn ip(space: &str, lines: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    if !space.is_empty() {
        command.args(["-n", space]);
    }
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(|e| format!("ip: {e}"))?;
    let sent = child.stdin.take().map(|mut to| to.write_all(lines.as_bytes()));
    let out = child.wait_with_output().map_err(|e| format!("ip: {e}"))?;
    if out.status.success() && matches!(sent, Some(Ok(()))) {
        return Ok(());
    }
    Err(format!("ip {}: {}", lines.trim(), String::from_utf8_lossy(&out.stderr).trim()))
}

//! The plan of a `dev` cluster: ids, ports, folders, settings and command lines, complete before
//! anything starts.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use forebay_core::Error;
use forebay_core::config::{DiskConfig, NodeConfig};
use forebay_core::size::ByteSize;
use forebay_core::state::Role;

use super::tls::DevTls;
use crate::home;
use crate::node::{Stopped, exit};

/// From this port on, the system assigns ports to outgoing connections, so one could be taken at
/// any moment.
const FIRST_EPHEMERAL: u16 = 32_768;

/// Options of the command line.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) gateways: u16,
    pub(super) targets: u16,
    pub(super) disks: u16,
    pub(super) port: u16,
    pub(super) size: Option<ByteSize>,
    pub(super) schemes: Schemes,
}

/// The schemes that the nodes serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schemes {
    Http,
    Https,
    /// HTTPS, and plain HTTP on the same ports.
    Both,
}

/// One process of the cluster.
#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) id: String,
    pub(super) role: Role,
    pub(super) port: u16,
    /// Folder of the node: `forebay.toml`, `cmd`, `log`, its state and its disks.
    pub(super) dir: PathBuf,
    pub(super) disks: Vec<PathBuf>,
    pub(super) program: PathBuf,
    schemes: Schemes,
}

impl NodePlan {
    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL that names the node in the cluster.
    pub(super) fn url(&self) -> String {
        let scheme = if self.schemes == Schemes::Https { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// The URL for clients.
    pub(super) fn client_url(&self) -> String {
        let scheme = if self.schemes == Schemes::Http { "http" } else { "https" };
        format!("{scheme}://{}", self.address())
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.dir.join("forebay.toml")
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Folder of the node's own state.
    pub(super) fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    pub(super) fn args(&self) -> [std::ffi::OsString; 3] {
        let role = if self.role == Role::Gateway { "gateway" } else { "target" };
        [role.into(), "--config".into(), self.config_file().into()]
    }

    /// The command that starts this node, as one shell line.
    pub(super) fn command_line(&self) -> String {
        let words = std::iter::once(self.program.clone().into_os_string()).chain(self.args());
        words.map(|word| quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the nodes of the cluster in `dir`.
pub(super) fn nodes(dir: &Path, program: &Path, shape: &Shape) -> Result<Vec<NodePlan>, Stopped> {
    if shape.gateways == 0 || shape.targets == 0 || shape.disks == 0 {
        return Err(Stopped::bad_config("--gateways, --targets and --disks must be at least 1"));
    }
    let count = u32::from(shape.gateways) + u32::from(shape.targets);
    let last = u32::from(shape.port) + count - 1;
    if shape.port == 0 || last >= u32::from(FIRST_EPHEMERAL) {
        return Err(Stopped::bad_config(format!(
            "ports {}…{last} do not lie between 1 and {}",
            shape.port,
            FIRST_EPHEMERAL - 1
        ))
        .hint("choose a lower --port; the system hands out higher ones to other programs"));
    }
    let node = |role: Role, number: u16, port: u16| {
        let (word, width) = if role == Role::Gateway { ("gateway", 1) } else { ("target", 2) };
        let id = format!("{word}{number:0width$}");
        let dir = dir.join(&id);
        let disks = match role {
            Role::Gateway => Vec::new(),
            Role::Target => (1..=shape.disks).map(|n| dir.join(format!("disk{n}"))).collect(),
        };
        let (program, schemes) = (program.to_owned(), shape.schemes);
        NodePlan { id, role, port, dir, disks, program, schemes }
    };
    let gateways = (0..shape.gateways).map(|n| node(Role::Gateway, n + 1, shape.port + n));
    let first_target = shape.port + shape.gateways;
    let targets = (0..shape.targets).map(|n| node(Role::Target, n + 1, first_target + n));
    Ok(gateways.chain(targets).collect())
}

/// Refuses to start fewer nodes than the folder's cluster has: their data would be missing.
pub(super) fn check_previous(dir: &Path, nodes: &[NodePlan]) -> Result<(), Stopped> {
    let entries = fs::read_dir(dir).map_err(|e| home::failed(dir, &e))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_node = name.starts_with("gateway") || name.starts_with("target");
        let known = nodes.iter().any(|node| node.id == name);
        if is_node && !known && entry.path().join("cmd").exists() {
            return Err(Stopped::bad_config(format!(
                "{} holds a cluster with a node {name}, which would not be started",
                dir.display()
            ))
            .hint("start with as many gateways and targets as before, or choose another --dir"));
        }
        let missing_disk = nodes.iter().find(|node| node.id == name).and_then(|node| {
            let next = node.dir.join(format!("disk{}", node.disks.len() + 1));
            (node.role == Role::Target && next.exists()).then_some(next)
        });
        if let Some(disk) = missing_disk {
            return Err(Stopped::bad_config(format!("{} would not be used", disk.display()))
                .hint("start with as many --disks as before, or choose another --dir"));
        }
    }
    Ok(())
}

/// Writes each node's `forebay.toml` and `cmd`; `base` holds the settings they share.
pub(super) fn write(
    nodes: &[NodePlan],
    base: &NodeConfig,
    secret: &Path,
    size: Option<ByteSize>,
    tls: Option<&DevTls>,
) -> Result<(), Stopped> {
    let gateways: Vec<String> =
        nodes.iter().filter(|n| n.role == Role::Gateway).map(NodePlan::url).collect();
    for node in nodes {
        fs::create_dir_all(&node.dir).map_err(|e| home::failed(&node.dir, &e))?;
        let mut config = base.clone();
        config.cluster.gateways.clone_from(&gateways);
        config.cluster.secret_file = text(secret)?;
        config.node.id.clone_from(&node.id);
        config.node.dir = text(&node.state_dir())?;
        config.listen.http = node.address().to_string();
        config.listen.advertise.clear();
        if let Some(tls) = tls {
            config.tls.cert = text(&tls.cert(&node.id))?;
            config.tls.key = text(&tls.key(&node.id))?;
            config.tls.ca = text(&tls.ca())?;
        }
        config.disk = node
            .disks
            .iter()
            .map(|path| {
                Ok(DiskConfig { path: text(path)?, size, mount: false, rebuild_index: false })
            })
            .collect::<Result<_, Stopped>>()?;
        let toml = toml::to_string(&config).map_err(|e| {
            Stopped::new(exit::FAILED, Error::internal(format!("settings do not serialize: {e}")))
        })?;
        // The file has no secret but those of S3 access; other users must not read these.
        home::write(&node.config_file(), toml.as_bytes(), 0o600)?;
        let command = format!("{}\n", node.command_line());
        home::write(&node.dir.join("cmd"), command.as_bytes(), 0o700)?;
    }
    Ok(())
}

fn text(path: &Path) -> Result<String, Stopped> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Stopped::bad_config(format!("the path {} is not valid UTF-8", path.display()))
    })
}

/// Quotes a word for a POSIX shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shape(port: u16) -> Shape {
        Shape { gateways: 2, targets: 3, disks: 2, port, size: None, schemes: Schemes::Http }
    }

    #[test]
    fn gateways_come_first_and_ports_follow_each_other() {
        let nodes = nodes(Path::new("/d"), Path::new("/bin/forebay"), &shape(7400)).unwrap();
        let seen: Vec<_> = nodes.iter().map(|n| (n.id.as_str(), n.port)).collect();
        assert_eq!(
            seen,
            [
                ("gateway1", 7400),
                ("gateway2", 7401),
                ("target01", 7402),
                ("target02", 7403),
                ("target03", 7404)
            ]
        );
        for node in &nodes {
            forebay_core::NodeId::new(&node.id).unwrap();
        }
        assert_eq!(
            nodes[2].disks,
            [Path::new("/d/target01/disk1"), Path::new("/d/target01/disk2")]
        );
    }

    #[test]
    fn every_port_stays_below_the_ephemeral_ones() {
        let plan = |port| nodes(Path::new("/d"), Path::new("/f"), &shape(port));
        assert!(plan(32_763).is_ok());
        let stopped = plan(32_764).unwrap_err();
        assert_eq!(stopped.code, exit::BAD_CONFIG);
        assert!(stopped.error.message.contains("32768"), "{}", stopped.error);
        assert!(plan(65_535).is_err());
        assert!(plan(0).is_err());
    }

    #[test]
    fn written_settings_read_back_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let nodes = nodes(dir.path(), Path::new("/bin/forebay"), &shape(7400)).unwrap();
        let mut base = NodeConfig::default();
        base.folder.roots = vec!["/data with space".into()];
        write(&nodes, &base, &dir.path().join("secret"), Some(ByteSize(8 << 20)), None).unwrap();
        let text = fs::read_to_string(nodes[2].config_file()).unwrap();
        let back: NodeConfig = toml::from_str(&text).unwrap();
        assert_eq!(back.node.id, "target01");
        assert_eq!(back.cluster.gateways, ["http://127.0.0.1:7400", "http://127.0.0.1:7401"]);
        assert_eq!(back.disk.len(), 2);
        assert_eq!(back.disk[0].size, Some(ByteSize(8 << 20)));
        assert_eq!(back.folder.roots, ["/data with space"]);
        let fewer = Shape { targets: 2, ..shape(7400) };
        let fewer = super::nodes(dir.path(), Path::new("/bin/forebay"), &fewer).unwrap();
        let stopped = check_previous(dir.path(), &fewer).unwrap_err();
        assert!(stopped.error.message.contains("target03"), "{}", stopped.error);
        check_previous(dir.path(), &nodes).unwrap();
    }

    #[test]
    fn a_command_line_survives_a_shell() {
        assert_eq!(quote("/usr/bin/forebay"), "/usr/bin/forebay");
        assert_eq!(quote("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(quote(""), "''");
    }
}

//! `forebay serve`: a gateway and a target in one process, for one machine. While it is ready,
//! `DIR/serve.json` has its endpoint and process id.

mod announce;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::config::{DiskConfig, NodeConfig};
use forebay_core::size::{ByteSize, parse_duration};
use forebay_core::state::Role;
use forebay_core::{Error, NodeId};
use forebay_node::file_modes;
use forebay_node::lifecycle::Lifecycle;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use self::announce::{Greeting, announce};
use crate::dev::folder_root;
use crate::home::Home;
use crate::idle::IdleStop;
use crate::node::{Stopped, check, check_port, exit, finish, local_url, runtime, until_stopped};
use crate::owner::OWNER;
use crate::settings::Settings;
use crate::{home, os, owner};

/// Maximum of the default disk budget, in bytes.
const MAX_DEFAULT_BYTES: u64 = 20 << 30;
/// Number of ports after the gateway's that are tried for the target.
const NEARBY: u16 = 50;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  forebay serve --dir ~/cache --size 100GiB
  forebay serve --dir /data/forebay --idle-stop 15m --folder-root /data/images
  forebay serve --dir ~/cache --private

The target takes the first free port of the 50 after --port; if none is free,
the exit code is 10. The ids of the two nodes are random words that ids.toml in
--dir keeps. While the server is ready, serve.json in --dir has its endpoint and
its process id. If one of the two nodes ends, the other one stops too.

With --private, each start makes a token of an administrator, which the file
token in --dir has, and a key of the S3 API, which serve.json has. Only this
user can read them. Tokens of earlier starts are invalid.")]
pub(crate) struct ServeArgs {
    /// Folder for all data; the next start uses it again
    #[arg(long)]
    dir: PathBuf,
    /// Port for clients; the target listens on the next free port
    #[arg(long, default_value_t = 7400)]
    port: u16,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Folder that may hold buckets of the folder backend; may be repeated
    #[arg(long, value_name = "PATH")]
    folder_root: Vec<PathBuf>,
    /// Most bytes of disk to use, for example 100GiB [default: 10 % of the file system or 20 GiB, the
    /// smaller]
    #[arg(long, value_parser = ByteSize::parse)]
    size: Option<ByteSize>,
    /// Stop after this time without use, for example 15m. Requests and shared locks on the file
    /// `users` in --dir count as use
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_stop: Option<Duration>,
    /// Allow an address beyond loopback although there is no authentication
    #[arg(long)]
    insecure: bool,
    /// Require a token for every request, also of this machine. The clients of this user find it in --dir
    #[arg(long)]
    private: bool,
    /// Configuration file (TOML) with more settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs both nodes until SIGTERM or SIGINT; returns the exit code.
pub(crate) fn run(args: ServeArgs) -> u8 {
    finish(start(args))
}

fn start(args: ServeArgs) -> Result<(), Stopped> {
    file_modes::make_private();
    let mut base = forebay_node::config_load::load(args.config.as_deref(), &[])?.start_logging()?;
    let settings = Settings::new(&base, args.config.as_deref());
    for root in &args.folder_root {
        base.folder.roots.push(folder_root(root)?);
    }
    base.listen.insecure |= args.insecure;
    let admin = owner::first_admin(&base.auth);
    if args.private {
        base.auth.required = true;
        base.s3.keys.get_or_insert_default().push(owner::key_of(OWNER));
    } else if args.host.is_loopback() && (admin.is_some() || base.auth.required) {
        owner::add_private_keys(&mut base.s3, admin.as_deref());
    } else if args.host.is_loopback() {
        base.s3.with_trial_keys();
    }
    let front = SocketAddr::new(args.host, args.port);
    check_port(front)?;
    let home = Home::open(&args.dir)?;
    let dir = home.dir.as_path();
    let description = dir.join("serve.json");
    home::remove(&description)?;
    owner::remove_token(dir)?;
    let idle = args.idle_stop.map(|after| IdleStop::new(dir, after)).transpose()?;
    let ids = Ids::of(dir)?;
    let secret = home::secret(dir)?;
    let data = dir.join("disk");
    fs::create_dir_all(&data).map_err(|e| home::failed(&data, &e))?;
    let size = match args.size {
        Some(size) => size,
        None => default_size(&data)?,
    };

    let back = free_after(front)?;
    let seen_as = reachable(args.host);
    let scheme = if base.tls.serves_http() { "http" } else { "https" };
    let url =
        |address: SocketAddr| format!("{scheme}://{}", SocketAddr::new(seen_as, address.port()));
    let node = |id: &str, address: SocketAddr| -> Result<NodeConfig, Stopped> {
        let mut config = base.clone();
        config.cluster.gateways = vec![url(front)];
        config.cluster.secret_file = text(&secret)?;
        config.node.id = id.to_owned();
        config.node.dir = text(&dir.join(id))?;
        config.listen.http = address.to_string();
        config.listen.advertise = url(address);
        Ok(config)
    };
    let gateway = node(&ids.gateway, front)?;
    let mut target = node(&ids.target, back)?;
    let path = text(&data)?;
    target.disk = vec![DiskConfig {
        path: path.clone(),
        size: Some(size),
        mount: false,
        rebuild_index: false,
    }];
    check(Role::Gateway, &gateway)?;
    check(Role::Target, &target)?;
    let greeting = Greeting {
        nodes: [local_url(&gateway), local_url(&target)],
        disk: path,
        size,
        description: description.clone(),
        endpoint: url(front),
        is_private: args.private,
        admin,
        s3: base.s3.clone(),
        is_required: base.auth.required,
        gateway: ids.gateway.clone(),
    };
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let lifecycle = Lifecycle::new();
        let idle = idle.map(|idle| tokio::spawn(idle.watch(lifecycle.clone())));
        let stop = lifecycle.token();
        let gone = tokio::spawn(async move {
            stop.cancelled().await;
            let dir = description.parent().unwrap_or(Path::new("."));
            home::remove(&description).and(owner::remove_token(dir))
        });
        let result = serve(gateway, target, greeting, lifecycle, settings).await;
        // Held until the process ends, so that the next server finds the folder free.
        let users = match idle {
            Some(idle) => idle.await.ok().flatten(),
            None => None,
        };
        let removed = gone.await.unwrap_or(Ok(()));
        (result.and(removed), users)
    });
    drop(runtime);
    drop(home);
    result.0
}

async fn serve(
    gateway: NodeConfig,
    target: NodeConfig,
    greeting: Greeting,
    lifecycle: Lifecycle,
    settings: Settings,
) -> Result<(), Stopped> {
    let (gateway_up, gateway_is_up) = oneshot::channel();
    let (gateway_life, target_life) = (lifecycle.clone(), lifecycle.clone());
    let (announcing, manager) = (lifecycle.clone(), settings.manager.clone());
    let front = forebay_gateway::run(gateway, gateway_life, move |_: &str| {
        let _ = gateway_up.send(());
        announcing.spawn(announce(greeting, manager, announcing.token()));
    });
    let back = async {
        // No gateway, no target: its error is the one to report.
        if gateway_is_up.await.is_err() {
            return Ok(());
        }
        forebay_target::run(target, target_life, |_: &str| {}).await
    };
    let stop = lifecycle.token();
    until_stopped(lifecycle, settings, async move {
        // When one of them ends, it stops the other one.
        let front = async {
            let result = front.await;
            stop.cancel();
            result
        };
        let back = async {
            let result = back.await;
            stop.cancel();
            result
        };
        let (front, back) = futures::future::join(front, back).await;
        front.and(back)
    })
    .await
}

/// Ids of the two nodes, kept because placement depends on them.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Ids {
    gateway: String,
    target: String,
}

impl Ids {
    fn of(dir: &Path) -> Result<Self, Stopped> {
        let path = dir.join("ids.toml");
        if !path.exists() {
            let ids = Self {
                gateway: format!("gateway-{}", home::random_word(8)),
                target: format!("target-{}", home::random_word(8)),
            };
            let text = toml::to_string(&ids).map_err(|e| bad_ids(&path, &e))?;
            home::write(&path, text.as_bytes(), 0o600)?;
        }
        let text = fs::read_to_string(&path).map_err(|e| home::failed(&path, &e))?;
        let ids: Self = toml::from_str(&text).map_err(|e| bad_ids(&path, &e))?;
        for id in [&ids.gateway, &ids.target] {
            NodeId::new(id).map_err(|e| bad_ids(&path, &e))?;
        }
        Ok(ids)
    }
}

fn bad_ids(path: &Path, e: &dyn std::fmt::Display) -> Stopped {
    Stopped::bad_config(format!("{}: {e}", path.display()))
        .hint("put back the two node ids this folder was made with")
}

/// 10 % of the file system or 20 GiB, the smaller.
fn default_size(dir: &Path) -> Result<ByteSize, Stopped> {
    let whole = os::file_system_size(dir).map_err(|e| home::failed(dir, &e))?;
    Ok(ByteSize((whole / 10).min(MAX_DEFAULT_BYTES)))
}

/// The first free port after `address`.
fn free_after(address: SocketAddr) -> Result<SocketAddr, Stopped> {
    let ports = (1..=NEARBY).filter_map(|n| address.port().checked_add(n));
    let found =
        ports.map(|port| SocketAddr::new(address.ip(), port)).find(|a| check_port(*a).is_ok());
    found.ok_or_else(|| {
        let first = address.port();
        let error = Error::new(
            forebay_core::ErrorCode::Conflict,
            format!("no free port after {first} for the target ({NEARBY} tried)"),
        );
        Stopped::new(exit::PORT_IN_USE, error).hint("choose another --port")
    })
}

/// The address for clients: an unspecified address is not one that a client can connect to.
fn reachable(host: IpAddr) -> IpAddr {
    if !host.is_unspecified() {
        return host;
    }
    // Connecting a datagram socket sends nothing; it only selects the outgoing address.
    let way_out = UdpSocket::bind((host, 0))
        .and_then(|socket| {
            let documentation: IpAddr = match host {
                IpAddr::V4(_) => [192, 0, 2, 1].into(),
                IpAddr::V6(_) => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
            };
            socket.connect((documentation, 9))?;
            socket.local_addr()
        })
        .map(|address| address.ip());
    way_out.unwrap_or_else(|_| match host {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    })
}

fn text(path: &Path) -> Result<String, Stopped> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Stopped::bad_config(format!("the path {} is not valid UTF-8", path.display()))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = Ids::of(dir.path()).unwrap();
        assert_eq!(Ids::of(dir.path()).unwrap(), first);
        fs::write(dir.path().join("ids.toml"), "gateway = \"x\"\ntarget = \"y\"\n").unwrap();
        assert_eq!(Ids::of(dir.path()).unwrap_err().code, exit::BAD_CONFIG);
    }

    #[test]
    fn the_default_budget_is_a_tenth_and_at_most_20_gib() {
        let dir = tempfile::tempdir().unwrap();
        let whole = os::file_system_size(dir.path()).unwrap();
        let size = default_size(dir.path()).unwrap().0;
        assert!(size > 0 && size <= MAX_DEFAULT_BYTES && size <= whole / 10);
    }

    #[test]
    fn listening_everywhere_is_advertised_as_one_address() {
        assert!(!reachable([0, 0, 0, 0].into()).is_unspecified());
        assert_eq!(reachable([127, 0, 0, 1].into()), IpAddr::from([127, 0, 0, 1]));
    }
}

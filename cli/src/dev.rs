//! `forebay dev`: a local cluster of separate processes, for demos and tests. Starts them, waits
//! until they form a cluster, describes it in `dev.json`, and stops them at the end.

mod children;
mod plan;
mod tls;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use forebay_client::tls::TlsClient;
use forebay_core::config::NodeConfig;
use forebay_core::size::ByteSize;
use forebay_core::state::Role;
use forebay_core::{Error, ErrorCode};
use forebay_node::file_modes;
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::children::Children;
use self::plan::{NodePlan, Schemes, Shape};
use self::tls::DevTls;
use crate::home::Home;
use crate::node::{Signals, Stopped, check_port, exit, finish};
use crate::owner::Owner;
use crate::probe::OwnNode;
use crate::{home, owner, probe};

/// Timeout of the start of the whole cluster.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Timeout of the stop of the nodes; the rest are killed then.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Interval of probes of nodes that are starting.
const ASK_EVERY: Duration = Duration::from_millis(25);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  forebay dev --dir try
  forebay dev --dir try --gateways 3 --targets 4 --size 1GiB
  forebay dev --dir try --tls

The gateways are gateway1, gateway2, ... on --port and the ports after it; the
targets are target01, target02, ... on the next ones. All ports must be free
(else exit code 10) and below 32768. Each node has a folder of its name in --dir
with forebay.toml, cmd and log. Each start writes forebay.toml anew: settings
for all nodes belong in the file of --config.

A node that ends by itself is not started again; dev prints its exit status and
goes on. `sh try/target01/cmd` starts the node in the foreground. If a node ends
before all are ready, dev stops the others and ends with that node's exit code.
Ctrl-C stops targets, then gateways, also those that cmd started; nodes that
still run after 10 s are killed.

A later start may have more gateways, targets or disks: new nodes join, and the
targets get other ports if there are more gateways. Fewer of them are refused
with exit code 2 before anything starts.

With auth.admin, dev.json has a token of this administrator too, which the file
token in --dir has alone, and keys of the S3 API with secrets of this start.")]
pub(crate) struct DevArgs {
    /// Folder of the cluster; a cluster that it holds is started again
    #[arg(long)]
    dir: PathBuf,
    /// Number of gateways
    #[arg(long, default_value_t = 1)]
    gateways: u16,
    /// Number of targets
    #[arg(long, default_value_t = 3)]
    targets: u16,
    /// Port of the first gateway; the other nodes take the ports after it
    #[arg(long, default_value_t = 7400)]
    port: u16,
    /// Number of disks (folders) of each target
    #[arg(long, default_value_t = 1)]
    disks: u16,
    /// Most bytes to use on each disk, for example 8GiB [default: 10 % of the file system or 20 GiB, the
    /// smaller]
    #[arg(long, value_parser = ByteSize::parse)]
    size: Option<ByteSize>,
    /// Folder that may hold buckets of the folder backend; may be repeated
    #[arg(long, value_name = "PATH")]
    folder_root: Vec<PathBuf>,
    /// Configuration file (TOML) with settings for all nodes
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve HTTPS, with certificates of a CA in DIR/tls. With `tls.http = true` in the configuration,
    /// the nodes serve plain HTTP too
    #[arg(long)]
    tls: bool,
    /// Print the command line of each node instead of starting it
    #[arg(long)]
    node_cmd: bool,
}

/// Runs the cluster until SIGTERM or SIGINT; returns the exit code.
pub(crate) fn run(args: DevArgs) -> u8 {
    finish(start(args))
}

fn start(args: DevArgs) -> Result<(), Stopped> {
    file_modes::make_private();
    let loaded = forebay_node::config_load::load(args.config.as_deref(), &[])?;
    for warning in &loaded.warnings {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let mut base = loaded.config;
    let admin = owner::first_admin(&base.auth);
    if admin.is_some() || base.auth.required {
        owner::add_private_keys(&mut base.s3, admin.as_deref());
    } else {
        base.s3.with_trial_keys();
    }
    for root in &args.folder_root {
        base.folder.roots.push(folder_root(root)?);
    }
    let schemes = match (args.tls || base.tls.is_on(), base.tls.http) {
        (false, _) => Schemes::Http,
        (true, false) => Schemes::Https,
        (true, true) => Schemes::Both,
    };
    let shape = Shape {
        schemes,
        gateways: args.gateways,
        targets: args.targets,
        disks: args.disks,
        port: args.port,
        size: args.size,
    };
    // Checks all of this before it writes anything.
    let program = std::env::current_exe().map_err(|e| home::failed(Path::new("forebay"), &e))?;
    for node in plan::nodes(&args.dir, &program, &shape)? {
        if !args.node_cmd {
            check_port(node.address())?;
        }
    }
    let home = Home::open(&args.dir)?;
    let dir = home.dir.as_path();
    let nodes = plan::nodes(dir, &program, &shape)?;
    plan::check_previous(dir, &nodes)?;
    let secret = home::secret(dir)?;
    let tls =
        args.tls.then(|| DevTls::make(dir, nodes.iter().map(|n| n.id.as_str()))).transpose()?;
    plan::write(&nodes, &base, &secret, shape.size, tls.as_ref())?;
    let description = dir.join("dev.json");
    home::remove(&description)?;
    owner::remove_token(dir)?;
    if args.node_cmd {
        let lines: Vec<String> = nodes.iter().map(NodePlan::command_line).collect();
        say(&lines.join("\n"));
        return Ok(());
    }
    // One thread, the main one: children end with the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| home::failed(dir, &e))?;
    let result = runtime.block_on(supervise(&nodes, &base, tls.as_ref(), &description));
    let removed = home::remove(&description).and(owner::remove_token(dir));
    result.and(removed)
}

async fn supervise(
    nodes: &[NodePlan],
    base: &NodeConfig,
    tls: Option<&DevTls>,
    description: &Path,
) -> Result<(), Stopped> {
    let mut signals = Signals::new().map_err(|e| {
        Stopped::new(exit::FAILED, Error::internal(format!("cannot listen for signals: {e}")))
    })?;
    let mut children = Children::new();
    let lived = tokio::select! {
        () = signals.next() => Ok(()),
        lived = live(nodes, base, tls, description, &mut children) => lived,
    };
    home::remove(description)?;
    let hurried = tokio::select! {
        () = children.stop(nodes, STOP_WITHIN) => false,
        () = signals.next() => true,
    };
    if hurried {
        children.kill();
    }
    lived
}

/// Starts the nodes, waits for them, and runs until cancelled. Returns only errors.
async fn live(
    nodes: &[NodePlan],
    base: &NodeConfig,
    tls: Option<&DevTls>,
    description: &Path,
    children: &mut Children,
) -> Result<(), Stopped> {
    for node in nodes {
        children.start(node)?;
    }
    tokio::select! {
        ready = all_ready(nodes) => ready?,
        (index, status) = children.next_end() => return Err(died(&nodes[index], status)),
    }
    let owner = owner_of(nodes, base, description).await?;
    let text = describe(nodes, base, tls, children, owner.as_ref());
    home::write(description, text.as_bytes(), 0o600)?;
    say(&welcome(nodes, tls, owner.as_ref()));
    loop {
        let (index, status) = children.next_end().await;
        let node = &nodes[index];
        let mut err = std::io::stderr();
        let _ = writeln!(
            err,
            "{} ended by itself ({status}); its log is {}; start it again with: sh {}",
            node.id,
            node.log_file().display(),
            node.dir.join("cmd").display()
        );
    }
}

/// Waits until every node answers and every gateway's map shows every node alive.
async fn all_ready(nodes: &[NodePlan]) -> Result<(), Stopped> {
    let deadline = Instant::now() + READY_WITHIN;
    let tls = TlsClient::unverified()?;
    for node in nodes {
        loop {
            if is_ready(&tls, node, nodes).await {
                break;
            }
            if Instant::now() >= deadline {
                let error = Error::unavailable(format!(
                    "{} is not ready after {} s",
                    node.id,
                    READY_WITHIN.as_secs()
                ));
                return Err(Stopped::new(exit::FAILED, error)
                    .hint(format!("see its log: {}", node.log_file().display())));
            }
            sleep(ASK_EVERY).await;
        }
    }
    Ok(())
}

async fn is_ready(tls: &TlsClient, node: &NodePlan, nodes: &[NodePlan]) -> bool {
    let url = node.client_url();
    if !matches!(probe::get(tls, &url, "/readyz").await, Ok(answer) if answer.status == 200) {
        return false;
    }
    if node.role == Role::Target {
        return true;
    }
    // The log is in the folder of the node, which is in that of the cluster.
    let log = node.log_file();
    let Some(secret) = log.ancestors().nth(2).map(|dir| dir.join("secret")) else { return false };
    let own = OwnNode { id: &node.id, dir: &node.state_dir(), secret: &secret };
    let alive = probe::alive(tls, &url, Some(own)).await;
    nodes.iter().all(|n| alive.iter().any(|a| a.id.as_str() == n.id && a.url == n.client_url()))
}

/// A token of the administrator; `None` if the cluster has no users.
async fn owner_of(
    nodes: &[NodePlan],
    base: &NodeConfig,
    description: &Path,
) -> Result<Option<Owner>, Stopped> {
    let Some(dir) = description.parent() else { return Ok(None) };
    let (tls, admin) = (TlsClient::unverified()?, owner::first_admin(&base.auth));
    let (first, secret) = (&nodes[0], dir.join("secret"));
    let own = OwnNode { id: &first.id, dir: &first.state_dir(), secret: &secret };
    Owner::of_cluster(&tls, &first.client_url(), own, dir, admin.as_deref()).await
}

/// Why the cluster cannot start: the last lines in the log of the node that ended.
fn died(node: &NodePlan, status: ExitStatus) -> Stopped {
    let log = fs::read_to_string(node.log_file()).unwrap_or_default();
    let said: Vec<&str> = log.lines().rev().take(4).collect();
    let said: Vec<&str> = said.into_iter().rev().collect();
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    let message =
        format!("{} ended while it was starting ({status}):\n  {}", node.id, said.join("\n  "));
    Stopped::new(code.unwrap_or(exit::FAILED), Error::new(ErrorCode::Unavailable, message))
        .hint(format!("its whole log is {}", node.log_file().display()))
}

fn describe(
    nodes: &[NodePlan],
    base: &NodeConfig,
    tls: Option<&DevTls>,
    children: &Children,
    owner: Option<&Owner>,
) -> String {
    let of = |role: Role| nodes.iter().enumerate().filter(move |(_, node)| node.role == role);
    let endpoint = nodes[0].client_url();
    let gateways: Vec<_> = of(Role::Gateway)
        .map(|(i, n)| json!({"id": n.id, "pid": children.pid(i), "url": n.client_url()}))
        .collect();
    let targets: Vec<_> = of(Role::Target)
        .map(|(i, n)| json!({"id": n.id, "pid": children.pid(i), "url": n.client_url(), "disks": n.disks}))
        .collect();
    let mut description = json!({
        "endpoint": endpoint,
        "s3": format!("{endpoint}/s3"),
        "gateways": gateways,
        "targets": targets,
        "s3_keys": owner::usable_keys(&base.s3, owner.is_some() || base.auth.required),
    });
    if let Some(owner) = owner {
        owner.describe(&mut description);
    }
    if let Some(tls) = tls {
        description["ca"] = json!(tls.ca());
    }
    format!("{description:#}\n")
}

fn welcome(nodes: &[NodePlan], tls: Option<&DevTls>, owner: Option<&Owner>) -> String {
    let endpoint = nodes[0].client_url();
    let ca = tls.map(|tls| format!("  export FOREBAY_CA_FILE={}\n", tls.ca().display()));
    let ca = ca.unwrap_or_default();
    let token = owner.map(Owner::export).unwrap_or_default();
    let targets = nodes.iter().filter(|n| n.role == Role::Target).count();
    let gateways = nodes.len() - targets;
    format!(
        "ready: {gateways} gateway(s), {targets} target(s) at {endpoint}\n\
         \n  export FOREBAY_ENDPOINT={endpoint}\n{ca}{token}  forebay mb ais://first && forebay ls\n\
         \nCtrl-C stops all of them."
    )
}

/// An allow-listed root as an absolute path.
pub(crate) fn folder_root(root: &Path) -> Result<String, Stopped> {
    let absolute = fs::canonicalize(root).map_err(|e| {
        Stopped::bad_config(format!("--folder-root {}: {e}", root.display()))
            .hint("give a folder that exists")
    })?;
    absolute.to_str().map(str::to_owned).ok_or_else(|| {
        Stopped::bad_config(format!("--folder-root {} is not valid UTF-8", root.display()))
    })
}

/// Prints a line for people; a closed standard output is not an error.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

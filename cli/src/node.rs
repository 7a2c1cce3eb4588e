//! `forebay gateway` and `forebay target`: one node of a cluster; and the parts that all server
//! processes share: checks of the settings, signals, exit codes.

use std::fs;
use std::future::Future;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::config::NodeConfig;
use forebay_core::size::ByteSize;
use forebay_core::state::Role;
use forebay_core::{Error, ErrorCode};
use forebay_node::access::requires_users;
use forebay_node::cgroup::Resources;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::service_manager::ServiceManager;
use forebay_node::{config_load, file_modes};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::settings::{Settings, announce};
use crate::{allocator, os, pid_file};

/// Timeout for the tasks of a stopping node to finish.
const GRACE: Duration = Duration::from_secs(8);
/// Timeout for the other nodes to learn of a node's stop; the node serves requests until then.
const FAREWELL: Duration = Duration::from_secs(7);

/// Exit codes of servers.
pub(crate) mod exit {
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const BAD_CONFIG: u8 = 2;
    pub(crate) const PORT_IN_USE: u8 = 10;
    pub(crate) const DISK_UNUSABLE: u8 = 11;
    pub(crate) const FORMAT_REFUSED: u8 = 12;
}

/// Why a server could not start or continue, and its exit code.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) code: u8,
    pub(crate) error: Error,
}

impl Stopped {
    pub(crate) fn new(code: u8, error: Error) -> Self {
        Self { code, error }
    }

    pub(crate) fn bad_config(message: impl Into<String>) -> Self {
        Self::new(exit::BAD_CONFIG, Error::invalid(message))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error = self.error.hint(hint);
        self
    }

    /// Prints the error for people; returns the exit code.
    pub(crate) fn report(&self) -> u8 {
        let mut err = std::io::stderr();
        let _ = writeln!(err, "error: {}", self.error.message);
        if let Some(hint) = &self.error.hint {
            let _ = writeln!(err, "hint: {hint}");
        }
        self.code
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        let code = match error.code {
            ErrorCode::InvalidArgument | ErrorCode::InvalidName => exit::BAD_CONFIG,
            ErrorCode::Conflict => exit::PORT_IN_USE,
            // At startup, these errors mean that a node's folders cannot be read or written.
            ErrorCode::OutOfSpace | ErrorCode::Corrupt | ErrorCode::Internal => exit::DISK_UNUSABLE,
            ErrorCode::Unsupported => exit::FORMAT_REFUSED,
            _ => exit::FAILED,
        };
        Self { code, error }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay gateway --config /etc/forebay/gateway.toml")]
pub(crate) struct GatewayArgs {
    /// Configuration file of this node (TOML). FOREBAY_SECTION__KEY in the environment overrides it
    /// [default: FOREBAY_CONFIG, else /etc/forebay/forebay.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  forebay target --config /etc/forebay/target.toml
  forebay target --config target.toml --rebuild-index    after damage")]
pub(crate) struct TargetArgs {
    /// Configuration file of this node (TOML). FOREBAY_SECTION__KEY in the environment overrides it
    /// [default: FOREBAY_CONFIG, else /etc/forebay/forebay.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Rebuild the index of every disk from the stored objects before serving
    #[arg(long)]
    rebuild_index: bool,
}

/// Runs a gateway until SIGTERM or SIGINT; returns the exit code.
pub(crate) fn gateway(args: &GatewayArgs) -> u8 {
    finish(start(Role::Gateway, args.config.as_deref(), false))
}

/// Runs a target until SIGTERM or SIGINT; returns the exit code.
pub(crate) fn target(args: &TargetArgs) -> u8 {
    finish(start(Role::Target, args.config.as_deref(), args.rebuild_index))
}

/// The exit code for this result of a server.
pub(crate) fn finish(result: Result<(), Stopped>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(stopped) => stopped.report(),
    }
}

fn start(role: Role, file: Option<&Path>, rebuild_index: bool) -> Result<(), Stopped> {
    file_modes::make_private();
    let file = config_load::choose_file(file)?;
    let mut config = config_load::load(Some(&file), &[])?.start_logging()?;
    let settings = Settings::new(&config, Some(&file));
    let state = Some(Path::new(&config.node.dir)).filter(|dir| !dir.as_os_str().is_empty());
    if let Some(state) = state {
        pid_file::wait_for_predecessor(state, &file);
    }
    check(role, &config)?;
    if let Some(state) = state {
        pid_file::write(state)?;
    }
    for disk in &mut config.disk {
        disk.rebuild_index |= rebuild_index;
    }
    runtime()?.block_on(async {
        let (lifecycle, own) = (Lifecycle::new(), local_url(&config));
        let (announcing, manager) = (lifecycle.clone(), settings.manager.clone());
        let ready = move |url: &str| {
            tracing::info!(url, "ready");
            announcing.spawn(announce(own, manager, announcing.token()));
        };
        match role {
            Role::Gateway => {
                let run = forebay_gateway::run(config, lifecycle.clone(), ready);
                until_stopped(lifecycle, settings, run).await
            }
            Role::Target => {
                let run = forebay_target::run(config, lifecycle.clone(), ready);
                until_stopped(lifecycle, settings, run).await
            }
        }
    })
}

/// The runtime of a server process; raises the limit of open files.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Stopped> {
    allocator::keep_freed_memory();
    match os::raise_open_files() {
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(e) => tracing::warn!("the limit of open files stays as it is: {e}"),
    }
    let Resources { cpus, host_cpus, memory, host_memory } = Resources::read();
    let (memory, host_memory) = (ByteSize(memory), ByteSize(host_memory));
    tracing::info!(cpus, host_cpus, %memory, %host_memory, "processors and memory that this node may use");
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| {
        Stopped::new(exit::FAILED, Error::internal(format!("cannot start threads: {e}")))
    })
}

/// Runs a server; the first SIGTERM or SIGINT stops it in order, the second immediately. SIGHUP reloads
/// its settings.
pub(crate) async fn until_stopped(
    lifecycle: Lifecycle,
    settings: Settings,
    server: impl Future<Output = forebay_core::Result<()>>,
) -> Result<(), Stopped> {
    let manager = settings.manager.clone();
    manager.watch(&lifecycle);
    // Before the first request, so that an early signal does not end the process.
    settings.follow_signals(&lifecycle);
    let signals = tokio::spawn(stop_on_signal(lifecycle.clone(), manager.clone()));
    let result = server.await;
    manager.stopping();
    let left = lifecycle.shutdown(GRACE).await;
    if left > 0 {
        tracing::warn!(left, "stopped without waiting for all tasks");
    }
    signals.abort();
    result.map_err(Stopped::from)
}

async fn stop_on_signal(lifecycle: Lifecycle, manager: ServiceManager) {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(e) => {
            tracing::warn!(error = %e, "cannot listen for signals; stop this process by SIGKILL");
            return;
        }
    };
    signals.next().await;
    manager.stopping();
    tracing::info!("stopping; a second signal stops at once");
    tokio::select! {
        () = lifecycle.stop(FAREWELL) => signals.next().await,
        () = signals.next() => {}
    }
    std::process::exit(i32::from(exit::FAILED));
}

/// SIGTERM and SIGINT, which both ask a server to stop.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// URL of one of this process's listeners.
pub(crate) fn local_url(config: &NodeConfig) -> String {
    let scheme = if config.tls.is_on() { "https" } else { "http" };
    format!("{scheme}://{}", local(&config.listen.http))
}

/// Local address of one of this process's listeners.
fn local(http: &str) -> String {
    match http.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            let loopback: IpAddr = match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            SocketAddr::new(loopback, address.port()).to_string()
        }
        _ => http.to_owned(),
    }
}

/// Refuses invalid settings, with the exit code of their kind.
pub(crate) fn check(role: Role, config: &NodeConfig) -> Result<(), Stopped> {
    let http = &config.listen.http;
    let address = http
        .parse::<std::net::SocketAddr>()
        .map_err(|e| Stopped::bad_config(format!("listen.http \"{http}\": {e}")))?;
    let has_users = requires_users(&config.auth);
    if !address.ip().is_loopback() && !config.listen.insecure && !has_users {
        return Err(Stopped::bad_config(format!(
            "{http} can be reached from other machines and anybody there could read and write"
        ))
        .hint(
            "set auth.required = true (docs/auth.md), listen on 127.0.0.1, or set listen.insecure = true \
             (serve: --insecure)",
        ));
    }
    if !address.ip().is_loopback() && config.s3.has_published_key() {
        return Err(Stopped::bad_config(format!(
            "s3.keys has a key that is published in the documentation of Forebay, and other machines \
             can reach {http}"
        ))
        .hint("set other keys in s3.keys (openssl rand -hex 32), or listen on 127.0.0.1"));
    }
    if !address.ip().is_loopback() && !has_users {
        tracing::warn!(%address, "every client that reaches this address may read and write");
    }
    check_port(address)?;
    if !config.node.dir.is_empty() {
        check_folder(Path::new(&config.node.dir))?;
    }
    if role == Role::Target {
        if config.disk.is_empty() {
            return Err(Stopped::bad_config("a target needs at least one [[disk]] with a path"));
        }
        for disk in &config.disk {
            check_folder(Path::new(&disk.path))?;
        }
    }
    Ok(())
}

/// Refuses an address on which another process listens already.
pub(crate) fn check_port(address: std::net::SocketAddr) -> Result<(), Stopped> {
    match std::net::TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => Err(Stopped::new(
            exit::PORT_IN_USE,
            Error::new(
                ErrorCode::Conflict,
                format!("port {} is in use ({address})", address.port()),
            )
            .hint("choose another port, or stop the process that listens there"),
        )),
        Err(e) => Err(Stopped::bad_config(format!("cannot listen on {address}: {e}"))),
    }
}

/// Creates the folder if it does not exist, and checks that files can be written in it.
pub(crate) fn check_folder(path: &Path) -> Result<(), Stopped> {
    let probe = path.join(format!(".forebay-probe-{}", std::process::id()));
    let tried = fs::create_dir_all(path)
        .and_then(|()| fs::write(&probe, b"probe"))
        .and_then(|()| fs::remove_file(&probe));
    tried.map_err(|e| {
        let _ = fs::remove_file(&probe);
        let error = Error::internal(format!("cannot write in folder {}: {e}", path.display()));
        Stopped::new(exit::DISK_UNUSABLE, error)
            .hint("give a folder this user may write, on a disk with space left")
    })
}

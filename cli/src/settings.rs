//! The settings of a server process while it runs: SIGHUP reads them again, and the manager of services is
//! notified of each state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_client::tls::TlsClient;
use forebay_core::config::NodeConfig;
use forebay_node::config_load;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::reload::RunningConfig;
use forebay_node::service_manager::ServiceManager;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::probe;

/// Interval of probes of the own node that is starting.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The settings that a server process reads again at SIGHUP.
pub(crate) struct Settings {
    running: RunningConfig,
    file: Option<PathBuf>,
    pub(crate) manager: ServiceManager,
}

impl Settings {
    /// `config` as read from the file and the environment.
    pub(crate) fn new(config: &NodeConfig, file: Option<&Path>) -> Self {
        let manager = ServiceManager::of_environment();
        Self {
            running: RunningConfig::new(config.clone()),
            file: file.map(Path::to_owned),
            manager,
        }
    }

    /// Reads the settings again at each SIGHUP until the node stops. A process with a controlling terminal
    /// keeps the default of the system, and ends with its terminal.
    pub(crate) fn follow_signals(self, lifecycle: &Lifecycle) {
        if std::fs::File::open("/dev/tty").is_ok() {
            return;
        }
        let mut hangups = match signal(SignalKind::hangup()) {
            Ok(hangups) => hangups,
            Err(e) => {
                tracing::warn!(error = %e, "cannot listen for SIGHUP; it ends this process");
                return;
            }
        };
        let (life, stop) = (lifecycle.clone(), lifecycle.token());
        let Self { mut running, file, manager } = self;
        lifecycle.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    signal = hangups.recv() => if signal.is_none() { return },
                }
                manager.reloading();
                let file = file.clone();
                let read =
                    tokio::task::spawn_blocking(move || config_load::load(file.as_deref(), &[]));
                match read.await {
                    Ok(read) => running.reload(read, &life),
                    Err(e) => tracing::error!(error = %e, "the configuration was not read"),
                }
                manager.ready();
            }
        });
    }
}

/// Notifies the manager of services when the node at `url` serves requests as a member of its cluster.
pub(crate) async fn announce(url: String, manager: ServiceManager, stop: CancellationToken) {
    if !manager.is_present() {
        return;
    }
    manager.starting("waiting for the cluster");
    let Ok(tls) = TlsClient::unverified() else { return manager.ready() };
    loop {
        match probe::get(&tls, &url, "/readyz").await {
            Ok(answer) if answer.status == 200 => return manager.ready(),
            // The node requires a certificate, which this process has not as a client.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => return manager.ready(),
            _ => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(ASK_EVERY) => {}
        }
    }
}

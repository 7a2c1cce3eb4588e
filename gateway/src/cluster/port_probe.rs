//! Probes whether a process listens on a node's port, and which one: a machine whose process ended
//! refuses connections; one that is cut off or paused does not.

use std::io::ErrorKind;
use std::time::Duration;

use forebay_client::PeerClient;
use forebay_core::membership::Probe;
use forebay_core::sign::{INSTANCE_BY_KEY, INSTANCE_PATH};
use tokio::net::TcpStream;

const WITHIN: Duration = Duration::from_millis(100);
/// Timeout for a live process to report its id.
const REPLY_WITHIN: Duration = Duration::from_millis(800);

/// Asks the process at `url` for its id.
pub(crate) async fn probe(peer: &PeerClient, url: &str) -> Probe {
    if is_refused(url).await {
        return Probe::Refused;
    }
    match ask(peer, url, INSTANCE_PATH).await {
        // A target that joined by a token knows the keys of gateways only.
        None => match ask(peer, url, INSTANCE_BY_KEY).await {
            // A node of another cluster, or a target that has not joined: it is another process.
            None => Probe::Instance(0),
            Some(probe) => probe,
        },
        Some(probe) => probe,
    }
}

/// `None`: the process does not accept the proof of this gateway.
async fn ask(peer: &PeerClient, url: &str, path: &str) -> Option<Probe> {
    match tokio::time::timeout(REPLY_WITHIN, peer.get_json(url, path)).await {
        Ok(Ok(instance)) => Some(Probe::Instance(instance)),
        Ok(Err(e)) if e.code().is_refusal() => None,
        _ => Some(Probe::Silent),
    }
}

/// Whether a connection to the node at `url` is refused. A timeout is not a refusal.
pub(crate) async fn is_refused(url: &str) -> bool {
    let Some((_, address)) = url.split_once("://") else { return false };
    let port_probe = tokio::time::timeout(WITHIN, TcpStream::connect(address)).await;
    matches!(port_probe, Ok(Err(e)) if e.kind() == ErrorKind::ConnectionRefused)
}

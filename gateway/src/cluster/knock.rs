//! Whether anybody is behind a node's port: a machine whose process ended refuses connections, one
//! that is cut off or paused does not.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::TcpStream;

const WITHIN: Duration = Duration::from_millis(100);

/// Whether a connection to the node at `url` (`http://host:port`) is refused. No answer is no refusal.
pub(crate) async fn is_refused(url: &str) -> bool {
    let Some(address) = url.strip_prefix("http://") else { return false };
    let knock = tokio::time::timeout(WITHIN, TcpStream::connect(address)).await;
    matches!(knock, Ok(Err(e)) if e.kind() == ErrorKind::ConnectionRefused)
}

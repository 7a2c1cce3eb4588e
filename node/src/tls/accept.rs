//! The start of a connection on a port with TLS: the first byte decides whether it is TLS.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::NodeTls;
use crate::bare_answer::send_error;
use crate::clock::unix_s;
use crate::exchange::Observer;
use crate::fast_http::{Encrypted, TLS_HANDSHAKE};
use crate::listener::Peer;

/// Timeout for the first byte of a connection.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client with plain HTTP may take to read its refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum interval in seconds between warnings about failed handshakes.
const WARN_INTERVAL_S: u64 = 10;

/// A connection after its start.
pub(crate) enum Accepted {
    /// Plain HTTP, of which nothing was read yet.
    Plain(TcpStream),
    Tls(Box<Encrypted>),
    /// The connection is over.
    Ended,
}

impl NodeTls {
    /// Starts a connection; ends it when `end` is cancelled.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        peer: Peer,
        (node, observer): (&str, &Observer),
        end: &CancellationToken,
    ) -> Accepted {
        let first = async {
            let mut byte = [0];
            let read = timeout(FIRST_BYTE_TIMEOUT, stream.peek(&mut byte)).await;
            matches!(read, Ok(Ok(1))).then_some(byte[0])
        };
        let first = tokio::select! {
            biased;
            () = end.cancelled() => return Accepted::Ended,
            first = first => first,
        };
        match first {
            None => Accepted::Ended,
            Some(TLS_HANDSHAKE) => self.handshake(stream, peer, end).await,
            Some(_) if self.0.serves_http => Accepted::Plain(stream),
            Some(_) => {
                self.count("plain");
                send_error(stream, &plain_http(), node, observer, REFUSAL_TIMEOUT).await;
                Accepted::Ended
            }
        }
    }

    async fn handshake(&self, stream: TcpStream, peer: Peer, end: &CancellationToken) -> Accepted {
        // A flood of handshakes ends the oldest ones and does not delay new ones.
        let Ok(entered) = self.0.handshakes.enter(end) else { return Accepted::Ended };
        let config = self.0.server.load_full();
        let handshake = TlsAcceptor::from(config).accept(stream);
        let done = tokio::select! {
            biased;
            () = entered.end.cancelled() => return Accepted::Ended,
            done = timeout(HANDSHAKE_TIMEOUT, handshake) => done,
        };
        match done {
            Ok(Ok(stream)) => {
                self.count("ok");
                Accepted::Tls(Box::new(Encrypted::new(stream)))
            }
            Ok(Err(e)) => {
                self.count("failed");
                note_failure(peer, &e);
                Accepted::Ended
            }
            Err(_) => {
                self.count("timeout");
                note_failure(peer, &io::ErrorKind::TimedOut.into());
                Accepted::Ended
            }
        }
    }
}

/// Logs every failed handshake at level debug, and one from time to time as a warning.
fn note_failure(Peer(address): Peer, error: &io::Error) {
    static WARNED_S: AtomicU64 = AtomicU64::new(0);
    let (now, warned) = (unix_s(), WARNED_S.load(Ordering::Relaxed));
    // A client that only opens and closes connections, such as a probe, is no problem.
    let is_probe = error.kind() == io::ErrorKind::UnexpectedEof;
    if !is_probe && now >= warned + WARN_INTERVAL_S {
        WARNED_S.store(now, Ordering::Relaxed);
        tracing::warn!(%address, %error, "TLS handshake failed");
    } else {
        tracing::debug!(%address, %error, "TLS handshake failed");
    }
}

fn plain_http() -> Error {
    Error::invalid("this port speaks HTTPS, and the request is plain HTTP")
        .hint("use https:// in the endpoint; tls.http = true serves both")
}

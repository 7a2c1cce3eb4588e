//! Connections of a client: plain, or inside TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::TlsClient;

/// Encrypted bytes per read from the socket. TLS itself reads 4 KiB at a time.
const ENCRYPTED_READ_BYTES: usize = 64 << 10;
/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a node.
#[derive(Debug)]
pub enum ClientStream {
    /// Plain TCP.
    Plain(TcpStream),
    /// Inside TLS.
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
}

impl ClientStream {
    /// Whether the bytes on the socket are those of HTTP.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// The certificate of the other side and those that lead to its CA, DER; empty without TLS.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        let Self::Tls(stream) = self else { return Vec::new() };
        let found = stream.get_ref().1.peer_certificates().unwrap_or_default();
        found.iter().map(|certificate| certificate.to_vec()).collect()
    }

    /// The version of TLS, such as `TLSv1.3`.
    pub fn protocol(&self) -> Option<String> {
        let Self::Tls(stream) = self else { return None };
        let version = stream.get_ref().1.protocol_version()?;
        Some(version.as_str().unwrap_or("unknown").replace('_', "."))
    }
}

macro_rules! on_stream {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            ClientStream::Plain(inner) => {
                let $inner = Pin::new(inner);
                $call
            }
            ClientStream::Tls(inner) => {
                let $inner = Pin::new(&mut **inner);
                $call
            }
        }
    };
}

impl AsyncRead for ClientStream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_stream!(self, inner => inner.poll_read(cx, to))
    }
}

impl AsyncWrite for ClientStream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, inner => inner.poll_write(cx, bytes))
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, inner => inner.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, inner => inner.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, inner => inner.poll_shutdown(cx))
    }
}

impl Connection for ClientStream {
    fn connected(&self) -> Connected {
        match self {
            Self::Plain(stream) => stream.connected(),
            Self::Tls(stream) => stream.get_ref().0.get_ref().connected(),
        }
    }
}

impl TlsClient {
    /// Completes a connection to the node at `url`, whose TCP connection is `stream`: with a TLS
    /// handshake if the scheme is `https`.
    pub async fn secure(&self, url: &Uri, stream: TcpStream) -> io::Result<ClientStream> {
        if url.scheme_str() != Some("https") {
            return Ok(ClientStream::Plain(stream));
        }
        let config = self.config().map_err(io::Error::other)?;
        let host = url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = BufReader::with_capacity(ENCRYPTED_READ_BYTES, stream);
        let handshake = tokio_rustls::TlsConnector::from(config).connect(name, stream);
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(stream) => Ok(ClientStream::Tls(Box::new(stream?))),
            Err(_) => {
                let text = format!("no TLS handshake for {} s", HANDSHAKE_TIMEOUT.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }
}

/// Makes connections for the callers of this crate.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) tls: TlsClient,
    pub(crate) timeout: Duration,
}

impl Connector {
    /// Connects to the host and port of a URL.
    pub(crate) async fn connect(&self, url: &Uri) -> io::Result<ClientStream> {
        let host = url.host().ok_or_else(|| io::Error::other("a URL without a host"))?;
        let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
        let address = format!("{host}:{}", url.port_u16().unwrap_or(default));
        let stream = tokio::time::timeout(self.timeout, TcpStream::connect(address)).await;
        let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let _ = stream.set_nodelay(true);
        self.tls.secure(url, stream).await
    }
}

/// Makes connections for a pool of `hyper`.
#[derive(Clone, Debug)]
pub struct PooledConnector {
    http: HttpConnector,
    tls: TlsClient,
}

impl PooledConnector {
    /// Connections with this limit on the time to establish TCP.
    pub fn new(tls: TlsClient, timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        http.set_connect_timeout(Some(timeout));
        Self { http, tls }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for PooledConnector {
    type Response = TokioIo<ClientStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connecting = self.http.call(url.clone());
        let tls = self.tls.clone();
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            Ok(TokioIo::new(tls.secure(&url, stream).await?))
        })
    }
}

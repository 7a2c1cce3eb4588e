//! The connections that requests come over: TCP, or TLS over TCP.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::piece::FilePart;
use crate::clock::unix_s;

/// How long bytes of a file that were found in the page cache count as cached.
const SEEN: Duration = Duration::from_millis(20);
/// Bytes of a file that are encrypted at once: as many as TLS buffers.
const ENCRYPTED_CHUNK_BYTES: usize = 64 << 10;
/// First byte of every connection with TLS: the type of a handshake record.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;
/// Minimum interval in seconds between warnings about TLS on a port without it.
const WARN_INTERVAL_S: u64 = 10;

/// A connection as [`FastConnection`](super::connection::FastConnection) reads and writes it.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Sends bytes of a file; returns how many. `None`: they would have to be read from disk.
    fn poll_send_file(
        &mut self,
        part: &mut FilePart,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<u64>>>;
}

/// Whether the bytes of a file can be sent without a read from disk.
fn is_cached(part: &mut FilePart) -> bool {
    if part.seen.elapsed() > SEEN {
        if !part.file.is_here(part.start, part.end) {
            return false;
        }
        part.seen = Instant::now();
    }
    true
}

impl ByteStream for TcpStream {
    /// Lets the kernel send the bytes.
    fn poll_send_file(
        &mut self,
        part: &mut FilePart,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<u64>>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            if !is_cached(part) {
                return Poll::Ready(Ok(None));
            }
            let mut at = part.start;
            let len = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
            let sent = self.try_io(Interest::WRITABLE, || {
                Ok(rustix::fs::sendfile(&*self, &part.file, Some(&mut at), len)?)
            });
            match sent {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    part.start += n as u64;
                    return Poll::Ready(Ok(Some(n as u64)));
                }
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

/// A connection inside TLS.
pub(crate) struct Encrypted {
    stream: TlsStream<TcpStream>,
    /// For bytes of files; empty until one is sent.
    chunk: Vec<u8>,
}

impl Encrypted {
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> Self {
        Self { stream, chunk: Vec::new() }
    }
}

impl ByteStream for Encrypted {
    /// Reads the bytes from the page cache and encrypts them.
    fn poll_send_file(
        &mut self,
        part: &mut FilePart,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<u64>>> {
        // Afterwards TLS accepts a whole chunk, so that none is read twice.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if !is_cached(part) {
            return Poll::Ready(Ok(None));
        }
        let len = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        self.chunk.resize(ENCRYPTED_CHUNK_BYTES, 0);
        let len = len.min(ENCRYPTED_CHUNK_BYTES);
        let read = rustix::io::pread(&part.file, &mut self.chunk[..len], part.start)?;
        if read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let n = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.chunk[..read]))?;
        part.start += n as u64;
        match n {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            n => Poll::Ready(Ok(Some(n as u64))),
        }
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Logs a warning if the bytes that are no HTTP begin a TLS connection.
pub(crate) fn note_foreign_protocol(bytes: &[u8]) {
    static WARNED_S: AtomicU64 = AtomicU64::new(0);
    let (now, warned) = (unix_s(), WARNED_S.load(Ordering::Relaxed));
    if bytes.first() == Some(&TLS_HANDSHAKE) && now >= warned + WARN_INTERVAL_S {
        WARNED_S.store(now, Ordering::Relaxed);
        tracing::warn!(
            "a client began TLS, and this node serves plain HTTP only: set tls.cert and tls.key, or \
             use http:// in the client's endpoint"
        );
    }
}

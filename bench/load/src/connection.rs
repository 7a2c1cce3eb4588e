//! One keep-alive HTTP/1.1 connection that reads responses and discards them.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::chunks::Chunks;
use crate::tls::{Encrypted, Tls};

/// Bytes per read: few calls, and the buffer stays in the CPU's cache.
const READ: usize = 256 << 10;
/// Maximum size of a response's head.
const MAX_HEAD: usize = 16 << 10;

pub(crate) struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<Encrypted>),
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Bytes of its body.
    pub(crate) bytes: u64,
    /// The server closes the connection after it.
    pub(crate) last: bool,
    /// URL of a redirect.
    pub(crate) location: Option<String>,
}

impl Connection {
    /// Connects to HOST:PORT.
    pub(crate) async fn open(address: &str, tls: Option<&Tls>) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = match tls {
            Some(tls) => Stream::Tls(Box::new(tls.handshake(stream).await?)),
            None => Stream::Plain(stream),
        };
        Ok(Self { stream, buffer: vec![0; READ] })
    }

    /// Sends a whole request and reads its response to the end.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(request).await?,
            Stream::Tls(stream) => {
                stream.write_all(request).await?;
                stream.flush().await?;
            }
        }
        let mut filled = 0;
        let head = loop {
            if filled >= MAX_HEAD {
                return Err(invalid("the head of an answer is too long"));
            }
            filled += self.read(filled).await?;
            if let Some(at) = self.buffer[..filled].windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let (mut answer, length) = parse(&self.buffer[..head])?;
        match length {
            Some(length) => {
                answer.bytes = length;
                let mut left = length
                    .checked_sub((filled - head) as u64)
                    .ok_or_else(|| invalid("more bytes than announced"))?;
                while left > 0 {
                    left = left
                        .checked_sub(self.read(0).await? as u64)
                        .ok_or_else(|| invalid("more bytes than announced"))?;
                }
            }
            None => {
                let mut chunks = Chunks::new();
                let mut part = head..filled;
                while !chunks.take(&self.buffer[part])? {
                    part = 0..self.read(0).await?;
                }
                answer.bytes = chunks.bytes;
            }
        }
        Ok(answer)
    }

    async fn read(&mut self, from: usize) -> io::Result<usize> {
        let to = &mut self.buffer[from..];
        let read = match &mut self.stream {
            Stream::Plain(stream) => stream.read(to).await?,
            Stream::Tls(stream) => stream.read(to).await?,
        };
        if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
    }
}

/// The response and the length of its body; `None` if that is chunked.
fn parse(head: &[u8]) -> io::Result<(Answer, Option<u64>)> {
    let text = std::str::from_utf8(head).map_err(|_| invalid("a head that is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|l| l.get(9..12)?.parse().ok());
    let status = status.ok_or_else(|| invalid("no status line"))?;
    let (mut length, mut last, mut location) = (Some(0), false, None);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.parse().map_err(|_| invalid("a wrong content-length"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(invalid("an answer in an unknown encoding"));
            }
            length = None;
        } else if name.eq_ignore_ascii_case("connection") {
            last = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("location") {
            location = Some(value.to_owned());
        }
    }
    Ok((Answer { status, bytes: 0, last, location }, length))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

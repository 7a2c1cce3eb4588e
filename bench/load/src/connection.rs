//! One keep-alive HTTP/1.1 connection that reads responses and discards them.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes per read: few calls, and the buffer stays in the CPU's cache.
const READ: usize = 256 << 10;
/// Maximum size of a response's head.
const MAX_HEAD: usize = 16 << 10;

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Bytes of its body.
    pub(crate) bytes: u64,
    /// The server closes the connection after it.
    pub(crate) last: bool,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; READ] })
    }

    /// Sends a whole request and reads its response to the end.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(request).await?;
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
        let (answer, length) = parse(&self.buffer[..head])?;
        let mut left = length - (filled - head) as u64;
        while left > 0 {
            left = left
                .checked_sub(self.read(0).await? as u64)
                .ok_or_else(|| invalid("more bytes than announced"))?;
        }
        Ok(answer)
    }

    async fn read(&mut self, from: usize) -> io::Result<usize> {
        match self.stream.read(&mut self.buffer[from..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => Ok(n),
        }
    }
}

fn parse(head: &[u8]) -> io::Result<(Answer, u64)> {
    let text = std::str::from_utf8(head).map_err(|_| invalid("a head that is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|l| l.get(9..12)?.parse().ok());
    let status = status.ok_or_else(|| invalid("no status line"))?;
    let (mut length, mut last) = (0, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| invalid("a wrong content-length"))?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(invalid("an answer without content-length"));
        } else if name.eq_ignore_ascii_case("connection") {
            last = value.trim().eq_ignore_ascii_case("close");
        }
    }
    Ok((Answer { status, bytes: length, last }, length))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

//! Reads long bodies from the socket directly into the caller's memory, without HTTP or a buffer in
//! between.

use std::io;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut};

use crate::caller_driven::Bare;
use crate::timeouts::ReadTimeouts;

/// Smallest body that is read directly.
pub(crate) const SOCKET_READ_MIN_BYTES: u64 = 256 << 10;

/// Maximum bytes per read call.
const PIECE: usize = 1 << 20;

/// Reads the remaining `left` bytes of a body from its connection and appends them to `dest`, which
/// must have space for them. Bytes that arrive too slowly for `timeouts` are
/// [`io::ErrorKind::TimedOut`].
pub(crate) async fn read_into(
    mut bare: Bare,
    left: u64,
    dest: &mut (impl BufMut + Send),
    timeouts: &mut ReadTimeouts,
) -> io::Result<()> {
    let mut left = usize::try_from(left).unwrap_or(usize::MAX);
    if left > dest.remaining_mut() || bare.ahead.len() > left {
        return Err(io::Error::other("more bytes than announced"));
    }
    left -= bare.ahead.len();
    dest.put(bare.ahead.copy_to_bytes(bare.ahead.len()));
    while left > 0 {
        // Yields even if the socket always has data, so that other tasks run.
        tokio::task::consume_budget().await;
        match bare.stream.try_read_buf(&mut (&mut *dest).limit(left.min(PIECE))) {
            Ok(0) => return Err(io::Error::other("fewer bytes than announced")),
            Ok(count) => {
                left -= count;
                timeouts.came(count as u64, Duration::ZERO);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let started = Instant::now();
                tokio::time::timeout(timeouts.left(), bare.stream.readable()).await??;
                timeouts.came(0, started.elapsed());
            }
            Err(e) => return Err(e),
        }
    }
    bare.release().await;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use http::Method;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::error::{Error, Result};
    use crate::transport::{Transport, request};

    const ANNOUNCED: usize = 2 << 20;

    /// Returns what is received from a node that announces a full body, sends `sent` bytes of it,
    /// and then either closes the connection or stays silent.
    async fn received(sent: usize, closes: bool) -> (Vec<u8>, Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let node = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {ANNOUNCED}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&vec![7; sent]).await.unwrap();
            if !closes {
                std::future::pending::<()>().await;
            }
        });
        let transport = Transport::new(Duration::from_secs(1), Duration::from_millis(300));
        let request = request(Method::GET, &url, "/o").body(Bytes::new()).unwrap();
        let answer =
            transport.send_ok_caller_driven(&url, request).await.map_err(|(e, _)| e).unwrap();
        let mut dest = Vec::with_capacity(ANNOUNCED).limit(ANNOUNCED);
        let read = answer.into_body().read_into(&mut dest).await;
        node.abort();
        (dest.into_inner(), read)
    }

    #[tokio::test]
    async fn all_bytes_of_a_long_body_come_and_none_behind_them() {
        for sent in [ANNOUNCED, ANNOUNCED + 1000] {
            let (bytes, read) = received(sent, false).await;
            read.unwrap();
            assert!(bytes == vec![7; ANNOUNCED]);
        }
    }

    #[tokio::test]
    async fn a_node_that_falls_silent_or_goes_within_a_long_body_is_an_error() {
        for (sent, closes, why) in [
            (1 << 20, false, "no bytes for 0.3 s"),
            (1 << 20, true, "fewer bytes than announced"),
            (100, false, "no bytes for 0.3 s"),
            (100, true, "fewer bytes than announced"),
        ] {
            let (bytes, read) = received(sent, closes).await;
            let e = read.unwrap_err();
            assert!(matches!(e, Error::Broken { .. }) && e.to_string().contains(why), "{e}");
            assert!(bytes == vec![7; sent], "what came is there");
        }
    }
}

//! HTTP GETs of nodes on this machine, for waiting until they are ready: no retries, no pool.

use std::io;
use std::time::Duration;

use forebay_core::intra::MapReply;
use forebay_core::state::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A node that is up answers such a request at once.
const WITHIN: Duration = Duration::from_secs(2);

/// Status and body of `GET path` at `host:port`.
pub(crate) async fn get(address: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        // HTTP/1.0 has no chunked bodies and closes the connection after the answer.
        let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = tokio::time::timeout(WITHIN, exchange)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
}

/// Every node that this gateway's map has alive; none while it has no map.
pub(crate) async fn alive(address: &str) -> Vec<Node> {
    let Ok((200, body)) = get(address, "/api/v1/map").await else { return Vec::new() };
    let Ok(map) = serde_json::from_slice::<MapReply>(&body) else { return Vec::new() };
    map.state.nodes.into_values().filter(|node| node.alive).collect()
}

fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let line = std::str::from_utf8(&answer[..head]).ok()?.lines().next()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer[head + 4..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_falls_into_status_and_body() {
        let answer = b"HTTP/1.0 503 Service Unavailable\r\nretry-after: 3\r\n\r\nnot yet";
        assert_eq!(parse(answer), Some((503, b"not yet".to_vec())));
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\n\r\n"), Some((200, Vec::new())));
        assert_eq!(parse(b"SSH-2.0-x\r\n"), None);
    }
}

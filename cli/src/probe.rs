//! HTTP GETs of nodes, for waiting until they are ready: no retries, no pool.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_client::tls::TlsClient;
use forebay_core::NodeId;
use forebay_core::date::parse_http;
use forebay_core::intra::MapReply;
use forebay_core::sign::{ClusterSecret, GrantUser, Signer};
use forebay_core::state::Node;
use forebay_node::clock::unix_s;
use forebay_node::node_key;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Timeout of a request; a node that is up replies much faster.
const WITHIN: Duration = Duration::from_secs(2);

/// A node's reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The node's clock by its Date header, unix seconds.
    pub(crate) date_s: Option<u64>,
    pub(crate) body: Vec<u8>,
}

/// Sends `GET path` to the node at `url`.
pub(crate) async fn get(tls: &TlsClient, url: &str, path: &str) -> io::Result<Answer> {
    send(tls, url, &format!("GET {path}"), "", b"").await
}

/// Sends a request to the node at `url`. `line` is its method and path; each of the further `headers`
/// has its line end.
pub(crate) async fn send(
    tls: &TlsClient,
    url: &str,
    line: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<Answer> {
    send_within(WITHIN, tls, url, line, headers, body).await
}

/// Like [`send`], with another timeout: a change of the cluster waits for its nodes.
pub(crate) async fn send_within(
    within: Duration,
    tls: &TlsClient,
    url: &str,
    line: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<Answer> {
    let exchange = async {
        let (mut stream, address) = tls.connect(url, WITHIN).await?;
        let length = match body.len() {
            0 => String::new(),
            length => format!("content-length: {length}\r\n"),
        };
        // HTTP/1.0 has no chunked bodies and closes the connection after the answer.
        let head = format!("{line} HTTP/1.0\r\nhost: {address}\r\n{length}{headers}\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer).await {
            // Servers may end a connection over TLS without a notice; the length shows what is missing.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && is_complete(&answer) => {}
            read => drop(read?),
        }
        Ok::<_, io::Error>(answer)
    };
    let answer = tokio::time::timeout(within, exchange)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
}

/// The node that a command runs, in whose name the command asks.
#[derive(Clone, Copy)]
pub(crate) struct OwnNode<'a> {
    pub(crate) id: &'a str,
    /// Folder of the node's own state, with its key.
    pub(crate) dir: &'a Path,
    /// File with the cluster's secret, which counts as long as the nodes have no keys.
    pub(crate) secret: &'a Path,
}

/// Every node that this gateway's map has alive; empty while it has no map. The key of a node proves
/// that the command runs the cluster. Without one, a cluster with users refuses the request, and the
/// result is empty.
pub(crate) async fn alive(tls: &TlsClient, url: &str, node: Option<OwnNode<'_>>) -> Vec<Node> {
    let proofs = node.map_or_else(|| vec![String::new()], proofs);
    let asked = send_proven(tls, url, "GET /api/v1/map", &proofs, b"").await;
    let Ok(Answer { status: 200, body, .. }) = asked else { return Vec::new() };
    let Ok(map) = serde_json::from_slice::<MapReply>(&body) else { return Vec::new() };
    map.state.nodes.into_values().filter(|node| node.alive).collect()
}

/// [`send`] with the first of these headers that the node accepts.
pub(crate) async fn send_proven(
    tls: &TlsClient,
    url: &str,
    line: &str,
    proofs: &[String],
    body: &[u8],
) -> io::Result<Answer> {
    let mut answer = Err(io::Error::other("the command has no proof that it runs the cluster"));
    for proof in proofs {
        answer = send(tls, url, line, proof, body).await;
        if !answer.as_ref().is_ok_and(|answer| matches!(answer.status, 401 | 403)) {
            break;
        }
    }
    answer
}

/// The headers by which the command proves that it runs the cluster of this node, each with its line
/// end: by the cluster's secret, which counts while the nodes have no keys, and by the node's key.
pub(crate) fn proofs(node: OwnNode<'_>) -> Vec<String> {
    let signer = || {
        let secret = ClusterSecret::new(&std::fs::read_to_string(node.secret).ok()?).ok()?;
        Some(Signer::new(secret, NodeId::new(node.id).ok()?, 1))
    };
    let key = node_key::load(node.dir).ok().flatten();
    let by_key = key.and_then(|key| Some(signer()?.with_key(key).as_member()));
    let header = |signer: Signer| {
        let token = signer.user_grant(&GrantUser::node(), unix_s());
        format!("authorization: Bearer {token}\r\n")
    };
    [signer(), by_key].into_iter().flatten().map(header).collect()
}

/// Whether an answer has as many bytes as its Content-Length.
fn is_complete(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.is_some_and(|(_, length)| length.trim().parse() == Ok(answer.len() - end - 4))
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.lines().next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut dates = headers.filter(|(name, _)| name.eq_ignore_ascii_case("date"));
    let date_s = dates.next().and_then(|(_, date)| parse_http(date));
    Some(Answer { status, date_s, body: answer[end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_by_its_length() {
        let answer = b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert!(is_complete(answer));
        assert!(!is_complete(&answer[..answer.len() - 1]));
        assert!(!is_complete(b"HTTP/1.0 200 OK\r\n\r\nabc") && !is_complete(b"HTTP/1.0 200"));
    }

    #[test]
    fn an_answer_falls_into_status_and_body() {
        let answer = b"HTTP/1.0 503 Service Unavailable\r\nretry-after: 3\r\n\r\nnot yet";
        let expected = Answer { status: 503, date_s: None, body: b"not yet".to_vec() };
        assert_eq!(parse(answer), Some(expected));
        let dated = b"HTTP/1.0 200 OK\r\nDate: Thu, 01 Jan 1970 00:01:40 GMT\r\n\r\n";
        let expected = Answer { status: 200, date_s: Some(100), body: Vec::new() };
        assert_eq!(parse(dated), Some(expected));
        assert_eq!(parse(b"SSH-2.0-x\r\n"), None);
    }
}

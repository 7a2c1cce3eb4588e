//! An error as the only answer of a connection that no HTTP server reads.

use axum::http::StatusCode;
use forebay_core::Error;
use forebay_core::request::{REQUEST_ID_HEADER, RequestId};
use forebay_v1::error::ErrorBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::exchange::Observer;
use crate::reply;

/// Sends the error in the format of v1 and closes the connection. `node`: the label of this node.
/// `within`: how long the client may take to read the answer.
pub(crate) async fn send_error(
    stream: TcpStream,
    error: &Error,
    node: &str,
    observer: &Observer,
    within: Duration,
) {
    let id = RequestId(rand::random());
    observer.refused_connection(id, error);
    let _ = timeout(within, write(stream, error, node, id)).await;
}

async fn write(
    mut stream: TcpStream,
    error: &Error,
    node: &str,
    id: RequestId,
) -> std::io::Result<()> {
    let body = ErrorBody::new(error, "", "", node).of_request(id).to_json();
    let status = StatusCode::from_u16(error.code.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry_after = reply::retry_after(status, error.retry_after_s);
    let retry_after = retry_after.map(|seconds| format!("retry-after: {seconds}\r\n"));
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{REQUEST_ID_HEADER}: {id}\r\n{}\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        retry_after.unwrap_or_default(),
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
    stream.shutdown().await?;
    // If a connection is closed with unread bytes, it is reset and the answer is lost.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

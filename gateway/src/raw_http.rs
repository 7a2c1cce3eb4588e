//! One plain GET of another node, returned unparsed: for answers that are relayed or scraped.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, header};
use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_core::{Error, Result};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;

/// Maximum bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;

/// GETs `path` of the node at `url`; any status is returned.
pub(crate) async fn get(
    peer: &PeerClient,
    url: &str,
    path: &str,
    headers: &HeaderMap,
    within: Duration,
) -> Result<Response<Bytes>> {
    let away = |why: String| Error::unavailable(format!("no answer from {url}: {why}"));
    match tokio::time::timeout(within, exchange(peer, url, path, headers)).await {
        Ok(answer) => answer.map_err(|e| away(e.to_string())),
        Err(_) => Err(away("time-out".into())),
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    peer: &PeerClient,
    url: &str,
    path: &str,
    headers: &HeaderMap,
) -> Result<Response<Bytes>, BoxError> {
    let (stream, host) = peer.connect(url).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(stream)).await?;
    let mut request = Request::get(path).body(Body::empty())?;
    request.headers_mut().extend(headers.clone());
    request.headers_mut().insert(header::HOST, host.parse()?);
    let answer = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
        Ok(Response::from_parts(parts, body))
    };
    // The connection makes progress only while it is polled.
    tokio::pin!(connection);
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut connection => match ended {
            // All bytes were read; the rest is in the answer's channel.
            Ok(()) => answer.await,
            Err(e) => Err(e.into()),
        },
    }
}

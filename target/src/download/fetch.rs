//! Fetches one object of a download from the web, and writes it as it arrives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_clouds::egress::{Guarded, failed, innermost};
use forebay_core::bucket::BucketInfo;
use forebay_core::download::DownloadSpec;
use forebay_core::{Error, ErrorCode, Result, shown_url};
use forebay_node::pace::Pace;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{ACCEPT_ENCODING, ETAG, IF_NONE_MATCH};
use reqwest::{Method, Response, StatusCode};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};

use super::progress::{Current, Outcome};
use crate::object::{ObjectService, PutRequest};

/// Attempts for one object while its server fails.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// Custom metadata of a downloaded object: that it came from the web, the link without what may be a
/// secret, a digest of the query if it has one, and the version.
const SOURCE: (&str, &str) = ("source", "web");
const ORIGIN: &str = "orig_url";
const ORIGIN_QUERY: &str = "orig_url_query_sha256";
const KNOWN_AS: &str = "ETag";

/// The parameters of a job that all its objects share.
pub(super) struct Fetcher {
    pub(super) objects: ObjectService,
    pub(super) client: Guarded,
    pub(super) info: Arc<BucketInfo>,
    pub(super) spec: Arc<DownloadSpec>,
    pub(super) pace: Arc<Pace>,
}

impl Fetcher {
    /// Fetches one object. Returns it with the number of bytes received.
    pub(super) async fn fetch(
        &self,
        name: &str,
        link: &str,
        current: &Arc<Current>,
    ) -> (Outcome, u64) {
        let mut tries = 1;
        loop {
            let limit = Duration::from_millis(self.spec.timeout_ms);
            let tried = match timeout(limit, self.once(name, link, current)).await {
                Ok(tried) => tried,
                Err(_) => Err(Error::new(
                    ErrorCode::Timeout,
                    format!("{} took longer than {limit:?}", shown_url(link)),
                )),
            };
            match tried {
                Ok(Some(bytes)) => return (Outcome::Fetched, bytes),
                Ok(None) => return (Outcome::Skipped, 0),
                Err(e) if e.code.is_transient() && tries < TRIES => {
                    tracing::debug!(link = shown_url(link), error = %e, tries, "download tried again");
                    sleep(PAUSE * 2u32.pow(tries)).await;
                    tries += 1;
                }
                Err(e) => return (Outcome::Failed(e), 0),
            }
        }
    }

    /// One attempt. `None`: the object is present already.
    async fn once(&self, name: &str, link: &str, current: &Arc<Current>) -> Result<Option<u64>> {
        if link.is_empty() {
            return self.objects.cold_cache().prefetch(&self.info, name).await;
        }
        let url = self.client.url(link)?;
        let mut request = self.client.request(Method::GET, url);
        for (header, value) in &self.spec.headers {
            request = request.header(header, value);
        }
        // The server's original content, without compression for transfer.
        request = request.header(ACCEPT_ENCODING, "identity");
        if let Some(etag) = self.known(name, link).await {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let answer = request.send().await.map_err(|e| failed(&shown_url(link), &e))?;
        match answer.status() {
            StatusCode::NOT_MODIFIED => return Ok(None),
            status if status.is_success() => {}
            StatusCode::NOT_FOUND => {
                return Err(Error::new(
                    ErrorCode::ObjectNotFound,
                    format!("{} does not exist", shown_url(link)),
                ));
            }
            status => {
                let text = format!("{} answered {status}", shown_url(link));
                let later = status.is_server_error()
                    || matches!(
                        status,
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                    );
                let code = if later { ErrorCode::Unavailable } else { ErrorCode::Unprocessable };
                return Err(Error::new(code, text));
            }
        }
        let len = answer.content_length();
        current.begin(len);
        let custom = custom(link, &answer);
        let put = put_request(self.body(link, answer, current.clone()), len, custom);
        let meta = self.objects.writes().put(&self.info, name, put).await?;
        Ok(Some(meta.map_or(0, |meta| meta.size)))
    }

    fn body(
        &self,
        link: &str,
        answer: Response,
        current: Arc<Current>,
    ) -> BoxStream<'static, Result<Bytes>> {
        let (link, pace) = (shown_url(link), self.pace.clone());
        answer
            .bytes_stream()
            .map_err(move |e| Error::unavailable(format!("{link} broke off: {}", innermost(&e))))
            .and_then(move |chunk| {
                let (pace, current) = (pace.clone(), current.clone());
                async move {
                    pace.pass(chunk.len()).await;
                    current.add(chunk.len() as u64);
                    Ok(chunk)
                }
            })
            .boxed()
    }

    /// The server's identifier of the present version, if it came from the same link.
    async fn known(&self, name: &str, link: &str) -> Option<String> {
        let meta = self.objects.reads().head_local(&self.info, name).await.ok()?;
        let same = meta.custom.get(ORIGIN).is_some_and(|origin| *origin == kept(link))
            && meta.custom.get(ORIGIN_QUERY) == query_digest(link).as_ref();
        same.then(|| meta.custom.get(KNOWN_AS).cloned()).flatten()
    }
}

fn put_request(
    body: BoxStream<'static, Result<Bytes>>,
    len: Option<u64>,
    custom: BTreeMap<String, String>,
) -> PutRequest {
    PutRequest { len, custom: Some(custom), ..PutRequest::new(body) }
}

/// A link as stored in metadata, which every reader of the object gets. Clients split the lines of several
/// keys at commas.
fn kept(link: &str) -> String {
    shown_url(link).replace(',', "%2C")
}

/// Tells links apart whose queries have other values.
fn query_digest(link: &str) -> Option<String> {
    let (_, query) = link.split_once('?')?;
    Some(hex::encode(Sha256::digest(query)))
}

fn custom(link: &str, answer: &Response) -> BTreeMap<String, String> {
    let etag =
        answer.headers().get(ETAG).and_then(|v| v.to_str().ok()).filter(|v| !v.contains(','));
    let mut custom = BTreeMap::from([
        (SOURCE.0.to_owned(), SOURCE.1.to_owned()),
        (ORIGIN.to_owned(), kept(link)),
    ]);
    if let Some(digest) = query_digest(link) {
        custom.insert(ORIGIN_QUERY.to_owned(), digest);
    }
    if let Some(etag) = etag {
        custom.insert(KNOWN_AS.to_owned(), etag.to_owned());
    }
    custom
}

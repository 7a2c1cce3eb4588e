//! Transforms by an HTTP service: the object is sent to it by PUT (push), or the service gets a GET
//! and reads the object from the cluster itself (pull). Its response is the transformed object.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_clouds::egress::{Guarded, failed, innermost};
use forebay_core::locks::MutexExt;
use forebay_core::url::encode_path;
use forebay_core::{Bucket, Error, ErrorCode, Result};
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};

use super::piece::{Transformed, late};

/// Bytes of a service's error response that are passed on.
const REFUSAL: usize = 4 << 10;

/// A service, and the method by which it gets one object.
pub(super) struct Service<'a> {
    pub(super) client: &'a Guarded,
    pub(super) url: Url,
    /// Its name in messages.
    pub(super) who: String,
    pub(super) args: &'a str,
    /// Until the head of the response.
    pub(super) timeout: Duration,
}

impl Service<'_> {
    /// Sends the object to the service.
    pub(super) async fn push(
        &self,
        bucket: &Bucket,
        name: &str,
        input: Transformed,
    ) -> Result<Transformed> {
        let url = self.address(&[&bucket.name, name]);
        // The client's error would contain only that the body ended.
        let broken = Arc::new(Mutex::new(None::<Error>));
        let noted = broken.clone();
        let body = input.body.map_err(move |e| {
            let text = e.to_string();
            *noted.locked() = Some(e);
            std::io::Error::other(text)
        });
        let mut request = self.client.request(Method::PUT, url);
        request = match input.len {
            // An explicit length costs nothing.
            Some(0) => request.header(CONTENT_LENGTH, HeaderValue::from(0)),
            Some(len) => {
                let body = reqwest::Body::wrap_stream(body);
                request.header(CONTENT_LENGTH, HeaderValue::from(len)).body(body)
            }
            None => request.body(reqwest::Body::wrap_stream(body)),
        };
        let content_type = input.content_type.as_deref().unwrap_or("application/octet-stream");
        let answer = self.ask(request.header(CONTENT_TYPE, content_type)).await;
        answer.map_err(|e| broken.locked().take().unwrap_or(e))
    }

    /// Makes the service read the object itself.
    pub(super) async fn pull(&self, bucket: &Bucket, name: &str) -> Result<Transformed> {
        let uname = format!("{}{name}", bucket.uname());
        let url = self.address(&[&uname.replace('/', "\0")]);
        self.ask(self.client.request(Method::GET, url)).await
    }

    /// The service's URL with a path behind it, each part encoded separately. A NUL, which is in no
    /// name, stands for a slash that does not separate parts.
    fn address(&self, parts: &[&str]) -> Url {
        let mut url = self.url.clone();
        let parts: Vec<String> =
            parts.iter().map(|part| encode_path(part).replace("%00", "%2F")).collect();
        let path = format!("{}/{}", url.path().trim_end_matches('/'), parts.join("/"));
        url.set_path(&path);
        if !self.args.is_empty() {
            url.query_pairs_mut().append_pair("etl_args", self.args);
        }
        url
    }

    async fn ask(&self, request: RequestBuilder) -> Result<Transformed> {
        let answer = match tokio::time::timeout(self.timeout, request.send()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(e)) => return Err(failed(&self.who, &e)),
            Err(_) => return Err(late(&self.who, self.timeout)),
        };
        match answer.status() {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(self.take(answer)),
            status => Err(self.refused(status, answer).await),
        }
    }

    fn take(&self, answer: Response) -> Transformed {
        let content_type = answer.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let who = self.who.clone();
        Transformed {
            len: answer.content_length(),
            content_type: content_type.map(str::to_owned),
            body: answer
                .bytes_stream()
                .map_err(move |e| {
                    let text = format!("{who} ended its answer early: {}", innermost(&e));
                    Error::new(ErrorCode::Unprocessable, text)
                })
                .boxed(),
        }
    }

    /// A service that is unavailable may succeed later; any other response concerns the object.
    async fn refused(&self, status: StatusCode, answer: Response) -> Error {
        let mut text = Vec::new();
        let mut body = answer.bytes_stream();
        let read = async {
            while let Some(Ok(chunk)) = body.next().await {
                let room = REFUSAL - text.len();
                text.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if text.len() >= REFUSAL {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(self.timeout, read).await;
        let text = String::from_utf8_lossy(&text);
        let message = format!("ETL error: {} answered {status}: {}", self.who, text.trim());
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                Error::unavailable(message)
            }
            _ => Error::new(ErrorCode::Unprocessable, message),
        }
    }

    /// Whether it responds at all, with any status.
    pub(super) async fn check(&self) -> Result<()> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/health", url.path().trim_end_matches('/')));
        let asked = self.client.request(Method::GET, url).send();
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(failed(&self.who, &e)),
            Err(_) => Err(Error::unavailable(format!("{} does not answer", self.who))),
        }
    }
}

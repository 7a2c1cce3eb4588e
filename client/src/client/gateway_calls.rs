//! Requests to any gateway.

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use serde::de::DeserializeOwned;

use forebay_core::{Error as CoreError, ErrorCode};

use forebay_v1::headers::NODE_ID;

use super::Client;
use crate::body::Upload;
use crate::error::{Error, Result};
use crate::transport::{self, Download};

/// A request to any gateway.
pub(crate) struct ControlCall<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    /// JSON.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) accept: Option<&'static str>,
    /// The node that the request is about, which the gateway asks for the answer.
    pub(crate) node: Option<&'a str>,
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether an earlier try may have succeeded already.
    pub(crate) ambiguous: bool,
}

impl Client {
    /// Sends a request to the gateways until one succeeds or fails permanently.
    pub(crate) async fn ask_gateway(&self, call: ControlCall<'_>) -> Result<Answer> {
        let mut tries = self.attempts();
        loop {
            match self.ask_gateway_once(&call).await {
                Ok(mut answer) => {
                    answer.ambiguous = tries.ambiguous;
                    return Ok(answer);
                }
                Err(Error::Api(e)) if tries.ambiguous && was_done(&call, e.code) => {
                    let headers = HeaderMap::new();
                    return Ok(Answer { headers, body: Bytes::new(), ambiguous: true });
                }
                Err(e) => tries.again(e).await?,
            }
        }
    }

    pub(super) async fn ask_gateway_once(&self, call: &ControlCall<'_>) -> Result<Answer> {
        let (parts, body) = self.open_gateway(call).await?.into_parts();
        Ok(Answer { headers: parts.headers, body: body.collect().await?, ambiguous: false })
    }

    /// Sends a request to a gateway once and returns before the body of the answer is read.
    pub(crate) async fn open_gateway(&self, call: &ControlCall<'_>) -> Result<Response<Download>> {
        let base = self.maps().gateway();
        let mut builder = transport::request(call.method.clone(), &base, call.path);
        if let Some(accept) = call.accept {
            builder = builder.header(http::header::ACCEPT, accept);
        }
        if let Some(node) = call.node {
            builder = builder.header(NODE_ID, node);
        }
        let request = match &call.body {
            Some(body) => transport::json(builder, body.clone())?,
            None => transport::finish(builder, Upload::empty())?,
        };
        let answer = match self.transport().send_ok(&base, request, None).await {
            Ok(answer) => answer,
            Err((e, _)) => {
                if e.is_transient() {
                    self.maps().next_gateway();
                }
                return Err(e);
            }
        };
        if let Some(version) = transport::map_version(answer.headers()) {
            self.maps().saw(version);
        }
        Ok(answer)
    }

    /// Asks a gateway for a JSON document.
    pub(crate) async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let call = ControlCall { method: Method::GET, path, body: None, accept: None, node: None };
        let answer = self.ask_gateway(call).await?;
        parse(&answer.body)
    }
}

/// Whether this refusal, after a try whose answer was lost, means that the earlier try succeeded.
fn was_done(call: &ControlCall<'_>, code: ErrorCode) -> bool {
    match call.method {
        Method::POST => code == ErrorCode::BucketExists,
        Method::DELETE => code == ErrorCode::BucketNotFound,
        _ => false,
    }
}

/// Reads the JSON of an answer.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|e| {
        let text: String = String::from_utf8_lossy(body).chars().take(80).collect();
        Error::Api(CoreError::internal(format!("unexpected answer \"{text}\": {e}")))
    })
}

//! Multipart uploads: several parts are in flight at once, and the object becomes visible when all
//! are stored.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use forebay_core::upload::MAX_PART;
use forebay_core::{Bucket, Error as CoreError, ErrorCode};
use forebay_v1::uploads::{ABORT, BEGIN, COMPLETE, PART_NUMBER, UPLOAD_ID};

use crate::body::Body;
use crate::client::{Client, ObjectCall, Route};
use crate::error::{Error, Result};
use crate::span_parent;

/// An upload in progress. It ends with [`Self::finish`] or [`Self::abort`]; if it is dropped, it
/// makes no object, and the target removes it after some time.
#[derive(Debug)]
pub struct Upload {
    object: Target,
    id: String,
    sent: u32,
    parallel: usize,
    under_way: JoinSet<Result<()>>,
}

#[derive(Clone, Debug)]
struct Target {
    client: Client,
    bucket: Bucket,
    name: String,
}

impl Client {
    /// Starts a multipart upload with `parallel` parts in flight.
    pub async fn upload(&self, bucket: &Bucket, name: &str, parallel: usize) -> Result<Upload> {
        let object = Target { client: self.clone(), bucket: bucket.clone(), name: name.to_owned() };
        let id = object.act(Method::POST, BEGIN, None, Value::Null).await?;
        let id = String::from_utf8_lossy(&id).trim().to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
        if id.is_empty() || !id.chars().all(plain) {
            let what = format!("\"{id}\" is no id of an upload");
            return Err(Error::Api(CoreError::internal(what)));
        }
        let parallel = parallel.max(1);
        Ok(Upload { object, id, sent: 0, parallel, under_way: JoinSet::new() })
    }
}

impl Upload {
    /// Sends the next part, which must not be empty; waits while `parallel` parts are in flight.
    ///
    /// A failure may be that of an earlier part. It is final: abort the upload then.
    pub async fn push(&mut self, part: Bytes) -> Result<()> {
        while self.under_way.len() >= self.parallel {
            self.next_done().await?;
        }
        if self.sent == MAX_PART {
            let what = format!("an object has at most {MAX_PART} parts");
            return Err(Error::Api(CoreError::invalid(what).hint("make them larger")));
        }
        self.sent += 1;
        let (object, id, number) = (self.object.clone(), self.id.clone(), self.sent);
        let sending = async move { object.put_part(&id, number, part).await };
        self.under_way.spawn(span_parent::carried(sending));
        Ok(())
    }

    /// Makes the object from all parts, in the order in which they were pushed.
    pub async fn finish(mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            if let Err(e) = self.next_done().await {
                self.abort().await;
                return Err(e);
            }
        }
        let parts: Vec<Value> =
            (1..=self.sent).map(|number| json!({ "part-number": number, "etag": "" })).collect();
        let done = self.object.act(Method::POST, COMPLETE, Some(&self.id), parts.into()).await;
        match done {
            Ok(_) => Ok(()),
            Err(e) => {
                self.abort().await;
                Err(e)
            }
        }
    }

    /// Aborts the upload, best effort: the target removes any remains later.
    pub async fn abort(mut self) {
        self.under_way.shutdown().await;
        let ended = self.object.act(Method::DELETE, ABORT, Some(&self.id), Value::Null).await;
        if let Err(error) = ended {
            tracing::debug!(%error, "an upload could not be given up");
        }
    }

    async fn next_done(&mut self) -> Result<()> {
        match self.under_way.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(e))) => Err(e),
            Some(Err(e)) => Err(Error::Api(CoreError::internal(format!("sending a part: {e}")))),
        }
    }
}

impl Target {
    async fn put_part(&self, id: &str, number: u32, part: Bytes) -> Result<()> {
        let body = Body::Bytes(part);
        let call = ObjectCall {
            method: Method::PUT,
            bucket: &self.bucket,
            name: &self.name,
            route: Route::Object,
            caller_driven: false,
            query: &format!("&{UPLOAD_ID}={id}&{PART_NUMBER}={number}"),
            headers: HeaderMap::new(),
            body: Some(&body),
        };
        let (answer, _) = self.client.ask_owner(&call, &mut self.client.attempts()).await?;
        answer.into_body().collect().await.map(drop)
    }

    /// Sends an action; returns the body of its answer.
    async fn act(
        &self,
        method: Method,
        action: &str,
        id: Option<&str>,
        value: Value,
    ) -> Result<Bytes> {
        let message = json!({ "action": action, "name": "", "value": value });
        let body = Body::Bytes(message.to_string().into());
        let query = id.map(|id| format!("&{UPLOAD_ID}={id}")).unwrap_or_default();
        let json = HeaderValue::from_static("application/json");
        let call = ObjectCall {
            method,
            bucket: &self.bucket,
            name: &self.name,
            route: Route::Object,
            caller_driven: false,
            query: &query,
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, json)]),
            body: Some(&body),
        };
        let mut tries = self.client.attempts();
        match self.client.ask_owner(&call, &mut tries).await {
            Ok((answer, _)) => answer.into_body().collect().await,
            // An earlier try, whose answer was lost, ended the upload; no other client knows its
            // id.
            Err(Error::Api(e))
                if id.is_some() && tries.ambiguous && e.code == ErrorCode::UploadNotFound =>
            {
                Ok(Bytes::new())
            }
            Err(e) => Err(e),
        }
    }
}

//! A request for one object over v1, decoded.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use forebay_core::access::Access;
use forebay_core::bucket::BucketInfo;
use forebay_core::request::{Caller, Principal};
use forebay_core::{Error, ObjectName, Result};
use forebay_node::auth;
use forebay_routes::Rule;
use forebay_v1::action::ActionMsg;
use forebay_v1::query::Query;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

/// Largest control message.
const MAX_ACTION: usize = 1 << 20;

/// A request for one object, decoded.
pub(super) struct ObjectRequest {
    pub(super) info: Arc<BucketInfo>,
    pub(super) name: ObjectName,
    pub(super) query: Query,
    pub(super) sender: Principal,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
}

impl ObjectRequest {
    pub(super) fn caller(&self) -> Caller {
        self.sender.caller
    }

    /// Reads the action in the body, if its sender may send it.
    pub(super) async fn read_action(&self, rule: &'static Rule, body: Body) -> Result<ActionMsg> {
        let action = read_action(body, self.caller(), &self.query).await?;
        if self.sender.access != Access::Open {
            let (bucket, name) = (&self.info.bucket, self.name.as_str());
            rule.require_action(&self.sender.access, bucket, name, &action)?;
        }
        Ok(action)
    }

    /// Rejects names that v1 clients could not request again.
    pub(super) fn check_new_name(&self) -> Result<()> {
        if self.info.has_backend() { Ok(()) } else { self.name.check_v1_native() }
    }
}

/// The body of a request, and its length if that is known.
pub(super) fn body_of(body: Body) -> (BoxStream<'static, Result<Bytes>>, Option<u64>) {
    let len = http_body::Body::size_hint(&body).exact();
    let stream = body
        .into_data_stream()
        .map_err(|e| Error::invalid(format!("the client stopped sending: {e}")))
        .boxed();
    (stream, len)
}

/// Reads the action in a request's body; an empty body is an empty action.
pub(super) async fn read_action(body: Body, caller: Caller, query: &Query) -> Result<ActionMsg> {
    let bytes = axum::body::to_bytes(body, MAX_ACTION)
        .await
        .map_err(|e| Error::invalid(format!("the request's body cannot be read: {e}")))?;
    auth::check_body(caller, query, &bytes)?;
    if bytes.is_empty() {
        return Ok(ActionMsg::default());
    }
    forebay_node::off_worker(bytes.len(), || ActionMsg::parse(&bytes))
}

pub(super) fn unknown_action(action: &str) -> Error {
    Error::invalid(format!("unknown action \"{action}\" on an object"))
}

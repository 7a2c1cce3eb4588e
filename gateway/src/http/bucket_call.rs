//! A request about buckets, decoded, with the rights of its sender.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, header};
use forebay_core::access::{Access, Scope};
use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::bucket_access::ACCESS;
use forebay_core::{Bucket, Error, ErrorCode, Provider, Result};
use forebay_routes::{Grant, On, Rule, v1_buckets as rules};
use forebay_v1::action::ActionMsg;
use forebay_v1::query::{Query, split_path};

use super::{MAX_CONTROL, access_of, read_body};

/// The rules of the methods whose actions are in the body.
const RULES: [&Rule; 5] = [&rules::GET, &rules::POST, &rules::PUT, &rules::DELETE, &rules::PATCH];

/// A request about buckets, decoded.
pub(super) struct Call {
    pub(super) parts: Parts,
    pub(super) query: Query,
    /// Empty in requests about all buckets.
    pub(super) bucket: String,
    /// The part of the path after the bucket.
    pub(super) rest: String,
    pub(super) action: ActionMsg,
    /// The rights of the sender.
    pub(super) access: Access,
}

impl Call {
    /// The row of the call's action with its sender; every bucket and object that the call names is
    /// checked by it.
    pub(super) fn grant(&self) -> Result<Grant<'_>> {
        let (action, method) = (&self.action.action, self.parts.method.as_str());
        let rule = RULES.into_iter().find(|rule| rule.verb.name() == method);
        let row = rule.and_then(|rule| rule.action(action));
        let row = row.ok_or_else(|| Error::invalid(format!("unknown action \"{action}\"")))?;
        Ok(row.of(&self.access))
    }

    /// Whether the cluster has no users.
    pub(super) fn is_open(&self) -> bool {
        self.access == Access::Open
    }

    /// The bucket of the request; an error if the request names none.
    pub(super) fn bucket(&self) -> Result<Bucket> {
        if !self.rest.is_empty() {
            let name = format!("{}/{}", self.bucket, self.rest);
            return Err(Error::new(
                ErrorCode::InvalidName,
                format!("invalid bucket name \"{name}\": it has a slash"),
            ));
        }
        self.query.bucket(&self.bucket)
    }
}

pub(super) async fn decode(parts: Parts, body: Body) -> Result<Call> {
    let (bucket, rest) = split_path(parts.uri.path(), "buckets")?;
    let body = read_body(body, MAX_CONTROL).await?;
    let is_json = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|t| t.to_str().is_ok_and(|t| t.contains("json")));
    let action = if parts.method == Method::HEAD {
        ActionMsg::default()
    } else if parts.method == Method::GET && body.is_empty() && !is_json {
        ActionMsg { action: "list".into(), ..ActionMsg::default() }
    } else {
        forebay_node::off_worker(body.len(), || ActionMsg::parse(&body))?
    };
    let query = Query::parse(parts.uri.query());
    let access = access_of(&parts.extensions);
    Ok(Call { parts, query, bucket, rest, action, access })
}

/// Returns an error unless the sender may let `bucket` stand for this backend: reads and writes of
/// the bucket are made there with the credentials of the cluster.
pub(super) fn check_backend_access(
    grant: &Grant<'_>,
    bucket: &Bucket,
    spec: &BackendSpec,
) -> Result<()> {
    let provider = match spec.kind {
        BackendKind::S3 => Provider::Aws,
        BackendKind::Gcs => Provider::Gcp,
        BackendKind::Azure => Provider::Azure,
        // Not a bucket of a cloud: rights on some buckets are not enough.
        BackendKind::Ais | BackendKind::Http | BackendKind::Folder => {
            return grant.require(On::Backend, Scope::Cluster);
        }
    };
    // An account is the operator's: rights on a bucket of its name in another account are not enough.
    if spec.endpoint.is_some() || spec.account.is_some() {
        return grant.require(On::Backend, Scope::Cluster);
    }
    let name: &str = if spec.bucket.is_empty() { &bucket.name } else { &spec.bucket };
    grant.require(On::Backend, Scope::Bucket(&Bucket::new(provider, name)?))
}

/// Returns an error unless the sender may change the access mask, if it changes.
pub(super) fn check_mask_access(
    grant: &Grant<'_>,
    before: &BucketInfo,
    after: &BucketInfo,
) -> Result<()> {
    if before.extra.get(ACCESS) == after.extra.get(ACCESS) {
        return Ok(());
    }
    grant.require(On::AccessMask, Scope::Bucket(&after.bucket))
}

//! Buckets: create, inspect, list, delete.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use forebay_core::bucket_access::BucketChange;
use forebay_core::state::Command;
use forebay_core::{Bucket, ErrorCode, Provider};
use forebay_node::clock::unix_ns;
use forebay_node::s3;
use forebay_s3::answers::{self, BucketList, Owner};
use forebay_s3::operation::ListBuckets;
use forebay_s3::{S3Code, S3Error, S3Result, bodies, names, token};

use super::{Call, S3, no_content};
use crate::http::buckets;
use crate::listing::{self, Want};

/// The region of all buckets.
const REGION: &str = "us-east-1";

impl S3 {
    /// Lists the buckets of the sender, and those that belong to all key holders.
    pub(super) fn list_buckets(&self, call: &Call, asked: &ListBuckets) -> S3Result<Response> {
        let after = asked.continuation_token.as_deref().map(token::decode).transpose()?;
        let user = s3::name_of(&call.who);
        let state = self.route.state();
        let mut all: Vec<(String, u64)> = state
            .buckets
            .values()
            .filter(|info| info.bucket.namespace.is_global())
            .filter(|info| self.door.sees(&call.who, info))
            .map(|info| (info.bucket.name.to_string(), info.created_ns))
            .filter(|(name, _)| name.starts_with(&asked.prefix))
            .filter(|(name, _)| after.as_ref().is_none_or(|after| name > after))
            .collect();
        all.sort_unstable();
        let limit = asked.max_buckets.map_or(usize::MAX, |n| n as usize);
        let more = all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| more).map(|(name, _)| token::encode(name));
        let list = BucketList {
            owner: Owner::user(user),
            buckets: all,
            prefix: asked.prefix.clone(),
            continuation_token: next,
        };
        Ok(s3::xml(StatusCode::OK, list.to_xml()?))
    }

    pub(super) async fn create_bucket(&self, call: &Call, body: Body) -> S3Result<Response> {
        let name = call.request.bucket.clone();
        names::check_new_bucket(&name)?;
        self.door.authorize_creation(&call.who, &Bucket::new(Provider::Ais, &name)?)?;
        refuse_object_lock(&call.parts.headers)?;
        let body = s3::read_body(body, s3::MAX_BODY).await?;
        let region = bodies::create_bucket(&body)?;
        let made = || {
            let mut response = s3::empty(StatusCode::OK);
            s3::set(response.headers_mut(), "location", &format!("/{name}"));
            response
        };
        let owner = self.door.new_owner(&call.who);
        let acl = self.door.acl_of_headers(&call.parts.headers)?.unwrap_or_default();
        if let Ok(found) = self.found(&name) {
            return match &found.info.s3.owner {
                Some(other) if owner.as_ref().is_some_and(|me| me != other) => {
                    Err(S3Code::BucketAlreadyExists.into())
                }
                // In the first region of AWS, and only there, creating one's own bucket again
                // succeeds.
                _ if region.is_none_or(|region| region == REGION) => Ok(made()),
                _ => Err(S3Code::BucketAlreadyOwnedByYou.into()),
            };
        }
        let mut info = self.route.state().requested(Bucket::new(Provider::Ais, &name)?, None);
        info.s3.acl = acl.without(owner.as_deref().unwrap_or_default());
        info.s3.owner = owner;
        let create = Command::CreateBucket { info: Box::new(info), now_ns: unix_ns() };
        match self.changes.commit(create).await {
            // Another request created it first.
            Err(e) if e.code != ErrorCode::BucketExists => Err(e.into()),
            _ => Ok(made()),
        }
    }

    pub(super) fn head_bucket(&self, call: &Call) -> S3Result<Response> {
        self.found(&call.request.bucket)?;
        let mut response = s3::empty(StatusCode::OK);
        s3::set(response.headers_mut(), "x-amz-bucket-region", REGION);
        Ok(response)
    }

    pub(super) fn location(&self, call: &Call) -> S3Result<Response> {
        self.found(&call.request.bucket)?;
        Ok(s3::xml(StatusCode::OK, answers::location(REGION)))
    }

    /// Deletes an empty bucket; the bucket of a cloud is not deleted here.
    pub(super) async fn delete_bucket(&self, call: &Call) -> S3Result<Response> {
        let found = self.found(&call.request.bucket)?;
        if found.info.bucket.is_remote() {
            return Err(S3Error::new(
                S3Code::AccessDenied,
                "The bucket lives in a cloud: evict it here, or delete it there",
            ));
        }
        found.info.check_access(BucketChange::Destroy)?;
        let own = found.info.backend.is_none();
        if own && !self.door.config().delete_nonempty_buckets {
            let want = Want { limit: 1, ..Want::default() };
            if !listing::page(&self.targets, &found, &want).await?.rows.is_empty() {
                return Err(S3Code::BucketNotEmpty.into());
            }
            if !listing::page(&self.targets, &found.history(), &want).await?.rows.is_empty() {
                return Err(S3Code::BucketNotEmpty.into());
            }
        }
        match buckets::forget(&self.buckets, &found).await {
            Ok(()) => Ok(no_content()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Refuses object lock, which is not supported: such a bucket would make a false guarantee.
fn refuse_object_lock(headers: &HeaderMap) -> S3Result<()> {
    let name = "x-amz-bucket-object-lock-enabled";
    match headers.get(name).map(|value| value.as_bytes().trim_ascii()) {
        None => Ok(()),
        Some(value) if value.eq_ignore_ascii_case(b"false") => Ok(()),
        Some(_) => Err(S3Error::not_implemented("object lock").detail("Header", name)),
    }
}

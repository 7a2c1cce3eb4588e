//! The owner of a request's object: redirects of requests for objects of other targets.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use forebay_core::access::Access;
use forebay_core::bucket::BucketInfo;
use forebay_core::request::{Caller, Principal};
use forebay_core::{Bucket, Error, ErrorCode, ObjectName, Result, placement};
use forebay_node::auth;
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::reply::Failure;
use forebay_v1::query::{Query, split_path};

use super::object_request::ObjectRequest;

/// Compares the owner of an object with this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct OwnerCheck {
    pub(crate) maps: Maps,
    pub(crate) identity: Identity,
}

impl OwnerCheck {
    /// A bucket by the current state.
    pub(super) fn bucket(&self, bucket: &Bucket) -> Result<Arc<BucketInfo>> {
        self.maps.load().bucket(bucket).cloned()
    }

    /// The redirect if another target owns the object.
    pub(super) fn redirect(
        &self,
        info: &BucketInfo,
        name: &ObjectName,
        sender: &Principal,
        method: &Method,
        uri: &Uri,
    ) -> Result<Option<Response>> {
        let state = self.maps.load();
        let owner = placement::owner(&state, info, name.as_str())?;
        if owner.id == self.identity.id {
            return Ok(None);
        }
        let (version, user) = (state.version, sender.user.as_deref());
        let location =
            auth::redirect_location(&self.identity, version, user, method, uri, &owner.url)?;
        let mut response = if sender.caller.knows_the_map() {
            Failure(Error::new(
                ErrorCode::WrongOwner,
                format!("{} belongs to target {}", info.bucket.object_uri(name.as_str()), owner.id),
            ))
            .into_response()
        } else if *method == Method::GET {
            StatusCode::MOVED_PERMANENTLY.into_response()
        } else {
            StatusCode::TEMPORARY_REDIRECT.into_response()
        };
        if let Ok(location) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        Ok(Some(response))
    }

    /// Redirects a write if the object's owner changed after the request was sent and nothing was
    /// done yet.
    pub(super) fn moved_meanwhile(&self, request: &ObjectRequest, e: Error) -> Result<Response> {
        let ObjectRequest { info, name, sender, method, uri, .. } = request;
        match e.code {
            ErrorCode::WrongOwner if sender.caller != Caller::Node => {
                let elsewhere = self.redirect(info, name, sender, method, uri)?;
                Ok(without_proof(&sender.access, method, elsewhere.ok_or(e)?))
            }
            _ => Err(e),
        }
    }

    /// The object in the path of another target's request. It must belong on this target.
    pub(super) fn owned(&self, parts: &Parts) -> Result<(Arc<BucketInfo>, ObjectName)> {
        let path = parts.uri.path();
        let (bucket, name) = split_path(path.strip_prefix("/internal").unwrap_or(path), "objects")?;
        let bucket = Query::parse(parts.uri.query()).bucket(&bucket)?;
        let name = ObjectName::new(name)?;
        let state = self.maps.load();
        let info = state.bucket(&bucket)?.clone();
        let owner = placement::owner(&state, &info, name.as_str())?;
        if owner.id != self.identity.id {
            let uri = info.bucket.object_uri(name.as_str());
            let text = format!("{uri} belongs to target {}", owner.id);
            return Err(Error::new(ErrorCode::WrongOwner, text));
        }
        Ok((info, name))
    }
}

/// The redirect of a request whose body has an action, without its proof if a user sent it: the
/// proof does not cover the body, so the owner would accept any action.
pub(super) fn without_proof(access: &Access, method: &Method, mut elsewhere: Response) -> Response {
    if *access == Access::Open || !matches!(*method, Method::POST | Method::DELETE) {
        return elsewhere;
    }
    elsewhere.headers_mut().remove(header::LOCATION);
    if elsewhere.status().is_redirection() {
        let text = "another target owns the object: send the request to a gateway";
        return Failure(Error::unavailable(text)).into_response();
    }
    elsewhere
}

//! An S3 request for an object, authorized as far as the bucket decides, and the services that its
//! operation uses.

use std::sync::Arc;

use axum::http::request::Parts;
use forebay_core::ObjectName;
use forebay_core::bucket::BucketInfo;
use forebay_node::maps::Maps;
use forebay_node::relay::Relay;
use forebay_node::s3::{ObjectRights, S3Door};
use forebay_s3::access::Verdict;
use forebay_s3::auth::{Identity, Payload};
use forebay_s3::{Request as S3Request, S3Result};

use crate::object::ObjectService;
use crate::state_sync::StateSync;

/// The services that S3 operations on objects use.
pub(crate) struct S3Api {
    pub(crate) objects: ObjectService,
    pub(crate) maps: Maps,
    pub(crate) door: S3Door,
    pub(crate) relay: Relay,
    pub(crate) sync: StateSync,
}

/// A request for an object that belongs on this target, which the bucket does not forbid.
pub(super) struct Call {
    pub(super) info: Arc<BucketInfo>,
    pub(super) name: ObjectName,
    pub(super) request: S3Request,
    pub(super) parts: Parts,
    /// The checksum or signature of the body, from the request's signature.
    pub(super) payload: Payload,
    pub(super) who: Identity,
    /// Whether the rights of the object decide.
    pub(super) verdict: Verdict,
    /// Another node sends the request for itself.
    pub(super) from_node: bool,
}

impl Call {
    /// Rejects callers without the right to do this to an object with these rights.
    pub(super) fn check(&self, api: &S3Api, rights: &ObjectRights) -> S3Result<()> {
        match self.verdict {
            Verdict::Allowed => Ok(()),
            Verdict::ByObject => {
                api.door.authorize_object(&self.who, &self.info, &self.request, &self.parts, rights)
            }
        }
    }

    /// The rights that a new object gets from this request.
    pub(super) fn new_rights(&self, api: &S3Api) -> S3Result<ObjectRights> {
        let door = &api.door;
        let acl = door.acl_of_headers(&self.parts.headers)?.unwrap_or_default();
        // Objects of a bucket without an owner belong to all key holders together.
        let bucket_owner = self.info.s3.owner.as_ref();
        let owner = bucket_owner.and_then(|of| door.new_owner(&self.who).filter(|me| me != of));
        let acl = acl.without(owner.as_ref().or(bucket_owner).map_or("", String::as_str));
        Ok(ObjectRights { owner, acl, ..ObjectRights::default() })
    }
}

//! S3 authorization. The owner of an object authorizes requests for it, since only the owner has
//! the object's metadata; nodes on the way authenticate the sender.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use forebay_core::access::{self as rights, Right, Scope};
use forebay_core::bucket::{Acl, BucketInfo, Tag};
use forebay_routes as routes;
use forebay_s3::access::{Access, EXISTING_TAG, ObjectAccess, REQUEST_TAG, Verdict};
use forebay_s3::acl;
use forebay_s3::answers::Owner;
use forebay_s3::auth::Identity;
use forebay_s3::bodies::tagging_header;
use forebay_s3::bucket_policy::{self, Asked, BucketPolicy};
use forebay_s3::query::Query;
use forebay_s3::{Operation, Request as S3Request, S3Code, S3Error, S3Result};

use forebay_core::{Bucket, Provider};

use super::S3Door;
use crate::listener::{OverTls, Peer};

/// Set by a node that has checked already who sent a request: the user.
pub static USER: HeaderName = HeaderName::from_static("forebay-s3-user");
/// Set by a node that passes a request on: the address that it came from.
pub(crate) static PEER: HeaderName = HeaderName::from_static("forebay-s3-peer");
/// Set by a node that passes a request on that came over TLS. A client cannot set it.
static SECURE: HeaderName = HeaderName::from_static("forebay-s3-secure");
/// Stands for a sender without a key; not a user name, since policies use it for everybody.
const ANYBODY: &str = "*";
/// Name in answers of the owner of everything that belongs to all key holders.
const ALL_HOLDERS: &str = "forebay";

/// The properties of an object that authorization needs.
#[derive(Clone, Debug, Default)]
pub struct ObjectRights {
    /// The user that wrote it, if that was not the owner of the bucket.
    pub owner: Option<String>,
    pub acl: Acl,
    pub tags: Vec<Tag>,
    /// The tags in the body of the request.
    pub new_tags: Vec<Tag>,
}

impl S3Door {
    /// Authorizes a request, as far as the bucket's settings decide.
    pub fn authorize(
        &self,
        who: &Identity,
        info: &BucketInfo,
        request: &S3Request,
        parts: &Parts,
    ) -> S3Result<Verdict> {
        let expected = parts.headers.get("x-amz-expected-bucket-owner");
        self.check_owner(info, expected)?;
        self.judge(who, info, request, parts, None)
    }

    /// Like [`Self::authorize`], for the source of a copy, which `request` reads.
    pub fn authorize_source(
        &self,
        who: &Identity,
        info: &BucketInfo,
        request: &S3Request,
        parts: &Parts,
    ) -> S3Result<Verdict> {
        self.judge(who, info, request, parts, None)
    }

    /// `AccessDenied` unless the request may be served, given its object.
    pub fn authorize_object(
        &self,
        who: &Identity,
        info: &BucketInfo,
        request: &S3Request,
        parts: &Parts,
        object: &ObjectRights,
    ) -> S3Result<()> {
        self.judge(who, info, request, parts, Some(object)).map(drop)
    }

    /// The error for a missing object: only a sender that may list the bucket learns that it is
    /// missing.
    pub fn hide_missing(
        &self,
        who: &Identity,
        info: &BucketInfo,
        request: &S3Request,
        parts: &Parts,
        e: S3Error,
    ) -> S3Error {
        if !matches!(e.code, S3Code::NoSuchKey | S3Code::NoSuchVersion) {
            return e;
        }
        let list = S3Request { operation: Operation::HeadBucket, ..request.clone() };
        match self.judge(who, info, &list, parts, None) {
            Ok(_) => e,
            Err(denied) => denied,
        }
    }

    /// Returns an error if this is a user of the cluster that may not create the bucket.
    pub fn authorize_creation(&self, who: &Identity, bucket: &Bucket) -> S3Result<()> {
        match self.roles(who) {
            Some(roles) if !roles.has(Right::CreateBucket, &Scope::Bucket(bucket)) => {
                Err(S3Code::AccessDenied.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether a list of buckets shows this one to the sender.
    pub fn sees(&self, who: &Identity, info: &BucketInfo) -> bool {
        let owner = info.s3.owner.as_deref();
        match self.roles(who) {
            Some(roles) => owner == Some(name_of(who)) || roles.sees(&info.bucket),
            None => self.is_open() || owner.is_none_or(|owner| owner == name_of(who)),
        }
    }

    /// The error for a missing bucket. In a cluster with users, a user learns that it is missing only
    /// with rights on a bucket of this name, and a sender without a key never.
    pub fn hide_missing_bucket(&self, who: &Identity, name: &str, e: S3Error) -> S3Error {
        if e.code != S3Code::NoSuchBucket {
            return e;
        }
        let is_hidden = match (who, self.roles(who)) {
            (Identity::Anonymous, _) => self.cluster_users().is_some(),
            (Identity::Key(_), None) => false,
            (Identity::Key(_), Some(roles)) => {
                !Bucket::new(Provider::Ais, name).is_ok_and(|bucket| roles.sees(&bucket))
            }
        };
        if is_hidden { S3Code::AccessDenied.into() } else { e }
    }

    fn roles(&self, who: &Identity) -> Option<rights::Access> {
        match who {
            Identity::Key(user) => self.rights_of(user),
            Identity::Anonymous => None,
        }
    }

    fn judge(
        &self,
        who: &Identity,
        info: &BucketInfo,
        request: &S3Request,
        parts: &Parts,
        object: Option<&ObjectRights>,
    ) -> S3Result<Verdict> {
        if self.is_open() {
            return Ok(Verdict::Allowed);
        }
        let user = match who {
            Identity::Key(user) => Some(user.as_str()),
            Identity::Anonymous => None,
        };
        let action = bucket_policy::action(&request.operation);
        let policy = info.s3.policy.as_deref().map(BucketPolicy::parse).transpose()?;
        let roles = user.and_then(|user| self.rights_of(user));
        let is_given = |roles: rights::Access| {
            let scope = routes::s3::scope(&info.bucket, request);
            let needed = routes::s3::rights(&request.operation);
            needed.iter().any(|right| roles.has(*right, &scope))
        };
        let access = Access {
            user,
            role: roles.map(is_given),
            bucket_owner: info.s3.owner.as_deref(),
            policy: policy.as_ref(),
            bucket_acl: &info.s3.acl,
        };
        let asked = Asked {
            user,
            action,
            bucket: &info.bucket.name,
            key: if action == "s3:ListBucket" { "" } else { &request.key },
            value: &|name| condition_value(name, parts, user, request, object),
        };
        let object = object.map(|o| ObjectAccess { owner: o.owner.as_deref(), acl: &o.acl });
        access.check(&request.operation, &asked, object)
    }

    /// Refuses a request that expects another owner of the bucket.
    pub fn check_owner(&self, info: &BucketInfo, expected: Option<&HeaderValue>) -> S3Result<()> {
        match expected {
            Some(owner) if owner.as_bytes() != owner_of(info).id.as_bytes() => {
                Err(S3Code::AccessDenied.into())
            }
            _ => Ok(()),
        }
    }

    /// The owner of something new that `who` creates; `None`: no particular user.
    pub fn new_owner(&self, who: &Identity) -> Option<String> {
        match who {
            Identity::Key(user) if !self.is_open() => Some(user.clone()),
            _ => None,
        }
    }

    /// The access list in the headers of a request; `None` if they contain none.
    pub fn acl_of_headers(&self, headers: &HeaderMap) -> S3Result<Option<Acl>> {
        acl::of_headers(headers, &|user| self.knows(user))
    }

    /// The list that a `PutBucketAcl` or `PutObjectAcl` sets, for something of `owner`.
    pub fn acl_of_request(&self, headers: &HeaderMap, body: &[u8], owner: &str) -> S3Result<Acl> {
        let acl = match self.acl_of_headers(headers)? {
            Some(acl) => acl,
            None if body.is_empty() => return Err(S3Code::MissingSecurityHeader.into()),
            None => acl::of_xml(body, &|user| self.knows(user))?,
        };
        Ok(acl.without(owner))
    }
}

/// The owner of a bucket, as answers name it.
pub fn owner_of(info: &BucketInfo) -> Owner {
    Owner::user(info.s3.owner.as_deref().unwrap_or(ALL_HOLDERS))
}

/// The identity of `user`, as [`name_of`] wrote it.
pub fn identity(user: &str) -> Identity {
    if user == ANYBODY { Identity::Anonymous } else { Identity::Key(user.to_owned()) }
}

/// A name for the sender, for other nodes.
pub fn name_of(who: &Identity) -> &str {
    match who {
        Identity::Anonymous => ANYBODY,
        Identity::Key(user) => user,
    }
}

/// Records the address of the sender and whether it uses TLS, unless a forwarding node already did.
pub fn note_peer(parts: &mut Parts, Peer(address): Peer) {
    if parts.headers.contains_key(&PEER) {
        return;
    }
    if parts.extensions.get::<OverTls>().is_some() {
        parts.headers.insert(&SECURE, HeaderValue::from_static("true"));
    }
    if let Ok(value) = HeaderValue::try_from(address.to_string()) {
        parts.headers.insert(&PEER, value);
    }
}

/// The headers of a request that authorization needs, for requests derived from it.
pub fn judged_by(headers: &HeaderMap) -> HeaderMap {
    let names = [&PEER, &SECURE, &header::REFERER, &header::USER_AGENT];
    let kept = names.into_iter().filter_map(|n| Some((n.clone(), headers.get(n)?.clone())));
    kept.collect()
}

/// The value of a policy's condition key in a request (lower case except for names of tags).
fn condition_value(
    name: &str,
    parts: &Parts,
    user: Option<&str>,
    request: &S3Request,
    object: Option<&ObjectRights>,
) -> Option<String> {
    let header = |name: &str| parts.headers.get(name)?.to_str().ok().map(str::to_owned);
    let query = |name: &str| {
        Query::parse(parts.uri.query().unwrap_or("")).ok()?.get(name).map(str::to_owned)
    };
    let tag = |tags: &[Tag], key: &str| Some(tags.iter().find(|t| t.key == key)?.value.clone());
    if let Some(key) = name.strip_prefix(EXISTING_TAG) {
        return tag(&object?.tags, key);
    }
    if let Some(key) = name.strip_prefix(REQUEST_TAG) {
        return match (&request.operation, object) {
            (Operation::PutObjectTagging(_), object) => tag(&object?.new_tags, key),
            _ => tag(&tagging_header(&header("x-amz-tagging")?).ok()?, key),
        };
    }
    match name {
        "aws:securetransport" => Some(parts.headers.contains_key(&SECURE).to_string()),
        "aws:sourceip" => header(PEER.as_str()),
        "aws:useragent" => header("user-agent"),
        "aws:referer" => header("referer"),
        "aws:username" => user.map(str::to_owned),
        // A request for one object counts as a listing with the object's key as prefix.
        "s3:prefix" if !request.key.is_empty() => Some(request.key.clone()),
        "s3:prefix" => query("prefix"),
        "s3:delimiter" => query("delimiter"),
        "s3:max-keys" => query("max-keys"),
        "s3:versionid" => query("versionId"),
        _ => name.strip_prefix("s3:").filter(|n| n.starts_with("x-amz-")).and_then(header),
    }
}

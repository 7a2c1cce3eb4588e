//! S3 permissions: the owner may do everything, others what their roles, a policy or an access
//! control list grants.
//!
//! Most requests are decided by the bucket alone. If the object's own list or tags decide,
//! [`Access::check`] returns that, and is called again with the object.

use forebay_core::bucket::{Acl, Permission};

use super::bucket_policy::{Asked, BucketPolicy, Decision};
use super::error::S3Result;
use super::error_code::S3Code;
use super::operation::Operation;

/// Prefix of the condition keys of an object's tags, lower case.
pub const EXISTING_TAG: &str = "s3:existingobjecttag/";
/// Prefix of the condition keys of the tags in a request, lower case.
pub const REQUEST_TAG: &str = "s3:requestobjecttag/";

/// Custom metadata: the user that wrote an object, if that was not the owner of the bucket.
pub const OWNER: &str = "s3:owner";
/// Custom metadata: the access granted to others on an object.
pub const ACL: &str = "s3:acl";

/// The sender and the bucket's access settings.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// `None`: a sender without a key.
    pub user: Option<&'a str>,
    /// `None`: the bucket belongs to all key holders.
    pub bucket_owner: Option<&'a str>,
    pub policy: Option<&'a BucketPolicy>,
    pub bucket_acl: &'a Acl,
    /// Whether the roles of the user allow the request; `None`: not a user of the cluster, such as a
    /// key of the configuration.
    pub role: Option<bool>,
}

/// The access settings of an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectAccess<'a> {
    /// The user that wrote it, if that was not the owner of the bucket.
    pub owner: Option<&'a str>,
    pub acl: &'a Acl,
}

/// The result for a request that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// Check again with the object.
    ByObject,
}

impl Access<'_> {
    /// Whether the sender owns the bucket, and with it everything in it.
    pub fn owns_bucket(&self) -> bool {
        match (self.user, self.bucket_owner) {
            (None, _) => false,
            // Not to users of the cluster: their roles decide.
            (Some(_), None) => self.role.is_none(),
            (Some(user), Some(owner)) => user == owner,
        }
    }

    /// `AccessDenied` unless the request may be served. A denial by the policy overrides everything
    /// else, but never locks the owner out of the policy itself. With an object, `asked.value`
    /// supplies its tags.
    pub fn check(
        &self,
        operation: &Operation,
        asked: &Asked<'_>,
        object: Option<ObjectAccess<'_>>,
    ) -> S3Result<Verdict> {
        let needs = needs(operation);
        let by_tag = std::cell::Cell::new(false);
        let value = |name: &str| {
            // Tags in a body are read together with the object.
            let tag = name.starts_with(EXISTING_TAG)
                || (name.starts_with(REQUEST_TAG)
                    && matches!(operation, Operation::PutObjectTagging(_)));
            if object.is_none() && tag {
                by_tag.set(true);
            }
            (asked.value)(name)
        };
        let asked = Asked { value: &value, ..*asked };
        let decision = self.policy.map_or(Decision::Silent, |policy| policy.decide(&asked));
        if by_tag.get() && matches!(needs, Needs::OfObject(_)) {
            return Ok(Verdict::ByObject);
        }
        let (owner, by_role) = (self.owns_bucket(), self.role == Some(true));
        let given = match decision {
            Decision::Deny => (owner || by_role) && is_about_policy(operation),
            Decision::Allow => true,
            Decision::Silent if owner || by_role => true,
            Decision::Silent => match (needs, object) {
                (Needs::Nothing, _) => true,
                (Needs::Ownership, _) => false,
                (Needs::OfBucket(may), _) => self.bucket_acl.gives(self.user, may),
                (Needs::OfObject(_), None) => return Ok(Verdict::ByObject),
                (Needs::OfObject(may), Some(object)) => {
                    let own = self.user.is_some() && self.user == object.owner;
                    own || may.is_some_and(|may| object.acl.gives(self.user, may))
                }
            },
        };
        if given { Ok(Verdict::Allowed) } else { Err(S3Code::AccessDenied.into()) }
    }
}

/// The permissions that an operation requires of a sender that does not own the bucket.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    OfBucket(Permission),
    /// A permission on the object; `None`: ownership of the object.
    OfObject(Option<Permission>),
    /// Ownership of the bucket.
    Ownership,
}

fn is_about_policy(operation: &Operation) -> bool {
    use Operation as O;
    matches!(operation, O::GetBucketPolicy | O::PutBucketPolicy | O::DeleteBucketPolicy)
}

fn needs(operation: &Operation) -> Needs {
    use Operation as O;
    match operation {
        // A browser sends a preflight without a signature; each key of a deletion is checked
        // separately.
        O::Preflight | O::DeleteObjects => Needs::Nothing,
        O::GetObject(_) | O::HeadObject(_) | O::GetObjectAttributes(_) => {
            Needs::OfObject(Some(Permission::Read))
        }
        O::GetObjectAcl(_) => Needs::OfObject(Some(Permission::ReadAcp)),
        O::PutObjectAcl(_) => Needs::OfObject(Some(Permission::WriteAcp)),
        O::GetObjectTagging(_) | O::PutObjectTagging(_) | O::DeleteObjectTagging(_) => {
            Needs::OfObject(None)
        }
        O::HeadBucket
        | O::ListObjects(_)
        | O::ListObjectsV2(_)
        | O::ListObjectVersions(_)
        | O::ListMultipartUploads(_) => Needs::OfBucket(Permission::Read),
        O::PutObject
        | O::PostObject
        | O::CopyObject(_)
        | O::DeleteObject(_)
        | O::CreateMultipartUpload
        | O::UploadPart(_)
        | O::UploadPartCopy(..)
        | O::CompleteMultipartUpload(_)
        | O::AbortMultipartUpload(_)
        | O::ListParts(_) => Needs::OfBucket(Permission::Write),
        O::GetBucketAcl => Needs::OfBucket(Permission::ReadAcp),
        O::PutBucketAcl => Needs::OfBucket(Permission::WriteAcp),
        _ => Needs::Ownership,
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;

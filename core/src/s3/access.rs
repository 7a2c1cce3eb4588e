//! Who may do what: the owner everything, others what a policy or a canned ACL gives them.

use serde::{Deserialize, Serialize};

use super::bucket_policy::{Asked, BucketPolicy, Decision};
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::operation::Operation;

/// A canned ACL of a bucket or an object: what others than the owner may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CannedAcl {
    /// Nothing. Also what ACLs for other parties of AWS mean here, where there are none.
    #[default]
    Private,
    PublicRead,
    PublicReadWrite,
    /// Everybody with an access key may read.
    AuthenticatedRead,
}

impl CannedAcl {
    /// From the word in `x-amz-acl`; unknown ones are refused.
    pub fn parse(word: &str) -> S3Result<Self> {
        Ok(match word {
            "public-read" => Self::PublicRead,
            "public-read-write" => Self::PublicReadWrite,
            "authenticated-read" => Self::AuthenticatedRead,
            "private"
            | "aws-exec-read"
            | "bucket-owner-read"
            | "bucket-owner-full-control"
            | "log-delivery-write" => Self::Private,
            _ => return Err(S3Error::argument("x-amz-acl", word, "")),
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::PublicRead => "public-read",
            Self::PublicReadWrite => "public-read-write",
            Self::AuthenticatedRead => "authenticated-read",
        }
    }

    /// Whether it gives anything to people whom the owner does not know.
    pub fn is_public(self) -> bool {
        self != Self::Private
    }

    fn lets_read(self, anonymous: bool) -> bool {
        match self {
            Self::Private => false,
            Self::PublicRead | Self::PublicReadWrite => true,
            Self::AuthenticatedRead => !anonymous,
        }
    }
}

/// What is set on a bucket and an object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access<'a> {
    /// Who asks owns the bucket.
    pub is_owner: bool,
    pub policy: Option<&'a BucketPolicy>,
    pub bucket_acl: CannedAcl,
    /// Private where there is no such object.
    pub object_acl: CannedAcl,
}

impl Access<'_> {
    /// `AccessDenied` unless the request may be served. A denial of the policy outweighs all else,
    /// but never locks its owner out of the policy itself.
    pub fn check(&self, operation: &Operation, asked: &Asked<'_>) -> S3Result<()> {
        let about_policy = matches!(
            operation,
            Operation::GetBucketPolicy | Operation::PutBucketPolicy | Operation::DeleteBucketPolicy
        );
        let decision = self.policy.map_or(Decision::Silent, |policy| policy.decide(asked));
        let allowed = match decision {
            Decision::Deny => self.is_owner && about_policy,
            Decision::Allow => true,
            Decision::Silent => self.is_owner || self.acl_allows(operation, asked),
        };
        if allowed { Ok(()) } else { Err(S3Code::AccessDenied.into()) }
    }

    fn acl_allows(&self, operation: &Operation, asked: &Asked<'_>) -> bool {
        use Operation as O;
        let anonymous = asked.access_key.is_none();
        match operation {
            O::GetObject(_) | O::HeadObject(_) | O::GetObjectAttributes(_) => {
                self.object_acl.lets_read(anonymous)
            }
            O::HeadBucket
            | O::ListObjects(_)
            | O::ListObjectsV2(_)
            | O::ListObjectVersions(_)
            | O::ListMultipartUploads(_) => self.bucket_acl.lets_read(anonymous),
            O::PutObject
            | O::PostObject
            | O::CopyObject(_)
            | O::DeleteObject(_)
            | O::DeleteObjects
            | O::CreateMultipartUpload
            | O::UploadPart(_)
            | O::UploadPartCopy(..)
            | O::CompleteMultipartUpload(_)
            | O::AbortMultipartUpload(_)
            | O::ListParts(_) => self.bucket_acl == CannedAcl::PublicReadWrite,
            // A browser asks before it signs.
            O::Preflight => true,
            _ => false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::s3::operation::{GetObject, ObjectVersion};

    fn may(access: Access<'_>, access_key: Option<&str>, operation: &Operation) -> bool {
        let asked = Asked {
            access_key,
            action: crate::s3::bucket_policy::action(operation),
            bucket: "b",
            key: "k",
            value: &|_| None,
        };
        access.check(operation, &asked).is_ok()
    }

    fn get() -> Operation {
        Operation::GetObject(GetObject::default())
    }

    #[test]
    fn the_owner_may_do_everything_and_others_nothing_by_default() {
        let owner = Access { is_owner: true, ..Access::default() };
        assert!(may(owner, Some("me"), &Operation::DeleteBucket));
        for operation in [get(), Operation::PutObject, Operation::HeadBucket] {
            assert!(!may(Access::default(), None, &operation));
            assert!(!may(Access::default(), Some("you"), &operation));
        }
    }

    #[test]
    fn acls_give_what_their_names_say() {
        let bucket = |bucket_acl| Access { bucket_acl, ..Access::default() };
        let object = |object_acl| Access { object_acl, ..Access::default() };
        assert!(may(object(CannedAcl::PublicRead), None, &get()));
        assert!(!may(bucket(CannedAcl::PublicRead), None, &get()), "objects have their own");
        assert!(may(bucket(CannedAcl::PublicRead), None, &Operation::HeadBucket));
        assert!(!may(bucket(CannedAcl::PublicRead), None, &Operation::PutObject));
        assert!(may(bucket(CannedAcl::PublicReadWrite), None, &Operation::PutObject));
        let delete = Operation::DeleteObject(ObjectVersion::default());
        assert!(may(bucket(CannedAcl::PublicReadWrite), None, &delete));
        assert!(!may(object(CannedAcl::AuthenticatedRead), None, &get()));
        assert!(may(object(CannedAcl::AuthenticatedRead), Some("you"), &get()));
        assert!(!may(bucket(CannedAcl::PublicReadWrite), None, &Operation::PutBucketPolicy));
    }

    #[test]
    fn a_policy_gives_and_takes_but_keeps_its_owner_in() {
        let policy = |effect: &str| {
            BucketPolicy::parse(&format!(
                r#"{{"Statement": {{"Effect": "{effect}", "Principal": "*", "Action": "s3:*",
                "Resource": "arn:aws:s3:::b/*"}}}}"#
            ))
            .unwrap()
        };
        let (allow, deny) = (policy("Allow"), policy("Deny"));
        let with =
            |policy, is_owner| Access { is_owner, policy: Some(policy), ..Access::default() };
        assert!(may(with(&allow, false), None, &get()));
        assert!(!may(with(&deny, true), Some("me"), &get()));
        assert!(may(with(&deny, true), Some("me"), &Operation::DeleteBucketPolicy));
        assert!(!may(with(&deny, false), Some("you"), &Operation::DeleteBucketPolicy));
    }

    #[test]
    fn words_of_acls_are_known_or_refused() {
        for acl in [CannedAcl::PublicRead, CannedAcl::PublicReadWrite, CannedAcl::Private] {
            assert_eq!(CannedAcl::parse(acl.as_str()).unwrap(), acl);
            assert_eq!(serde_json::to_value(acl).unwrap(), acl.as_str());
        }
        assert_eq!(CannedAcl::parse("bucket-owner-read").unwrap(), CannedAcl::Private);
        assert!(CannedAcl::parse("public-ready").is_err());
    }
}

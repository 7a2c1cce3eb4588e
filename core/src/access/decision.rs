//! The decision whether a sender may do something.

use std::sync::Arc;

use super::right::{Right, Rights};
use crate::error::{Error, ErrorCode, Result};
use crate::name::Bucket;

/// The permissions of the sender of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The cluster has no users: everything is allowed to everybody. Also nodes of the cluster.
    #[default]
    Open,
    /// The cluster has users, and this request names none.
    Anonymous,
    User(Arc<UserAccess>),
}

/// The user of a request, with the rights at the time of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserAccess {
    /// Name of the user.
    pub name: String,
    /// Rights that hold everywhere: on the cluster and on each bucket.
    pub everywhere: Rights,
    /// Rights on some buckets or prefixes.
    pub bindings: Vec<Binding>,
}

/// Rights on the buckets that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Pattern of buckets as `provider://name`, where `*` stands for any characters, such as
    /// `ais://team-*`. AWS and S3 are the same provider.
    pub buckets: String,
    /// Only objects whose names begin so. Empty: all.
    pub prefix: String,
    pub rights: Rights,
}

/// The subject of an action.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The cluster as a whole.
    Cluster,
    /// A bucket itself. A binding to a prefix of it is enough for `HeadBucket` alone.
    Bucket(&'a Bucket),
    /// One object.
    Object(&'a Bucket, &'a str),
    /// All objects of the bucket whose names begin with this prefix.
    Prefix(&'a Bucket, &'a str),
}

impl Scope<'_> {
    fn bucket(&self) -> Option<&Bucket> {
        match self {
            Self::Cluster => None,
            Self::Bucket(bucket) | Self::Object(bucket, _) | Self::Prefix(bucket, _) => {
                Some(bucket)
            }
        }
    }

    /// The subject in an error, such as `ais://b/o`.
    fn name(&self) -> String {
        match self {
            Self::Cluster => "the cluster".into(),
            Self::Bucket(bucket) => format!("{bucket}"),
            Self::Object(bucket, name) | Self::Prefix(bucket, name) => bucket.object_uri(name),
        }
    }
}

impl Binding {
    /// Whether this binding gives the right on the scope.
    fn gives(&self, right: Right, scope: &Scope<'_>) -> bool {
        let Some(bucket) = scope.bucket() else { return false };
        if !self.rights.has(right) || !matches(&self.buckets, &bucket.to_string()) {
            return false;
        }
        match scope {
            Scope::Cluster => false,
            Scope::Bucket(_) => self.prefix.is_empty() || right == Right::HeadBucket,
            Scope::Object(_, name) | Scope::Prefix(_, name) => name.starts_with(&self.prefix),
        }
    }
}

/// Whether `text` has the form of `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl UserAccess {
    pub fn has(&self, right: Right, scope: &Scope<'_>) -> bool {
        self.everywhere.has(right)
            || self.everywhere.has(Right::Admin)
            || self.bindings.iter().any(|binding| binding.gives(right, scope))
    }

    /// Whether a list of buckets shows this one.
    pub fn sees(&self, bucket: &Bucket) -> bool {
        self.has(Right::HeadBucket, &Scope::Bucket(bucket))
    }
}

impl Access {
    /// Whether this right on this scope is given.
    pub fn has(&self, right: Right, scope: &Scope<'_>) -> bool {
        match self {
            Self::Open => true,
            Self::Anonymous => false,
            Self::User(user) => user.has(right, scope),
        }
    }

    /// Whether one of these rights on this scope is given.
    pub fn has_any(&self, rights: &[Right], scope: &Scope<'_>) -> bool {
        rights.iter().any(|right| self.has(*right, scope))
    }

    /// Returns `Unauthenticated` for a request without a user, and `AccessDenied` for a user who
    /// has none of `rights` on the scope. One of them is enough.
    pub fn require(&self, rights: &[Right], scope: Scope<'_>) -> Result<()> {
        if rights.iter().any(|right| self.has(*right, &scope)) {
            return Ok(());
        }
        let name = match self {
            Self::Open => return Ok(()),
            Self::Anonymous => return Err(unauthenticated()),
            Self::User(user) => &user.name,
        };
        let names: Vec<_> = rights.iter().map(|right| right.name()).collect();
        let (needed, subject) = (names.join(" or "), scope.name());
        Err(Error::new(
            ErrorCode::AccessDenied,
            format!("user {name} has no right {needed} on {subject}"),
        )
        .hint("an administrator can bind a role: `forebay auth role bind`"))
    }

    /// Whether a list of buckets shows this one.
    pub fn sees(&self, bucket: &Bucket) -> bool {
        self.has(Right::HeadBucket, &Scope::Bucket(bucket))
    }

    /// Returns an error unless the sender may list buckets: those of a binding are enough.
    pub fn require_bucket_list(&self) -> Result<()> {
        match self {
            Self::User(user) if user.bindings.iter().any(|b| b.rights.has(Right::ListBuckets)) => {
                Ok(())
            }
            access => access.require(&[Right::ListBuckets], Scope::Cluster),
        }
    }

    /// Name of the user, if the request has one.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::User(user) => Some(&user.name),
            Self::Open | Self::Anonymous => None,
        }
    }
}

/// The error for a request without a valid proof of its user, while the cluster has users. It is the
/// same for all reasons. AIStore's SDK looks for the words `token required` and `revoked`.
pub fn unauthenticated() -> Error {
    let text = "token required: the request has none, or one that is invalid, expired or revoked";
    Error::new(ErrorCode::Unauthenticated, text)
        .hint("log in: `forebay auth login`, or set FOREBAY_TOKEN")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::access::Role;
    use crate::name::Provider;

    fn bucket(name: &str) -> Bucket {
        Bucket::new(Provider::Ais, name).unwrap()
    }

    fn bound(buckets: &str, prefix: &str, role: Role) -> Access {
        let binding =
            Binding { buckets: buckets.into(), prefix: prefix.into(), rights: role.rights() };
        let user = UserAccess { name: "ann".into(), bindings: vec![binding], ..Default::default() };
        Access::User(Arc::new(user))
    }

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_does() {
        for (pattern, text, is_match) in [
            ("ais://team-*", "ais://team-a", true),
            ("ais://team-*", "ais://team-", true),
            ("ais://team-*", "ais://teams", false),
            ("*", "s3://x", true),
            ("*://logs", "gs://logs", true),
            ("*://logs", "gs://logs2", false),
            ("ais://a*b*c", "ais://a-b-b-c", true),
            ("ais://a*b*c", "ais://ac", false),
            ("ais://a", "ais://ab", false),
            ("ais://ab*ba", "ais://aba", false),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn a_binding_to_a_prefix_covers_the_objects_under_it_alone() {
        let (ann, b) = (bound("ais://b", "mine/", Role::Writer), bucket("b"));
        assert!(ann.has(Right::GetObject, &Scope::Object(&b, "mine/x")));
        assert!(!ann.has(Right::GetObject, &Scope::Object(&b, "yours/x")));
        assert!(ann.has(Right::ListObjects, &Scope::Prefix(&b, "mine/a")));
        assert!(!ann.has(Right::ListObjects, &Scope::Prefix(&b, "mine")));
        assert!(ann.sees(&b) && !ann.sees(&bucket("c")));
        assert!(!ann.has(Right::RunJobs, &Scope::Bucket(&b)));
        assert!(!ann.has(Right::ShowCluster, &Scope::Cluster), "a binding is to buckets");
    }

    #[test]
    fn buckets_are_listed_with_the_right_everywhere_or_in_a_binding() {
        let code = |access: &Access| access.require_bucket_list().map_err(|e| e.code);
        assert_eq!(code(&bound("ais://b", "", Role::Viewer)), Ok(()));
        let maker =
            UserAccess { everywhere: Rights::of(&[Right::CreateBucket]), ..UserAccess::default() };
        assert_eq!(code(&Access::User(Arc::new(maker))), Err(ErrorCode::AccessDenied));
        let viewer = UserAccess { everywhere: Role::Viewer.rights(), ..UserAccess::default() };
        assert_eq!(code(&Access::User(Arc::new(viewer))), Ok(()));
        assert_eq!(code(&Access::Anonymous), Err(ErrorCode::Unauthenticated));
    }

    #[test]
    fn an_anonymous_request_is_401_and_a_user_without_the_right_403() {
        let b = bucket("b");
        let scope = Scope::Object(&b, "x");
        let code = |access: &Access| access.require(&[Right::GetObject], scope).map_err(|e| e.code);
        assert_eq!(code(&Access::Anonymous), Err(ErrorCode::Unauthenticated));
        assert_eq!(code(&bound("ais://b", "", Role::Viewer)), Err(ErrorCode::AccessDenied));
        assert_eq!(code(&bound("ais://b", "", Role::Reader)), Ok(()));
        assert_eq!(code(&Access::Open), Ok(()));
    }
}

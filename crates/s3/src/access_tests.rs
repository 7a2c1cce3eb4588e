//! Tests of S3 permissions.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::acl::canned;
use crate::operation::{GetObject, ObjectVersion};

const PRIVATE: &Acl = &Acl::private();

/// A bucket of `ann`.
fn of(user: Option<&str>) -> Access<'_> {
    Access { user, bucket_owner: Some("ann"), policy: None, bucket_acl: PRIVATE, role: None }
}

fn check(
    access: Access<'_>,
    operation: &Operation,
    object: Option<ObjectAccess<'_>>,
    tag: Option<&str>,
) -> Option<Verdict> {
    let asked = Asked {
        user: access.user,
        action: crate::bucket_policy::action(operation),
        bucket: "b",
        key: "k",
        value: &|_| tag.map(str::to_owned),
    };
    access.check(operation, &asked, object).ok()
}

fn may(access: Access<'_>, operation: &Operation) -> Option<Verdict> {
    check(access, operation, None, None)
}

fn get() -> Operation {
    Operation::GetObject(GetObject::default())
}

fn policy(effect: &str, condition: &str) -> BucketPolicy {
    BucketPolicy::parse(&format!(
        r#"{{"Statement": {{"Effect": "{effect}", "Principal": "*", "Action": "s3:*",
        "Resource": "arn:aws:s3:::b/*" {condition}}}}}"#
    ))
    .unwrap()
}

#[test]
fn the_owner_may_do_everything_and_others_nothing_by_default() {
    let all = [get(), Operation::PutObject, Operation::HeadBucket, Operation::DeleteBucket];
    for operation in &all {
        assert_eq!(may(of(Some("ann")), operation), Some(Verdict::Allowed));
    }
    for user in [None, Some("bob")] {
        for operation in &all[1..] {
            assert_eq!(may(of(user), operation), None, "{operation:?}");
        }
    }
}

#[test]
fn what_nobody_owns_belongs_to_all_who_hold_a_key() {
    let shared = |user| Access { bucket_owner: None, ..of(user) };
    assert_eq!(may(shared(Some("bob")), &Operation::DeleteBucket), Some(Verdict::Allowed));
    assert_eq!(may(shared(None), &Operation::HeadBucket), None);
}

#[test]
fn a_bucket_gives_lists_and_writes_an_object_gives_itself() {
    let (read, write) = (canned("public-read").unwrap(), canned("public-read-write").unwrap());
    let bucket = |bucket_acl| Access { bucket_acl, ..of(None) };
    assert_eq!(may(bucket(&read), &Operation::HeadBucket), Some(Verdict::Allowed));
    assert_eq!(may(bucket(&read), &Operation::PutObject), None);
    assert_eq!(may(bucket(&write), &Operation::PutObject), Some(Verdict::Allowed));
    let delete = Operation::DeleteObject(ObjectVersion::default());
    assert_eq!(may(bucket(&write), &delete), Some(Verdict::Allowed));
    assert_eq!(may(bucket(&write), &Operation::PutBucketPolicy), None);

    assert_eq!(may(bucket(&write), &get()), Some(Verdict::ByObject));
    let object = |acl, owner| Some(ObjectAccess { owner, acl });
    assert_eq!(check(bucket(&write), &get(), object(PRIVATE, None), None), None);
    let public = check(bucket(PRIVATE), &get(), object(&read, None), None);
    assert_eq!(public, Some(Verdict::Allowed));
    let tags = Operation::GetObjectTagging(ObjectVersion::default());
    assert_eq!(check(of(None), &tags, object(&read, None), None), None);
    let own = check(of(Some("bob")), &tags, object(PRIVATE, Some("bob")), None);
    assert_eq!(own, Some(Verdict::Allowed), "the writer of an object may do everything with it");
}

#[test]
fn a_policy_gives_and_takes_but_keeps_its_owner_in() {
    let (allow, deny) = (policy("Allow", ""), policy("Deny", ""));
    let with = |policy, user| Access { policy: Some(policy), ..of(user) };
    assert_eq!(may(with(&allow, None), &get()), Some(Verdict::Allowed));
    assert_eq!(may(with(&deny, Some("ann")), &get()), None);
    let delete = Operation::DeleteBucketPolicy;
    assert_eq!(may(with(&deny, Some("ann")), &delete), Some(Verdict::Allowed));
    assert_eq!(may(with(&deny, Some("bob")), &delete), None);
}

#[test]
fn tags_of_an_object_count_once_it_is_known() {
    let tagged =
        policy("Allow", r#", "Condition": {"StringEquals": {"s3:ExistingObjectTag/k": "public"}}"#);
    let access = Access { policy: Some(&tagged), ..of(Some("bob")) };
    assert_eq!(may(access, &get()), Some(Verdict::ByObject));
    let object = Some(ObjectAccess { owner: None, acl: PRIVATE });
    assert_eq!(check(access, &get(), object, Some("public")), Some(Verdict::Allowed));
    assert_eq!(check(access, &get(), object, Some("secret")), None);
    assert_eq!(check(access, &Operation::PutObject, None, None), None, "there is no object yet");
}

#[test]
fn a_role_allows_what_no_policy_denies() {
    let (deny, allow) = (policy("Deny", ""), policy("Allow", ""));
    let bob = |role, policy| Access { role, policy, ..of(Some("bob")) };
    let put = Operation::PutObject;
    assert_eq!(may(bob(Some(true), None), &put), Some(Verdict::Allowed));
    assert_eq!(may(bob(Some(true), Some(&deny)), &put), None);
    assert_eq!(may(bob(Some(false), None), &put), None);
    assert_eq!(may(bob(Some(false), Some(&allow)), &put), Some(Verdict::Allowed));
    assert_eq!(
        may(bob(Some(true), Some(&deny)), &Operation::DeleteBucketPolicy),
        Some(Verdict::Allowed)
    );
}

#[test]
fn a_bucket_without_owner_does_not_belong_to_users_of_the_cluster() {
    let nobodys = |role| Access { bucket_owner: None, role, ..of(Some("bob")) };
    assert_eq!(may(nobodys(None), &Operation::DeleteBucket), Some(Verdict::Allowed));
    assert_eq!(may(nobodys(Some(false)), &Operation::DeleteBucket), None);
}

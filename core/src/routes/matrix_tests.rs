//! The decisions of the whole table, for each kind of sender. The expected senders are written down
//! here row by row, and not derived from the rights in the table.

use std::sync::Arc;

use super::*;
use crate::access::{Access, Role, Scope, UserAccess};
use crate::name::{Bucket, Provider};
use crate::request::{Caller, Principal, Protocol, RequestContext, RequestId, Route};

/// The senders that may send a request: `v`iewer, `r`eader, `w`riter, `a`dmin, `j`obs; a node may
/// send all of them.
const EXPECTED: &[(&str, &str)] = &[
    ("anyone", "healthz readyz health Preflight"),
    // Logins, and keys that verify tokens.
    ("anyone", "authn_login authn_revoke authn_public_key authn_discovery authn_keys auth_login"),
    // Users ask about themselves; the handlers check the name.
    (
        "vrwaj",
        "auth_whoami auth_can_i auth_user auth_set_user auth_keys auth_create_key \
         auth_delete_key auth_create_token auth_revoke",
    ),
    (
        "a",
        "authn_users authn_add_user authn_user authn_set_user authn_delete_user \
         authn_roles authn_add_role authn_role authn_set_role authn_delete_role \
         authn_clusters authn_add_cluster authn_cluster authn_set_cluster \
         authn_delete_cluster authn_tokens authn_rotate_key auth_section auth_users \
         auth_add_user auth_delete_user auth_bind auth_unbind auth_roles auth_add_role \
         auth_role auth_delete_role",
    ),
    // Requests of every user; their answers have only the buckets and jobs that the user sees.
    (
        "vrwaj",
        "map leader jobs job openapi post easy_url smap bmd status status_all running_all qryxstats \
         dsort_status ListBuckets",
    ),
    // Properties of the cluster.
    ("vrwaj", "metrics cluster daemon reverse etl_list download_status"),
    // Properties of buckets.
    ("vrwaj", "head_bucket bill HeadBucket GetBucketLocation GetBucketVersioning"),
    // Names and properties of objects.
    (
        "vrwa",
        "head check-lock list summary-bck show-inventory bucket_info ListObjects ListObjectsV2 \
         ListObjectVersions ListMultipartUploads HeadObject GetObjectAttributes GetObjectTagging \
         GetObjectAcl",
    ),
    // Objects read.
    ("rwa", "get moss batch shard etl_object GetObject"),
    // Objects fetched into the cluster, not to the sender.
    ("rwaj", "blob-download"),
    // Objects written, deleted and copied.
    (
        "wa",
        "put copy append put-part put-member delete mpt-abort patch mpt-upload mpt-complete \
         rename-obj copy-bck copy-listrange etl-bck etl-listrange write-back archive \
         delete-listrange download dsort ishard PostObject DeleteObjects ListParts PutObject \
         CopyObject UploadPart UploadPartCopy PutObjectTagging CreateMultipartUpload \
         CompleteMultipartUpload AbortMultipartUpload DeleteObject DeleteObjectTagging",
    ),
    // Jobs that show nothing of the data.
    (
        "waj",
        "evict-listrange prefetch-listrange scrub index-shard rechunk create-inventory \
         destroy-inventory start stop job_stop dsort_remove dsort_abort download_order",
    ),
    // Buckets made, changed and destroyed.
    (
        "a",
        "create-bck move-bck make-n-copies ec-encode destroy-bck evict-remote-bck set-bprops \
         reset-bprops access CreateBucket DeleteBucket PutBucketVersioning PutBucketCors \
         PutBucketTagging PutBucketPolicy PutBucketAcl DeleteBucketCors DeleteBucketTagging \
         DeleteBucketPolicy GetBucketCors GetBucketTagging GetBucketPolicy GetBucketPolicyStatus \
         GetBucketAcl PutObjectAcl",
    ),
    // The cluster changed, files of nodes read, transforms controlled.
    (
        "a",
        "promote log node_control admin set-config reset-config start-maintenance stop-maintenance \
         shutdown-node decommission-node rotate-logs reset-stats clear-lcache reload-creds shutdown \
         decommission etl_init etl etl_view etl_delete etl_part etl_order disks",
    ),
];

/// The letter of each role.
const ROLES: [(char, Role); 5] = [
    ('v', Role::Viewer),
    ('r', Role::Reader),
    ('w', Role::Writer),
    ('a', Role::Admin),
    ('j', Role::Jobs),
];

fn expected(row: Row) -> &'static str {
    if row.who() == Who::Node {
        return "";
    }
    let is_it = |(_, names): &&(&str, &str)| names.split(' ').any(|name| name == row.operation());
    let mut found = EXPECTED.iter().filter(is_it);
    let Some((senders, _)) = found.next() else { panic!("no senders for {}", row.operation()) };
    assert!(found.next().is_none(), "{} is there twice", row.operation());
    senders
}

/// A user with a role everywhere.
fn user(role: Role) -> Access {
    let user = UserAccess { name: role.name().into(), everywhere: role.rights(), bindings: vec![] };
    Access::User(Arc::new(user))
}

fn context(caller: Caller, access: Access) -> RequestContext {
    RequestContext {
        id: RequestId(1),
        protocol: Protocol::V1,
        route: Route::Other,
        principal: Principal { access, ..Principal::new(caller) },
    }
}

/// Needs that depend on the state of the cluster or on details of the body.
fn is_conditional(need: &Need) -> bool {
    matches!(need.on, On::Created | On::Backend | On::AccessMask)
}

/// The status of an ordinary request of a row: that of the layer, then that of the handler.
fn status(row: Row, about: &RequestContext) -> u16 {
    let Ok(bucket) = Bucket::new(Provider::Ais, "b") else { panic!("a valid name") };
    let path = row.rule.paths[0].replace("{*name}", "b/o").replace("{*bucket}", "b");
    let path = path.replace("{bucket}", "b");
    let path = match path.starts_with("/v1/etl/_object/") {
        true => "/v1/etl/_object/ais%2F@%23%2Fb%2Fo".to_owned(),
        false => path,
    };
    let query = match row.case.map(|case| case.by) {
        Some(By::What(what)) => Some(format!("what={what}")),
        Some(By::Query("object_to")) => Some("object_to=ais/@%23/b/copy".to_owned()),
        Some(By::Query(key)) => Some(format!("{key}=1")),
        Some(By::Action(_) | By::Header(_)) | None => None,
    };
    let done = match row.rule.is_of_s3() {
        true => Ok(()),
        false => row.rule.admit(about, &path, query.as_deref()),
    };
    let done = done.and_then(|()| {
        let grant = row.of(about.access());
        grant.check_sender()?;
        let needs = row.needs().iter().filter(|need| !is_conditional(need));
        needs.into_iter().try_for_each(|need| {
            let scope = match need.on {
                On::Cluster => Scope::Cluster,
                _ => Scope::Object(&bucket, "o"),
            };
            grant.require(need.on, scope)
        })
    });
    done.map_or_else(|e| e.code.status(), |()| 200)
}

#[test]
fn every_row_accepts_its_senders_and_no_others() {
    for row in table().flat_map(Rule::rows) {
        let (senders, name) = (expected(row), row.operation());
        for (letter, role) in ROLES {
            let is_accepted = senders == "anyone" || senders.contains(letter);
            let got = status(row, &context(Caller::Anonymous, user(role)));
            assert_eq!(got, if is_accepted { 200 } else { 403 }, "{name} by {}", role.name());
        }
        let anonymous = status(row, &context(Caller::Anonymous, Access::Anonymous));
        let refusal = if row.who() == Who::Node { 403 } else { 401 };
        assert_eq!(anonymous, if senders == "anyone" { 200 } else { refusal }, "{name}");
        assert_eq!(status(row, &context(Caller::Node, Access::Open)), 200, "{name} by a node");
        let without_users = status(row, &context(Caller::Anonymous, Access::Open));
        assert_eq!(without_users, if row.who() == Who::Node { 403 } else { 200 }, "{name}");
    }
}

#[test]
fn only_health_logins_public_keys_and_preflights_need_no_user() {
    let open = table().flat_map(Rule::rows).filter(|row| row.who() == Who::Anyone);
    let names: std::collections::BTreeSet<_> = open.map(|row| row.operation()).collect();
    let expected = "healthz readyz health Preflight authn_login authn_revoke authn_public_key authn_discovery authn_keys auth_login";
    assert_eq!(names, expected.split(' ').collect());
}

#[test]
fn every_expected_operation_is_in_the_table() {
    let all: Vec<_> = table().flat_map(Rule::rows).map(|row| row.operation()).collect();
    for name in EXPECTED.iter().flat_map(|(_, names)| names.split_whitespace()) {
        assert!(all.contains(&name), "{name}");
    }
}

//! The decisions of the whole table, for each kind of sender. The expected senders are written down
//! in `senders.txt`, and not derived from the rights in the table.

use std::sync::Arc;

use forebay_core::access::{Access, Role, Scope, UserAccess};
use forebay_core::name::{Bucket, Provider};
use forebay_core::request::{Caller, Principal, Protocol, RequestContext, RequestId, Route};

use super::*;

/// The senders that may send each operation: `anyone`, or letters of roles.
const SENDERS: &str = include_str!("senders.txt");

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
    let mut found = senders().filter(|(_, name)| *name == row.operation());
    let Some((senders, _)) = found.next() else { panic!("no senders for {}", row.operation()) };
    assert!(found.next().is_none(), "{} is there twice", row.operation());
    senders
}

/// Each operation with its senders.
fn senders() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = SENDERS.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(senders, _)| !senders.starts_with('#'))
        .flat_map(|(senders, names)| names.split_whitespace().map(move |name| (senders, name)))
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
        trace: None,
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
fn only_health_logins_public_keys_preflights_and_the_console_need_no_user() {
    let open = table().flat_map(Rule::rows).filter(|row| row.who() == Who::Anyone);
    let names: std::collections::BTreeSet<_> = open.map(|row| row.operation()).collect();
    let expected = "healthz readyz health console Preflight authn_login authn_revoke authn_public_key authn_discovery authn_keys auth_login";
    assert_eq!(names, expected.split(' ').collect());
}

#[test]
fn every_expected_operation_is_in_the_table() {
    let all: Vec<_> = table().flat_map(Rule::rows).map(|row| row.operation()).collect();
    for (_, name) in senders() {
        assert!(all.contains(&name), "{name}");
    }
}

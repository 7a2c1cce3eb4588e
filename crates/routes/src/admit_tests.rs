//! Tests of decisions from rows of the table.

use std::sync::Arc;

use forebay_core::access::{Binding, Role, UserAccess};
use forebay_core::request::{Caller, Principal, Protocol, RequestId, Route};

use super::super::{v1_buckets, v1_cluster, v1_objects};
use super::*;

fn context(access: Access) -> RequestContext {
    RequestContext {
        id: RequestId(1),
        protocol: Protocol::V1,
        route: Route::Other,
        principal: Principal { access, ..Principal::new(Caller::Anonymous) },
        trace: None,
    }
}

fn bound(buckets: &str, prefix: &str, role: Role) -> RequestContext {
    let binding = Binding { buckets: buckets.into(), prefix: prefix.into(), rights: role.rights() };
    let user = UserAccess { name: "ann".into(), bindings: vec![binding], ..UserAccess::default() };
    context(Access::User(Arc::new(user)))
}

fn status(done: Result<()>) -> u16 {
    done.map_or_else(|e| e.code.status(), |()| 200)
}

#[test]
fn the_bucket_and_the_object_are_those_of_path_and_query() {
    let ann = bound("ais://b", "mine/", Role::Reader);
    let get = |path: &str, query| status(v1_objects::GET.admit(&ann, path, query));
    assert_eq!(get("/v1/objects/b/mine/x", None), 200);
    assert_eq!(get("/v1/objects/b/mine%2Fx", None), 200);
    assert_eq!(get("/v1/objects/b/yours/x", None), 403);
    assert_eq!(get("/v1/objects/c/mine/x", None), 403);
    assert_eq!(get("/v1/objects/b/mine/x", Some("provider=aws")), 403);
    assert_eq!(get("/v1/objects/b/mine/x", Some("namespace=@x%23y")), 403);
    let put = status(v1_objects::PUT.admit(&ann, "/v1/objects/b/mine/x", None));
    assert_eq!(put, 403);
}

#[test]
fn the_query_selects_the_row() {
    let ann = bound("ais://b", "", Role::Reader);
    let anonymous = context(Access::Anonymous);
    let daemon = |about, query| status(v1_cluster::DAEMON.admit(about, "/v1/daemon", query));
    assert_eq!(daemon(&ann, Some("what=smap")), 200);
    assert_eq!(daemon(&ann, Some("what=node_stats")), 403);
    assert_eq!(daemon(&ann, Some("what=log")), 403);
    assert_eq!(daemon(&anonymous, Some("what=smap")), 401);
    assert_eq!(daemon(&context(Access::Open), Some("what=log")), 200);
}

#[test]
fn a_row_refuses_what_it_has_no_right_for() {
    let admin = UserAccess { everywhere: Role::Admin.rights(), ..UserAccess::default() };
    let access = Access::User(Arc::new(admin));
    let row = v1_buckets::POST.action("scrub").map(|row| row.of(&access));
    let scope = Scope::Cluster;
    let require = |on| row.map(|row| status(row.require(on, scope)));
    assert_eq!(require(On::Selected), Some(200));
    assert_eq!(require(On::Destination), Some(403));
}

#[test]
fn each_selected_object_needs_the_right() {
    let ann = bound("ais://b", "mine/", Role::Writer);
    let bucket = Bucket::from_parts("b", "ais", "");
    let Ok(bucket) = bucket else { panic!("a valid name") };
    let row = v1_buckets::DELETE.action("delete-listrange").map(|row| row.of(ann.access()));
    let delete =
        |selection| row.map(|row| status(row.require_selection(On::Selected, &bucket, &selection)));
    let names = |names: &[&str]| Selection::Names(names.iter().map(|n| (*n).to_owned()).collect());
    assert_eq!(delete(names(&["mine/a", "mine/b"])), Some(200));
    assert_eq!(delete(names(&["mine/a", "yours/b"])), Some(403));
    assert_eq!(delete(Selection::Prefix("mine/a".into())), Some(200));
    assert_eq!(delete(Selection::Prefix(String::new())), Some(403));
    assert_eq!(delete(Selection::Template("mine/{1..3}".into())), Some(200));
    assert_eq!(delete(Selection::Template("{1..3}/mine/".into())), Some(403));
    assert_eq!(delete(Selection::Template("min@1".into())), Some(403));
}

#[test]
fn a_copy_needs_the_right_on_its_source_and_on_its_destination() {
    let ann = bound("ais://b", "mine/", Role::Writer);
    let copy = |from: &str, to: &str| {
        let query = format!("object_to=ais/@%23/{to}");
        status(v1_objects::PUT.admit(&ann, &format!("/v1/objects/{from}"), Some(&query)))
    };
    assert_eq!(copy("b/mine/x", "b/mine/y"), 200);
    assert_eq!(copy("b/yours/x", "b/mine/y"), 403);
    assert_eq!(copy("b/mine/x", "b/yours/y"), 403);
    assert_eq!(copy("b/mine/x", "c/mine/y"), 403);
}

#[test]
fn a_rename_needs_the_right_on_both_names() {
    let ann = bound("ais://b", "mine/", Role::Writer);
    let Ok(bucket) = Bucket::from_parts("b", "ais", "") else { panic!("a valid name") };
    let rename = |from: &str, to: &str| {
        let action =
            ActionMsg { action: "rename-obj".into(), name: to.into(), ..Default::default() };
        status(v1_objects::POST.require_action(ann.access(), &bucket, from, &action))
    };
    assert_eq!(rename("mine/x", "mine/y"), 200);
    assert_eq!(rename("mine/x", "yours/y"), 403);
    assert_eq!(rename("yours/x", "mine/y"), 403);
}

#[test]
fn each_entry_of_a_batch_needs_the_right() {
    let ann = bound("ais://b", "mine/", Role::Reader);
    let named = |name| Bucket::from_parts(name, "ais", "");
    let (Ok(b), Ok(c)) = (named("b"), named("c")) else { panic!("valid names") };
    let row = v1_objects::MOSS.row().of(ann.access());
    assert_eq!(status(row.require_entries([(&b, "mine/x"), (&b, "mine/y")])), 200);
    assert_eq!(status(row.require_entries([(&b, "mine/x"), (&b, "yours/y")])), 403);
    assert_eq!(status(row.require_entries([(&b, "mine/x"), (&c, "mine/y")])), 403);
    let all = bound("ais://b", "", Role::Reader);
    let row = v1_objects::MOSS.row().of(all.access());
    assert_eq!(status(row.require_entries([(&b, "x"), (&c, "x"), (&b, "y")])), 403);
    assert_eq!(status(row.require_entries([(&b, "x"), (&b, "y")])), 200);
}

#[test]
fn copies_are_checked_by_the_names_that_they_get() {
    let ann = bound("ais://b", "mine/", Role::Writer);
    let Ok(bucket) = Bucket::from_parts("b", "ais", "") else { panic!("a valid name") };
    let Some(row) = v1_buckets::POST.action("copy-bck") else { panic!("a row") };
    let copies = |prepend: &str, selection| {
        status(row.of(ann.access()).require_copies(&bucket, prepend, &selection))
    };
    assert_eq!(copies("mine/", Selection::Prefix(String::new())), 200);
    assert_eq!(copies("", Selection::Prefix("mine/a".into())), 200);
    assert_eq!(copies("yours/", Selection::Prefix("mine/".into())), 403);
    assert_eq!(copies("mi", Selection::Names(vec!["ne/x".into(), "x".into()])), 403);
}

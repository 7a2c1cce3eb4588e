//! Tests of the claims of own and of foreign tokens.

use serde_json::json;

use super::*;
use crate::access::{AccessChange, Right, Scope, User};
use crate::name::{Bucket, Provider};

const NOW: u64 = 10_000;

fn state() -> AccessState {
    let mut state = AccessState::default();
    let user = Box::new(User { roles: vec!["admin".into()], ..User::default() });
    let add = |name: &str| AccessChange::AddUser { name: name.into(), user: user.clone() };
    state.apply(5, add("root"), NOW * 1_000_000_000).unwrap();
    state.apply(6, add("idp:ann"), NOW * 1_000_000_000).unwrap();
    state
}

fn claims() -> Claims {
    Claims {
        iss: "c1".into(),
        aud: "c1".into(),
        sub: "root".into(),
        iat: NOW,
        exp: NOW + 100,
        jti: "t1".into(),
        ..Claims::default()
    }
}

#[test]
fn a_token_of_this_cluster_names_its_user_until_it_expires() {
    let state = state();
    let of = |claims: Claims, now| claims.identity(&state, "c1", now);
    assert_eq!(of(claims(), NOW).unwrap().access.name, "root");
    of(claims(), NOW + 100).unwrap();
    for (what, wrong) in [
        ("issuer", Claims { iss: "c2".into(), ..claims() }),
        ("audience", Claims { aud: "c2".into(), ..claims() }),
        ("user", Claims { sub: "nobody".into(), ..claims() }),
        ("from the future", Claims { iat: NOW + 61, exp: NOW + 200, ..claims() }),
        ("too long", Claims { exp: NOW + MAX_TOKEN_TTL_S + 1, ..claims() }),
    ] {
        assert!(of(wrong, NOW).is_err(), "{what}");
    }
    assert!(of(claims(), NOW + 101).is_err(), "expired");
    let nameless = Claims { iss: String::new(), aud: String::new(), ..claims() };
    assert!(nameless.identity(&state, "", NOW).is_err(), "a cluster without an id");
}

#[test]
fn a_revoked_token_and_the_tokens_of_a_revoked_user_are_invalid() {
    let now_ns = NOW * 1_000_000_000;
    let mut one = state();
    let revoke = AccessChange::RevokeToken { id: "t1".into(), expires_s: NOW + 100 };
    one.apply(7, revoke, now_ns).unwrap();
    assert!(claims().identity(&one, "c1", NOW).is_err());
    let other = Claims { jti: "t2".into(), ..claims() };
    other.identity(&one, "c1", NOW).unwrap();
    let mut all = state();
    all.apply(7, AccessChange::RevokeUser { name: "root".into() }, now_ns).unwrap();
    assert!(other.identity(&all, "c1", NOW).is_err());
    let later = Claims { iat: NOW + 1, ..claims() };
    later.identity(&all, "c1", NOW + 1).unwrap();
}

fn rules() -> IssuerRules {
    IssuerRules {
        issuer: "https://idp".into(),
        audience: "forebay".into(),
        user_prefix: "idp:".into(),
        user_claim: "sub".into(),
        roles_claim: "groups".into(),
        aistore_claims: false,
    }
}

#[test]
fn a_foreign_token_needs_issuer_audience_times_and_a_user() {
    let good = json!({"iss": "https://idp", "aud": ["x", "forebay"], "sub": "bob",
        "exp": NOW + 10, "nbf": NOW - 10, "iat": NOW - 10});
    let of = |claims: &Value| foreign_identity(claims, "t", &rules(), &state(), "c1", NOW);
    let bob = of(&good).unwrap();
    assert_eq!((bob.access.name.as_str(), bob.access.everywhere), ("idp:bob", Rights::NONE));
    for (key, value) in [
        ("iss", json!("https://other")),
        ("iss", json!(["https://idp"])),
        ("aud", json!("other")),
        ("aud", json!([])),
        ("aud", Value::Null),
        ("exp", json!(NOW - 61)),
        ("exp", json!("never")),
        ("exp", Value::Null),
        ("nbf", json!(NOW + 61)),
        ("nbf", json!("soon")),
        ("sub", json!("")),
        ("sub", json!(7)),
    ] {
        let mut wrong = good.clone();
        wrong[key] = value;
        assert!(of(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_foreign_user_has_the_roles_of_the_token_and_those_bound_here() {
    let token = |sub: &str, groups: Value| json!({"iss": "https://idp", "aud": "forebay", "sub": sub, "exp": NOW, "groups": groups});
    let of = |claims: &Value, rules: &IssuerRules| {
        foreign_identity(claims, "t", rules, &state(), "c1", NOW).unwrap().access
    };
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let reads = |access: &UserAccess| access.has(Right::GetObject, &Scope::Object(&bucket, "x"));
    assert!(reads(&of(&token("bob", json!(["other", "reader"])), &rules())));
    assert!(reads(&of(&token("bob", json!("other reader")), &rules())));
    assert!(!reads(&of(&token("bob", json!(["other"])), &rules())));
    assert!(reads(&of(&token("ann", json!([])), &rules())), "bound here as idp:ann");
    assert!(!reads(&of(&token("root", json!([])), &rules())), "another user than our root");
    let without = IssuerRules { roles_claim: String::new(), ..rules() };
    assert!(!reads(&of(&token("bob", json!(["reader"])), &without)));
}

#[test]
fn the_claims_of_aistore_count_if_the_issuer_is_one() {
    let claims = json!({"iss": "https://idp", "aud": "forebay", "sub": "bob", "exp": NOW,
        "clusters": [{"id": "c1", "perm": "4096"}, {"id": "c2", "perm": "131072"}],
        "buckets": [{"bck": {"name": "b", "provider": "ais", "namespace": {"uuid": "c1"}},
            "perm": "1"}]});
    let aistore = IssuerRules { aistore_claims: true, ..rules() };
    let of = |claims: &Value, rules: &IssuerRules| {
        foreign_identity(claims, "t", rules, &state(), "c1", NOW).unwrap().access
    };
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let bob = of(&claims, &aistore);
    assert!(bob.has(Right::ListBuckets, &Scope::Cluster));
    assert!(bob.has(Right::GetObject, &Scope::Object(&bucket, "x")));
    assert!(!bob.has(Right::PutObject, &Scope::Object(&bucket, "x")));
    assert_eq!(of(&claims, &rules()).everywhere, Rights::NONE);
}

//! Tests that proofs are valid for exactly the signed request.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::name::NodeId;

fn secret() -> ClusterSecret {
    ClusterSecret::new("0123456789abcdef\n").unwrap()
}

fn call() -> Claims<'static> {
    Claims {
        purpose: Purpose::NodeCall,
        method: "POST",
        target: "/internal/v1/join?x=1",
        subject: "",
        body: NO_BODY,
        sender: "target-1",
        receiver: "http://gateway:7400/~a",
        nonce: 7,
        expiry: 309,
    }
}

#[test]
fn a_proof_holds_for_what_was_claimed_and_nothing_else() {
    let (secret, claims) = (secret(), call());
    let text = secret.prove(&claims);
    let proof = Proof::parse(&text).unwrap();
    assert_eq!((proof.sender, proof.receiver), ("target-1", "http://gateway:7400/~a"));
    assert_eq!((proof.nonce, proof.expiry, proof.body), (7, 309, NO_BODY));
    assert!(secret.verify(&proof, &claims));
    for other in [
        Claims { purpose: Purpose::S3Relay, ..claims },
        Claims { purpose: Purpose::Redirect, ..claims },
        Claims { method: "PUT", ..claims },
        Claims { target: "/internal/v1/join", ..claims },
        Claims { subject: "alice", ..claims },
    ] {
        assert!(!secret.verify(&proof, &other), "{other:?}");
    }
    for (from, to) in [
        ("~target-1~", "~target-2~"),
        ("gateway:7400", "gateway:7401"),
        ("~7~", "~8~"),
        ("~309~", "~1000000000000~"),
        ("~0~", "~-~"),
    ] {
        let forged = text.replace(from, to);
        assert_ne!(forged, text, "{from}");
        assert!(!secret.verify(&Proof::parse(&forged).unwrap(), &claims), "{from}");
    }
    assert!(!ClusterSecret::new("fedcba9876543210").unwrap().verify(&proof, &claims));
    for bad in ["", "2~a", "309.ab", "1~a~b~1~1~0~ab", "2~a~b~x~1~0~ab", "2~a~b~1~y~0~ab"] {
        assert_eq!(Proof::parse(bad), None, "{bad}");
    }
}

#[test]
fn fields_do_not_run_into_each_other() {
    let secret = secret();
    let (a, b) = (Claims { method: "PO", target: "ST/", ..call() }, call());
    let a2 = Claims { method: "P", target: "OST/", ..b };
    let text = secret.prove(&a);
    assert!(!secret.verify(&Proof::parse(&text).unwrap(), &a2));
}

#[test]
fn grants_hold_for_an_hour_at_every_target() {
    let secret = secret();
    let grant = secret.grant("gateway-1", 3, 5);
    assert_eq!(Trust::by_secret(&secret).verify_grant(&grant, 5 + GRANT_TTL_S), Held::Yes);
    let late = Held::Late { signer: "gateway-1", signed_s: 5 };
    assert_eq!(Trust::by_secret(&secret).verify_grant(&grant, 6 + GRANT_TTL_S), late);
    let other = ClusterSecret::new("fedcba9876543210").unwrap();
    for now in [5, 6 + GRANT_TTL_S] {
        assert_eq!(Trust::by_secret(&other).verify_grant(&grant, now), Held::No, "at {now}");
    }
    let forged = grant.replace("3605", "3606");
    assert_eq!(Trust::by_secret(&secret).verify_grant(&forged, 5), Held::No);
    assert_eq!(Trust::by_secret(&secret).verify_grant(&forged, 4000), Held::No);
    assert_eq!(Trust::by_secret(&secret).verify_grant(&grant, 5), Held::Yes);
    for now in [9, 400] {
        assert_eq!(
            Trust::by_secret(&secret).verify_grant(&secret.prove(&call()), now),
            Held::No,
            "a call is no grant"
        );
    }
}

#[test]
fn a_redirect_covers_its_query_however_that_is_encoded() {
    let target = |path, query| redirect_target(path, query).unwrap();
    let signed = target("/v1/objects/b/a%20b", "provider=ais&x=%2F&fbv=7");
    assert_eq!(signed, target("/v1/objects/b/a b", "fbv=7&provider=ais&x=/&fbs=2~a&x=%2f"));
    for other in [
        "provider=ais&x=%2F&fbv=7&append_type=append",
        "provider=aws&x=%2F&fbv=7",
        "x=%2F&fbv=7",
        "provider=aws&provider=ais&x=%2F&fbv=7",
    ] {
        assert_ne!(signed, target("/v1/objects/b/a%20b", other), "{other}");
    }
    assert_ne!(target("/a", "b=1"), target("/a&b=1", ""));
}

#[test]
fn a_redirect_holds_at_one_node_for_half_a_minute() {
    let signer = Signer::new(secret(), NodeId::new("gateway-1").unwrap(), 1);
    let (path, query) = ("/v1/objects/b/o", "provider=ais");
    let proof = signer.redirect("PUT", path, query, "http://t:1", 100).unwrap();
    let proof = proof.strip_prefix("fbs=").unwrap();
    assert!(!proof.contains("http"), "{proof}");
    let holds = |method, path, query, me, now| {
        Trust::by_secret(&secret()).verify_redirect(method, path, query, proof, me, now)
    };
    assert_eq!(holds("PUT", path, query, "http://t:1", 130), Held::Yes);
    let late = Held::Late { signer: "gateway-1", signed_s: 100 };
    assert_eq!(holds("PUT", path, query, "http://t:1", 131), late);
    for now in [100, 131] {
        assert_eq!(holds("DELETE", path, query, "http://t:1", now), Held::No);
        assert_eq!(holds("PUT", "/v1/objects/b/p", query, "http://t:1", now), Held::No);
        assert_eq!(holds("PUT", path, "provider=aws", "http://t:1", now), Held::No);
        assert_eq!(holds("PUT", path, query, "http://t:2", now), Held::No);
    }
}

#[test]
fn a_node_that_reads_the_first_format_gets_it() {
    let signer = Signer::new(secret(), NodeId::new("gateway-1").unwrap(), 1);
    let (old, new, path) = ("http://old:1", "http://new:1", "/internal/v1/join");
    assert!(signer.should_ask_format(old, 100));
    signer.note_format(old, true, 100);
    signer.note_format(new, false, 100);
    let call = signer.node_call("POST", path, NO_BODY, old, 100);
    assert!(Trust::by_secret(&secret()).verify_first_node("POST", path, &call, 100));
    let relay = signer.s3_relay("GET", path, "", old, 100);
    assert!(Trust::by_secret(&secret()).verify_first_node("GET", path, &relay, 100));
    let redirect = signer.redirect("PUT", "/v1/objects/b/a%20b", "x=1", old, 100).unwrap();
    let (expiry, tag) = redirect.split_once("&fbs=").unwrap();
    let expiry = expiry.strip_prefix("fbx=").unwrap();
    assert!(Trust::by_secret(&secret()).verify_first_redirect(
        "PUT",
        "/v1/objects/b/a b",
        expiry,
        tag,
        100
    ));
    let grant = signer.grant(100);
    assert!(
        Proof::parse(&grant).is_none()
            && Trust::by_secret(&secret()).verify_grant(&grant, 100) == Held::Yes
    );
    assert!(Proof::parse(&signer.node_call("POST", path, NO_BODY, new, 100)).is_some());
    // Asked again after a while, as it may have been upgraded.
    assert!(!signer.should_ask_format(old, 109) && signer.should_ask_format(old, 110));
    assert!(!signer.should_ask_format(new, 100_000));
    signer.note_format(old, false, 110);
    assert!(Proof::parse(&signer.grant(110)).is_some());
    signer.forget_format(old);
    assert!(signer.should_ask_format(old, 110));
}

#[test]
fn a_body_is_the_one_that_was_signed() {
    let mut hasher = BodyHasher::new();
    assert!(hasher.is(&body_hash(b"")) && !hasher.is(&body_hash(b"ab")));
    hasher.update(b"a");
    hasher.update(b"b");
    assert!(hasher.is(&body_hash(b"ab")) && !hasher.is(NO_BODY) && !hasher.is(UNSIGNED_BODY));
}

#[test]
fn the_secret_is_not_in_debug_output() {
    assert!(!format!("{:?}", secret()).contains("0123"));
}

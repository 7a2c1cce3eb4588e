//! Tests how both servers of a node admit a request before a handler sees it.

#![allow(clippy::unwrap_used)]

use forebay_core::sign::{
    ClusterSecret, GRANT_TTL_S, REDIRECT_PROOF, REDIRECT_TTL_S, Signer, body_hash,
};
use forebay_core::state::{ClusterState, Command, Role};
use http_body_util::BodyExt;
use httparse::EMPTY_HEADER;

use super::*;
use crate::auth::{check_sender, redirect_location};
use crate::fast_http::{HEADERS, Kind, Message, Next, next};
use crate::identity::tests::identity;

#[path = "redirect_tests.rs"]
mod redirects;

const OTHER: &str = "http://127.0.0.1:7401";

/// The edge of the gateway of [`identity`], whose cluster has a target at [`OTHER`].
fn edge() -> Edge {
    let config = S3Config { domains: vec!["s3.Example.com".into()], ..S3Config::default() };
    let maps = Maps::default();
    let mut state = ClusterState::default();
    for (index, (name, url)) in
        (1..).zip([("gateway-1", identity().url), ("target-1", OTHER.to_owned())])
    {
        let id = NodeId::new(name).unwrap();
        let role = if name.starts_with('g') { Role::Gateway } else { Role::Target };
        let zone = String::new();
        let join = Command::Join {
            id,
            role,
            url,
            weight: 1,
            zone,
            instance: 1,
            https: String::new(),
            external: String::new(),
        };
        state.apply(index, join).unwrap();
    }
    assert!(maps.offer(state));
    Edge::new(&config, &identity(), &maps)
}

/// The id that the node made for a request.
pub(super) const ID: RequestId = RequestId(0xA1);

fn signer() -> Signer {
    let secret = ClusterSecret::new("0123456789abcdef").unwrap();
    Signer::new(secret, NodeId::new("target-1").unwrap(), rand::random())
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)], body: &'static str) -> Request {
    let mut request = axum::http::Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body)).unwrap()
}

fn caller(edge: &Edge, mut request: Request) -> (Caller, Protocol) {
    let about = edge.admit(ID, &mut request, &LastSender::default()).unwrap();
    (about.caller(), about.protocol)
}

/// The context that the fast path builds for a request without a body.
fn quick(edge: &Edge, target: &str, headers: &[(&str, &str)]) -> Option<RequestContext> {
    let mut lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        lines.push_str("host: 127.0.0.1:7400\r\n");
    }
    let text = format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
    let mut room = [EMPTY_HEADER; HEADERS];
    match next(text.as_bytes(), &mut room) {
        Next::Message(Message { kind: Kind::Get(get), .. }) => {
            edge.quick(&Method::GET, &get, &LastSender::default())
        }
        Next::Refused(_) => None,
        _ => panic!("no request: {text}"),
    }
}

#[test]
fn a_kept_sender_needs_the_same_proofs_the_same_state_and_a_lease() {
    let (edge, last) = (edge(), LastSender::default());
    let (grant, other) = (signer().grant(unix_s()), signer().grant(unix_s()));
    let send = |path: &str, grant: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("host", "127.0.0.1:7400"), ("forebay-s3-user", "eve")];
        headers.extend_from_slice(more);
        headers.push((GRANT_HEADER, grant));
        request("GET", path, &headers, "")
    };
    let again = |mut request: Request| {
        let about = edge.admit_again(ID, &mut request, &last)?;
        assert!(request.headers().keys().all(|name| !name.as_str().starts_with(OWN_HEADERS)));
        Some(about)
    };
    let path = "/v1/objects/b/o";
    edge.admit(ID, &mut send(path, &grant, &[]), &last).unwrap();
    assert!(again(send(path, &grant, &[])).is_none(), "without a lease nothing is kept");
    edge.maps.lease_for_good();
    let first = edge.admit(ID, &mut send(path, &grant, &[]), &last).unwrap();
    let second = again(send("/v1/objects/b/other", &grant, &[])).unwrap();
    assert_eq!((first.caller(), second.caller()), (Caller::Client, Caller::Client));
    assert_eq!(again(send("/api/v1/map", &grant, &[])).unwrap().protocol, Protocol::Native);
    for changed in [
        send(path, &other, &[]),
        send(path, &grant, &[("authorization", "Bearer a.b.c")]),
        send(path, &grant, &[(GRANT_HEADER, &grant)]),
        send(path, &grant, &[(NODE_AUTH_HEADER, "2~x")]),
        send(path, &grant, &[("host", "127.0.0.1:7401")]),
        send("/s3/b/o", &grant, &[]),
        send(&format!("{path}?{REDIRECT_PROOF}=2~x"), &grant, &[]),
        request("GET", path, &[("host", "127.0.0.1:7400")], ""),
    ] {
        let what = format!("{changed:?}");
        assert!(again(changed).is_none(), "{what}");
    }
    let mut state = ClusterState::clone(&edge.maps.load());
    state.version += 1;
    assert!(edge.maps.offer(state));
    assert!(again(send(path, &grant, &[])).is_none(), "the state changed");
}

#[test]
fn both_servers_of_a_node_make_the_same_context() {
    let edge = edge();
    let grant = signer().grant(unix_s());
    let uri: Uri = "/v1/objects/b/o?provider=ais".parse().unwrap();
    let redirected =
        redirect_location(&identity(), 7, None, &Method::GET, &uri, &identity().url).unwrap();
    let redirected = redirected.strip_prefix(&identity().url).unwrap();
    let altered = format!("{redirected}&archpath=x");
    let host = ("host", "127.0.0.1:7400");
    for (target, headers, expected) in [
        ("/v1/objects/b/o", vec![host], Caller::Anonymous),
        ("/v1/objects/b/o", vec![host, (GRANT_HEADER, &grant)], Caller::Client),
        ("/v1/objects/b/o", vec![(GRANT_HEADER, "2~a~b")], Caller::Anonymous),
        (redirected, vec![host], Caller::Redirected),
        (&altered, vec![host], Caller::Anonymous),
    ] {
        let fast = quick(&edge, target, &headers).unwrap();
        let mut slow = request("GET", target, &headers, "");
        let slow = edge.admit(ID, &mut slow, &LastSender::default()).unwrap();
        assert_eq!(fast.caller(), expected, "{target}");
        assert_ne!(fast.id, slow.id);
        assert_eq!(RequestContext { id: fast.id, ..slow }, fast, "{target}");
    }
    // Requests that the fast path cannot decide go to the slow path.
    let bucket = ("Host", "b.S3.example.com:80");
    assert_eq!(quick(&edge, "/v1/objects/b/o", &[bucket]), None);
    assert_eq!(quick(&edge, "/v1/objects/b/o", &[host, host]), None);
    assert_eq!(quick(&edge, "/v1/objects/b/o", &[host, (NODE_AUTH_HEADER, "2~")]), None);
    assert_eq!(quick(&edge, "/v1/buckets/b", &[host]), None);
    let (_, protocol) = caller(&edge, request("GET", "/v1/objects/b/o", &[bucket], ""));
    assert_eq!(protocol, Protocol::S3Root);
    let mut twice = request("GET", "/v1/objects/b/o", &[host, host], "");
    assert_eq!(
        edge.admit(ID, &mut twice, &LastSender::default()).unwrap_err().code,
        ErrorCode::InvalidArgument
    );
}

#[test]
fn a_redirect_or_grant_that_is_out_of_its_time_is_refused_with_both_clocks() {
    let (edge, now, path) = (edge(), unix_s(), "/v1/objects/b/o");
    let past = now - REDIRECT_TTL_S - 60;
    let redirect = |at, secret: &str| {
        let id = NodeId::new("gateway-2").unwrap();
        let signer = Signer::new(ClusterSecret::new(secret).unwrap(), id, 9);
        let proof = signer.redirect("PUT", path, "x=1", &identity().url, at).unwrap();
        format!("{path}?x=1&{proof}")
    };
    let refused = |target: &str, headers: &[(&str, &str)]| {
        let about = edge
            .admit(ID, &mut request("PUT", target, headers, ""), &LastSender::default())
            .unwrap();
        check_sender(&about, &Method::PUT, path).unwrap_err()
    };
    let late = refused(&redirect(past, "0123456789abcdef"), &[]);
    assert_eq!(late.code, ErrorCode::AccessDenied);
    let signed = forebay_core::date::format_utc(past * 1_000_000_000);
    for part in ["gateway-2", &signed, "30 s allowed"] {
        assert!(late.message.contains(part), "{part}: {late}");
    }
    let grant = signer().grant(now - GRANT_TTL_S - 60);
    let late = refused(path, &[(GRANT_HEADER, &grant)]);
    assert!(late.message.contains("the client's grant was signed at"), "{late}");
    // Only for the cluster's own signature does the error mention clocks.
    let forged = refused(&redirect(past, "fedcba9876543210"), &[]);
    assert!(forged.message.contains("expected to be redirected"), "{forged}");
    let forged = refused(path, &[(NODE_AUTH_HEADER, "2~target-1~*~1~99999999999~-~00")]);
    assert_eq!(forged.code, ErrorCode::InvalidArgument, "as that of any client: {forged}");
    let mut read = request("GET", &redirect(past, "0123456789abcdef"), &[], "");
    let about = edge.admit(ID, &mut read, &LastSender::default()).unwrap();
    assert!(check_sender(&about, &Method::GET, path).is_ok(), "anybody reads");
}

#[test]
fn a_call_of_a_node_counts_once_at_the_node_that_it_was_signed_for() {
    let edge = edge();
    let (me, now) = (identity().url, unix_s());
    let path = "/internal/v1/job?fbv=1";
    let sent = |proof: &str, method: &str, path: &str| {
        caller(&edge, request(method, path, &[(NODE_AUTH_HEADER, proof)], "")).0
    };
    let proof = signer().node_call("POST", path, NO_BODY, &me, now);
    assert_eq!(sent(&proof, "POST", "/internal/v1/job?fbv=2"), Caller::Anonymous);
    assert_eq!(sent(&proof, "PUT", path), Caller::Anonymous);
    assert_eq!(sent(&proof, "POST", path), Caller::Node);
    assert_eq!(sent(&proof, "POST", path), Caller::Anonymous, "for the second time");

    let elsewhere = signer().node_call("POST", path, NO_BODY, OTHER, now);
    assert_eq!(sent(&elsewhere, "POST", path), Caller::Anonymous);
    let by_another_name = signer().node_call("POST", path, NO_BODY, "http://gateways:1", now);
    assert_eq!(sent(&by_another_name, "POST", path), Caller::Node);

    let read = signer().node_call("GET", path, NO_BODY, &me, now);
    assert_eq!(sent(&read, "GET", path), Caller::Node);
    assert_eq!(sent(&read, "GET", path), Caller::Node, "a read changes nothing");
    for skewed in [now - NODE_AUTH_TTL_S - 60, now + NODE_AUTH_TTL_S + 60, now + 1_000_000_000] {
        let proof = signer().node_call("POST", path, NO_BODY, &me, skewed);
        let mut late = request("POST", path, &[(NODE_AUTH_HEADER, &proof)], "");
        let about = edge.admit(ID, &mut late, &LastSender::default()).unwrap();
        let refusal = about.require_node().unwrap_err();
        assert_eq!(refusal.code, ErrorCode::AccessDenied);
        let utc = |s: u64| forebay_core::date::format_utc(s * 1_000_000_000);
        let (theirs, ours) = (utc(skewed), utc(now));
        let text = refusal.to_string();
        assert!(text.contains(&theirs) && text.contains(&ours[..15]), "{text}");
    }
}

#[tokio::test]
async fn a_call_of_a_node_is_read_with_the_body_that_was_signed() {
    let edge = edge();
    let (me, path) = (identity().url, "/internal/v1/job");
    for (signed, sent, holds) in [
        ("{\"a\":1}", "{\"a\":1}", true),
        ("{\"a\":1}", "{\"a\":2}", false),
        ("{\"a\":1}", "", false),
        ("", "", true),
        ("", "{}", false),
    ] {
        let hash = body_hash(signed.as_bytes());
        let proof = signer().node_call("POST", path, &hash, &me, unix_s());
        let mut request = request("POST", path, &[(NODE_AUTH_HEADER, &proof)], sent);
        assert_eq!(
            edge.admit(ID, &mut request, &LastSender::default()).unwrap().caller(),
            Caller::Node
        );
        let read = request.into_body().collect().await;
        assert_eq!(read.is_ok(), holds, "{signed} {sent}");
    }
}

#[test]
fn the_proof_of_a_relay_gives_no_rights_of_a_node() {
    let edge = edge();
    let (me, path) = (identity().url, "/v1/objects/first/victim");
    let peer = ("forebay-s3-peer", "10.0.0.9");
    let proof = signer().s3_relay("DELETE", path, "10.0.0.9 alice", &me, unix_s());
    let sent = |user: &str| {
        let headers = [(NODE_AUTH_HEADER, proof.as_str()), peer, ("forebay-s3-user", user)];
        request("DELETE", path, &headers, "")
    };
    assert_eq!(caller(&edge, sent("bob")).0, Caller::Anonymous, "another user");
    let mut relayed = sent("alice");
    let about = edge.admit(ID, &mut relayed, &LastSender::default()).unwrap();
    assert_eq!((about.caller(), about.protocol), (Caller::S3Relay, Protocol::S3Root));
    assert_eq!(about.principal.node.as_ref().unwrap().as_str(), "target-1");
    assert!(about.require_node().is_err());
    assert_eq!(relayed.headers()[&USER], "alice");
    assert!(!relayed.headers().contains_key(NODE_AUTH_HEADER));
}

#[test]
fn headers_of_nodes_are_dropped_unless_a_node_sent_them() {
    let edge = edge();
    let own = [
        ("forebay-s3-front", "/"),
        ("forebay-s3-user", "alice"),
        ("forebay-s3-peer", "10.0.0.9"),
        ("forebay-copy", "{}"),
        ("forebay-keep-existing", "1"),
        ("forebay-auth", "99999999999.00"),
    ];
    let theirs = [("forebay-map", "7"), ("forebay-standby", "1"), ("x-amz-meta-a", "b")];
    let headers: Vec<_> = own.into_iter().chain(theirs).collect();
    let mut sent = request("PUT", "/v1/objects/first/planted", &headers, "");
    let about = edge.admit(ID, &mut sent, &LastSender::default()).unwrap();
    assert_eq!((about.caller(), about.protocol), (Caller::Anonymous, Protocol::V1));
    let mut left: Vec<_> = sent.headers().keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, theirs.map(|(name, _)| name));
}

#[test]
fn a_write_by_a_gateway_that_is_unknown_is_refused_so_that_its_client_tries_again() {
    let grant = "3~gateway-9~*~1~99999999999~*~AAAA";
    let asked = |method, header| request(method, "/v1/objects/b/o", &[(header, grant)], "");
    let without_state = Edge::new(&S3Config::default(), &identity(), &Maps::default());
    for (edge, write, read, node) in [
        (&edge(), Some(ErrorCode::AccessDenied), None, None),
        (&without_state, Some(ErrorCode::Unavailable), None, Some(ErrorCode::Unavailable)),
    ] {
        let code = |request| edge.refusal_of_unknown(&request).map(|e| e.code);
        assert_eq!(code(asked("PUT", GRANT_HEADER)), write);
        assert_eq!(code(asked("GET", GRANT_HEADER)), read);
        assert_eq!(code(asked("GET", NODE_AUTH_HEADER)), node);
        assert_eq!(code(request("PUT", "/v1/objects/b/o", &[], "")), None);
        assert_eq!(edge.unknown_sender(&asked("PUT", GRANT_HEADER)).as_deref(), Some("gateway-9"));
        let redirected = format!("/v1/objects/b/o?x=1&fbs={}", grant.replace('~', "%7E"));
        assert!(edge.unknown_sender(&request("PUT", &redirected, &[], "")).is_some());
        assert_eq!(quick(edge, "/v1/objects/b/o", &[(GRANT_HEADER, grant)]), None);
    }
}

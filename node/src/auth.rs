//! Redirects from a gateway to a target, which a client follows.

use axum::http::{Method, Uri};
pub use forebay_core::request::Caller;
use forebay_core::request::{Refusal, RequestContext};
use forebay_core::sign::{GrantUser, REDIRECT_EXPIRY, REDIRECT_PROOF, body_hash};
use forebay_core::url::{encode_query, pair_key};
use forebay_core::{Error, ErrorCode, Result};
use forebay_v1::query::Query;

use crate::clock::unix_s;
use crate::identity::Identity;

/// Query key of a redirect: the version of the cluster's state that chose the target. A target
/// that has an older one catches up before it answers.
pub const REDIRECT_VERSION: &str = "fbv";

/// Query key of a redirect: the user and the token of the request, by [`GrantUser::query_value`]. The
/// target serves the request only while both are valid.
pub const REDIRECT_USER: &str = "fbu";

/// Query key of a redirect: the hash of the body that the gateway authorized.
pub const REDIRECT_BODY: &str = "fbb";

/// Query keys that every redirect sets anew.
const OWN_KEYS: [&str; 4] = [REDIRECT_VERSION, REDIRECT_USER, REDIRECT_EXPIRY, REDIRECT_PROOF];

/// `Location` of a redirect to `target_url`: the same path and query, the version of the state that
/// chose the target, the user of the request, and a proof of all, which is valid at that target only.
/// These parameters of an earlier redirect are removed.
pub fn redirect_location(
    identity: &Identity,
    version: u64,
    user: Option<&GrantUser>,
    method: &Method,
    uri: &Uri,
    target_url: &str,
) -> Result<String> {
    let mut query = String::new();
    for pair in pairs_without(uri, &OWN_KEYS) {
        query.push_str(pair);
        query.push('&');
    }
    query.push_str(&format!("{REDIRECT_VERSION}={version}"));
    if let Some(user) = user {
        query.push_str(&format!("&{REDIRECT_USER}={}", user.query_value()));
    }
    let path = uri.path();
    let proof = identity.signer.redirect(method.as_str(), path, &query, target_url, unix_s())?;
    Ok(format!("{target_url}{path}?{query}&{proof}"))
}

/// The pairs of a URL's query whose keys are none of these. A client may encode a key in another way,
/// and the first value of a key counts.
fn pairs_without<'a>(uri: &'a Uri, keys: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let is_other = move |pair: &&str| {
        let key = pair_key(pair);
        !pair.is_empty() && !keys.contains(&&*key)
    };
    uri.query().unwrap_or_default().split('&').filter(is_other)
}

/// The URL with the hash of the body that was authorized. The proof of a redirect covers the URL,
/// so the target serves that body only.
pub fn with_body(uri: &Uri, body: &[u8]) -> Result<Uri> {
    let bound = format!("{REDIRECT_BODY}={}", encode_query(&body_hash(body)));
    let others = pairs_without(uri, &[REDIRECT_BODY]);
    let query: Vec<_> = others.chain([bound.as_str()]).collect();
    let text = format!("{}?{}", uri.path(), query.join("&"));
    text.parse().map_err(|_| Error::invalid("the request's URL cannot stand in a header"))
}

/// Returns an error if the sender was redirected with another body than this one.
pub fn check_body(caller: Caller, query: &Query, body: &[u8]) -> Result<()> {
    match query.get(REDIRECT_BODY).filter(|_| caller == Caller::Redirected) {
        Some(hash) if *hash != body_hash(body) => {
            let text = "the body of the request is not the one that the gateway redirected";
            Err(Error::new(ErrorCode::AccessDenied, text))
        }
        _ => Ok(()),
    }
}

/// Returns an error unless this sender may send such a request to a target: a client without a
/// proof may only read there. If a proof was rejected only because of its time, the error mentions
/// the clocks.
pub fn check_sender(about: &RequestContext, method: &Method, path: &str) -> Result<()> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if about.caller() != Caller::Anonymous || reads {
        return Ok(());
    }
    if let Some(Refusal::OutOfTime(late)) = about.principal.refusal.as_deref() {
        return Err(late.clone());
    }
    let text = format!("{method} {path} is expected to be redirected by a gateway");
    Err(Error::invalid(text).hint("send the request to a gateway and follow its redirect"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::identity::tests::identity;

    fn user(name: &str) -> GrantUser {
        GrantUser { user: name.into(), token: "t1".into(), epoch: 3 }
    }

    #[test]
    fn a_redirected_request_has_the_body_that_was_authorized() {
        let uri: Uri = "/v1/objects/b/o?x=1&fbb=forged&y".parse().unwrap();
        let bound = with_body(&uri, b"one").unwrap();
        assert!(bound.query().unwrap().starts_with("x=1&y&fbb="), "{bound}");
        let query = Query::parse(bound.query());
        assert!(check_body(Caller::Redirected, &query, b"one").is_ok());
        let other = check_body(Caller::Redirected, &query, b"two").unwrap_err();
        assert_eq!(other.code, ErrorCode::AccessDenied);
        let unbound = Query::parse(Some("x=1"));
        assert!(check_body(Caller::Redirected, &unbound, b"two").is_ok());
    }

    #[test]
    fn a_client_sets_no_parameter_of_a_redirect_in_another_spelling() {
        let evil = encode_query(&body_hash(b"two"));
        let sent: Uri = format!("/v1/objects/b?%66bb={evil}&f%62b={evil}").parse().unwrap();
        let query = with_body(&sent, b"one").unwrap();
        let query = Query::parse(query.query());
        assert!(check_body(Caller::Redirected, &query, b"two").is_err());
        assert!(check_body(Caller::Redirected, &query, b"one").is_ok());
        let sent: Uri =
            "/v1/objects/b/o?%66bv=9&x=1&fb%75=u1&fb%73=2~x&%66%62%78=1".parse().unwrap();
        let location = redirect_location(&identity(), 7, None, &Method::PUT, &sent, "").unwrap();
        assert!(location.starts_with("/v1/objects/b/o?x=1&fbv=7&fbs=2~"), "{location}");
    }

    #[test]
    fn of_two_redirects_the_later_one_has_the_state_and_the_user() {
        let me = identity();
        let uri: Uri = "/v1/objects/b/o?archpath=a%26b&fresh".parse().unwrap();
        let first = redirect_location(&me, 7, Some(&user("ann")), &Method::PUT, &uri, "").unwrap();
        let first: Uri = first.parse().unwrap();
        let second = |user: Option<&GrantUser>| {
            redirect_location(&me, 8, user, &Method::PUT, &first, "http://t:2").unwrap()
        };
        let expected = "http://t:2/v1/objects/b/o?archpath=a%26b&fresh&fbv=8";
        let of_nobody = second(None);
        assert!(of_nobody.starts_with(&format!("{expected}&fbs=2~")), "{of_nobody}");
        assert_eq!(of_nobody.matches("fbs=").count(), 1, "{of_nobody}");
        let of_bob = second(Some(&user("bob")));
        let expected = format!("{expected}&fbu={}&fbs=2~", user("bob").query_value());
        assert!(of_bob.starts_with(&expected), "{of_bob}");
    }
}

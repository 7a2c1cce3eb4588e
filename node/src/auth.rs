//! Who asks: a node of the cluster, our client with a grant, a client we redirected, or anybody.

use axum::http::{HeaderMap, HeaderName, Method, Uri};
use forebay_core::sign::{GRANT_HEADER, NODE_AUTH_HEADER, REDIRECT_EXPIRY, REDIRECT_SIGNATURE};
use forebay_core::v1::query::{Query, decode_path};
use forebay_core::{Error, Result};

use crate::clock::unix_s;
use crate::identity::Identity;

/// What a request proves about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A node of this cluster.
    Node,
    /// Our own client: it knows the map and wants to hear when it is wrong.
    Client,
    /// A foreign client that a gateway sent here.
    Redirected,
    Anonymous,
}

impl Caller {
    /// Whether the sender routes by the map itself.
    pub fn knows_the_map(self) -> bool {
        matches!(self, Self::Node | Self::Client)
    }
}

static NODE_AUTH: HeaderName = HeaderName::from_static(NODE_AUTH_HEADER);
static GRANT: HeaderName = HeaderName::from_static(GRANT_HEADER);

/// Reads the proofs of a request. A proof that does not hold counts as none.
pub fn caller(method: &Method, uri: &Uri, headers: &HeaderMap, identity: &Identity) -> Caller {
    if headers.contains_key(&NODE_AUTH) && require_node(method, uri, headers, identity).is_ok() {
        return Caller::Node;
    }
    let grant = headers.get(&GRANT).and_then(|v| v.to_str().ok());
    if grant.is_some_and(|g| identity.secret.verify_grant(g, unix_s())) {
        return Caller::Client;
    }
    match uri.query() {
        Some(query) if is_redirected(method, uri.path(), query, identity) => Caller::Redirected,
        _ => Caller::Anonymous,
    }
}

fn is_redirected(method: &Method, path: &str, query: &str, identity: &Identity) -> bool {
    if !query.contains(REDIRECT_SIGNATURE) {
        return false;
    }
    let query = Query::parse(Some(query));
    if let (Some(expiry), Some(tag)) = (query.get(REDIRECT_EXPIRY), query.get(REDIRECT_SIGNATURE))
        && let Ok(path) = decode_path(path)
    {
        identity.secret.verify_redirect(method.as_str(), &path, expiry, tag, unix_s())
    } else {
        false
    }
}

/// Lets only nodes of this cluster through.
pub fn require_node(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    identity: &Identity,
) -> Result<()> {
    let value = headers.get(&NODE_AUTH).and_then(|v| v.to_str().ok()).unwrap_or("");
    let path = uri.path_and_query().map_or(uri.path(), |p| p.as_str());
    identity.secret.verify_node(method.as_str(), path, value, unix_s())
}

/// Query key of a redirect: the version of the cluster's state that chose the target. A target
/// that has an older one catches up before it answers.
pub const REDIRECT_VERSION: &str = "fbv";

/// `Location` of a redirect to `target_url`: the same path and query, the version of the state that
/// chose it, and a signature of the decoded path (clients may re-encode it, which must not void
/// the signature). What an earlier redirect said of these is left out.
pub fn redirect_location(
    identity: &Identity,
    version: u64,
    method: &Method,
    uri: &Uri,
    target_url: &str,
) -> Result<String> {
    let path = decode_path(uri.path())?;
    let proof = identity.secret.sign_redirect(method.as_str(), &path, unix_s());
    let own = [REDIRECT_VERSION, REDIRECT_EXPIRY, REDIRECT_SIGNATURE];
    let is_own = |pair: &str| own.contains(&pair.split('=').next().unwrap_or_default());
    let mut query = String::new();
    for pair in uri.query().unwrap_or_default().split('&').filter(|p| !p.is_empty() && !is_own(p)) {
        query.push_str(pair);
        query.push('&');
    }
    Ok(format!("{target_url}{}?{query}{REDIRECT_VERSION}={version}&{proof}", uri.path()))
}

/// The refusal of a write that did not come through a gateway.
pub fn expected_redirect(method: &Method, path: &str) -> Error {
    Error::invalid(format!("{method} {path} is expected to be redirected by a gateway"))
        .hint("send the request to a gateway and follow its redirect")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::NodeId;
    use forebay_core::sign::ClusterSecret;
    use forebay_core::state::Role;

    fn identity() -> Identity {
        Identity {
            id: NodeId::new("gateway-1").unwrap(),
            role: Role::Gateway,
            url: "http://127.0.0.1:7400".into(),
            secret: ClusterSecret::new("0123456789abcdef").unwrap(),
            zone: String::new(),
            started: std::time::Instant::now(),
            instance: 1,
            cluster: String::new(),
        }
    }

    #[test]
    fn a_redirect_holds_for_its_name_however_that_is_encoded() {
        let me = identity();
        let uri: Uri = "/v1/objects/b/a%20%7Eb?provider=ais".parse().unwrap();
        let location = redirect_location(&me, 7, &Method::PUT, &uri, "http://t:1").unwrap();
        assert!(location.starts_with("http://t:1/v1/objects/b/a%20%7Eb?provider=ais&fbv=7&fbx="));
        let none = HeaderMap::new();
        let followed: Uri = location.replace("%7E", "~").parse().unwrap();
        assert_eq!(caller(&Method::PUT, &followed, &none, &me), Caller::Redirected);
        assert_eq!(caller(&Method::DELETE, &followed, &none, &me), Caller::Anonymous);
        let other: Uri = location.replace("a%20", "c%20").parse().unwrap();
        assert_eq!(caller(&Method::PUT, &other, &none, &me), Caller::Anonymous);
    }

    #[test]
    fn of_two_redirects_the_later_one_says_what_state_is_needed() {
        let me = identity();
        let uri: Uri = "/v1/objects/b/o?archpath=a%26b&fresh".parse().unwrap();
        let first = redirect_location(&me, 7, &Method::PUT, &uri, "").unwrap();
        let first: Uri = first.parse().unwrap();
        let second = redirect_location(&me, 8, &Method::PUT, &first, "http://t:2").unwrap();
        let expected = "http://t:2/v1/objects/b/o?archpath=a%26b&fresh&fbv=8&fbx=";
        assert!(second.starts_with(expected), "{second}");
        assert_eq!(second.matches("fbs=").count(), 1, "{second}");
        let second: Uri = second.parse().unwrap();
        assert_eq!(caller(&Method::PUT, &second, &HeaderMap::new(), &me), Caller::Redirected);
    }
}

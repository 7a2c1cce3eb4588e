//! The sender of a connection's last request.
//!
//! A client sends the same proofs with every request of a connection. As long as the state by which
//! they were verified is current, their comparison with the last ones takes the place of their hash.

use std::sync::Mutex;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use forebay_core::access::Access;
use forebay_core::locks::MutexExt;
use forebay_core::request::{Principal, RequestContext, RequestId};
use forebay_core::sign::REDIRECT_PROOF;

use super::{Edge, GRANT, NODE_AUTH, context, drop_client_headers, sender_span};
use crate::access::GRANT_KEPT_S;
use crate::clock::unix_s;

/// The proofs in the headers of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentProofs<'a> {
    pub(super) grant: Option<&'a [u8]>,
    pub(super) authorization: Option<&'a [u8]>,
}

/// The verified sender of a connection's last request, if it sent proofs.
#[derive(Debug, Default)]
pub(crate) struct LastSender(Mutex<Option<VerifiedSender>>);

#[derive(Debug)]
struct VerifiedSender {
    grant: Option<Vec<u8>>,
    authorization: Option<Vec<u8>>,
    /// Version of the state by which the proofs were verified. Revoked tokens and changed rights
    /// have a later one.
    version: u64,
    until_s: u64,
    principal: Principal,
}

impl LastSender {
    fn get(&self, proofs: SentProofs<'_>, version: u64, now_s: u64) -> Option<Principal> {
        let last = self.0.locked();
        let last = last.as_ref()?;
        let is_valid = last.version == version
            && now_s <= last.until_s
            && is_same(last.grant.as_deref(), proofs.grant)
            && is_same(last.authorization.as_deref(), proofs.authorization);
        is_valid.then(|| last.principal.clone())
    }

    fn put(&self, proofs: SentProofs<'_>, version: u64, until_s: u64, principal: &Principal) {
        let (grant, authorization) =
            (proofs.grant.map(<[u8]>::to_vec), proofs.authorization.map(<[u8]>::to_vec));
        let principal = principal.clone();
        let sender = VerifiedSender { grant, authorization, version, until_s, principal };
        *self.0.locked() = Some(sender);
    }
}

/// Constant time, because a proxy may send requests of several clients over one connection.
fn is_same(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => verify_slices_are_equal(a, b).is_ok(),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl<'a> SentProofs<'a> {
    /// The proofs in `headers`; `None` if one of them is there twice.
    fn of(headers: &'a HeaderMap) -> Option<Self> {
        let one = |name| {
            let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
            let first = values.next();
            values.next().is_none().then_some(first)
        };
        Some(Self { grant: one(&GRANT)?, authorization: one(&header::AUTHORIZATION)? })
    }
}

impl Edge {
    /// [`Self::admit`] for a request with the proofs of the connection's last one. `None`: they have to
    /// be verified.
    pub(crate) fn admit_again(
        &self,
        id: RequestId,
        request: &mut Request,
        last: &LastSender,
    ) -> Option<RequestContext> {
        let (headers, uri) = (request.headers(), request.uri().clone());
        if headers.contains_key(&NODE_AUTH) || headers.get_all(header::HOST).iter().count() > 1 {
            return None;
        }
        let proofs = SentProofs::of(headers)?;
        if !self.may_keep(uri.query(), proofs) {
            return None;
        }
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        // The proof of an S3 request covers more than its headers.
        let protocol = Some(self.protocol(uri.path(), host, false)).filter(|p| !p.is_s3())?;
        let principal = last.get(proofs, self.maps.version(), unix_s())?;
        drop_client_headers(request.headers_mut());
        let trace = sender_span(request.headers());
        Some(context(id, protocol, uri.path(), principal, trace))
    }

    /// Keeps the verified sender of a request that did not take the fast path.
    pub(super) fn keep(
        &self,
        query: Option<&str>,
        proofs: SentProofs<'_>,
        version: u64,
        principal: &Principal,
        last: &LastSender,
    ) {
        let SentProofs { grant, authorization } = proofs;
        if self.may_keep(query, proofs)
            && let Some((permissions, until_s)) =
                self.quick_permissions(principal, grant, authorization)
            && permissions.access == principal.access
            && self.holds_on_all_paths(principal)
        {
            last.put(proofs, version, until_s.min(unix_s() + GRANT_KEPT_S), principal);
        }
    }

    /// Whether the path of a request has no part in who its sender is: in a cluster with users it
    /// decides what a sender without a user may do.
    fn holds_on_all_paths(&self, principal: &Principal) -> bool {
        let is_enforced =
            || self.users.as_ref().is_some_and(|users| users.is_enforced(&self.maps.load()));
        principal.refusal.is_none()
            && (matches!(principal.access, Access::User(_)) || !is_enforced())
    }

    /// Whether a sender with these proofs may be kept. Without a lease this node may have missed a
    /// revocation.
    fn may_keep(&self, query: Option<&str>, proofs: SentProofs<'_>) -> bool {
        (proofs.grant.is_some() || proofs.authorization.is_some())
            && !query.is_some_and(|query| query.contains(REDIRECT_PROOF))
            && self.maps.has_lease()
    }

    /// The sender of a request on the fast path. `None`: only [`Self::admit`] can decide.
    pub(super) fn quick_sender(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        proofs: SentProofs<'_>,
        last: &LastSender,
    ) -> Option<Principal> {
        let SentProofs { grant, authorization } = proofs;
        let may_keep = self.may_keep(query, proofs);
        let (version, now_s) = (self.maps.version(), unix_s());
        if may_keep && let Some(principal) = last.get(proofs, version, now_s) {
            return Some(principal);
        }
        if self.is_unknown_client(query, grant) {
            return None;
        }
        let principal = self.client(method, path, query, grant);
        let (permissions, until_s) = self.quick_permissions(&principal, grant, authorization)?;
        let principal = permissions.given_to(principal);
        if may_keep && self.holds_on_all_paths(&principal) {
            last.put(proofs, version, until_s.min(now_s + GRANT_KEPT_S), &principal);
        }
        Some(principal)
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::request::Caller;

    use super::*;

    #[test]
    fn a_sender_is_kept_for_the_same_proofs_the_same_state_and_some_time() {
        let last = LastSender::default();
        let token = SentProofs { grant: None, authorization: Some(b"Bearer a") };
        let principal = Principal::new(Caller::Client);
        assert!(last.get(token, 3, 50).is_none(), "nothing was verified");
        last.put(token, 3, 100, &principal);
        assert_eq!(last.get(token, 3, 100), Some(principal.clone()));
        assert!(last.get(token, 3, 101).is_none(), "the time is over");
        assert!(last.get(token, 4, 100).is_none(), "the state changed");
        for other in [
            SentProofs { grant: Some(b"Bearer a"), authorization: None },
            SentProofs { grant: Some(b"g"), ..token },
            SentProofs { authorization: Some(b"Bearer b"), ..token },
            SentProofs { authorization: Some(b"Bearer"), ..token },
            SentProofs::default(),
        ] {
            assert!(last.get(other, 3, 100).is_none(), "{other:?}");
        }
        let both = SentProofs { grant: Some(b"g"), ..token };
        last.put(both, 3, 100, &principal);
        assert!(last.get(both, 3, 100).is_some() && last.get(token, 3, 100).is_none());
    }
}

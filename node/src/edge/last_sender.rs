//! The sender of a connection's last request.
//!
//! A client sends the same proofs with every request of a connection. As long as the state by which
//! they were verified is current, their comparison with the last ones takes the place of their hash.

use std::cell::RefCell;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::Method;
use forebay_core::request::Principal;
use forebay_core::sign::REDIRECT_PROOF;

use super::Edge;
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
pub(crate) struct LastSender(RefCell<Option<VerifiedSender>>);

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
        let last = self.0.borrow();
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
        self.0.replace(Some(VerifiedSender { grant, authorization, version, until_s, principal }));
    }
}

/// Constant time, because a proxy may send requests of several clients over one connection.
fn is_same(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => verify_slices_are_equal(a, b).is_ok(),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl Edge {
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
        let is_redirect = query.is_some_and(|query| query.contains(REDIRECT_PROOF));
        let is_kept = (grant.is_some() || authorization.is_some())
            && !is_redirect
            // Without a lease this node may have missed a revocation.
            && self.maps.has_lease();
        let (version, now_s) = (self.maps.version(), unix_s());
        if is_kept && let Some(principal) = last.get(proofs, version, now_s) {
            return Some(principal);
        }
        if self.is_unknown_client(query, grant) {
            return None;
        }
        let principal = self.client(method, path, query, grant);
        let (access, until_s) = self.quick_access(principal.caller, grant, authorization)?;
        let principal = Principal { access, ..principal };
        if is_kept && principal.refusal.is_none() {
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

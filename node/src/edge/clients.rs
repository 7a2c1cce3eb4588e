//! The proofs of senders that are no nodes: grants and redirects.

use std::sync::Arc;

use axum::http::Method;
use forebay_core::clock_offset::out_of_time;
use forebay_core::request::{Caller, Principal, Refusal};
use forebay_core::sign::{
    GRANT_TTL_S, GrantUser, Held, REDIRECT_EXPIRY, REDIRECT_PROOF, REDIRECT_TTL_S,
};
use forebay_core::url::decode_path;
use forebay_core::{Error, Result};
use forebay_v1::query::Query;

use super::Edge;
use crate::auth::REDIRECT_USER;
use crate::clock::unix_s;

impl Edge {
    /// The principal of a sender that is not a node. An expired proof is recorded as the reason for
    /// its refusal.
    pub(super) fn client(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        grant: Option<&[u8]>,
    ) -> Principal {
        let state = self.maps.load();
        let trust = self.trust(&state);
        let grant = grant.and_then(|grant| std::str::from_utf8(grant).ok());
        let mut refusal = None;
        if grant.is_some_and(|grant| trust.verify_user_grant(grant, unix_s()).is_some()) {
            return Principal::new(Caller::Client);
        }
        match grant.map_or(Held::No, |grant| trust.verify_grant(grant, unix_s())) {
            Held::Yes => return Principal::new(Caller::Client),
            Held::Late { signer, signed_s } => {
                refusal =
                    Some(self.out_of_time("the client's grant", signer, signed_s, GRANT_TTL_S));
            }
            Held::No => {}
        }
        match query.map_or(Ok(None), |query| self.redirected(method, path, query)) {
            Ok(Some(sender)) => return sender,
            Ok(None) => {}
            Err(e) => refusal = Some(e),
        }
        let refusal = refusal.map(|late| Arc::new(Refusal::OutOfTime(late)));
        Principal { refusal, ..Principal::new(Caller::Anonymous) }
    }

    /// The sender of a request that a valid redirect of a gateway led here; an error if the redirect has
    /// expired.
    fn redirected(&self, method: &Method, path: &str, query: &str) -> Result<Option<Principal>> {
        if !query.contains(REDIRECT_PROOF) {
            return Ok(None);
        }
        let (state, method) = (self.maps.load(), method.as_str());
        let trust = self.trust(&state);
        let parsed = Query::parse(Some(query));
        let Some(proof) = parsed.get(REDIRECT_PROOF) else { return Ok(None) };
        if let Some(expiry) = parsed.get(REDIRECT_EXPIRY) {
            let is_valid = decode_path(path).is_ok_and(|path| {
                trust.verify_first_redirect(method, &path, expiry, proof, unix_s())
            });
            return Ok(is_valid.then(|| Principal::new(Caller::Redirected)));
        }
        match trust.verify_redirect(method, path, query, proof, &self.identity.url, unix_s()) {
            Held::Yes => Ok(redirected_sender(&parsed)),
            Held::Late { signer, signed_s } => {
                Err(self.out_of_time("the redirect", signer, signed_s, REDIRECT_TTL_S))
            }
            Held::No => Ok(None),
        }
    }

    fn out_of_time(&self, what: &str, signer: &str, signed_s: u64, allowed_s: u64) -> Error {
        let me = self.identity.id.as_str();
        out_of_time(what, signer, signed_s, me, unix_s(), allowed_s).hint(
            "set the clocks of all nodes (NTP); if they are right, the client used it too late",
        )
    }
}

/// The sender of a request with the query of a valid redirect. `None` if this node cannot read the user
/// of the redirect, whose token may have been revoked.
fn redirected_sender(query: &Query) -> Option<Principal> {
    let user = match query.get(REDIRECT_USER) {
        Some(text) => Some(Arc::new(GrantUser::of_query_value(text)?)),
        None => None,
    };
    Some(Principal { user, ..Principal::new(Caller::Redirected) })
}

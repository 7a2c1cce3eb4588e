//! Senders whose keys this node does not have yet: new members, which others learned of earlier.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use forebay_core::sign::{
    Claims, ClusterSecret, INSTANCE_PATH, Proof, REDIRECT_PROOF, Trust, is_join,
};
use forebay_core::state::ClusterState;
use forebay_core::{Error, ErrorCode};
use forebay_v1::query::Query;

use super::{Edge, GRANT, NODE_AUTH};
use crate::access::{Place, bearer};

impl Edge {
    /// Which proofs count by this state.
    pub(super) fn trust<'a>(&'a self, state: &'a ClusterState) -> Trust<'a> {
        Trust::new(&self.identity.signer, &state.node_keys)
    }

    /// Id of the join token that proves this call, which is the join of a target without the secret
    /// of the cluster. The text of the token is the secret of the proof.
    pub(super) fn join_token(
        &self,
        proof: &Proof<'_>,
        call: &Claims<'_>,
        state: &ClusterState,
    ) -> Option<String> {
        if !is_join(call.target) {
            return None;
        }
        let mut tokens = state.access.join_tokens.iter();
        let found = tokens.find(|(id, token)| {
            let text = self.identity.sealer.open_text(Place::JoinToken(id), &token.secret);
            let secret = text.and_then(|text| ClusterSecret::new(&text).ok());
            secret.is_some_and(|secret| secret.verify(proof, call))
        });
        found.map(|(id, _)| id.clone())
    }

    /// The node that signed the request, a redirect or a grant with a key that this node does not
    /// have.
    pub(crate) fn unknown_sender(&self, request: &Request) -> Option<String> {
        // A gateway asks which process has this address. One that has not joined refuses.
        if request.uri().path() == INSTANCE_PATH && self.maps.version() == 0 {
            return None;
        }
        let headers = request.headers();
        let text = |value: Option<&HeaderValue>| {
            value.and_then(|v| self.unknown(std::str::from_utf8(v.as_bytes()).ok()?))
        };
        text(headers.get(&NODE_AUTH))
            .or_else(|| {
                let grant = std::str::from_utf8(headers.get(&GRANT)?.as_bytes()).ok()?;
                self.unknown_grant(grant)
            })
            .or_else(|| {
                let token = headers.get(header::AUTHORIZATION).and_then(|v| bearer(v.as_bytes()));
                token.and_then(|token| self.unknown(token))
            })
            .or_else(|| self.unknown_redirect(request.uri().query()))
    }

    /// [`Self::unknown_sender`] for the fast path.
    pub(super) fn is_unknown_client(&self, query: Option<&str>, grant: Option<&[u8]>) -> bool {
        let grant = grant.and_then(|grant| std::str::from_utf8(grant).ok());
        grant.is_some_and(|grant| self.unknown_grant(grant).is_some())
            || self.unknown_redirect(query).is_some()
    }

    fn unknown_redirect(&self, query: Option<&str>) -> Option<String> {
        let query = query.filter(|query| query.contains(REDIRECT_PROOF))?;
        let raw =
            query.split('&').find_map(|pair| pair.strip_prefix(REDIRECT_PROOF)?.strip_prefix('='));
        // Without the cost of the whole query, where the client has left the proof as it is.
        if let Some(proof) = raw
            && !proof.contains('%')
        {
            return self.unknown(proof);
        }
        let parsed = Query::parse(Some(query));
        parsed.get(REDIRECT_PROOF).and_then(|proof| self.unknown(proof))
    }

    /// The gateway that made this grant, if this node does not have the key that made it.
    fn unknown_grant(&self, grant: &str) -> Option<String> {
        let state = self.maps.load();
        let trust = self.trust(&state);
        let sender = trust.unknown_sender(grant).or_else(|| trust.sender_with_other_key(grant));
        sender.map(str::to_owned)
    }

    fn unknown(&self, text: &str) -> Option<String> {
        let state = self.maps.load();
        self.trust(&state).unknown_sender(text).map(str::to_owned)
    }

    /// The refusal of a request whose signer this node does not know, after it has waited for the key.
    /// A client gets another grant then. `None`: other checks decide, as for a read without a proof.
    pub(crate) fn refusal_of_unknown(&self, request: &Request) -> Option<Error> {
        let sender = self.unknown_sender(request)?;
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_of_node = request.headers().contains_key(&NODE_AUTH);
        if self.maps.version() == 0 && (is_of_node || !is_read) {
            return Some(Error::unavailable("this node has not joined yet").retry_after(1));
        }
        let text =
            format!("the cluster has no such key of {sender}, which made the grant or redirect");
        // Clients try again with the grant of another map until this node and the gateway agree.
        let refusal =
            Error::new(ErrorCode::AccessDenied, text).hint("fetch the map again").retry_after(1);
        (!is_read && !is_of_node).then_some(refusal)
    }
}

//! Join tokens of targets.

use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use forebay_core::access::{AccessChange, JoinTokenInfo, JoinTokenRequest};
use forebay_node::clock::unix_s;
use forebay_node::reply::json;

use super::super::answered;
use super::super::authn::message;
use super::{About, Auth, by_admin, secret};

/// The tokens that have not expired.
pub(super) async fn join_tokens(State(state): State<Auth>, Extension(about): About) -> Response {
    let answer = || {
        state.accounts.require_admin(&about)?;
        let (now, now_s) = (state.accounts.state(), unix_s());
        let tokens = now.access.join_tokens.iter();
        let all: Vec<_> = tokens
            .filter(|(_, token)| !token.has_expired(now_s))
            .map(|(id, token)| JoinTokenInfo {
                id: id.clone(),
                node: token.node.clone(),
                uses: token.uses,
                expires_s: token.expires_s,
            })
            .collect();
        Ok(json(&all))
    };
    answered("auth_join_tokens", answer())
}

pub(super) async fn create(
    State(state): State<Auth>,
    Extension(about): About,
    request: Request,
) -> Response {
    let result = async {
        state.accounts.require_admin(&about)?;
        let asked: JoinTokenRequest = message(request).await?;
        Ok(secret(json(&state.accounts.create_join_token(&asked).await?)))
    };
    answered("auth_create_join_token", result.await)
}

pub(super) async fn delete(
    State(state): State<Auth>,
    Extension(about): About,
    Path(id): Path<String>,
) -> Response {
    let change = AccessChange::DeleteJoinToken { id };
    by_admin(&state, &about, "auth_delete_join_token", Ok(change)).await
}

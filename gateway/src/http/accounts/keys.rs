//! Keys of the S3 API, and tokens.

use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use forebay_core::access::{
    AccessChange, KeyInfo, KeyReply, KeyRequest, RevokeRequest, TokenRequest,
};
use forebay_node::reply::json;

use super::super::answered;
use super::super::authn::message;
use super::super::done;
use super::{About, Auth, secret, token_reply};

/// The keys of all users for an administrator, otherwise those of the sender.
pub(super) async fn keys(State(state): State<Auth>, Extension(about): About) -> Response {
    let answer = || {
        let own = match state.accounts.require_admin(&about) {
            Ok(()) => None,
            Err(_) => Some(state.accounts.user_of(&about)?),
        };
        let now = state.accounts.state();
        let keys = now.access.keys.iter();
        let keys = keys.filter(|(_, key)| own.is_none_or(|user| user == key.user));
        let all: Vec<_> = keys
            .map(|(access, key)| KeyInfo {
                access: access.clone(),
                user: key.user.clone(),
                created_ns: key.created_ns,
            })
            .collect();
        Ok(json(&all))
    };
    answered("auth_keys", answer())
}

pub(super) async fn create_key(
    State(state): State<Auth>,
    Extension(about): About,
    request: Request,
) -> Response {
    let result = async {
        let KeyRequest { user } = message(request).await?;
        let user = state.subject(&about, &user)?;
        let (access, key) = state.accounts.create_key(&user).await?;
        Ok(secret(json(&KeyReply { access, secret: key, user })))
    };
    answered("auth_create_key", result.await)
}

pub(super) async fn delete_key(
    State(state): State<Auth>,
    Extension(about): About,
    Path(access): Path<String>,
) -> Response {
    let result = async {
        let now = state.accounts.state();
        let owner = now.access.keys.get(&access).map(|key| key.user.as_str());
        if owner.is_none() || owner != about.access().user() {
            state.accounts.require_admin(&about)?;
        }
        state.accounts.change(AccessChange::DeleteKey { access: access.clone() }).await?;
        Ok(done())
    };
    answered("auth_delete_key", result.await)
}

pub(super) async fn create_token(
    State(state): State<Auth>,
    Extension(about): About,
    request: Request,
) -> Response {
    let result = async {
        let TokenRequest { user, ttl_s } = message(request).await?;
        let user = state.subject(&about, &user)?;
        Ok(token_reply(state.accounts.issue(&user, ttl_s).await?))
    };
    answered("auth_create_token", result.await)
}

pub(super) async fn revoke(
    State(state): State<Auth>,
    Extension(about): About,
    request: Request,
) -> Response {
    let result = async {
        let RevokeRequest { token, user } = message(request).await?;
        if token.is_empty() {
            let name = state.subject(&about, &user)?;
            state.accounts.change(AccessChange::RevokeUser { name }).await?;
        } else {
            state.accounts.revoke(&token).await?;
        }
        Ok(done())
    };
    answered("auth_revoke", result.await)
}

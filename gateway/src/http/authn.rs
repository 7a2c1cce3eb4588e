//! AIStore's AuthN API, served by every gateway.

use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use forebay_core::access::{AccessChange, User};
use forebay_core::request::RequestContext;
use forebay_core::state::ShownUrls;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::access::hash_password;
use forebay_node::identity::Identity;
use forebay_node::listener::shown_urls;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::auth as rules;
use forebay_v1::action::lower_keys;
use forebay_v1::authn::{
    ClusterList, ClusterMessage, LoginMessage, RoleMessage, TokenMessage, UserMessage,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{answered, done, read_body};
use crate::accounts::{Accounts, no_role, no_user};

/// Largest body of these requests.
const MAX_MESSAGE: usize = 256 << 10;

#[derive(Clone)]
pub(crate) struct AuthN {
    pub(crate) accounts: Accounts,
    pub(crate) identity: Identity,
}

pub(crate) fn router(state: AuthN) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<AuthN> {
    RouteSet::new()
        .on(&rules::AUTHN_USERS, users)
        .on(&rules::AUTHN_ADD_USER, users)
        .on(&rules::AUTHN_LOGIN, user)
        .on(&rules::AUTHN_USER, user)
        .on(&rules::AUTHN_SET_USER, user)
        .on(&rules::AUTHN_DELETE_USER, user)
        .on(&rules::AUTHN_ROLES, roles)
        .on(&rules::AUTHN_ADD_ROLE, roles)
        .on(&rules::AUTHN_ROLE, role)
        .on(&rules::AUTHN_SET_ROLE, role)
        .on(&rules::AUTHN_DELETE_ROLE, role)
        .on(&rules::AUTHN_CLUSTERS, clusters)
        .on(&rules::AUTHN_ADD_CLUSTER, clusters)
        .on(&rules::AUTHN_CLUSTER, cluster)
        .on(&rules::AUTHN_SET_CLUSTER, cluster)
        .on(&rules::AUTHN_DELETE_CLUSTER, cluster)
        .on(&rules::AUTHN_TOKENS, tokens)
        .on(&rules::AUTHN_REVOKE, tokens)
        .on(&rules::AUTHN_PUBLIC_KEY, public_key)
        .on(&rules::AUTHN_ROTATE_KEY, rotate_key)
        .on(&rules::AUTHN_DISCOVERY, discovery)
        .on(&rules::AUTHN_KEYS, key_set)
}

/// Reads a message; names of fields are not case-sensitive.
pub(crate) async fn message<T: DeserializeOwned>(request: Request) -> Result<T> {
    let body = read_body(request.into_body(), MAX_MESSAGE).await?;
    // Without the parser's text: it may quote a password.
    let unreadable = |_| Error::invalid("the message is unreadable JSON");
    let value: serde_json::Value = serde_json::from_slice(&body).map_err(unreadable)?;
    // An array would be taken for the fields of the message, in their order.
    if !value.is_object() {
        return Err(Error::invalid("the message is not a JSON object"));
    }
    serde_json::from_value(lower_keys(value)).map_err(unreadable)
}

fn wrong_method(method: &Method) -> Error {
    Error::new(ErrorCode::MethodNotAllowed, format!("{method} is not served here"))
}

async fn users(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
    request: Request,
) -> Response {
    let result = async {
        let accounts = &state.accounts;
        accounts.require_admin(&about)?;
        match *request.method() {
            Method::GET => {
                let now = accounts.state();
                let of = |name: &String| UserMessage::of(&now.access, name, &now.cluster_id);
                let names = now.access.users.keys();
                let all: std::collections::BTreeMap<_, _> =
                    names.filter_map(|name| Some((name.clone(), of(name)?))).collect();
                Ok(json(&all))
            }
            Method::POST => add_user(accounts, message(request).await?).await,
            ref other => Err(wrong_method(other)),
        }
    };
    answered("authn_users", result.await)
}

async fn add_user(accounts: &Accounts, user: UserMessage) -> Result<Response> {
    let password = user.password.unwrap_or_default();
    let password = accounts.hashed(move || hash_password(&password)).await??;
    let roles = user.roles.into_iter().map(|role| role.name).collect();
    let new = Box::new(User { password, roles, ..User::default() });
    accounts.change(AccessChange::AddUser { name: user.id, user: new }).await?;
    Ok(done())
}

async fn user(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let result = async {
        let accounts = &state.accounts;
        if *request.method() == Method::POST {
            let login: LoginMessage = message(request).await?;
            // 0 and less: as long as possible.
            let ttl_s = login.expires_in.map(|ns| match u64::try_from(ns) {
                Ok(ns) if ns > 0 => (ns / 1_000_000_000).max(1),
                _ => u64::MAX,
            });
            let token = accounts.login(&name, login.password, ttl_s).await?;
            return Ok(json(&TokenMessage { token: token.text }));
        }
        accounts.require_admin(&about)?;
        match *request.method() {
            Method::GET => {
                let now = accounts.state();
                let user = UserMessage::of(&now.access, &name, &now.cluster_id);
                Ok(json(&user.ok_or_else(|| no_user(&name))?))
            }
            Method::PUT => {
                let user: UserMessage = message(request).await?;
                let password = user.password.filter(|password| !password.is_empty());
                let password = match password {
                    Some(password) => {
                        Some(accounts.hashed(move || hash_password(&password)).await??)
                    }
                    None => None,
                };
                let roles: Vec<_> = user.roles.into_iter().map(|role| role.name).collect();
                // AIStore's SDK sends no roles if only the password changes.
                let roles = Some(roles).filter(|roles| !roles.is_empty());
                accounts.change(AccessChange::SetUser { name, password, roles }).await?;
                Ok(done())
            }
            Method::DELETE => {
                accounts.change(AccessChange::DeleteUser { name }).await?;
                Ok(done())
            }
            ref other => Err(wrong_method(other)),
        }
    };
    answered("authn_user", result.await)
}

async fn roles(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
    request: Request,
) -> Response {
    let result = async {
        let accounts = &state.accounts;
        accounts.require_admin(&about)?;
        match *request.method() {
            Method::GET => {
                let now = accounts.state();
                let of = |name: &str| RoleMessage::of(&now.access, name, &now.cluster_id);
                let all: Vec<_> =
                    accounts.role_names().iter().filter_map(|name| of(name)).collect();
                Ok(json(&all))
            }
            Method::POST => {
                let role: RoleMessage = message(request).await?;
                let definition = Box::new(role.definition());
                let add = AccessChange::AddRole { name: role.name, role: definition };
                accounts.change(add).await?;
                Ok(done())
            }
            ref other => Err(wrong_method(other)),
        }
    };
    answered("authn_roles", result.await)
}

async fn role(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let result = async {
        let accounts = &state.accounts;
        accounts.require_admin(&about)?;
        match *request.method() {
            Method::GET => {
                let now = accounts.state();
                let role = RoleMessage::of(&now.access, &name, &now.cluster_id);
                Ok(json(&role.ok_or_else(|| no_role(&name))?))
            }
            Method::PUT => {
                let role: RoleMessage = message(request).await?;
                let role = Box::new(role.definition());
                accounts.change(AccessChange::SetRole { name, role }).await?;
                Ok(done())
            }
            Method::DELETE => {
                accounts.change(AccessChange::DeleteRole { name }).await?;
                Ok(done())
            }
            ref other => Err(wrong_method(other)),
        }
    };
    answered("authn_role", result.await)
}

async fn clusters(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
    request: Request,
) -> Response {
    let result = async {
        let accounts = &state.accounts;
        accounts.require_admin(&about)?;
        match *request.method() {
            Method::GET => Ok(json(&listed(accounts, None))),
            Method::POST => {
                let cluster: ClusterMessage = message(request).await?;
                let entry = cluster.entry();
                accounts.change(AccessChange::AddCluster { id: cluster.id, entry }).await?;
                Ok(done())
            }
            ref other => Err(wrong_method(other)),
        }
    };
    answered("authn_clusters", result.await)
}

/// The registered clusters, or the one with this id or alias.
fn listed(accounts: &Accounts, only: Option<&str>) -> ClusterList {
    let now = accounts.state();
    let all = now.access.clusters.iter();
    let is_listed = |id: &str, alias: &str| only.is_none_or(|only| only == id || only == alias);
    let chosen = all.filter(|(id, entry)| is_listed(id, &entry.alias));
    let clusters = chosen.map(|(id, entry)| (id.clone(), ClusterMessage::of(id, entry))).collect();
    ClusterList { clusters }
}

async fn cluster(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let result = async {
        let accounts = &state.accounts;
        accounts.require_admin(&about)?;
        let found = listed(accounts, Some(&name));
        let known = found.clusters.first_key_value().map(|(_, cluster)| cluster.clone());
        let missing = format!("cluster \"{name}\" does not exist");
        let known = known.ok_or_else(|| Error::new(ErrorCode::AccountNotFound, missing))?;
        let id = known.id.clone();
        match *request.method() {
            Method::GET => return Ok(json(&found)),
            Method::PUT => {
                let sent: ClusterMessage = message(request).await?;
                let mut entry = known.entry();
                if !sent.alias.is_empty() {
                    entry.alias = sent.alias;
                }
                if !sent.urls.is_empty() {
                    entry.urls = sent.urls;
                }
                accounts.change(AccessChange::SetCluster { id, entry }).await?;
            }
            Method::DELETE => accounts.change(AccessChange::DeleteCluster { id }).await?,
            ref other => return Err(wrong_method(other)),
        }
        Ok(done())
    };
    answered("authn_cluster", result.await)
}

/// `DELETE` revokes a token; `GET` returns the ids of revoked tokens.
async fn tokens(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
    request: Request,
) -> Response {
    let result = async {
        let accounts = &state.accounts;
        match *request.method() {
            Method::DELETE => {
                let TokenMessage { token } = message(request).await?;
                accounts.revoke(&token).await?;
                Ok(done())
            }
            Method::GET => {
                accounts.require_admin(&about)?;
                let now = accounts.state();
                Ok(json(&json!({"tokens": now.access.revoked.keys().collect::<Vec<_>>()})))
            }
            ref other => Err(wrong_method(other)),
        }
    };
    answered("authn_tokens", result.await)
}

/// The keys that verify tokens of this cluster, as a JWKS.
fn keys_json(accounts: &Accounts) -> serde_json::Value {
    let now = accounts.state();
    let keys: Vec<_> = now
        .access
        .signing_keys
        .iter()
        .map(|key| {
            json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": key.id,
                "x": key.public})
        })
        .collect();
    json!({"keys": keys})
}

async fn key_set(State(state): State<AuthN>) -> Response {
    answered("authn_keys", Ok(json(&keys_json(&state.accounts))))
}

async fn public_key(State(state): State<AuthN>) -> Response {
    let now = state.accounts.state();
    let result = match now.access.signing_keys.last() {
        Some(key) => Ok(json(&json!({"kid": key.id, "alg": "EdDSA", "public_key": key.public}))),
        None => Err(Error::new(ErrorCode::AccountNotFound, "the cluster has no signing key yet")),
    };
    answered("authn_public_key", result)
}

async fn rotate_key(
    State(state): State<AuthN>,
    Extension(about): Extension<RequestContext>,
) -> Response {
    let result = async {
        state.accounts.require_admin(&about)?;
        state.accounts.rotate_signing_key().await?;
        Ok(done())
    };
    answered("authn_rotate_key", result.await)
}

async fn discovery(State(state): State<AuthN>, headers: HeaderMap) -> Response {
    let now = state.accounts.state();
    let here = match shown_urls(&headers) {
        ShownUrls::External { here } => here,
        _ => state.identity.url.clone(),
    };
    let document = json!({
        "issuer": now.cluster_id,
        "jwks_uri": format!("{here}/.well-known/jwks.json"),
        "id_token_signing_alg_values_supported": ["EdDSA"],
        "response_types_supported": ["token"],
        "subject_types_supported": ["public"],
    });
    answered("authn_discovery", Ok(json(&document)))
}

//! The native API for users, roles, keys and tokens, under `/api/v1/auth`.

mod join_tokens;
mod keys;

use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use forebay_core::access::{
    AccessChange, CanIReply, LoginRequest, Right, Rights, Role, RoleBinding, RoleDefinition,
    RoleInfo, Scope, TokenReply, User, UserInfo, UserRequest, WhoAmI, right_names,
};
use forebay_core::name::Bucket;
use forebay_core::request::RequestContext;
use forebay_core::{Error, Result};
use forebay_node::access::{NewToken, hash_password};
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::auth as rules;
use forebay_v1::query::Query;

use super::authn::message;
use super::{answered, done};
use crate::accounts::{Accounts, no_role, no_user};

#[derive(Clone)]
pub(crate) struct Auth {
    pub(crate) accounts: Accounts,
}

pub(crate) fn router(state: Auth) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Auth> {
    RouteSet::new()
        .on(&rules::LOGIN, login)
        .on(&rules::WHOAMI, whoami)
        .on(&rules::CAN_I, can_i)
        .on(&rules::SECTION, section)
        .on(&rules::USERS, users)
        .on(&rules::ADD_USER, add_user)
        .on(&rules::USER, user)
        .on(&rules::SET_USER, set_user)
        .on(&rules::DELETE_USER, delete_user)
        .on(&rules::BIND, bind)
        .on(&rules::UNBIND, unbind)
        .on(&rules::ROLES, roles)
        .on(&rules::ADD_ROLE, add_role)
        .on(&rules::ROLE, role)
        .on(&rules::DELETE_ROLE, delete_role)
        .on(&rules::KEYS, keys::keys)
        .on(&rules::CREATE_KEY, keys::create_key)
        .on(&rules::DELETE_KEY, keys::delete_key)
        .on(&rules::CREATE_TOKEN, keys::create_token)
        .on(&rules::REVOKE, keys::revoke)
        .on(&rules::JOIN_TOKENS, join_tokens::join_tokens)
        .on(&rules::CREATE_JOIN_TOKEN, join_tokens::create)
        .on(&rules::DELETE_JOIN_TOKEN, join_tokens::delete)
}

type About = Extension<RequestContext>;

impl Auth {
    /// The user that a request is about: the sender, or, for an administrator, anybody.
    fn subject(&self, about: &RequestContext, named: &str) -> Result<String> {
        match (named, about.access().user()) {
            ("", _) => self.accounts.user_of(about).map(str::to_owned),
            (named, Some(user)) if named == user => Ok(named.to_owned()),
            (named, _) => self.accounts.require_admin(about).map(|()| named.to_owned()),
        }
    }
}

/// An answer with a secret, which no cache may keep.
fn secret(mut answer: Response) -> Response {
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn token_reply(token: NewToken) -> Response {
    let NewToken { text, claims } = token;
    secret(json(&TokenReply {
        token: text,
        user: claims.sub,
        id: claims.jti,
        expires_s: claims.exp,
    }))
}

async fn login(State(state): State<Auth>, request: Request) -> Response {
    let result = async {
        let LoginRequest { user, password, ttl_s } = message(request).await?;
        Ok(token_reply(state.accounts.login(&user, password, ttl_s).await?))
    };
    answered("auth_login", result.await)
}

async fn whoami(Extension(about): About) -> Response {
    answered("auth_whoami", Ok(json(&WhoAmI::of(about.access()))))
}

/// `?right=NAME`, with `&bucket=provider://name` and `&object=NAME` or `&prefix=PREFIX`.
async fn can_i(Extension(about): About, request: Request) -> Response {
    let answer = || {
        let query = Query::parse(request.uri().query());
        let name = query.get("right").unwrap_or_default();
        let right = Right::of_name(name).ok_or_else(|| {
            let known: Vec<_> = Right::ALL.iter().map(|right| right.name()).collect();
            Error::invalid(format!("there is no right \"{name}\""))
                .hint(format!("the rights are {}", known.join(", ")))
        })?;
        let bucket = query.get("bucket").filter(|text| !text.is_empty());
        let bucket = bucket.map(|uri| Bucket::parse_uri(uri).map(|(bucket, _)| bucket));
        let bucket = bucket.transpose()?;
        let scope = match (&bucket, query.get("object"), query.get("prefix")) {
            (None, ..) => Scope::Cluster,
            (Some(bucket), Some(object), _) => Scope::Object(bucket, object),
            (Some(bucket), None, Some(prefix)) => Scope::Prefix(bucket, prefix),
            (Some(bucket), None, None) => Scope::Bucket(bucket),
        };
        Ok(json(&CanIReply { allowed: about.access().has(right, &scope) }))
    };
    answered("auth_can_i", answer())
}

/// The whole section of users, for backups. Its secrets are sealed or hashed.
async fn section(State(state): State<Auth>, Extension(about): About) -> Response {
    let allowed = state.accounts.require_admin(&about);
    let answer = allowed.map(|()| secret(json(state.accounts.state().access.as_ref())));
    answered("auth_section", answer)
}

async fn users(State(state): State<Auth>, Extension(about): About) -> Response {
    let answer = || {
        state.accounts.require_admin(&about)?;
        let now = state.accounts.state();
        let names = now.access.users.keys();
        let all: Vec<_> = names.filter_map(|name| UserInfo::of(&now.access, name)).collect();
        Ok(json(&all))
    };
    answered("auth_users", answer())
}

async fn user(
    State(state): State<Auth>,
    Extension(about): About,
    Path(name): Path<String>,
) -> Response {
    let answer = || {
        let name = state.subject(&about, &name)?;
        let found = UserInfo::of(&state.accounts.state().access, &name);
        Ok(json(&found.ok_or_else(|| no_user(&name))?))
    };
    answered("auth_user", answer())
}

async fn add_user(
    State(state): State<Auth>,
    Extension(about): About,
    request: Request,
) -> Response {
    let result = async {
        state.accounts.require_admin(&about)?;
        let UserRequest { name, password, roles } = message(request).await?;
        let password = match password {
            Some(password) => state.accounts.hashed(move || hash_password(&password)).await??,
            None => Default::default(),
        };
        let user = Box::new(User { password, roles: roles.unwrap_or_default(), ..User::default() });
        state.accounts.change(AccessChange::AddUser { name, user }).await?;
        Ok(done())
    };
    answered("auth_add_user", result.await)
}

/// An administrator changes everything, a user the own password.
async fn set_user(
    State(state): State<Auth>,
    Extension(about): About,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let result = async {
        let name = state.subject(&about, &name)?;
        let UserRequest { password, roles, .. } = message(request).await?;
        if roles.is_some() {
            state.accounts.require_admin(&about)?;
        }
        let password = match password {
            Some(password) => Some(state.accounts.hashed(move || hash_password(&password)).await??),
            None => None,
        };
        state.accounts.change(AccessChange::SetUser { name, password, roles }).await?;
        Ok(done())
    };
    answered("auth_set_user", result.await)
}

/// Commits a change by an administrator.
async fn by_admin(
    state: &Auth,
    about: &RequestContext,
    op: &'static str,
    change: Result<AccessChange>,
) -> Response {
    let result = async {
        state.accounts.require_admin(about)?;
        state.accounts.change(change?).await?;
        Ok(done())
    };
    answered(op, result.await)
}

async fn delete_user(
    State(state): State<Auth>,
    Extension(about): About,
    Path(name): Path<String>,
) -> Response {
    by_admin(&state, &about, "auth_delete_user", Ok(AccessChange::DeleteUser { name })).await
}

async fn bind(
    State(state): State<Auth>,
    Extension(about): About,
    Path(user): Path<String>,
    request: Request,
) -> Response {
    let binding = message::<RoleBinding>(request).await;
    let change = binding.map(|binding| AccessChange::Bind { user, binding });
    by_admin(&state, &about, "auth_bind", change).await
}

async fn unbind(
    State(state): State<Auth>,
    Extension(about): About,
    Path(user): Path<String>,
    request: Request,
) -> Response {
    let binding = message::<RoleBinding>(request).await;
    let change = binding.map(|binding| AccessChange::Unbind { user, binding });
    by_admin(&state, &about, "auth_unbind", change).await
}

fn role_info(accounts: &Accounts, name: &str) -> Option<RoleInfo> {
    if let Some(role) = Role::of_name(name) {
        return Some(RoleInfo {
            name: name.to_owned(),
            description: role.description().to_owned(),
            rights: right_names(role.rights()),
            buckets: Vec::new(),
            is_builtin: true,
        });
    }
    let now = accounts.state();
    let role = now.access.roles.get(name)?;
    let everywhere = if role.admin { Rights::ALL } else { Rights::NONE };
    let here = |cluster: &str| cluster.is_empty() || cluster == now.cluster_id;
    let rights = role.clusters.iter().filter(|c| here(&c.cluster));
    let rights = rights.fold(everywhere, |rights, c| rights.with(c.rights));
    let buckets = role.buckets.iter().filter(|b| here(&b.cluster));
    Some(RoleInfo {
        name: name.to_owned(),
        description: role.description.clone(),
        rights: right_names(rights),
        buckets: buckets.map(|b| format!("{}://{}", b.provider, b.name)).collect(),
        is_builtin: false,
    })
}

async fn roles(State(state): State<Auth>, Extension(about): About) -> Response {
    let answer = || {
        state.accounts.require_admin(&about)?;
        let names = state.accounts.role_names();
        let all: Vec<_> =
            names.iter().filter_map(|name| role_info(&state.accounts, name)).collect();
        Ok(json(&all))
    };
    answered("auth_roles", answer())
}

async fn role(
    State(state): State<Auth>,
    Extension(about): About,
    Path(name): Path<String>,
) -> Response {
    let answer = || {
        state.accounts.require_admin(&about)?;
        Ok(json(&role_info(&state.accounts, &name).ok_or_else(|| no_role(&name))?))
    };
    answered("auth_role", answer())
}

async fn add_role(
    State(state): State<Auth>,
    Extension(about): About,
    request: Request,
) -> Response {
    let change = message::<RoleInfo>(request).await.and_then(|role| {
        let mut rights = Rights::NONE;
        for name in &role.rights {
            let right = Right::of_name(name);
            let unknown = || Error::invalid(format!("there is no right \"{name}\""));
            rights = rights.with(Rights::of(&[right.ok_or_else(unknown)?]));
        }
        let cluster = forebay_core::access::ClusterRights { cluster: String::new(), rights };
        let definition = RoleDefinition {
            description: role.description,
            admin: rights.has(Right::Admin),
            clusters: vec![cluster],
            buckets: Vec::new(),
        };
        Ok(AccessChange::AddRole { name: role.name, role: Box::new(definition) })
    });
    by_admin(&state, &about, "auth_add_role", change).await
}

async fn delete_role(
    State(state): State<Auth>,
    Extension(about): About,
    Path(name): Path<String>,
) -> Response {
    by_admin(&state, &about, "auth_delete_role", Ok(AccessChange::DeleteRole { name })).await
}

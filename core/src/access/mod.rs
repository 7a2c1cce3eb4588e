//! Permissions: users, rights, roles, tokens, and the decision on one request. No I/O.

mod change;
mod claims;
mod decision;
mod join_token;
mod limiter;
mod limits;
mod messages;
mod records;
mod right;
mod role;
mod section;
mod user_rights;

pub use self::change::AccessChange;
pub use self::claims::{
    Claims, IssuerRules, MAX_TOKEN_TTL_S, TokenIdentity, foreign_identity, token_text_id,
};
pub use self::decision::{Access, Binding, Scope, UserAccess, unauthenticated};
pub use self::join_token::{
    DEFAULT_JOIN_TOKEN_TTL_S, JoinTokenInfo, JoinTokenRecord, JoinTokenReply, JoinTokenRequest,
    MAX_JOIN_TOKEN_TTL_S, MAX_JOIN_TOKEN_USES, no_join_token,
};
pub use self::limiter::LoginLimiter;
pub use self::limits::check_user_name;
pub use self::messages::{
    BindingInfo, CanIReply, KeyInfo, KeyReply, KeyRequest, LoginRequest, RevokeRequest, RoleInfo,
    TokenReply, TokenRequest, UserInfo, UserRequest, WhoAmI, right_names,
};
pub use self::records::{
    BucketRights, ClusterEntry, ClusterRights, Opaque, Quotas, RoleBinding, RoleDefinition,
    S3KeyRecord, SigningKeyRecord, User,
};
pub use self::right::{Right, Rights};
pub use self::role::Role;
pub use self::section::{AccessState, SECTION_VERSION};

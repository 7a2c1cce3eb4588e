//! Users, roles, keys and tokens: AIStore's AuthN API, and the native one.

use super::{Rule, Verb, Who};

/// Declares the rules and the table of them.
macro_rules! rules {
    ($($name:ident: $verb:ident $path:literal $operation:literal $who:ident $summary:literal
        ($request:literal, $answer:literal) $([$($query:literal)*])?;)*) => {
        pub static TABLE: &[&Rule] = &[$(&$name),*];
        $(pub static $name: Rule =
            Rule::new(Verb::$verb, &[$path], $operation, $summary)
                .who(Who::$who)
                .query(&[$($($query),*)?])
                .types($request, $answer);)*
    };
}

rules! {
    AUTHN_USERS: Get "/v1/users" "authn_users" Operator "All users" ("", "UserMessages");
    AUTHN_ADD_USER: Post "/v1/users" "authn_add_user" Operator "Adds a user" ("UserMessage", "");
    AUTHN_LOGIN: Post "/v1/users/{name}" "authn_login" Anyone "Logs in with a password" ("LoginMessage", "TokenMessage");
    AUTHN_USER: Get "/v1/users/{name}" "authn_user" Operator "One user" ("", "UserMessage");
    AUTHN_SET_USER: Put "/v1/users/{name}" "authn_set_user" Operator "Changes a user" ("UserMessage", "");
    AUTHN_DELETE_USER: Delete "/v1/users/{name}" "authn_delete_user" Operator "Deletes a user" ("", "");
    AUTHN_ROLES: Get "/v1/roles" "authn_roles" Operator "All roles" ("", "RoleMessages");
    AUTHN_ADD_ROLE: Post "/v1/roles" "authn_add_role" Operator "Adds a role" ("RoleMessage", "");
    AUTHN_ROLE: Get "/v1/roles/{name}" "authn_role" Operator "One role" ("", "RoleMessage");
    AUTHN_SET_ROLE: Put "/v1/roles/{name}" "authn_set_role" Operator "Changes a role" ("RoleMessage", "");
    AUTHN_DELETE_ROLE: Delete "/v1/roles/{name}" "authn_delete_role" Operator "Deletes a role" ("", "");
    AUTHN_CLUSTERS: Get "/v1/clusters" "authn_clusters" Operator "Registered clusters" ("", "ClusterList");
    AUTHN_ADD_CLUSTER: Post "/v1/clusters" "authn_add_cluster" Operator "Registers a cluster" ("ClusterMessage", "");
    AUTHN_CLUSTER: Get "/v1/clusters/{id}" "authn_cluster" Operator "One registered cluster" ("", "ClusterList");
    AUTHN_SET_CLUSTER: Put "/v1/clusters/{id}" "authn_set_cluster" Operator "Changes a registered cluster" ("ClusterMessage", "");
    AUTHN_DELETE_CLUSTER: Delete "/v1/clusters/{id}" "authn_delete_cluster" Operator "Removes a registered cluster" ("", "");
    AUTHN_TOKENS: Get "/v1/tokens" "authn_tokens" Operator "Ids of revoked tokens" ("", "Json");
    AUTHN_REVOKE: Delete "/v1/tokens" "authn_revoke" Anyone "Revokes the token in the body" ("TokenMessage", "");
    AUTHN_PUBLIC_KEY: Get "/v1/public-key" "authn_public_key" Anyone "The key that verifies tokens" ("", "Json");
    AUTHN_ROTATE_KEY: Post "/v1/rotate-key" "authn_rotate_key" Operator "Adds a key that signs tokens" ("", "");
    AUTHN_DISCOVERY: Get "/.well-known/openid-configuration" "authn_discovery" Anyone "Discovery of the keys" ("", "Json");
    AUTHN_KEYS: Get "/.well-known/jwks.json" "authn_keys" Anyone "The keys that verify tokens" ("", "Jwks");
    LOGIN: Post "/api/v1/auth/login" "auth_login" Anyone "Logs in with a password" ("LoginRequest", "TokenReply");
    WHOAMI: Get "/api/v1/auth/whoami" "auth_whoami" User "The sender and its rights" ("", "WhoAmI");
    CAN_I: Get "/api/v1/auth/can-i" "auth_can_i" User "Whether the sender has a right" ("", "CanIReply") ["right" "bucket" "object" "prefix"];
    SECTION: Get "/api/v1/auth/section" "auth_section" Operator "All users and keys, sealed, for backups" ("", "AccessState");
    USERS: Get "/api/v1/auth/users" "auth_users" Operator "All users" ("", "UserInfos");
    ADD_USER: Post "/api/v1/auth/users" "auth_add_user" Operator "Adds a user" ("UserRequest", "");
    USER: Get "/api/v1/auth/users/{name}" "auth_user" User "The sender, or any user for an operator" ("", "UserInfo");
    SET_USER: Put "/api/v1/auth/users/{name}" "auth_set_user" User "Changes the own password, or any user" ("UserRequest", "");
    DELETE_USER: Delete "/api/v1/auth/users/{name}" "auth_delete_user" Operator "Deletes a user" ("", "");
    BIND: Put "/api/v1/auth/users/{name}/bindings" "auth_bind" Operator "Binds a role to buckets" ("RoleBinding", "");
    UNBIND: Delete "/api/v1/auth/users/{name}/bindings" "auth_unbind" Operator "Takes a bound role" ("RoleBinding", "");
    ROLES: Get "/api/v1/auth/roles" "auth_roles" Operator "All roles" ("", "RoleInfos");
    ADD_ROLE: Post "/api/v1/auth/roles" "auth_add_role" Operator "Defines a role" ("RoleInfo", "");
    ROLE: Get "/api/v1/auth/roles/{name}" "auth_role" Operator "One role" ("", "RoleInfo");
    DELETE_ROLE: Delete "/api/v1/auth/roles/{name}" "auth_delete_role" Operator "Deletes a role" ("", "");
    KEYS: Get "/api/v1/auth/keys" "auth_keys" User "The keys of the sender, or all for an operator" ("", "KeyInfos");
    CREATE_KEY: Post "/api/v1/auth/keys" "auth_create_key" User "Makes a key of the S3 API" ("KeyRequest", "KeyReply");
    DELETE_KEY: Delete "/api/v1/auth/keys/{access}" "auth_delete_key" User "Deletes an own key, or any" ("", "");
    CREATE_TOKEN: Post "/api/v1/auth/tokens" "auth_create_token" User "Issues a token" ("TokenRequest", "TokenReply");
    REVOKE: Delete "/api/v1/auth/tokens" "auth_revoke" User "Revokes a token, or all of a user" ("RevokeRequest", "");
    JOIN_TOKENS: Get "/api/v1/auth/join-tokens" "auth_join_tokens" Operator "Tokens by which targets may join" ("", "JoinTokenInfos");
    CREATE_JOIN_TOKEN: Post "/api/v1/auth/join-tokens" "auth_create_join_token" Operator "Makes a token by which a target may join" ("JoinTokenRequest", "JoinTokenReply");
    DELETE_JOIN_TOKEN: Delete "/api/v1/auth/join-tokens/{id}" "auth_delete_join_token" Operator "Removes a join token" ("", "");
}

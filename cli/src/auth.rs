//! `forebay auth`: login, users, roles, keys and tokens.

mod login;
mod roles;

use clap::{Args, Subcommand};
use forebay_client::Method;
use forebay_core::access::{
    KeyInfo, KeyReply, KeyRequest, RevokeRequest, TokenReply, TokenRequest, UserInfo, UserRequest,
};
use forebay_core::url::encode_query;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{self, Column, Format, Row, Rows};
use crate::session::Session;

pub(crate) use self::login::lifetime_s;

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Log in with a password, and keep the token for further commands
    #[command(after_help = "Example:
  forebay auth login ann                   asks for the password
  forebay auth login ann --password-file p")]
    Login(login::LoginArgs),
    /// Revoke the token of the login, and remove it
    #[command(after_help = "Example:\n  forebay auth logout")]
    Logout,
    /// Show the user of the token, and what it may do
    #[command(after_help = "Example:\n  forebay auth whoami -o json")]
    Whoami,
    /// Check whether the user of the token has a right; exits with 5 if not
    #[command(after_help = "Example:\n  forebay auth can-i put-object ais://runs/ann/x")]
    CanI(login::CanIArgs),
    /// Add, list, change and remove users
    #[command(subcommand)]
    User(UserCommand),
    /// Add, list and remove roles, and bind them to buckets
    #[command(subcommand)]
    Role(roles::RoleCommand),
    /// Create, list and remove keys of the S3 API
    #[command(subcommand)]
    Key(KeyCommand),
    /// Create and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user. The first user of a cluster needs the role admin: from then on every request
    /// needs a user
    #[command(after_help = "Examples:
  forebay auth user add root --role admin --password-file p
  forebay auth user add k8s:system:serviceaccount:train:default --role reader")]
    Add(UserArgs),
    /// List users
    #[command(after_help = "Example:\n  forebay auth user list")]
    List,
    /// Show one user
    #[command(after_help = "Example:\n  forebay auth user show ann")]
    Show(NameArgs),
    /// Change roles or the password
    #[command(after_help = "Example:\n  forebay auth user set ann --role writer")]
    Set(UserArgs),
    /// Remove a user with all keys
    #[command(after_help = "Example:\n  forebay auth user remove ann --yes")]
    Remove(NameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name of the user
    #[arg(value_name = "USER")]
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    #[command(flatten)]
    name: NameArgs,
    /// A role that holds everywhere; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// File with the password, or - for standard input
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key and print its secret, which cannot be shown again
    #[command(after_help = "Example:\n  forebay auth key create --user ann")]
    Create(OwnerArgs),
    /// List keys
    #[command(after_help = "Example:\n  forebay auth key list")]
    List,
    /// Remove a key
    #[command(after_help = "Example:\n  forebay auth key remove FB0123456789")]
    Remove {
        /// The access key
        #[arg(value_name = "ACCESS_KEY")]
        access: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// Another user than that of the token; administrators only
    #[arg(long, value_name = "USER", default_value = "", hide_default_value = true)]
    user: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token for a script and print it
    #[command(after_help = "Example:\n  forebay auth token create --ttl 30d > token")]
    Create {
        #[command(flatten)]
        owner: OwnerArgs,
        /// Lifetime, for example 12h or 30d [default: as configured]
        #[arg(long, value_name = "TIME")]
        ttl: Option<String>,
    },
    /// Revoke one token, or all of a user
    #[command(after_help = "Examples:
  forebay auth token revoke token
  forebay auth token revoke --user ann")]
    Revoke {
        /// File with the token, or - for standard input
        #[arg(value_name = "FILE", required_unless_present = "user")]
        file: Option<String>,
        /// Revoke all tokens of this user
        #[arg(long, value_name = "USER", conflicts_with = "file")]
        user: Option<String>,
    },
}

pub(crate) async fn run(session: &Session, command: &AuthCommand) -> Result<(), Failure> {
    match command {
        AuthCommand::Login(args) => login::login(session, args).await,
        AuthCommand::Logout => login::logout(session).await,
        AuthCommand::Whoami => login::whoami(session).await,
        AuthCommand::CanI(args) => login::can_i(session, args).await,
        AuthCommand::User(command) => users(session, command).await,
        AuthCommand::Role(command) => roles::run(session, command).await,
        AuthCommand::Key(command) => keys(session, command).await,
        AuthCommand::Token(command) => tokens(session, command).await,
    }
}

/// The path of a named item under `/api/v1/auth`, such as `users/ann`.
pub(crate) fn path(kind: &str, name: &str) -> String {
    format!("{kind}/{}", encode_query(name))
}

async fn users(session: &Session, command: &UserCommand) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        UserCommand::Add(args) => {
            let message = user_request(args, Some(args.roles.clone()))?;
            client.auth_do(Method::POST, "users", &message).await?;
            named(session, &args.name.name)
        }
        UserCommand::Set(args) => {
            let roles = Some(args.roles.clone()).filter(|roles| !roles.is_empty());
            let message = user_request(args, roles)?;
            client.auth_do(Method::PUT, &path("users", &args.name.name), &message).await?;
            named(session, &args.name.name)
        }
        UserCommand::List => list_users(session, &client.auth_get::<Vec<UserInfo>>("users").await?),
        UserCommand::Show(args) => {
            let user: UserInfo = client.auth_get(&path("users", &args.name)).await?;
            list_users(session, &[user])
        }
        UserCommand::Remove(args) => {
            session.confirm(&format!("remove user {} with all keys", args.name))?;
            client.auth_do(Method::DELETE, &path("users", &args.name), &Value::Null).await?;
            named(session, &args.name)
        }
    }
}

fn user_request(args: &UserArgs, roles: Option<Vec<String>>) -> Result<UserRequest, Failure> {
    let password = args.password_file.as_deref().map(login::read_secret).transpose()?;
    Ok(UserRequest { name: args.name.name.clone(), password, roles })
}

fn list_users(session: &Session, users: &[UserInfo]) -> Result<(), Failure> {
    let columns = [
        Column("USER", false),
        Column("ROLES", false),
        Column("BINDINGS", false),
        Column("PASSWORD", false),
        Column("KEYS", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for user in users {
        let bindings =
            user.bindings.iter().map(|b| format!("{}:{}/{}", b.role, b.buckets, b.prefix));
        let bindings: Vec<_> = bindings.map(|b| b.trim_end_matches('/').to_owned()).collect();
        let has_password = if user.has_password { "yes" } else { "no" };
        rows.push(Row {
            name: user.name.clone(),
            cells: vec![
                user.name.clone(),
                user.roles.join(","),
                bindings.join(" "),
                has_password.to_owned(),
                user.keys.join(","),
            ],
            json: json!(user),
        })?;
    }
    rows.finish()
}

async fn keys(session: &Session, command: &KeyCommand) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        KeyCommand::Create(args) => {
            let message = KeyRequest { user: args.user.clone() };
            let key: KeyReply = client.auth_send(Method::POST, "keys", &message).await?;
            let shown = [("access key", key.access.clone()), ("secret key", key.secret.clone())];
            session.note("the secret key cannot be shown again");
            output::one(session.format, &key.access, &shown, &json!(key))
        }
        KeyCommand::List => {
            let columns = [Column("ACCESS", false), Column("USER", false), Column("MADE", false)];
            let mut rows = Rows::new(session.format, &columns);
            for key in client.auth_get::<Vec<KeyInfo>>("keys").await? {
                let made = output::time(key.created_ns);
                let cells = vec![key.access.clone(), key.user.clone(), made];
                rows.push(Row { name: key.access.clone(), cells, json: json!(key) })?;
            }
            rows.finish()
        }
        KeyCommand::Remove { access } => {
            session.confirm(&format!("remove key {access}"))?;
            client.auth_do(Method::DELETE, &path("keys", access), &Value::Null).await?;
            named(session, access)
        }
    }
}

async fn tokens(session: &Session, command: &TokenCommand) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        TokenCommand::Create { owner, ttl } => {
            let ttl_s = ttl.as_deref().map(lifetime_s).transpose()?;
            let message = TokenRequest { user: owner.user.clone(), ttl_s };
            let token: TokenReply = client.auth_send(Method::POST, "tokens", &message).await?;
            plain(session, &token.token, &json!(token))
        }
        TokenCommand::Revoke { file: _, user: Some(user) } => {
            let message = RevokeRequest { user: user.clone(), ..RevokeRequest::default() };
            client.auth_do(Method::DELETE, "tokens", &message).await?;
            named(session, user)
        }
        TokenCommand::Revoke { file, user: None } => {
            let token = login::read_secret(file.as_deref().unwrap_or("-"))?;
            let message = RevokeRequest { token, ..RevokeRequest::default() };
            client.auth_do(Method::DELETE, "tokens", &message).await?;
            named(session, "token")
        }
    }
}

/// Prints the name of a changed item.
pub(crate) fn named(session: &Session, name: &str) -> Result<(), Failure> {
    output::one(session.format, name, &[], &json!({ "name": name }))
}

/// Prints one text, as it is, or JSON.
pub(crate) fn plain(session: &Session, text: &str, json: &Value) -> Result<(), Failure> {
    let format = if session.format == Format::Table { Format::Name } else { session.format };
    output::one(format, text, &[], json)
}

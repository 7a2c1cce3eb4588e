//! `forebay auth role`: roles, and their bindings to buckets and prefixes.

use clap::{Args, Subcommand};
use forebay_client::Method;
use forebay_core::access::{RoleBinding, RoleInfo};
use serde_json::{Value, json};

use super::{named, path};
use crate::failure::Failure;
use crate::output::{Column, Row, Rows};
use crate::session::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum RoleCommand {
    /// Define a role of some rights
    #[command(after_help = "Example:
  forebay auth role add loader --right get-object --right list-objects")]
    Add(AddArgs),
    /// List roles
    #[command(after_help = "Example:\n  forebay auth role list")]
    List,
    /// Show one role
    #[command(after_help = "Example:\n  forebay auth role show loader")]
    Show(NameArgs),
    /// Remove a role, also from all users
    #[command(after_help = "Example:\n  forebay auth role remove loader --yes")]
    Remove(NameArgs),
    /// Give a user a role on some buckets
    #[command(after_help = "Example:
  forebay auth role bind writer ann --bucket 'ais://team-*' --prefix ann/")]
    Bind(BindArgs),
    /// Take a bound role from a user
    #[command(
        after_help = "Example:\n  forebay auth role unbind writer ann --bucket 'ais://team-*'"
    )]
    Unbind(BindArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name of the role
    #[arg(value_name = "ROLE")]
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    name: NameArgs,
    /// A right, such as get-object; may be repeated
    #[arg(long = "right", value_name = "RIGHT", required = true)]
    rights: Vec<String>,
    /// The purpose of the role
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
}

#[derive(Debug, Args)]
pub(crate) struct BindArgs {
    /// Name of the role
    #[arg(value_name = "ROLE")]
    role: String,
    /// Name of the user
    #[arg(value_name = "USER")]
    user: String,
    /// Buckets as provider://name, where * stands for any characters
    #[arg(long, value_name = "PATTERN")]
    bucket: String,
    /// Only objects whose names begin so
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
}

impl BindArgs {
    fn binding(&self) -> RoleBinding {
        let (role, prefix) = (self.role.clone(), self.prefix.clone());
        RoleBinding { role, buckets: self.bucket.clone(), prefix }
    }

    fn path(&self) -> String {
        format!("{}/bindings", path("users", &self.user))
    }
}

pub(super) async fn run(session: &Session, command: &RoleCommand) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        RoleCommand::Add(args) => {
            let role = RoleInfo {
                name: args.name.name.clone(),
                description: args.description.clone(),
                rights: args.rights.clone(),
                ..RoleInfo::default()
            };
            client.auth_do(Method::POST, "roles", &role).await?;
            named(session, &args.name.name)
        }
        RoleCommand::List => list(session, &client.auth_get::<Vec<RoleInfo>>("roles").await?),
        RoleCommand::Show(args) => {
            let role: RoleInfo = client.auth_get(&path("roles", &args.name)).await?;
            list(session, &[role])
        }
        RoleCommand::Remove(args) => {
            session.confirm(&format!("remove role {}", args.name))?;
            client.auth_do(Method::DELETE, &path("roles", &args.name), &Value::Null).await?;
            named(session, &args.name)
        }
        RoleCommand::Bind(args) => {
            client.auth_do(Method::PUT, &args.path(), &args.binding()).await?;
            named(session, &args.user)
        }
        RoleCommand::Unbind(args) => {
            client.auth_do(Method::DELETE, &args.path(), &args.binding()).await?;
            named(session, &args.user)
        }
    }
}

fn list(session: &Session, roles: &[RoleInfo]) -> Result<(), Failure> {
    let columns = [Column("ROLE", false), Column("RIGHTS", false), Column("DESCRIPTION", false)];
    let mut rows = Rows::new(session.format, &columns);
    for role in roles {
        let mut rights = role.rights.clone();
        rights.extend(role.buckets.iter().map(|bucket| format!("on {bucket}")));
        let cells = vec![role.name.clone(), rights.join(","), role.description.clone()];
        rows.push(Row { name: role.name.clone(), cells, json: json!(role) })?;
    }
    rows.finish()
}

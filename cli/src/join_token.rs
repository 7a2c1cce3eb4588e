//! `forebay node join-token`: tokens by which targets join without the secret of the cluster.

use clap::{Args, Subcommand};
use forebay_client::Method;
use forebay_core::access::{JoinTokenInfo, JoinTokenReply, JoinTokenRequest};
use serde_json::{Value, json};

use crate::auth::{lifetime_s, named, path, plain};
use crate::failure::Failure;
use crate::output::{self, Column, Row, Rows};
use crate::session::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum JoinTokenCommand {
    /// Make a token and print it; it cannot be shown again
    #[command(after_help = "Examples:
  forebay node join-token create --node target-04 > join-token
  forebay node join-token create --uses 4 --ttl 10m > join-token

Name the file in cluster.join_token_file of the new target, which then needs no
cluster.secret_file. The cluster needs users.

Exit codes: 5 the user is no administrator, 6 the cluster has no users.")]
    Create(CreateArgs),
    /// List the tokens that are valid, without their texts
    #[command(after_help = "Example:\n  forebay node join-token list")]
    List,
    /// Remove a token. Targets that joined by it stay members
    #[command(after_help = "Example:\n  forebay node join-token remove tKx81Qmr2Vwz")]
    Remove {
        /// Id of the token
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Lifetime, at most 24h
    #[arg(long, value_name = "TIME", default_value = "1h")]
    ttl: String,
    /// Number of targets that may join
    #[arg(long, value_name = "N", default_value_t = 1)]
    uses: u32,
    /// Id of the only target that may join
    #[arg(long, value_name = "NODE", default_value = "", hide_default_value = true)]
    node: String,
}

pub(crate) async fn run(session: &Session, command: &JoinTokenCommand) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        JoinTokenCommand::Create(args) => {
            let (ttl_s, uses) = (Some(lifetime_s(&args.ttl)?), Some(args.uses));
            let message = JoinTokenRequest { ttl_s, uses, node: args.node.clone() };
            let token: JoinTokenReply =
                client.auth_send(Method::POST, "join-tokens", &message).await?;
            plain(session, &token.token, &json!(token))
        }
        JoinTokenCommand::List => {
            let columns = [
                Column("ID", false),
                Column("NODE", false),
                Column("USES", true),
                Column("EXPIRES", false),
            ];
            let mut rows = Rows::new(session.format, &columns);
            for token in client.auth_get::<Vec<JoinTokenInfo>>("join-tokens").await? {
                let expires = output::time(token.expires_s.saturating_mul(1_000_000_000));
                let node = if token.node.is_empty() { "any" } else { &token.node };
                let cells =
                    vec![token.id.clone(), node.to_owned(), token.uses.to_string(), expires];
                rows.push(Row { name: token.id.clone(), cells, json: json!(token) })?;
            }
            rows.finish()
        }
        JoinTokenCommand::Remove { id } => {
            client.auth_do(Method::DELETE, &path("join-tokens", id), &Value::Null).await?;
            named(session, id)
        }
    }
}

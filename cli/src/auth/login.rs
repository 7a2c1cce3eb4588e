//! `forebay auth login`, `logout`, `whoami` and `can-i`.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use clap::Args;
use forebay_client::Method;
use forebay_core::access::{CanIReply, LoginRequest, RevokeRequest, Right, TokenReply, WhoAmI};
use forebay_core::size::parse_duration;
use forebay_core::url::encode_query;
use forebay_core::{Bucket, Error};
use serde_json::json;

use super::plain;
use crate::failure::{Failure, exit};
use crate::output::{self, Column, Row, Rows};
use crate::session::Session;

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// Name of the user
    #[arg(value_name = "USER")]
    user: String,
    /// File with the password, or - for standard input [default: ask at the terminal]
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// Lifetime of the token, for example 12h or 30d [default: as configured]
    #[arg(long, value_name = "TIME")]
    ttl: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CanIArgs {
    /// The right, such as get-object
    #[arg(value_name = "RIGHT", value_parser = right)]
    right: Right,
    /// The bucket or object [default: the cluster]
    #[arg(value_name = "URI")]
    uri: Option<String>,
}

fn right(text: &str) -> Result<Right, String> {
    let known = || Right::ALL.map(Right::name).join(", ");
    Right::of_name(text).ok_or_else(|| format!("the rights are {}", known()))
}

/// A lifetime in seconds; `30d` counts days.
pub(crate) fn lifetime_s(text: &str) -> Result<u64, Failure> {
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()) {
        return Ok(days.saturating_mul(24 * 3600));
    }
    Ok(parse_duration(text)?.as_secs())
}

/// The first line of a file, or of standard input for `-`.
pub(super) fn read_secret(file: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        path => std::fs::read_to_string(path).map(|read| text = read),
    };
    read.map_err(|e| Failure::local(file, &e))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Asks for a password without showing it.
fn ask_password(user: &str) -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("no password is given", "use --password-file FILE or -"));
    }
    let _ = write!(std::io::stderr(), "Password of {user}: ");
    let _ = std::io::stderr().flush();
    // `stty` sets the terminal of standard input.
    let echo = |setting: &str| {
        let done = std::process::Command::new("stty").arg(setting).status();
        done.is_ok_and(|status| status.success())
    };
    let is_silent = echo("-echo");
    let mut password = String::new();
    let read = std::io::stdin().read_line(&mut password);
    if is_silent {
        echo("echo");
        let _ = writeln!(std::io::stderr());
    }
    read.map_err(|e| Failure::local("the terminal", &e))?;
    Ok(password.trim_end_matches(['\r', '\n']).to_owned())
}

pub(super) async fn login(session: &Session, args: &LoginArgs) -> Result<(), Failure> {
    let password = match &args.password_file {
        Some(file) => read_secret(file)?,
        None => ask_password(&args.user)?,
    };
    let ttl_s = args.ttl.as_deref().map(lifetime_s).transpose()?;
    let message = LoginRequest { user: args.user.clone(), password, ttl_s };
    let client = session.without_token()?;
    let token: TokenReply = client.auth_send(Method::POST, "login", &message).await?;
    let file = session.login_file()?;
    keep(&file, &token.token).map_err(|e| Failure::local(file.display(), &e))?;
    let until = output::time(token.expires_s.saturating_mul(1_000_000_000));
    session.note(format!("logged in as {} until {until}", token.user));
    let json = json!({ "user": token.user, "expires_s": token.expires_s, "file": file });
    plain(session, &token.user, &json)
}

/// Writes the token into a file that only this user can read, atomically.
fn keep(file: &Path, token: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    }
    let half = file.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&half);
    let mut new =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
    new.write_all(token.as_bytes())?;
    new.sync_all()?;
    std::fs::rename(&half, file)
}

pub(super) async fn logout(session: &Session) -> Result<(), Failure> {
    let file = session.login_file()?;
    let token = match std::fs::read_to_string(&file) {
        Ok(token) => token.trim().to_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::invalid("there is no login at this endpoint").into());
        }
        Err(e) => return Err(Failure::local(file.display(), &e)),
    };
    let message = RevokeRequest { token, ..RevokeRequest::default() };
    let revoked = session.client.auth_do(Method::DELETE, "tokens", &message).await;
    // Removed in any case: an expired token cannot be revoked.
    std::fs::remove_file(&file).map_err(|e| Failure::local(file.display(), &e))?;
    match revoked {
        Err(e) if e.code() != forebay_core::ErrorCode::Unauthenticated => return Err(e.into()),
        _ => {}
    }
    plain(session, "logged out", &json!({ "file": file }))
}

pub(super) async fn whoami(session: &Session) -> Result<(), Failure> {
    let me: WhoAmI = session.client.auth_get("whoami").await?;
    let user = me.user.clone().unwrap_or_default();
    if me.is_open {
        session.note("the cluster has no users: everything is allowed to everybody");
    }
    let columns = [Column("USER", false), Column("ON", false), Column("RIGHTS", false)];
    let mut rows = Rows::new(session.format, &columns);
    if session.format.is_json() {
        rows.push(Row { name: user, cells: Vec::new(), json: json!(me) })?;
        return rows.finish();
    }
    if me.bindings.is_empty() || !me.rights.is_empty() {
        let cells = vec![user.clone(), "everything".into(), me.rights.join(",")];
        rows.push(Row { name: user.clone(), cells, json: json!(me) })?;
    }
    for bound in &me.bindings {
        let on = format!("{}/{}", bound.buckets, bound.prefix);
        let on = on.trim_end_matches('/').to_owned();
        let cells = vec![user.clone(), on, bound.rights.join(",")];
        rows.push(Row { name: user.clone(), cells, json: json!(bound) })?;
    }
    rows.finish()
}

pub(super) async fn can_i(session: &Session, args: &CanIArgs) -> Result<(), Failure> {
    let mut path = format!("can-i?right={}", args.right.name());
    if let Some(uri) = &args.uri {
        let (bucket, object) = Bucket::parse_uri(uri)?;
        path.push_str(&format!("&bucket={}", encode_query(&bucket.to_string())));
        if let Some(object) = object {
            path.push_str(&format!("&object={}", encode_query(&object)));
        }
    }
    let CanIReply { allowed } = session.client.auth_get(&path).await?;
    let answer = if allowed { "yes" } else { "no" };
    plain(session, answer, &json!({ "allowed": allowed }))?;
    if allowed { Ok(()) } else { Err(Failure::silent(exit::DENIED)) }
}

//! State that all client commands share: the connection, the output format, and confirmation.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use forebay_client::tls::{TlsClient, TlsOptions};
use forebay_client::{Client, ClientConfig, TokenSource, login_file};
use forebay_core::Error;
use forebay_core::cloud_rules::FRESH_LISTING;
use forebay_core::size::parse_duration;

use crate::endpoint;
use crate::failure::{Failure, exit};
use crate::output::{self, Format};
use crate::user_config::UserConfig;

/// Flags that every client command takes, anywhere on the line.
#[derive(Debug, Args)]
#[command(next_help_heading = "Client options")]
pub(crate) struct ClientArgs {
    /// URL of a gateway, or several separated by commas. For https://, FOREBAY_CA_FILE, or `ca_file` in
    /// the configuration file, names a PEM file with CAs to trust beside those of the system [default:
    /// FOREBAY_ENDPOINT, else AIS_ENDPOINT, else that of FOREBAY_PROFILE, else `endpoint` in
    /// ~/.config/forebay/config.toml (or the file that FOREBAY_CONFIG names), else
    /// http://127.0.0.1:7400, or, if nothing listens there, the server that the Python client started
    /// for this user]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Use the endpoint and the CAs of this profile: [profile.NAME] with `endpoint` and `ca_file` in
    /// the configuration file
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "endpoint")]
    profile: Option<String>,
    /// How long to retry after errors that may be temporary, for example 30s; a bare number is
    /// seconds
    #[arg(long, global = true, value_name = "TIME", default_value = "60s", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Output format [default: FOREBAY_OUTPUT, else table]
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    output: Option<Format>,
    /// Print results and errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print tables without the line of titles
    #[arg(long, global = true)]
    no_headers: bool,
    /// Remove without asking for confirmation
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
}

impl ClientArgs {
    /// The output format. The environment is read here, not by clap, which would show a value from
    /// the environment as a required option in the usage lines of errors.
    pub(crate) fn output(&self) -> Format {
        self.output.or_else(|| output_of_environment().ok()?).unwrap_or_default()
    }
}

const OUTPUT: &str = "FOREBAY_OUTPUT";

/// The output format that the environment sets, or an error if it is invalid.
pub(crate) fn output_of_environment() -> Result<Option<Format>, String> {
    match std::env::var(OUTPUT) {
        Ok(form) if !form.is_empty() => {
            Format::from_str(&form, true).map(Some).map_err(|e| format!("{OUTPUT}: {form}: {e}"))
        }
        _ => Ok(None),
    }
}

/// Whether a command line that clap refuses asks for JSON.
pub(crate) fn wants_json(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let of = |text: &str| Format::from_str(text.trim_start_matches('='), true).ok();
    let asked = args.iter().enumerate().rev().find_map(|(i, arg)| match arg.as_str() {
        "-o" | "--output" => args.get(i + 1).and_then(|form| of(form)),
        arg => arg.strip_prefix("--output=").or_else(|| arg.strip_prefix("-o")).and_then(of),
    });
    asked.or_else(|| output_of_environment().ok()?).is_some_and(Format::is_json)
}

/// A duration; a bare number is seconds.
fn seconds(text: &str) -> Result<Duration, Error> {
    let duration = match text.parse::<f64>() {
        Ok(n) => Duration::try_from_secs_f64(n)
            .map_err(|_| Error::invalid(format!("invalid duration \"{text}\"")))?,
        Err(_) => parse_duration(text)?,
    };
    match duration.is_zero() {
        true => Err(Error::invalid("the timeout must be longer than nothing")),
        false => Ok(duration),
    }
}

/// The endpoint and the TLS of a run: the flags precede the environment, which precedes the file.
fn reached(args: &ClientArgs) -> Result<(String, TlsOptions), Failure> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let user = UserConfig::of_user()?;
    let mut tls = TlsOptions::from_env();
    if let Some(name) = &args.profile {
        let profile = user.profile(name)?;
        tls.ca_file = profile.ca_file.or(tls.ca_file);
        return Ok((profile.endpoint.unwrap_or_default(), tls));
    }
    let endpoint = args.endpoint.clone().filter(|endpoint| !endpoint.trim().is_empty());
    let endpoint = endpoint.or_else(|| variable("FOREBAY_ENDPOINT"));
    let endpoint = endpoint.or_else(|| variable("AIS_ENDPOINT"));
    let access = match variable("FOREBAY_PROFILE") {
        Some(name) if endpoint.is_none() => user.profile(&name)?,
        _ => user.access()?,
    };
    if tls.ca_file.is_none() {
        tls.ca_file = access.ca_file;
    }
    Ok((endpoint.or(access.endpoint).unwrap_or_else(endpoint::at_hand), tls))
}

/// One run of a client command.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    config: ClientConfig,
    pub(crate) endpoint: String,
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    yes: bool,
}

impl Session {
    pub(crate) fn new(args: &ClientArgs) -> Result<Self, Failure> {
        let (endpoint, tls) = reached(args)?;
        let (tls, token) = (Some(tls), TokenSource::of_user(&endpoint));
        let config =
            ClientConfig { deadline: args.timeout, tls, token, ..ClientConfig::new(endpoint) };
        let client = Client::new(config.clone())?;
        if args.no_headers {
            output::hide_titles();
        }
        Ok(Self {
            endpoint: client.endpoint().to_owned(),
            client,
            config,
            format: args.output(),
            quiet: args.quiet,
            yes: args.yes,
        })
    }

    /// How long requests are retried.
    pub(crate) fn deadline(&self) -> Duration {
        self.config.deadline
    }

    /// The same settings with another deadline.
    pub(crate) fn config_with(&self, deadline: Duration) -> ClientConfig {
        ClientConfig { deadline, ..self.config.clone() }
    }

    /// A client that sends no token, to log in.
    pub(crate) fn without_token(&self) -> Result<Client, Failure> {
        let token = TokenSource::default();
        Ok(Client::new(ClientConfig { token, ..self.config.clone() })?)
    }

    /// The file in which a login at this endpoint keeps its token.
    pub(crate) fn login_file(&self) -> Result<PathBuf, Failure> {
        login_file(&self.config.endpoint).ok_or_else(|| {
            Failure::usage("there is no home folder to keep the token in", "set HOME")
        })
    }

    /// A client that accepts no cached listing of a cloud.
    pub(crate) fn fresh(&self) -> Result<Client, Failure> {
        let cloud_retry = Some(FRESH_LISTING.to_owned());
        Ok(Client::new(ClientConfig { cloud_retry, ..self.config.clone() })?)
    }

    /// The TLS of connections that a command makes itself.
    pub(crate) fn tls(&self) -> TlsClient {
        self.config.tls.clone().map_or_else(TlsClient::default, TlsClient::new)
    }

    /// Prints a note for people that is not a result.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet && !self.format.is_json() {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Prints a warning about a part of the work.
    pub(crate) fn warn(&self, text: impl std::fmt::Display) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// Asks for confirmation before a removal. Without a terminal, `--yes` is required.
    pub(crate) fn confirm(&self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Err(Failure::usage(
                format!("{what}: this needs a yes"),
                "add --yes, since there is no terminal to ask at",
            ));
        }
        let mut err = std::io::stderr();
        let _ = write!(err, "{what}? [y/N] ");
        let _ = err.flush();
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
            true => Ok(()),
            false => {
                self.warn("nothing was removed");
                Err(Failure::silent(exit::FAILED))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_command_line_is_looked_at_for_the_form_of_its_output() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        for json in ["forebay -o json ls --no", "forebay ls -ojsonl", "forebay ls --output=JSON x"]
        {
            assert!(wants(json), "{json}");
        }
        for other in
            ["forebay ls", "forebay -o table ls", "forebay ls -o", "forebay -o json -o name"]
        {
            assert!(!wants(other), "{other}");
        }
    }

    #[test]
    fn timeouts_are_seconds_unless_they_say_otherwise() {
        assert_eq!(seconds("2.5").unwrap(), Duration::from_millis(2500));
        assert_eq!(seconds("2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "0", "0s", "-1", "soon", "nan", "1e99"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}

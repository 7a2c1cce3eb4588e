//! What all client commands share: the connection, how to print, and whether to ask first.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use forebay_client::{Client, ClientConfig, DEFAULT_ENDPOINT};
use forebay_core::Error;
use forebay_core::cloud_rules::FRESH_LISTING;
use forebay_core::size::parse_duration;

use crate::endpoint;
use crate::failure::{Failure, exit};
use crate::output::Format;

/// Flags that every client command takes, anywhere on the line.
#[derive(Debug, Args)]
#[command(next_help_heading = "Client options")]
pub(crate) struct ClientArgs {
    /// URL of a gateway, or several with commas between [default: AIS_ENDPOINT, else `endpoint` in
    /// ~/.config/forebay/config.toml (FOREBAY_CONFIG), else http://127.0.0.1:7400]
    #[arg(long, global = true, env = "FOREBAY_ENDPOINT", value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// How long to try again what may pass, for example 30s
    #[arg(long, global = true, value_name = "TIME", default_value = "60s", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Form of the output
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        default_value_t,
        env = "FOREBAY_OUTPUT"
    )]
    pub(crate) output: Format,
    /// Say nothing but results and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Do not ask before removing things
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
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
        let foreign = || std::env::var("AIS_ENDPOINT").ok();
        let set = args.endpoint.clone().filter(|e| !e.trim().is_empty());
        let endpoint = set.or_else(foreign).filter(|e| !e.trim().is_empty());
        let endpoint = match endpoint {
            Some(endpoint) => endpoint,
            None => endpoint::configured()?.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
        };
        let config = ClientConfig { deadline: args.timeout, ..ClientConfig::new(endpoint) };
        let client = Client::new(config.clone())?;
        Ok(Self {
            endpoint: client.endpoint().to_owned(),
            client,
            config,
            format: args.output,
            quiet: args.quiet,
            yes: args.yes,
        })
    }

    /// A client for whom no kept listing of a cloud is young enough.
    pub(crate) fn fresh(&self) -> Result<Client, Failure> {
        let cloud_retry = Some(FRESH_LISTING.to_owned());
        Ok(Client::new(ClientConfig { cloud_retry, ..self.config.clone() })?)
    }

    /// Tells a person something that is not a result.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet && !self.format.is_json() {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Warns of something that went wrong with a part of the work.
    pub(crate) fn warn(&self, text: impl std::fmt::Display) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// Asks before something is removed. Where nobody can be asked, `--yes` is needed.
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
    fn timeouts_are_seconds_unless_they_say_otherwise() {
        assert_eq!(seconds("2.5").unwrap(), Duration::from_millis(2500));
        assert_eq!(seconds("2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "0", "0s", "-1", "soon", "nan", "1e99"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}

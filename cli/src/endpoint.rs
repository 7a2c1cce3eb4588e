//! Where the cluster is: the endpoint that a user set, and whether anybody listens there at all.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_core::{Error, ErrorCode};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::failure::Failure;

/// A command gives up when every endpoint refused connections for so long.
const REFUSED_WITHIN: Duration = Duration::from_secs(4);
/// After this a person reads what is being tried.
const SAY_AFTER: Duration = Duration::from_secs(1);
const KNOCK_EVERY: Duration = Duration::from_millis(200);
/// A connection attempt that is not answered by then was not refused.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);

/// The endpoint of the configuration file that the Python client reads, too; `None` where the file
/// or the setting is missing.
pub(crate) fn configured() -> Result<Option<String>, Error> {
    match config_path(|name| std::env::var(name).ok().filter(|value| !value.is_empty())) {
        Some(path) => read(&path),
        None => Ok(None),
    }
}

/// The configuration file, whether it exists or not.
fn config_path(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(named) = variable("FOREBAY_CONFIG") {
        return Some(named.into());
    }
    let of_home = || Some(Path::new(&variable("HOME")?).join(".config"));
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(of_home)?;
    Some(folder.join("forebay").join("config.toml"))
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    let bad = |e: &dyn std::fmt::Display| Error::invalid(format!("{}: {e}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(bad(&e)),
    };
    let table: toml::Table = text.parse().map_err(|e| bad(&e))?;
    match table.get("endpoint") {
        None => Ok(None),
        Some(toml::Value::String(url)) if !url.trim().is_empty() => Ok(Some(url.trim().to_owned())),
        Some(other) => Err(bad(&format!("endpoint must be a URL, not {other}"))),
    }
}

/// Ends when every URL of `endpoint` (several with commas between) has refused connections for some
/// seconds; never if one of them did anything else.
pub(crate) async fn all_refuse(endpoint: &str, timeout: Duration, quiet: bool) -> Failure {
    let patience = timeout.min(REFUSED_WITHIN);
    let begun = Instant::now();
    let mut said = quiet || !std::io::stderr().is_terminal();
    while refuses(endpoint).await {
        if begun.elapsed() >= patience {
            let text = format!("cannot connect to {endpoint}: connection refused");
            return Error::new(ErrorCode::Unavailable, text)
                .hint("is the cluster running there? `forebay doctor` checks; set FOREBAY_ENDPOINT")
                .into();
        }
        if begun.elapsed() >= SAY_AFTER && !said {
            said = true;
            let left = patience.saturating_sub(begun.elapsed()).as_secs_f32().ceil();
            let _ = writeln!(
                std::io::stderr(),
                "{endpoint} refuses connections; trying for {left} s more (Ctrl-C, --endpoint)"
            );
        }
        sleep(KNOCK_EVERY).await;
    }
    std::future::pending().await
}

async fn refuses(endpoint: &str) -> bool {
    let urls = endpoint.split(',').map(str::trim).filter(|url| !url.is_empty());
    for url in urls {
        let address = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        let with_port =
            if address.contains(':') { address.to_owned() } else { format!("{address}:80") };
        let knocked = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(with_port)).await;
        if !matches!(knocked, Ok(Err(e)) if e.kind() == ErrorKind::ConnectionRefused) {
            return false;
        }
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_where_the_python_client_looks() {
        let of = |set: &'static [(&str, &str)]| {
            config_path(move |name| {
                set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(
            of(&[("FOREBAY_CONFIG", "/x.toml"), ("HOME", "/h")]).unwrap(),
            Path::new("/x.toml")
        );
        let here = Path::new("/c/forebay/config.toml");
        assert_eq!(of(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]).unwrap(), here);
        assert_eq!(of(&[("HOME", "/h")]).unwrap(), Path::new("/h/.config/forebay/config.toml"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_file_without_an_endpoint_says_nothing_and_a_bad_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        assert_eq!(read(&path).unwrap(), None);
        std::fs::write(&path, "[local]\nenabled = false\n").unwrap();
        assert_eq!(read(&path).unwrap(), None);
        std::fs::write(&path, "endpoint = \" http://h:7400 \"\n").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("http://h:7400"));
        for bad in ["endpoint = 7400\n", "endpoint = \"\"\n", "endpoint\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(read(&path).unwrap_err().message.contains("config.toml"), "{bad}");
        }
    }

    #[tokio::test]
    async fn only_refused_connections_end_a_command_early() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let both = format!("http://{closed},http://{}", open.local_addr().unwrap());
        assert!(!refuses(&both).await);
        let nobody = format!("http://{closed}/");
        let failure = all_refuse(&nobody, Duration::from_millis(1), true).await;
        assert_eq!(failure.code, crate::failure::exit::UNAVAILABLE);
    }
}

//! The cluster's endpoint from the user's settings, and a message if no node listens there.

use std::io::{ErrorKind, IsTerminal, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_client::{Client, DEFAULT_ENDPOINT, LocalServer};
use forebay_core::Error;
use forebay_node::config_load::not_toml;
use tokio::time::sleep;

/// Timeout of the connection that shows whether a server listens at the default endpoint.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);
/// Time until the user gets a message about refused connections.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// The endpoint in the configuration file, which the Python client reads too; `None` if the file or
/// the setting is missing.
pub(crate) fn configured() -> Result<Option<String>, Error> {
    setting("endpoint", "a URL")
}

/// The file with CAs in the configuration file.
pub(crate) fn configured_ca() -> Result<Option<PathBuf>, Error> {
    Ok(setting("ca_file", "a path")?.map(PathBuf::from))
}

/// The endpoint if none is set: the default one if a server listens there or no other is at hand, else
/// that of the server that the Python client started for this user.
pub(crate) fn at_hand() -> String {
    let default = || DEFAULT_ENDPOINT.to_owned();
    let listens = || {
        let address = DEFAULT_ENDPOINT.trim_start_matches("http://").parse().ok()?;
        TcpStream::connect_timeout(&address, CONNECT_WITHIN).ok()
    };
    match LocalServer::running() {
        Some(server) if listens().is_none() => server.endpoint,
        _ => default(),
    }
}

fn setting(key: &str, form: &str) -> Result<Option<String>, Error> {
    match config_path(|name| std::env::var(name).ok().filter(|value| !value.is_empty())) {
        Some(path) => read(&path, key, form),
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

fn read(path: &Path, key: &str, form: &str) -> Result<Option<String>, Error> {
    let bad = |e: &dyn std::fmt::Display| Error::invalid(format!("{}: {e}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(bad(&e)),
    };
    let table: toml::Table = text.parse().map_err(|e| not_toml(path, &text, &e))?;
    match table.get(key) {
        None => Ok(None),
        Some(toml::Value::String(set)) if !set.trim().is_empty() => Ok(Some(set.trim().to_owned())),
        Some(other) => Err(bad(&format!("{key} must be {form}, not {other}"))),
    }
}

/// Writes a line on a terminal if nothing listens at any endpoint, while the client still tries.
pub(crate) async fn report_refusal(client: Client) {
    sleep(REPORT_AFTER).await;
    if let Some(endpoints) = client.refusing_endpoints()
        && std::io::stderr().is_terminal()
    {
        let _ = writeln!(
            std::io::stderr(),
            "{}: connection refused; trying again for some seconds (Ctrl-C, --endpoint)",
            endpoints.join(", ")
        );
    }
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
        assert_eq!(read(&path, "endpoint", "a URL").unwrap(), None);
        std::fs::write(&path, "[local]\nenabled = false\n").unwrap();
        assert_eq!(read(&path, "endpoint", "a URL").unwrap(), None);
        std::fs::write(&path, "endpoint = \" http://h:7400 \"\n").unwrap();
        assert_eq!(read(&path, "endpoint", "a URL").unwrap().as_deref(), Some("http://h:7400"));
        for bad in ["endpoint = 7400\n", "endpoint = \"\"\n", "endpoint\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(
                read(&path, "endpoint", "a URL").unwrap_err().message.contains("config.toml"),
                "{bad}"
            );
        }
    }
}

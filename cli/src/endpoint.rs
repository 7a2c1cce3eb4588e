//! The endpoint if the user sets none, and a message if no node listens at the one that is set.

use std::io::{IsTerminal, Write};
use std::net::TcpStream;
use std::time::Duration;

use forebay_client::{Client, DEFAULT_ENDPOINT, LocalServer};
use tokio::time::sleep;

/// Timeout of the connection that shows whether a server listens at the default endpoint.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);
/// Time until the user gets a message about refused connections.
const REPORT_AFTER: Duration = Duration::from_secs(1);

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

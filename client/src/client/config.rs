//! How a client reaches its cluster: endpoints and timeouts.

use std::time::Duration;

use forebay_core::{Error as CoreError, shown_url};

use crate::contact::Contact;
use crate::error::{Error, Result};
use crate::tls::{TlsClient, TlsOptions};
use crate::token::TokenSource;

/// Where a cluster started without settings listens.
pub const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:7400";

/// How a client reaches its cluster.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// URL of a gateway, or of several with commas between them.
    pub endpoint: String,
    /// How long transient failures are retried without any progress, and how long an answer may
    /// take for its next 16 KiB.
    pub deadline: Duration,
    /// Timeout for making one connection.
    pub connect_timeout: Duration,
    /// How long a node may be silent before or during an answer.
    pub idle_timeout: Duration,
    /// How targets try clouds again for this client: the value of the header `forebay-cloud-retry`.
    pub cloud_retry: Option<String>,
    /// Whether the cluster was ever reached. Clients that share this wait for a cluster that
    /// restarts.
    pub contact: Contact,
    /// Certificates for HTTPS; `None`: those that the environment names.
    pub tls: Option<TlsOptions>,
    /// Where the token that is sent with every request comes from.
    pub token: TokenSource,
}

impl ClientConfig {
    /// The defaults, for this endpoint.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), ..Self::default() }
    }

    /// The endpoint that the environment names (`FOREBAY_ENDPOINT`, else `AIS_ENDPOINT`).
    pub fn from_env() -> Self {
        let set = |name| std::env::var(name).ok().filter(|v: &String| !v.trim().is_empty());
        match set("FOREBAY_ENDPOINT").or_else(|| set("AIS_ENDPOINT")) {
            Some(endpoint) => Self::new(endpoint),
            None => Self::default(),
        }
    }

    /// TLS with the configured certificates. If an endpoint needs it, their files are read now.
    pub(super) fn tls(&self, endpoints: &[String]) -> Result<TlsClient> {
        let tls = self.tls.clone().map_or_else(TlsClient::default, TlsClient::new);
        if endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
            tls.config().map_err(Error::Api)?;
        }
        Ok(tls)
    }

    /// The URLs of the gateways, checked; at least one.
    pub(super) fn endpoints(&self) -> Result<Vec<String>> {
        let endpoints = self.endpoint.split(',').map(str::trim).filter(|e| !e.is_empty());
        let endpoints = endpoints.map(check_endpoint).collect::<Result<Vec<_>>>()?;
        if endpoints.is_empty() {
            return Err(Error::Api(
                CoreError::invalid("no endpoint is given")
                    .hint("set FOREBAY_ENDPOINT, for example to http://127.0.0.1:7400"),
            ));
        }
        Ok(endpoints)
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            deadline: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(20),
            cloud_retry: None,
            contact: Contact::default(),
            tls: None,
            token: TokenSource::default(),
        }
    }
}

/// `http://host:port` or `https://host:port` without a trailing slash; `http` may be left out.
fn check_endpoint(text: &str) -> Result<String> {
    let bad = |why: &str| {
        let e = CoreError::invalid(format!("invalid endpoint \"{}\": {why}", shown_url(text)));
        Error::Api(e.hint("for example http://127.0.0.1:7400"))
    };
    let url = match text.split_once("://") {
        Some(("http" | "https", _)) => text.to_owned(),
        Some(_) => return Err(bad("the scheme must be http or https")),
        None => format!("http://{text}"),
    };
    let url = url.trim_end_matches('/');
    let uri: http::Uri = url.parse().map_err(|_| bad("it is not a URL"))?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(bad("it has a user or a password, which errors would show"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(bad("it names no host"));
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err(bad("it must not have a path"));
    }
    Ok(url.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Client;

    #[test]
    fn endpoints_are_checked_before_anything_is_sent() {
        assert_eq!(check_endpoint("http://h:1/").unwrap(), "http://h:1");
        assert_eq!(check_endpoint("h:1").unwrap(), "http://h:1");
        assert_eq!(check_endpoint("https://h:1/").unwrap(), "https://h:1");
        for bad in ["ftp://h", "http://", "http://h/v1", "http://h?x", "h h"] {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
        for secret in ["http://user:planted@h:1", "https://h:1/?token=planted", "x://planted@h"] {
            let e = check_endpoint(secret).unwrap_err();
            assert!(!format!("{e} {e:?}").contains("planted"), "{e:?}");
        }
        assert!(Client::new(ClientConfig::new(" , ")).is_err());
        let two = Client::new(ClientConfig::new("http://a:1, http://b:2")).unwrap();
        assert_eq!(two.endpoint(), "http://a:1");
    }
}

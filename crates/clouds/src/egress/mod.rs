//! HTTP to URLs of callers, within the egress rule. Names are resolved here, so that the checked
//! address is the one that is called, and every redirect is checked again.

mod endpoint;
mod resolver;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::egress::{Egress, EgressPolicy, EgressRule};
use forebay_core::settings::DOWNLOAD_PRIVATE;
use forebay_core::state::ClusterState;
use forebay_core::{Error, ErrorCode, Result, shown_url};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Url};

pub(crate) use self::endpoint::EndpointGuard;
pub(crate) use self::resolver::blocked;
use self::resolver::{Blocked, Resolver};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Most redirects that are followed.
const REDIRECTS: usize = 10;

/// A client that calls only what its rule allows; cheap to clone.
#[derive(Clone)]
pub struct Guarded {
    client: Client,
    rule: EgressRule,
}

impl Guarded {
    /// A client that follows redirects, or returns them as responses.
    pub fn new(rule: impl Into<EgressRule>, follow: bool) -> Result<Self> {
        let rule = rule.into();
        forebay_node::tls::choose_provider();
        let policy = if follow { redirects(rule.clone(), REDIRECTS) } else { Policy::none() };
        let client = Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .redirect(policy)
            // A proxy would resolve names itself.
            .no_proxy()
            .dns_resolver(Arc::new(Resolver(rule.clone())))
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| {
                Error::internal(format!("no client for user's URLs: {}", innermost(&e)))
            })?;
        Ok(Self { client, rule })
    }

    /// Parses a URL and checks it; a name is checked when it is resolved.
    pub fn url(&self, text: &str) -> Result<Url> {
        let url: Url = text
            .parse()
            .map_err(|e| Error::invalid(format!("\"{}\" is not a URL: {e}", shown_url(text))))?;
        judge(&url, &self.rule)?;
        Ok(url)
    }

    /// Starts a request to a URL that [`Self::url`] returned.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }
}

/// The error for a request without a response. `who` is the start of its text.
pub fn failed(who: &str, e: &reqwest::Error) -> Error {
    if let Some(refused) = blocked(e) {
        return refused;
    }
    let why = innermost(e);
    if e.is_timeout() {
        Error::new(ErrorCode::Timeout, format!("{who} did not answer in time: {why}"))
    } else {
        Error::unavailable(format!("{who} does not answer: {why}"))
    }
}

/// The innermost cause, which has the actual failure.
pub fn innermost(e: &(dyn StdError + 'static)) -> String {
    let mut inner = e;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Checks scheme, host and port of a URL.
fn judge(url: &Url, rule: &EgressRule) -> Result<()> {
    let no = |why: &str| {
        let shown = shown_url(url.as_str());
        Err(Error::new(
            ErrorCode::AccessDenied,
            format!("this node may not call \"{shown}\": {why}"),
        ))
    };
    if !matches!(url.scheme(), "http" | "https") {
        return no("it is not http or https");
    }
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) if !host.is_empty() => rule.check(host, port),
        _ => no("it names no host"),
    }
}

fn redirects(rule: EgressRule, limit: usize) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > limit {
            return attempt.error(format!("more than {limit} redirects"));
        }
        match judge(attempt.url(), &rule) {
            Ok(()) => attempt.follow(),
            Err(e) => attempt.error(Blocked(e)),
        }
    })
}

/// The rules for downloads and web servers.
#[derive(Clone, Debug)]
pub struct WebRules {
    policy: EgressPolicy,
    allow_private: bool,
}

impl WebRules {
    /// `allow_private`: the configuration opens private networks.
    pub fn new(policy: EgressPolicy, allow_private: bool) -> Self {
        Self { policy, allow_private }
    }

    /// Whether private networks are open, by the configuration or by the cluster's settings.
    pub fn reach(&self, state: &ClusterState) -> Egress {
        match self.allow_private || state.settings.has(DOWNLOAD_PRIVATE) {
            true => Egress::Private,
            false => Egress::Public,
        }
    }

    /// The rule for web servers in this scope of addresses.
    pub fn rule(&self, reach: Egress) -> EgressRule {
        self.policy.web(reach)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_address_is_judged_in_every_spelling() {
        let client = Guarded::new(Egress::Public, true).unwrap();
        for bad in [
            "http://127.0.0.1:1/x",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::1]:80/",
            "http://[::ffff:10.0.0.1]/",
            "file:///etc/passwd",
        ] {
            let e = client.url(bad).unwrap_err();
            assert_eq!(e.code, ErrorCode::AccessDenied, "{bad}: {e}");
        }
        assert!(client.url("http://8.8.8.8/x").is_ok() && client.url("nonsense").is_err());
        assert!(Guarded::new(Egress::Private, true).unwrap().url("http://127.0.0.1/").is_ok());
    }

    #[tokio::test]
    async fn a_name_is_judged_by_what_it_stands_for() {
        let client = Guarded::new(Egress::Public, true).unwrap();
        let url = client.url("http://localhost:1/x").unwrap();
        let e = client.request(Method::GET, url).send().await.unwrap_err();
        let e = failed("it", &e);
        assert_eq!(e.code, ErrorCode::AccessDenied, "{e}");
        assert!(e.message.contains("localhost"), "{e}");
    }
}

//! HTTP to URLs of users, within the egress rule. Names are resolved here, so that the checked
//! address is the one that is called, and every redirect is checked again.

use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::egress::Egress;
use forebay_core::{Error, ErrorCode, Result};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Url};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Most redirects that are followed.
const REDIRECTS: usize = 10;

/// A client that calls only what its rule allows; cheap to clone.
#[derive(Clone)]
pub(crate) struct Guarded {
    client: Client,
    rule: Egress,
}

impl Guarded {
    /// A client that follows redirects, or returns them as responses.
    pub(crate) fn new(rule: Egress, follow: bool) -> Result<Self> {
        forebay_node::tls::choose_provider();
        let policy = if follow { redirects(rule) } else { Policy::none() };
        let client = Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .redirect(policy)
            // A proxy would resolve names itself.
            .no_proxy()
            .dns_resolver(Arc::new(Resolver(rule)))
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| {
                Error::internal(format!("no client for user's URLs: {}", innermost(&e)))
            })?;
        Ok(Self { client, rule })
    }

    /// Parses a URL and checks it; a name is checked when it is resolved.
    pub(crate) fn url(&self, text: &str) -> Result<Url> {
        let url: Url =
            text.parse().map_err(|e| Error::invalid(format!("\"{text}\" is not a URL: {e}")))?;
        match judge(&url, self.rule) {
            Ok(()) => Ok(url),
            Err(blocked) => Err(refusal(&blocked)),
        }
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }
}

/// The error for a request without a response. `who` is the start of its text.
pub(crate) fn failed(who: &str, e: &reqwest::Error) -> Error {
    if let Some(blocked) = blocked(e) {
        return refusal(blocked);
    }
    let why = innermost(e);
    if e.is_timeout() {
        Error::new(ErrorCode::Timeout, format!("{who} did not answer in time: {why}"))
    } else {
        Error::unavailable(format!("{who} does not answer: {why}"))
    }
}

fn refusal(blocked: &Blocked) -> Error {
    Error::new(ErrorCode::AccessDenied, blocked.to_string())
        .hint("download.allow_private opens private networks for downloads; link-local addresses stay closed")
}

/// The innermost cause, which has the actual failure.
pub(crate) fn innermost(e: &(dyn StdError + 'static)) -> String {
    let mut inner = e;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

fn blocked(e: &reqwest::Error) -> Option<&Blocked> {
    let mut inner: &(dyn StdError + 'static) = e;
    loop {
        if let Some(blocked) = inner.downcast_ref::<Blocked>() {
            return Some(blocked);
        }
        inner = inner.source()?;
    }
}

/// Why a request is not allowed.
#[derive(Debug)]
struct Blocked(String);

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this node may not call {}", self.0)
    }
}

impl StdError for Blocked {}

/// Checks scheme and literal address of a URL.
fn judge(url: &Url, rule: Egress) -> Result<(), Blocked> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Blocked(format!("\"{url}\": it is not http or https")));
    }
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal {
        Ok(ip) if !rule.allows(ip) => Err(Blocked(ip.to_string())),
        _ if host.is_empty() => Err(Blocked(format!("\"{url}\": it names no host"))),
        _ => Ok(()),
    }
}

fn redirects(rule: Egress) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS {
            return attempt.error(format!("more than {REDIRECTS} redirects"));
        }
        match judge(attempt.url(), rule) {
            Ok(()) => attempt.follow(),
            Err(blocked) => attempt.error(blocked),
        }
    })
}

/// Resolves names to the addresses that the rule allows.
struct Resolver(Egress);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let rule = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let all: Vec<SocketAddr> = found.collect();
            let allowed: Vec<_> = all.iter().copied().filter(|a| rule.allows(a.ip())).collect();
            if allowed.is_empty() {
                let first = all.first().map(|a| format!(" ({})", a.ip())).unwrap_or_default();
                return Err(Blocked(format!("{}{first}", name.as_str())).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
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

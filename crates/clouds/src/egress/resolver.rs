//! Resolves the names of callers' URLs to the addresses that a rule allows. A connection goes to the
//! address that was checked, because the client does not resolve the name again.

use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use forebay_core::Error;
use forebay_core::egress::{EgressRule, refusal};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Why a request is not allowed.
#[derive(Clone, Debug)]
pub(crate) struct Blocked(pub(super) Error);

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Blocked {}

/// The error of a request that the rule stopped, from the error of its client.
pub(crate) fn blocked(e: &(dyn StdError + 'static)) -> Option<Error> {
    let mut causes = std::iter::successors(Some(e), |e| (*e).source());
    causes.find_map(|cause| cause.downcast_ref::<Blocked>()).map(|blocked| blocked.0.clone())
}

/// A resolver for the clients of callers' URLs.
#[derive(Clone, Debug)]
pub(super) struct Resolver(pub(super) EgressRule);

impl Resolver {
    /// The allowed addresses of a name. Fails with [`Blocked`] if there is none among them.
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, BoxError> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(self.allowed(name, found.map(|address| address.ip()).collect())?)
    }

    /// Keeps the addresses that the rule allows.
    fn allowed(&self, name: &str, mut answer: Vec<IpAddr>) -> Result<Vec<IpAddr>, Blocked> {
        let first = answer.first().map(|ip| format!("{name} ({ip})"));
        answer.retain(|ip| self.0.allows_answer(name, *ip));
        match first {
            Some(first) if answer.is_empty() => Err(Blocked(refusal(&first, name))),
            _ => Ok(answer),
        }
    }
}

type BoxError = Box<dyn StdError + Send + Sync>;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let allowed = resolver.addresses(name.as_str()).await?;
            Ok(Box::new(allowed.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

impl ResolveDns for Resolver {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move { self.addresses(name).await.map_err(ResolveDnsError::new) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::egress::Egress;

    use super::*;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    #[test]
    fn of_an_answer_that_mixes_networks_only_public_addresses_are_called() {
        let resolver = Resolver(Egress::Public.into());
        let mixed = ips(&["10.0.0.1", "8.8.8.8", "169.254.169.254", "2606:4700::1", "::1"]);
        assert_eq!(resolver.allowed("x", mixed).unwrap(), ips(&["8.8.8.8", "2606:4700::1"]));
        let closed = resolver.allowed("x.lab", ips(&["10.0.0.1", "127.0.0.1"])).unwrap_err();
        assert!(closed.to_string().contains("x.lab (10.0.0.1)"), "{closed}");
        assert!(closed.0.hint.unwrap().contains("egress.allow = [\"x.lab\"]"));
    }

    #[test]
    fn an_entry_opens_the_answers_of_its_name_alone() {
        let rule = EgressRule::new(Egress::Public, ["minio.lab:9000".parse().unwrap()]);
        let resolver = Resolver(rule);
        let answer = ips(&["10.0.0.1", "169.254.169.254"]);
        assert_eq!(resolver.allowed("minio.lab", answer.clone()).unwrap(), ips(&["10.0.0.1"]));
        assert!(resolver.allowed("other.lab", answer).is_err());
    }
}

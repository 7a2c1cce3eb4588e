//! The guard of the clients for one endpoint: of a bucket, or of another cluster.

use std::sync::Arc;

use aws_sdk_s3::config::SharedHttpClient;
use aws_smithy_http_client::tls::Provider as Tls;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use forebay_core::bucket::BackendKind;
use forebay_core::egress::{
    AllowEntry, EgressPolicy, EgressRule, EndpointTrust, Server, is_clouds_own,
};
use forebay_core::{Error, ErrorCode, Result, shown_url};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Url};

use super::redirects;
use super::resolver::{Resolver, blocked};
use crate::account::NamedAccount;

/// Decides what the clients of one endpoint may call, and whether they send the credentials of this
/// node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointGuard {
    /// `None` for an endpoint of the operator, or of the cloud itself.
    rule: Option<EgressRule>,
    trust: EndpointTrust,
    /// The server that a caller named.
    server: Option<Server>,
    /// Whether credentials may be sent to this endpoint. A caller chooses the endpoint of a bucket, so
    /// it has to be the operator's, the cloud's own, or one that the operator opened by name.
    pub(crate) is_trusted: bool,
}

impl EndpointGuard {
    /// The guard of an endpoint that no caller named.
    fn of_operator() -> Self {
        Self { rule: None, trust: EndpointTrust::Judged, server: None, is_trusted: true }
    }

    /// The guard for the endpoint that a bucket names, if it names one. `configured` is the endpoint
    /// in the environment of this node. `AccessDenied` if the endpoint is a closed address;
    /// `InvalidArgument` if it is no URL.
    pub(crate) fn of(
        kind: BackendKind,
        named: Option<&str>,
        trust: EndpointTrust,
        configured: Option<&str>,
        policy: &EgressPolicy,
    ) -> Result<Self> {
        let Some(named) = named.filter(|named| !named.is_empty()) else {
            return Ok(Self::of_operator());
        };
        let server = server_of(named)?;
        let own = configured.and_then(|url| server_of(url).ok());
        let is_own = own.is_some_and(|own| (&own.host, own.port) == (&server.host, server.port));
        if is_own || is_clouds_own(kind, &server) {
            return Ok(Self::of_operator());
        }
        let strict = policy.endpoints();
        let is_covered =
            strict.covers(&server.host, server.port) || strict.covers_loopback(&server.host);
        let is_accepted = trust.is_accepted() && !is_covered;
        let rule = if is_accepted { policy.accepted() } else { strict };
        rule.check(&server.host, server.port)?;
        let trust = if is_accepted { EndpointTrust::Accepted } else { EndpointTrust::Judged };
        let is_trusted = is_covered || is_accepted;
        Ok(Self { rule: Some(rule), trust, server: Some(server), is_trusted })
    }

    /// The guard of an endpoint for an account of the configuration: its own, one of its `endpoints`, or
    /// one of the cloud if it has none of its own. `AccessDenied` for any other: a user who names the
    /// endpoint of a bucket is not the owner of the account.
    pub(crate) fn of_account(
        kind: BackendKind,
        named: Option<&str>,
        configured: Option<&str>,
        account: &NamedAccount,
    ) -> Result<Self> {
        let Some(named) = named.filter(|named| !named.is_empty()) else {
            return Ok(Self::of_operator());
        };
        let server = server_of(named)?;
        let is_open = match configured.map(server_of).transpose()? {
            Some(own) => own == server,
            None => is_clouds_own(kind, &server),
        };
        if is_open || account.servers.covers(&server.host, server.port) {
            return Ok(Self::of_operator());
        }
        let entry = AllowEntry::exactly(&server.host, server.port);
        let text = format!(
            "the credentials of the account \"{}\" are not sent to {}",
            account.name,
            shown_url(named)
        );
        Err(Error::new(ErrorCode::AccessDenied, text).hint(format!(
            "endpoints = [\"{entry}\"] of this [[cloud]] in the configuration of the targets opens it"
        )))
    }

    /// Whether the endpoint is used only because an earlier version accepted it.
    pub(crate) fn is_accepted(&self) -> bool {
        self.trust.is_accepted()
    }

    /// Sets up a client whose connections obey the guard.
    pub(crate) fn guard(&self, builder: ClientBuilder) -> ClientBuilder {
        let Some(rule) = &self.rule else { return builder };
        let builder = builder.dns_resolver(Arc::new(Resolver(rule.clone())));
        // A proxy would resolve names itself.
        if self.is_accepted() { builder } else { builder.no_proxy() }
    }

    /// The same for Amazon's SDK; `None` for the SDK's own client.
    pub(crate) fn aws_client(&self) -> Option<SharedHttpClient> {
        let rule = self.rule.clone()?;
        let builder = aws_smithy_http_client::Builder::new();
        let builder = builder.tls_provider(Tls::Rustls(CryptoMode::AwsLc));
        Some(builder.build_with_resolver(Resolver(rule)))
    }

    /// Redirects within the guard.
    pub(crate) fn redirects(&self, limit: usize) -> Policy {
        match &self.rule {
            Some(rule) => redirects(rule.clone(), limit),
            None => Policy::limited(limit),
        }
    }

    /// Checks a URL that the endpoint itself named. `otherwise` is the rule for one outside a guard.
    pub(crate) fn check(&self, url: &str, otherwise: &EgressRule) -> Result<()> {
        let server = server_of(url)?;
        self.rule.as_ref().unwrap_or(otherwise).check(&server.host, server.port)
    }

    /// Resolves the name of the endpoint, if it has one, and checks its addresses. A name that does not
    /// resolve now is checked when it is called.
    pub(crate) async fn check_name(&self) -> Result<()> {
        let (Some(rule), Some(server)) = (&self.rule, &self.server) else { return Ok(()) };
        if server.host.parse::<std::net::IpAddr>().is_ok() {
            return Ok(());
        }
        match Resolver(rule.clone()).addresses(&server.host).await {
            Err(e) => blocked(&*e).map_or(Ok(()), Err),
            Ok(_) => Ok(()),
        }
    }
}

/// The server of a URL, in the form in which clients call it.
fn server_of(url: &str) -> Result<Server> {
    let parsed = url.parse::<Url>().ok();
    parsed.and_then(|url| Server::of(url.as_str())).ok_or_else(|| {
        Error::invalid(format!("endpoint \"{}\" is not a URL", shown_url(url).escape_debug()))
            .hint("give it as http://host:port or https://host")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::config::NodeConfig;
    use forebay_core::egress::Egress;

    use super::*;

    /// The policy of a node that listens on this address.
    fn policy(listen: &str, allow: &[&str]) -> EgressPolicy {
        let mut config = NodeConfig::default();
        config.listen.http = listen.into();
        config.egress.allow = allow.iter().map(|entry| (*entry).to_owned()).collect();
        EgressPolicy::of(&config).unwrap()
    }

    fn guard(named: &str, trust: EndpointTrust, policy: &EgressPolicy) -> Result<EndpointGuard> {
        let configured = Some("http://10.0.0.9:9000");
        EndpointGuard::of(BackendKind::S3, Some(named), trust, configured, policy)
    }

    #[test]
    fn credentials_go_to_endpoints_of_the_operator_and_of_the_cloud_alone() {
        let open = policy("0.0.0.0:7400", &["10.1.0.0/16", "minio.lab:9000"]);
        let trusted = |url: &str| guard(url, EndpointTrust::Judged, &open).unwrap().is_trusted;
        for url in [
            "http://10.0.0.9:9000",
            "http://10.0.0.9:9000/path",
            "https://s3.us-west-2.amazonaws.com",
            "http://10.1.2.3:9000",
            "http://minio.lab:9000",
        ] {
            assert!(trusted(url), "{url}");
        }
        for url in ["https://s3.example.org", "http://8.8.8.8:9000", "http://s3.amazonaws.com"] {
            assert!(!trusted(url), "{url}");
        }
        assert!(
            EndpointGuard::of(BackendKind::S3, None, EndpointTrust::Judged, None, &open)
                .unwrap()
                .is_trusted
        );
    }

    #[test]
    fn credentials_of_an_account_go_to_its_servers_alone() {
        let account = |entries: &[&str]| NamedAccount {
            name: "prod".into(),
            servers: EgressRule::new(Egress::Public, entries.iter().map(|e| e.parse().unwrap())),
        };
        let of = |named: &str, configured: Option<&str>, entries: &[&str]| {
            EndpointGuard::of_account(BackendKind::S3, Some(named), configured, &account(entries))
        };
        let own = Some("http://10.0.0.9:9000");
        assert!(of("http://10.0.0.9:9000/", own, &[]).unwrap().is_trusted);
        assert!(of("http://minio.lab:9000", own, &["minio.lab:9000"]).unwrap().is_trusted);
        assert!(of("https://s3.eu-west-1.amazonaws.com", None, &[]).unwrap().is_trusted);
        for (named, configured) in [
            ("https://10.0.0.9:9000", own),
            ("https://s3.amazonaws.com", own),
            ("http://127.0.0.1:9000", own),
            ("https://evil.example.org", None),
        ] {
            let e = of(named, configured, &["minio.lab:9000"]).unwrap_err();
            assert_eq!(e.code, ErrorCode::AccessDenied, "{named}: {e}");
            assert!(e.message.contains("\"prod\""), "{e}");
        }
    }

    #[test]
    fn an_endpoint_on_a_closed_network_is_refused() {
        let elsewhere = policy("10.0.0.1:7400", &[]);
        for url in [
            "http://127.0.0.1:9000",
            "http://2130706433:9000",
            "http://0x7f.1/",
            "http://10.0.0.9:22",
            "http://169.254.169.254",
            "http://[fe80::1]:9000",
            "http://[::ffff:10.0.0.1]",
            "http://[2001:0:808:808:0:0:5601:5601]",
        ] {
            let e = guard(url, EndpointTrust::Judged, &elsewhere).unwrap_err();
            assert_eq!(e.code, ErrorCode::AccessDenied, "{url}");
        }
        let e = guard("nonsense", EndpointTrust::Judged, &elsewhere).unwrap_err();
        assert_eq!(e.code, ErrorCode::InvalidArgument);
        let here = policy("127.0.0.1:7400", &[]);
        let minio = guard("http://127.0.0.1:9000", EndpointTrust::Judged, &here).unwrap();
        assert!(minio.is_trusted);
        assert!(guard("http://10.0.0.8:9000", EndpointTrust::Judged, &here).is_err());
    }

    #[test]
    fn an_endpoint_that_was_accepted_keeps_its_network_but_never_the_link() {
        let elsewhere = policy("10.0.0.1:7400", &[]);
        let old = guard("http://10.0.0.8:9000", EndpointTrust::Accepted, &elsewhere).unwrap();
        assert!(old.is_accepted() && old.is_trusted);
        let public = guard("https://s3.example.org", EndpointTrust::Accepted, &elsewhere).unwrap();
        assert!(public.is_accepted() && public.is_trusted, "its credentials are needed too");
        assert!(guard("http://169.254.169.254", EndpointTrust::Accepted, &elsewhere).is_err());
        let open = policy("10.0.0.1:7400", &["10.0.0.8:9000"]);
        let covered = guard("http://10.0.0.8:9000", EndpointTrust::Accepted, &open).unwrap();
        assert!(!covered.is_accepted(), "an entry covers it now");
    }

    #[tokio::test]
    async fn the_name_of_an_endpoint_is_judged_by_its_addresses() {
        let elsewhere = policy("10.0.0.1:7400", &[]);
        let named = guard("http://localhost:9000", EndpointTrust::Judged, &elsewhere).unwrap();
        assert_eq!(named.check_name().await.unwrap_err().code, ErrorCode::AccessDenied);
        let here = policy("127.0.0.1:7400", &[]);
        let named = guard("http://localhost:9000", EndpointTrust::Judged, &here).unwrap();
        named.check_name().await.unwrap();
    }
}

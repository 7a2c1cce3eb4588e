//! The clients with which transforms call services.

use forebay_clouds::egress::Guarded;
use forebay_core::Result;
use forebay_core::config::EtlConfig;
use forebay_core::egress::{AllowEntry, EgressPolicy, Server};
use forebay_core::etl::Etl;
use reqwest::Url;

pub(super) struct Clients {
    services: Guarded,
    /// For services that were registered before there was a rule for destinations.
    accepted: Guarded,
}

impl Clients {
    pub(super) fn new(config: &EtlConfig, policy: &EgressPolicy) -> Result<Self> {
        // The configuration names these, so they are the operator's.
        let configured = config.services.iter().filter_map(|begin| begin.parse::<Url>().ok());
        let configured = configured.filter_map(|url| Server::of(url.as_str()));
        let configured = configured.map(|server| AllowEntry::exactly(&server.host, server.port));
        Ok(Self {
            services: Guarded::new(policy.endpoints().with(configured), false)?,
            accepted: Guarded::new(policy.accepted(), false)?,
        })
    }

    /// The client for the service of a transform.
    pub(super) fn of_service(&self, etl: &Etl) -> &Guarded {
        if etl.endpoint_trust.is_accepted() { &self.accepted } else { &self.services }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::config::NodeConfig;
    use forebay_core::egress::EndpointTrust;
    use forebay_core::etl::{Stage, Transformer};
    use serde_json::Value;

    use super::*;

    fn etl(endpoint_trust: EndpointTrust) -> Etl {
        Etl {
            name: "upper-1".into(),
            by: Transformer::Push { url: "http://10.0.0.7:8000".into() },
            object_timeout_ms: 1,
            init_timeout_ms: 1,
            stage: Stage::Running,
            job: "etl-1".into(),
            init: Value::Null,
            endpoint_trust,
        }
    }

    #[test]
    fn a_private_service_is_called_if_the_configuration_or_an_earlier_version_accepted_it() {
        let policy = EgressPolicy::of(&NodeConfig::default()).unwrap();
        let (url, other_port) = ("http://10.0.0.7:8000/x", "http://10.0.0.7:22");
        let plain = Clients::new(&EtlConfig::default(), &policy).unwrap();
        let judged = plain.of_service(&etl(EndpointTrust::Judged));
        assert_eq!(judged.url(url).unwrap_err().code, ErrorCode::AccessDenied);
        let accepted = plain.of_service(&etl(EndpointTrust::Accepted));
        assert!(accepted.url(url).is_ok() && accepted.url("http://169.254.169.254").is_err());
        let config =
            EtlConfig { services: vec!["http://10.0.0.7:8000".into()], ..EtlConfig::default() };
        let configured = Clients::new(&config, &policy).unwrap();
        let judged = configured.of_service(&etl(EndpointTrust::Judged));
        assert!(judged.url(url).is_ok() && judged.url(other_port).is_err());
    }
}

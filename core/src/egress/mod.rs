//! Destinations that a node may call when a caller supplies the URL. Without this rule, every caller
//! who may start a download or create a bucket could reach services that only the node can reach.
//!
//! The rule decides; `forebay-clouds` applies it to URLs, to the answers of name servers, and to
//! redirects.

mod allow;
mod endpoint;
mod scope;
mod trust;

use std::net::IpAddr;
use std::sync::Arc;

pub use self::allow::AllowEntry;
pub use self::endpoint::{Server, is_clouds_own};
use self::scope::Scope;
pub use self::trust::EndpointTrust;
use crate::config::NodeConfig;
use crate::error::{Error, ErrorCode, Result};

/// The setting that opens destinations, as messages name it.
const SETTING: &str = "egress.allow";

/// The networks that a node may call without an entry for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Egress {
    /// Internet addresses only.
    #[default]
    Public,
    /// Also this machine.
    Loopback,
    /// Also private networks and this machine, but never link-local addresses: a cloud serves a
    /// machine's credentials there.
    Private,
}

impl Egress {
    /// Whether an address is in these networks.
    pub fn allows(self, ip: IpAddr) -> bool {
        match Scope::of(ip) {
            Scope::Public => true,
            Scope::Loopback => self != Self::Public,
            Scope::Private => self == Self::Private,
            Scope::Never => false,
        }
    }
}

impl From<Egress> for EgressRule {
    fn from(reach: Egress) -> Self {
        Self::new(reach, [])
    }
}

/// Decides which destinations a URL of a caller may have: networks, and entries that open single
/// destinations. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressRule {
    reach: Egress,
    allow: Arc<[AllowEntry]>,
}

impl EgressRule {
    pub fn new(reach: Egress, allow: impl IntoIterator<Item = AllowEntry>) -> Self {
        Self { reach, allow: allow.into_iter().collect() }
    }

    /// The same rule with more entries.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = AllowEntry>) -> Self {
        Self { reach: self.reach, allow: self.allow.iter().cloned().chain(more).collect() }
    }

    /// The same entries with other networks.
    #[must_use]
    pub fn reaching(&self, reach: Egress) -> Self {
        Self { reach, allow: self.allow.clone() }
    }

    /// Checks the host and port of a URL. A host that is a name is checked again, by
    /// [`Self::allows_answer`], for each address that it resolves to. `AccessDenied` if the host is
    /// closed.
    pub fn check(&self, host: &str, port: u16) -> Result<()> {
        let host = bare(host);
        if let Ok(ip) = host.parse::<IpAddr>() {
            let opened = self.allow.iter().any(|entry| entry.opens_address(ip, Some(port)));
            if opened || self.reach.allows(ip) {
                return Ok(());
            }
            let entry = AllowEntry::exactly(&host, port).to_string();
            return Err(refusal(&entry, &entry));
        }
        // A resolver does not see the port, so the ports of a name are decided here.
        let mut ports = self.allow.iter().filter_map(|entry| entry.port_of(&host)).peekable();
        if ports.peek().is_none() || ports.any(|open| open.is_none_or(|open| open == port)) {
            return Ok(());
        }
        let text = format!("this node may not call {host}:{port}");
        Err(Error::new(ErrorCode::AccessDenied, text)
            .hint(format!("{SETTING} opens other ports of {host} alone")))
    }

    /// Whether a connection to an address is allowed that the host `name` resolved to.
    pub fn allows_answer(&self, name: &str, ip: IpAddr) -> bool {
        let opened = |entry: &AllowEntry| {
            let named = entry.port_of(&bare(name)).is_some();
            entry.opens_address(ip, None) || (named && Egress::Private.allows(ip))
        };
        self.reach.allows(ip) || self.allow.iter().any(opened)
    }

    /// Whether an entry covers this host and port by name or address. Addresses that a name resolves
    /// to do not count: a caller may have chosen them.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let host = bare(host);
        let ip = host.parse::<IpAddr>().ok();
        self.allow.iter().any(|entry| match (ip, entry.port_of(&host)) {
            (Some(ip), _) => entry.opens_address(ip, Some(port)),
            (None, Some(open)) => open.is_none_or(|open| open == port),
            (None, None) => false,
        })
    }

    /// Whether this host is this machine, and the rule opens this machine.
    pub fn covers_loopback(&self, host: &str) -> bool {
        let host = bare(host);
        let is_loopback = match host.parse::<IpAddr>() {
            Ok(ip) => Scope::of(ip) == Scope::Loopback,
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        };
        is_loopback && self.reach != Egress::Public
    }
}

/// The error for a destination that is closed. `entry` would open it.
pub fn refusal(destination: &str, entry: &str) -> Error {
    Error::new(ErrorCode::AccessDenied, format!("this node may not call {destination}")).hint(format!(
        "{SETTING} = [\"{entry}\"] in the configuration of the targets opens it; \
         download.allow_private opens private networks for downloads; link-local addresses open one by \
         one alone"
    ))
}

/// A host as entries and addresses are written: without brackets, the dot at its end, and capitals.
fn bare(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase()
}

/// The rules of a node for URLs of callers, by what is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressPolicy {
    allow: Arc<[AllowEntry]>,
    /// The networks of endpoints, other clusters, and transform services.
    endpoints: Egress,
}

impl Default for EgressPolicy {
    /// The policy of a node with the default configuration, which listens on loopback.
    fn default() -> Self {
        Self { allow: Arc::default(), endpoints: Egress::Loopback }
    }
}

impl EgressPolicy {
    /// The policy of a node. Fails if an entry of `egress.allow` cannot be read.
    pub fn of(config: &NodeConfig) -> Result<Self> {
        // Callers of such a node are on this machine already.
        let endpoints = if config.listen.is_loopback() { Egress::Loopback } else { Egress::Public };
        Ok(Self { allow: config.egress.entries()?.into(), endpoints })
    }

    /// The rule for downloads and web servers.
    pub fn web(&self, reach: Egress) -> EgressRule {
        EgressRule { reach, allow: self.allow.clone() }
    }

    /// The rule for endpoints of buckets, other clusters, and transform services.
    pub fn endpoints(&self) -> EgressRule {
        EgressRule { reach: self.endpoints, allow: self.allow.clone() }
    }

    /// The rule for an endpoint that was accepted before there was one.
    pub fn accepted(&self) -> EgressRule {
        self.endpoints().reaching(Egress::Private)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn reaches(ip: &str) -> (bool, bool, bool) {
        let ip = ip.parse().unwrap();
        (Egress::Public.allows(ip), Egress::Loopback.allows(ip), Egress::Private.allows(ip))
    }

    fn rule(reach: Egress, allow: &[&str]) -> EgressRule {
        EgressRule::new(reach, allow.iter().map(|entry| entry.parse().unwrap()))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_reach_opens_its_own_networks() {
        assert_eq!(reaches("8.8.8.8"), (true, true, true));
        assert_eq!(reaches("127.0.0.1"), (false, true, true));
        assert_eq!(reaches("10.0.0.1"), (false, false, true));
        assert_eq!(reaches("169.254.169.254"), (false, false, false));
        assert_eq!(reaches("64:ff9b::7f00:1"), (false, false, true), "not this machine");
    }

    #[test]
    fn an_entry_opens_the_addresses_that_it_names() {
        let open = rule(Egress::Public, &["10.1.0.0/16", "fd12::/64", "192.168.0.7:9000", "::1"]);
        for (host, port, is_open) in [
            ("10.1.2.3", 80, true),
            ("[::ffff:10.1.2.3]", 80, true),
            ("10.2.0.1", 80, false),
            ("[fd12::7]", 443, true),
            ("[fd13::7]", 443, false),
            ("192.168.0.7", 9000, true),
            ("192.168.0.7", 22, false),
            ("[::1]", 7400, true),
            ("127.0.0.1", 7400, false),
            ("8.8.8.8", 1, true),
        ] {
            let checked = open.check(host, port);
            assert_eq!(checked.is_ok(), is_open, "{host}:{port}");
            assert!(is_open || !open.covers(host, port));
        }
        assert!(open.allows_answer("any.example.org", ip("10.1.0.1")));
        assert!(!open.allows_answer("any.example.org", ip("192.168.0.7")), "its port is unknown");
        assert!(!open.covers("any.example.org", 80));
    }

    #[test]
    fn an_entry_opens_the_private_addresses_of_its_host() {
        let open = rule(Egress::Public, &["minio.lab:9000", "Web.Lab."]);
        assert!(open.check("minio.lab", 9000).is_ok() && open.check("MINIO.lab.", 9000).is_ok());
        let e = open.check("minio.lab", 22).unwrap_err();
        assert_eq!(e.code, ErrorCode::AccessDenied);
        assert!(open.check("web.lab", 1).is_ok() && open.check("other.lab", 1).is_ok());
        assert!(open.allows_answer("minio.lab", ip("10.0.0.1")));
        assert!(open.allows_answer("web.lab", ip("127.0.0.1")));
        assert!(!open.allows_answer("minio.lab", ip("169.254.169.254")), "the link stays closed");
        assert!(!open.allows_answer("other.lab", ip("10.0.0.1")));
        assert!(open.covers("minio.lab", 9000) && !open.covers("minio.lab", 22));
        assert!(open.covers("web.lab", 5) && !open.covers("x.web.lab", 5));
    }

    #[test]
    fn the_link_opens_only_if_an_entry_is_the_address() {
        let open = rule(Egress::Private, &["169.254.0.0/15", "0.0.0.0/0", "::/0"]);
        for host in ["169.254.169.254", "[fe80::1]", "0.0.0.0", "[fd00:ec2::254]", "224.0.0.1"] {
            assert!(open.check(host, 80).is_err(), "{host}");
        }
        assert!(!open.allows_answer("metadata", ip("169.254.169.254")));
        let named = rule(Egress::Public, &["169.254.169.254", "169.254.1.1:80"]);
        assert!(named.check("169.254.169.254", 80).is_ok());
        assert!(named.check("169.254.1.1", 80).is_ok() && named.check("169.254.1.1", 81).is_err());
        assert!(named.check("169.254.169.253", 80).is_err());
        assert!(named.check("[64:ff9b::a9fe:a9fe]", 80).is_err());
    }

    #[test]
    fn this_machine_is_covered_on_a_loopback_node_alone() {
        let (loopback, public) = (rule(Egress::Loopback, &[]), rule(Egress::Public, &[]));
        for host in ["127.0.0.1", "[::1]", "localhost", "a.localhost"] {
            assert!(loopback.covers_loopback(host) && !public.covers_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "8.8.8.8", "localhost.example.org"] {
            assert!(!loopback.covers_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_node_opens_this_machine_only_if_it_listens_there() {
        let mut config = NodeConfig::default();
        assert_eq!(EgressPolicy::of(&config).unwrap(), EgressPolicy::default());
        config.listen.http = "0.0.0.0:7400".into();
        let policy = EgressPolicy::of(&config).unwrap();
        assert!(policy.endpoints().check("127.0.0.1", 9000).is_err());
        config.egress.allow = vec!["127.0.0.1:9000".into()];
        let policy = EgressPolicy::of(&config).unwrap();
        assert!(policy.endpoints().check("127.0.0.1", 9000).is_ok());
        assert!(policy.web(Egress::Public).check("127.0.0.1", 9000).is_ok());
        assert!(policy.accepted().check("10.0.0.1", 9000).is_ok());
        assert!(policy.accepted().check("169.254.169.254", 80).is_err());
    }

    #[test]
    fn a_refusal_names_the_entry_that_would_open_the_destination() {
        let e = EgressRule::default().check("[fd12::1]", 9000).unwrap_err();
        assert_eq!(e.code, ErrorCode::AccessDenied);
        assert!(e.message.contains("[fd12::1]:9000"), "{e}");
        assert!(e.hint.unwrap().contains("egress.allow = [\"[fd12::1]:9000\"]"));
    }
}

//! Decides whether a request reached a node under one of the node's own names, and whether a web
//! page of another site caused it.
//!
//! A browser on a user's machine reaches addresses that strangers do not: loopback, and the networks
//! behind a firewall. A web page can use it in two ways. It can send requests to a node from its own
//! site (the browser then adds `Origin` or `Sec-Fetch-Site`), or resolve its own name to the node's
//! address (DNS rebinding; the `Host` is then the page's name). This module detects both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::{Error, Result};

/// The names of loopback.
const LOOPBACK_NAMES: [&str; 1] = ["localhost"];
/// Longest name of DNS, bytes.
const MAX_NAME_BYTES: usize = 253;

/// The result of the check of a request's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCheck {
    /// A name or an address of the node.
    Own,
    Foreign,
    /// An address: the node's own if this machine has it.
    OwnIfLocal(IpAddr),
}

/// The names and addresses of one node, as its configuration has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNames {
    /// Lower case, without the final dot.
    names: Vec<String>,
    /// Suffixes that begin with a dot: every name below them is the node's own.
    below: Vec<String>,
    addresses: Vec<IpAddr>,
    /// Whether every name is the node's own.
    any_name: bool,
    /// Whether every address is the node's own.
    any_address: bool,
}

impl OwnNames {
    /// The names of a node that listens on `listen` (`address:port`). If other machines reach that
    /// address, every IP address counts as the node's own: clients may use that of a load balancer,
    /// of a Kubernetes service, or of a NAT. A rebound name is never an IP address.
    pub fn new(listen: &str) -> Self {
        let names = LOOPBACK_NAMES.map(str::to_owned).into();
        let address = listen.parse::<SocketAddr>();
        let any_address = address.is_ok_and(|address| !address.ip().to_canonical().is_loopback());
        let mut own = Self { names, any_address, ..Self::default() };
        own.add_host(listen);
        own
    }

    /// Adds the host of a URL, or of `host:port`.
    pub fn add_host(&mut self, url: &str) {
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let host = host.split(['/', '?', '#']).next().unwrap_or(host);
        match Host::parse(host.as_bytes()) {
            Some(Host { name: HostName::Address(address), .. }) => self.addresses.push(address),
            Some(Host { name: HostName::Name(name), .. }) => self.add_name(name),
            None => {}
        }
    }

    /// Adds a name.
    pub fn add_name(&mut self, name: &str) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if !name.is_empty() && !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// Adds a domain and all names below it.
    pub fn add_domain(&mut self, domain: &str) {
        self.add_name(domain);
        self.below.push(format!(".{}", domain.trim_matches('.').to_ascii_lowercase()));
    }

    /// Adds a valid entry of `listen.hosts`.
    pub fn add_pattern(&mut self, pattern: &str) {
        match pattern.strip_prefix('*') {
            Some("") => (self.any_name, self.any_address) = (true, true),
            Some(below) => self.below.push(below.to_ascii_lowercase()),
            None => self.add_host(pattern),
        }
    }

    /// Whether a pattern or a name that was added has this host of a request. Loopback and the address
    /// on which the node listens do not count by themselves.
    pub fn lists(&self, host: &[u8]) -> bool {
        match Host::parse(host).map(|host| host.name) {
            Some(HostName::Address(address)) => {
                self.any_address || self.addresses.contains(&address)
            }
            Some(HostName::Name(name)) => self.has_name(name),
            None => false,
        }
    }

    /// Checks the host of a request, as sent: `name`, `name:port`, `address:port` or
    /// `[address]:port`. Allocates nothing.
    pub fn check(&self, host: &[u8]) -> HostCheck {
        match Host::parse(host).map(|host| host.name) {
            Some(HostName::Address(address)) => self.check_address(address),
            Some(HostName::Name(name)) if self.has_name(name) => HostCheck::Own,
            _ => HostCheck::Foreign,
        }
    }

    fn check_address(&self, address: IpAddr) -> HostCheck {
        if self.any_address || address.is_loopback() || self.addresses.contains(&address) {
            return HostCheck::Own;
        }
        HostCheck::OwnIfLocal(address)
    }

    fn has_name(&self, name: &str) -> bool {
        let ends_with = |end: &str| {
            let at = name.len().checked_sub(end.len()).filter(|at| *at > 0);
            at.is_some_and(|at| name.as_bytes()[at..].eq_ignore_ascii_case(end.as_bytes()))
        };
        self.any_name
            || self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
            || self.below.iter().any(|below| ends_with(below))
    }
}

/// Checks one entry of `listen.hosts` or of another setting, `key`, with names of hosts: a name, an
/// address, `*.` and a domain, or `*`.
pub fn check_pattern(key: &str, pattern: &str) -> Result<()> {
    let name = pattern.strip_prefix("*.").unwrap_or(pattern);
    let host = Host::parse(name.as_bytes());
    let is_valid = match host {
        _ if pattern == "*" => true,
        Some(Host { name: HostName::Address(_), port: None }) => name.len() == pattern.len(),
        Some(Host { name: HostName::Name(_), port: None }) => true,
        _ => false,
    };
    if is_valid {
        return Ok(());
    }
    Err(Error::invalid(format!("{key}: \"{pattern}\" is not the name of a host")).hint(
        "an entry is a name without scheme and port (\"cache.example.com\"), a domain with all \
         names below it (\"*.example.com\"), or \"*\" for every name",
    ))
}

/// A parsed `Host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host<'a> {
    name: HostName<'a>,
    port: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum HostName<'a> {
    /// Without the final dot.
    Name(&'a str),
    Address(IpAddr),
}

impl PartialEq for HostName<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) => a.eq_ignore_ascii_case(b),
            (Self::Address(a), Self::Address(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for HostName<'_> {}

impl<'a> Host<'a> {
    /// `None`: not a host, or one with other parts, such as a user.
    fn parse(host: &'a [u8]) -> Option<Self> {
        let host = std::str::from_utf8(host).ok()?;
        if let Some(rest) = host.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let address = IpAddr::V6(address.parse::<Ipv6Addr>().ok()?).to_canonical();
            return Some(Self { name: HostName::Address(address), port: parse_port(rest)? });
        }
        let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
        let port = parse_port(port)?;
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Some(Self { name: HostName::Address(address.into()), port });
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_label = |label: &str| {
            let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            !label.is_empty() && label.bytes().all(is_allowed)
        };
        let is_name = name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label);
        is_name.then_some(Self { name: HostName::Name(name), port })
    }
}

/// Parses nothing, or a colon and an optional port.
fn parse_port(text: &str) -> Option<Option<u16>> {
    match text.strip_prefix(':') {
        None => text.is_empty().then_some(None),
        Some("") => Some(None),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok().map(Some),
        Some(_) => None,
    }
}

/// Whether two hosts have the same name or address; their ports may differ.
pub fn is_same_host(a: &[u8], b: &[u8]) -> bool {
    matches!((Host::parse(a), Host::parse(b)), (Some(a), Some(b)) if a.name == b.name)
}

/// Whether `origin` is a page of the host that the request came to, or of one of these URLs. The
/// port has to be the same; without a port it is the scheme's own.
pub fn is_own_origin<'a>(
    origin: &[u8],
    host: Option<&[u8]>,
    urls: impl IntoIterator<Item = &'a str>,
) -> bool {
    let parse = |origin: &'_ str| -> Option<(u16, usize)> {
        let (scheme, rest) = origin.split_once("://")?;
        match scheme {
            "http" => Some((80, origin.len() - rest.len())),
            "https" => Some((443, origin.len() - rest.len())),
            _ => None,
        }
    };
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let Some((default_port, start)) = parse(origin) else { return false };
    let Some(page) = Host::parse(&origin.as_bytes()[start..]) else { return false };
    let is_same = |host: &str| {
        Host::parse(host.as_bytes()).is_some_and(|host| {
            let port = |host: Host<'_>| host.port.unwrap_or(default_port);
            host.name == page.name && port(host) == port(page)
        })
    };
    let is_host = host.and_then(|host| std::str::from_utf8(host).ok()).is_some_and(is_same);
    is_host
        || urls.into_iter().any(|url| {
            let scheme = parse(url);
            scheme.is_some_and(|(port, start)| port == default_port && is_same(&url[start..]))
        })
}

/// Whether a page of another site caused the request, as its headers `Sec-Fetch-Site` show. Values
/// that this version does not recognize count as another site.
pub fn is_cross_site(fetch_site: &[u8]) -> bool {
    !matches!(fetch_site, b"same-origin" | b"none")
}

/// Whether a request that another site caused only opens the console: a link to it. `mode` and
/// `dest` are the headers `Sec-Fetch-Mode` and `Sec-Fetch-Dest`; a frame is no link.
pub fn is_link_to_console(
    method: &str,
    path: &str,
    mode: Option<&[u8]>,
    dest: Option<&[u8]>,
) -> bool {
    let is_console = path == "/ui" || path.starts_with("/ui/");
    method == "GET"
        && is_console
        && mode == Some(b"navigate")
        && dest.is_none_or(|dest| dest == b"document")
}

/// The error for a request with a foreign host.
pub fn foreign_host(host: &[u8]) -> Error {
    let host = shown(host);
    let text = format!("the request's Host \"{host}\" is not a name or an address of this node");
    Error::new(crate::ErrorCode::AccessDenied, text).hint(
        "use the address of the node, or add the name to listen.hosts of every node \
         (FOREBAY_LISTEN__HOSTS)",
    )
}

/// The error for a request of a page of another site. `origin` is the header, if there was one.
pub fn foreign_page(origin: Option<&[u8]>) -> Error {
    let page = match origin {
        Some(origin) => format!("a web page of {}", shown(origin)),
        None => "a web page of another site".to_owned(),
    };
    let text = format!("{page} sent this request; nodes answer only pages of their own");
    Error::new(crate::ErrorCode::AccessDenied, text)
        .hint("S3 requests of pages need a signature, or a CORS rule of the bucket")
}

/// A header's value in an error: printable, and not too long.
fn shown(value: &[u8]) -> String {
    let value = String::from_utf8_lossy(value);
    value.chars().take(MAX_NAME_BYTES).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
#[path = "boundary/tests.rs"]
mod tests;

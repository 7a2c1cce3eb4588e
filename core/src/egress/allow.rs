//! Entries of `egress.allow`: networks, addresses and hosts that an operator opens.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::Scope;
use crate::error::{Error, Result};

/// One entry: a network, an address, or a host; the last two with a port or for all ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowEntry {
    Network {
        base: IpAddr,
        bits: u8,
    },
    Address {
        ip: IpAddr,
        port: Option<u16>,
    },
    /// In lower case.
    Host {
        name: String,
        port: Option<u16>,
    },
}

impl AllowEntry {
    /// The entry for exactly this host and port.
    pub fn exactly(host: &str, port: u16) -> Self {
        let (host, port) = (super::bare(host), Some(port));
        match host.parse() {
            Ok(ip) => Self::Address { ip: unmapped(ip), port },
            Err(_) => Self::Host { name: host, port },
        }
    }

    /// Whether the entry names one server, so no network.
    pub fn is_one_server(&self) -> bool {
        !matches!(self, Self::Network { .. })
    }

    /// Whether the entry opens this address, for a port or for a connection whose port is unknown. A
    /// network opens no address that is closed to all.
    pub(super) fn opens_address(&self, ip: IpAddr, to: Option<u16>) -> bool {
        let ip = unmapped(ip);
        match self {
            Self::Network { base, bits } => {
                contains(*base, *bits, ip) && Scope::of(ip) != Scope::Never
            }
            Self::Address { ip: open, port: None } => *open == ip,
            Self::Address { ip: open, port } => *open == ip && *port == to,
            Self::Host { .. } => false,
        }
    }

    /// The port that the entry opens of a host; `Some(None)` for all ports, `None` if the entry does
    /// not name the host.
    pub(super) fn port_of(&self, host: &str) -> Option<Option<u16>> {
        match self {
            Self::Host { name, port } => (name == host).then_some(*port),
            Self::Network { .. } | Self::Address { .. } => None,
        }
    }
}

/// An IPv4 address in the form of IPv6 is the same destination.
fn unmapped(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

fn contains(base: IpAddr, bits: u8, ip: IpAddr) -> bool {
    match (base, ip) {
        (IpAddr::V4(base), IpAddr::V4(ip)) => {
            let shift = 32 - u32::from(bits);
            (base.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(base), IpAddr::V6(ip)) => {
            let shift = 128 - u32::from(bits);
            (base.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The first address of the network of this length that `ip` is in; `None` if there is no such length.
fn first_of(ip: IpAddr, bits: u8) -> Option<IpAddr> {
    let bits = u32::from(bits);
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32u32.checked_sub(bits)?).unwrap_or(0);
            Some(IpAddr::V4((ip.to_bits() & mask).into()))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128u32.checked_sub(bits)?).unwrap_or(0);
            Some(IpAddr::V6((ip.to_bits() & mask).into()))
        }
    }
}

impl FromStr for AllowEntry {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::invalid(format!("egress.allow: \"{}\" {why}", text.escape_debug())).hint(
                "give a network (10.0.0.0/8), an address, a host, or one of the last two with a port \
                 (minio.lab:9000, [fd12::1]:9000)",
            )
        };
        if text.contains("://") {
            return Err(bad("is a URL"));
        }
        if let Some((base, bits)) = text.split_once('/') {
            let base: IpAddr = base.parse().map_err(|_| bad("is no network of addresses"))?;
            let bits: u8 = bits.parse().map_err(|_| bad("has no number of bits"))?;
            let first = first_of(base, bits).ok_or_else(|| bad("has too many bits"))?;
            if first != base {
                return Err(bad(&format!("is no network: it begins at {first}")));
            }
            let single = if base.is_ipv4() { 32 } else { 128 };
            return Ok(match bits == single {
                true => Self::Address { ip: unmapped(base), port: None },
                false => Self::Network { base, bits },
            });
        }
        let whole = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = whole.parse::<IpAddr>() {
            return Ok(Self::Address { ip: unmapped(ip), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => match port.parse() {
                Ok(port) if port != 0 => (host, Some(port)),
                _ => return Err(bad("has no port from 1 to 65535 behind its last colon")),
            },
            None => (text, None),
        };
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = address.unwrap_or(host).parse::<IpAddr>() {
            // Without brackets, the port could be part of the address.
            if ip.is_ipv6() && address.is_none() {
                return Err(bad("is ambiguous: an IPv6 address with a port needs brackets"));
            }
            return Ok(Self::Address { ip: unmapped(ip), port });
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if !is_host(&name) {
            return Err(bad("is no host"));
        }
        Ok(Self::Host { name, port })
    }
}

/// Whether this is the name of a host. URLs read a name whose last label is a number as an address.
fn is_host(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(fits);
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.chars().all(|c| c.is_ascii_digit()) || last.starts_with("0x");
    name.len() <= 253 && name.split('.').all(is_label) && !is_number
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network { base, bits } => write!(f, "{base}/{bits}"),
            Self::Address { ip, port: None } => write!(f, "{ip}"),
            Self::Address { ip: IpAddr::V6(ip), port: Some(port) } => write!(f, "[{ip}]:{port}"),
            Self::Address { ip, port: Some(port) } => write!(f, "{ip}:{port}"),
            Self::Host { name, port: None } => f.write_str(name),
            Self::Host { name, port: Some(port) } => write!(f, "{name}:{port}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_written_as_it_is_read() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "fd12::/64",
            "::/0",
            "10.0.0.5",
            "10.0.0.5:9000",
            "fd12::1",
            "[fd12::1]:9000",
            "minio.lab",
            "minio.lab:9000",
            "my_host-2:1",
        ] {
            assert_eq!(text.parse::<AllowEntry>().unwrap().to_string(), text);
        }
        for (text, same) in [
            ("MinIO.Lab.:9000", "minio.lab:9000"),
            ("[fd12::1]", "fd12::1"),
            ("10.0.0.5/32", "10.0.0.5"),
            ("::ffff:10.0.0.5", "10.0.0.5"),
        ] {
            assert_eq!(text.parse::<AllowEntry>().unwrap().to_string(), same);
        }
        assert_eq!(AllowEntry::exactly("[FD12::1]", 9).to_string(), "[fd12::1]:9");
        assert_eq!(AllowEntry::exactly("Minio", 9).to_string(), "minio:9");
    }

    #[test]
    fn an_entry_that_opens_nothing_is_refused() {
        for text in [
            "",
            "http://minio.lab:9000",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "fd12::/129",
            "10.0.0.0/x",
            "minio.lab/8",
            "minio.lab:",
            "minio.lab:0",
            "minio.lab:70000",
            "*.lab",
            "a b",
            "2130706433",
            "0x7f.1",
            "10.0.0.999",
            "[fd12::1",
            "user@minio.lab",
        ] {
            let e = text.parse::<AllowEntry>().unwrap_err();
            assert!(e.message.contains("egress.allow"), "{text}: {e}");
        }
    }
}

//! Addresses that a node may call when a user supplies the URL: without this check, every user who
//! may start a download could read services that only the node can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The networks that a node may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Internet addresses only.
    Public,
    /// Also private networks and this machine, but never link-local addresses: a cloud serves a
    /// machine's credentials there.
    Private,
}

impl Egress {
    pub fn allows(self, ip: IpAddr) -> bool {
        let scope = match ip {
            IpAddr::V4(ip) => scope_v4(ip),
            IpAddr::V6(ip) => scope_v6(ip),
        };
        match scope {
            Scope::Public => true,
            Scope::Private => self == Self::Private,
            Scope::Never => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Public,
    Private,
    Never,
}

fn scope_v4(ip: Ipv4Addr) -> Scope {
    let [a, b, c, _] = ip.octets();
    match (a, b, c) {
        _ if ip.is_link_local() || ip.is_multicast() || ip.is_unspecified() => Scope::Never,
        // "This network", and what is reserved or broadcast.
        (0, ..) | (240.., ..) => Scope::Never,
        _ if ip.is_loopback() || ip.is_private() => Scope::Private,
        // Carrier-grade NAT, protocol assignments, benchmarks.
        (100, 64..=127, _) | (192, 0, 0) | (198, 18 | 19, _) => Scope::Private,
        _ => Scope::Public,
    }
}

fn scope_v6(ip: Ipv6Addr) -> Scope {
    /// AWS serves a machine's credentials here.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let [a, b, ..] = ip.segments();
    if let Some(inner) = ip.to_ipv4_mapped().or_else(|| translated(ip)) {
        return scope_v4(inner);
    }
    if ip.is_loopback() {
        return Scope::Private;
    }
    if ip == METADATA || ip.is_multicast() || a == 0 || a & 0xffc0 == 0xfe80 {
        return Scope::Never;
    }
    // Unique local, site local, and NAT64 of a network's own prefix.
    if a & 0xfe00 == 0xfc00 || a & 0xffc0 == 0xfec0 || (a, b) == (0x64, 0xff9b) {
        return Scope::Private;
    }
    Scope::Public
}

/// The IPv4 address that a translator (NAT64, 6to4) would reach in its place.
fn translated(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = ip.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn who(ip: &str) -> (bool, bool) {
        let ip = ip.parse().unwrap();
        (Egress::Public.allows(ip), Egress::Private.allows(ip))
    }

    #[test]
    fn the_internet_is_open_to_both() {
        for ip in ["8.8.8.8", "172.15.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"] {
            assert_eq!(who(ip), (true, true), "{ip}");
        }
    }

    #[test]
    fn private_networks_and_this_machine_are_open_only_where_that_is_said() {
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "::1",
            "fd12::1",
            "::ffff:10.0.0.1",
            "2002:7f00:1::",
            "64:ff9b::7f00:1",
        ];
        for ip in private {
            assert_eq!(who(ip), (false, true), "{ip}");
        }
    }

    #[test]
    fn the_link_and_what_no_server_has_are_open_to_nobody() {
        let never = [
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "::",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ];
        for ip in never {
            assert_eq!(who(ip), (false, false), "{ip}");
        }
    }
}

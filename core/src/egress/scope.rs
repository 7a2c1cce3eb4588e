//! Classes of IP addresses, by the networks in which a connection to them may end. An IPv6 address that
//! carries an IPv4 address is at least as closed as that address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a connection to an address may end, from open to closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// A host of the Internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network, a tunnel into an unknown network, or a range without public hosts
    /// (documentation, benchmarks, protocol assignments).
    Private,
    /// The link, a service that a cloud offers to its machines (credentials among it), or an address
    /// that no server has.
    Never,
}

impl Scope {
    pub(super) fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => of_v4(ip),
            IpAddr::V6(ip) => of_v6(ip),
        }
    }

    /// The scope of an address that a gateway or tunnel resolves: it does not lead to this machine.
    fn beyond_this_machine(self) -> Self {
        if self == Self::Loopback { Self::Private } else { self }
    }
}

/// Services of clouds at addresses outside the link-local ranges.
const CLOUD_SERVICES_V4: [Ipv4Addr; 3] = [
    // Metadata of Alibaba Cloud.
    Ipv4Addr::new(100, 100, 100, 200),
    // Metadata of Oracle Cloud.
    Ipv4Addr::new(192, 0, 0, 192),
    // The host agent of Azure.
    Ipv4Addr::new(168, 63, 129, 16),
];

fn of_v4(ip: Ipv4Addr) -> Scope {
    let [a, b, c, _] = ip.octets();
    match (a, b, c) {
        _ if CLOUD_SERVICES_V4.contains(&ip) => Scope::Never,
        _ if ip.is_link_local() || ip.is_multicast() => Scope::Never,
        // "This network" with the unspecified address, and what is reserved or broadcast.
        (0, ..) | (240.., ..) => Scope::Never,
        (127, ..) => Scope::Loopback,
        _ if ip.is_private() || ip.is_documentation() => Scope::Private,
        // Carrier-grade NAT, protocol assignments, relays of 6to4, benchmarks.
        (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _) => Scope::Private,
        _ => Scope::Public,
    }
}

fn of_v6(ip: Ipv6Addr) -> Scope {
    if let Some(inner) = ip.to_ipv4_mapped() {
        return of_v4(inner);
    }
    if ip.is_loopback() {
        return Scope::Loopback;
    }
    let carried = carried(ip).map(|inner| of_v4(inner).beyond_this_machine());
    carried.fold(own_v6(ip), Ord::max)
}

/// The scope of an IPv6 address without regard to an IPv4 address in it.
fn own_v6(ip: Ipv6Addr) -> Scope {
    let [a, b, c, ..] = ip.segments();
    match (a, b) {
        // Machine services of AWS (fd00:ec2::/32) and of Google (fd20:ce::/32).
        (0xfd00, 0xec2) | (0xfd20, 0xce) => Scope::Never,
        // Unique local, site local.
        _ if a & 0xfe00 == 0xfc00 || a & 0xffc0 == 0xfec0 => Scope::Private,
        // NAT64 of the well-known prefix: as public as the IPv4 address in it.
        (0x64, 0xff9b) if ip.segments()[2..6] == [0; 4] => Scope::Public,
        // NAT64 of a network's own prefix; discard only.
        (0x64, 0xff9b) | (0x100, _) => Scope::Private,
        // Multicast, link local, unspecified, IPv4-compatible, and all that is not assigned.
        _ if a & 0xe000 != 0x2000 => Scope::Never,
        // Teredo, benchmarks, ORCHID, and the rest of the protocol assignments (2001::/23).
        (0x2001, 0..=0x1ff) => Scope::Private,
        // Documentation (2001:db8::/32 and 3fff::/20), 6to4.
        (0x2001, 0xdb8) | (0x3fff, 0..=0xfff) | (0x2002, _) => Scope::Private,
        // Direct delegation of AS112: answers for private ranges.
        (0x2620, 0x4f) if c == 0x8000 => Scope::Private,
        _ => Scope::Public,
    }
}

/// The IPv4 addresses that translators and tunnels read out of an IPv6 address.
fn carried(ip: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let (s, o) = (ip.segments(), ip.octets());
    let at = |[a, b, c, d]: [usize; 4]| Ipv4Addr::new(o[a], o[b], o[c], o[d]);
    let low = at([12, 13, 14, 15]);
    let mut found: [Option<Ipv4Addr>; 5] = [None; 5];
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => found[0] = Some(low),
        // The network chooses the length of its prefix: 96, 64, 56 or 48 bits (RFC 6052). If a reading
        // begins with 0, the prefix has another length.
        [0x64, 0xff9b, 1, ..] => {
            let readings = [low, at([9, 10, 11, 12]), at([7, 9, 10, 11]), at([6, 7, 9, 10])];
            for (slot, inner) in found.iter_mut().zip(readings) {
                *slot = (inner.octets()[0] != 0).then_some(inner);
            }
        }
        // 6to4.
        [0x2002, ..] => found[0] = Some(at([2, 3, 4, 5])),
        // Teredo: the server, and the client, whose bits are inverted.
        [0x2001, 0, ..] => {
            found[0] = Some(at([4, 5, 6, 7]));
            found[1] = Some(Ipv4Addr::from_bits(!low.to_bits()));
        }
        _ => {}
    }
    // ISATAP has the address in the interface identifier, below any prefix.
    if matches!(s[4..6], [0 | 0x200, 0x5efe]) {
        found[4] = Some(low);
    }
    found.into_iter().flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope(ip: &str) -> Scope {
        Scope::of(ip.parse().unwrap())
    }

    #[test]
    fn hosts_of_the_internet_are_public() {
        for ip in [
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "192.0.1.1",
            "192.88.98.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "3ffe::1",
            "3fff:1000::1",
            "64:ff9b::808:808",
            "::ffff:8.8.8.8",
            "2606:4700::5efe:808:808",
        ] {
            assert_eq!(scope(ip), Scope::Public, "{ip}");
        }
    }

    #[test]
    fn this_machine_has_its_own_scope() {
        for ip in ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(scope(ip), Scope::Loopback, "{ip}");
        }
    }

    #[test]
    fn private_networks_tunnels_and_ranges_without_hosts_are_private() {
        for ip in [
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "100::1",
            "2001:db8::1",
            "3fff::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1::1",
            "2620:4f:8000::1",
            "::ffff:10.0.0.1",
            // 6to4 and Teredo of hosts that are public or private.
            "2002:808:808::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001:0:808:808:0:0:f7f7:f7f7",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            // NAT64, by the well-known prefix and by one of a network.
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::808:808",
            "64:ff9b:1::a00:1",
            // ISATAP.
            "2606:4700::5efe:10.0.0.1",
            "2606:4700::200:5efe:192.168.0.1",
            "2606:4700::5efe:127.0.0.1",
        ] {
            assert_eq!(scope(ip), Scope::Private, "{ip}");
        }
    }

    #[test]
    fn the_link_services_of_clouds_and_what_no_server_has_are_never_open() {
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.0.1",
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::8.8.8.8",
            "::127.0.0.1",
            "::ffff:0:8.8.8.8",
            "::5efe:10.0.0.1",
            "::200:5efe:10.0.0.1",
            "fe80::1",
            "febf::1",
            "fe80::5efe:8.8.8.8",
            "ff02::1",
            "ff0e::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "1::1",
            "4000::1",
            "5f00::1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:1a9:fe:a9fe::",
            "64:ff9b:1:1:a9:fea9:fe00:0",
            "2002:a9fe:a9fe::1",
            // Teredo with the address of a metadata service as client, and as server.
            "2001:0:808:808:0:0:5601:5601",
            "2001:0:a9fe:a9fe:0:0:f7f7:f7f7",
            "2606:4700::5efe:169.254.169.254",
            "2606:4700::200:5efe:169.254.169.254",
        ] {
            assert_eq!(scope(ip), Scope::Never, "{ip}");
        }
    }

    /// All forms in which an IPv6 address carries this IPv4 address.
    fn forms(ip: Ipv4Addr, noise: u64) -> Vec<Ipv6Addr> {
        let [a, b, c, d] = ip.octets().map(u128::from);
        let (v4, inverted) = (u128::from(ip.to_bits()), u128::from(!ip.to_bits()));
        let (high, low) = (u128::from(noise >> 32), u128::from(noise as u32));
        let nat64 = 0x64_ff9b_u128 << 96;
        let own = nat64 | 1 << 80;
        let global = 0x2606_4700_u128 << 96 | high << 64;
        let all = [
            0xffff << 32 | v4,
            v4,
            0xffff << 48 | v4,
            nat64 | v4,
            own | v4,
            // Prefixes of 48, 56 and 64 bits; bits 64 to 71 are 0.
            own | (a << 8 | b) << 64 | (c << 8 | d) << 40,
            own | 5 << 72 | a << 64 | (b << 16 | c << 8 | d) << 32,
            own | 5 << 64 | v4 << 24,
            0x2002 << 112 | v4 << 80 | high << 40 | low,
            0x2001 << 112 | v4 << 64 | high << 32 | low,
            0x2001 << 112 | 0x0808_0808 << 64 | high << 32 | inverted,
            global | 0x5efe << 32 | v4,
            global | 0x0200_5efe << 32 | v4,
            0xfe80 << 112 | 0x5efe << 32 | v4,
        ];
        all.map(Ipv6Addr::from_bits).to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn every_form_of_a_closed_address_is_closed(
            bits in prop_oneof![
                any::<u32>(),
                (0x7f00_0000u32..0x8000_0000),
                (0x0a00_0000u32..0x0b00_0000),
                (0xa9fe_0000u32..0xa9ff_0000),
                (0xe000_0000u32..=u32::MAX),
                Just(0x6464_64c8),
            ],
            noise in any::<u64>(),
        ) {
            let ip = Ipv4Addr::from_bits(bits);
            let own = of_v4(ip);
            prop_assume!(own != Scope::Public);
            for form in forms(ip, noise) {
                let scope = of_v6(form);
                // The readings of a network's own prefix leave out 0.0.0.0/8.
                let is_read = ip.octets()[0] != 0;
                prop_assert!(!is_read || scope >= own, "{form} carries {ip} ({own:?}): {scope:?}");
                prop_assert!(scope != Scope::Public, "{form}");
            }
        }

        #[test]
        fn every_address_outside_the_global_range_is_closed(bits in any::<u128>()) {
            let ip = Ipv6Addr::from_bits(bits);
            let global = ip.segments()[0] & 0xe000 == 0x2000;
            let known = ip.to_ipv4_mapped().is_some() || ip.segments()[..2] == [0x64, 0xff9b];
            prop_assert!(global || known || of_v6(ip) != Scope::Public, "{ip}");
        }
    }
}

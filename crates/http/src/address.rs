//! Which addresses a crawl may reach: those of the public Internet.
//!
//! A name from the web may resolve to the inside of the archive's own network. Whether it may be reached is decided on
//! the address that is connected to, never on the name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Tells whether an address is of the public Internet: none of the special registries of RFC 6890, nor multicast.
///
/// An IPv6 address that stands for an IPv4 address (mapped, NAT64, 6to4) is as public as that one.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    !matches!(
        (a, b, c, d),
        (0 | 10 | 127, ..)              // this network, private, loopback
            | (100, 64..=127, ..)       // shared by carriers, RFC 6598
            | (169, 254, ..)            // link-local; the cloud's metadata services
            | (172, 16..=31, ..)        // private
            | (192, 0, 0, _)            // protocol assignments
            | (192, 0, 2, _)            // documentation
            | (192, 31, 196, _)         // AS112
            | (192, 52, 193, _)         // AMT
            | (192, 88, 99, _)          // 6to4 relays, deprecated
            | (192, 168, ..)            // private
            | (192, 175, 48, _)         // AS112
            | (198, 18..=19, ..)        // benchmarks
            | (198, 51, 100, _)         // documentation
            | (203, 0, 113, _)          // documentation
            | (224..=255, ..) // multicast, reserved, broadcast
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    if let Some(inner) = inner_v4(segments) {
        return is_public_v4(inner);
    }
    match segments {
        [0x2001, 0x0000..=0x01ff, ..] => false, // protocol assignments, Teredo, ORCHID
        [0x2001, 0x0db8, ..] => false,          // documentation
        [0x2620, 0x004f, 0x8000, ..] => false,  // AS112
        [0x3fff, 0x0000..=0x0fff, ..] => false, // documentation
        // Global unicast is 2000::/3; the rest is unspecified, loopback, unique local, link-local, site-local,
        // multicast, discard, segment routing, or not assigned.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Returns the IPv4 address that an IPv6 address stands for.
fn inner_v4(segments: [u16; 8]) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(join(high, low)),
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn public() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2a00::1",
            "2606:4700::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn not_public() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "127.0.0.1",
            "127.255.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.0.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.1.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "2001:db8::1",
            "2001:10::1",
            "2001::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    proptest! {
        #[test]
        fn mapped_addresses_are_judged_alike(bits: u32) {
            let address = Ipv4Addr::from(bits);
            prop_assert_eq!(is_public(address.to_ipv6_mapped().into()), is_public(address.into()));
        }

        #[test]
        fn what_the_standard_library_calls_special_is_not_public(bits: u32) {
            let address = Ipv4Addr::from(bits);
            let special = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_documentation() || address.is_broadcast() || address.is_unspecified();
            prop_assert!(!(special && is_public(address.into())));
        }
    }
}

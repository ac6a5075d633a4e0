//! Classifies addresses: public or special-purpose.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use super::Cidr;

/// The purpose of a non-public address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// No address; connecting to it reaches this machine.
    Unspecified,
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// A carrier's network behind carrier-grade NAT.
    CarrierShared,
    LinkLocal,
    /// A cloud's metadata service, which hands out a machine's credentials.
    Metadata,
    Multicast,
    /// Broadcast on the local link.
    Broadcast,
    Reserved,
    /// Documentation examples.
    Documentation,
    /// Benchmarks of network devices.
    Benchmarking,
    /// A private IPv6 network.
    UniqueLocal,
    /// An IPv4 address inside an IPv6 address, in a form that is routed through a gateway which the caller
    /// may choose.
    Transition,
    /// An address of this machine, in any range: no network separates its services from this process.
    Own,
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::CarrierShared => "an address of a carrier's network",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Reserved => "a reserved address",
            Self::Documentation => "an address for documentation",
            Self::Benchmarking => "an address for benchmarking",
            Self::UniqueLocal => "a unique-local address",
            Self::Transition => "an address that hides another one",
            Self::Own => "an address of this machine",
        })
    }
}

/// A non-public range.
#[derive(Debug)]
pub(super) struct Special {
    range: Cidr,
    pub(super) class: AddressClass,
    /// The document that reserves it.
    pub(super) source: &'static str,
}

const fn v4(octets: [u8; 4], prefix: u8, class: AddressClass, source: &'static str) -> Special {
    Special {
        range: Cidr::v4(octets, prefix),
        class,
        source,
    }
}

const fn v6(high: u64, low: u64, prefix: u8, class: AddressClass, source: &'static str) -> Special {
    Special {
        range: Cidr::v6(high, low, prefix),
        class,
        source,
    }
}

/// The first row that contains an address applies. Sources: the registries of RFC 6890 and its updates.
#[rustfmt::skip]
const TABLE: &[Special] = &[
    v4([169, 254, 169, 254], 32, AddressClass::Metadata, "instance metadata of most clouds"),
    v4([169, 254, 170, 2], 32, AddressClass::Metadata, "AWS container credentials"),
    v4([100, 100, 100, 200], 32, AddressClass::Metadata, "Alibaba Cloud metadata"),
    v4([192, 0, 0, 192], 32, AddressClass::Metadata, "Oracle Cloud metadata"),
    // Not reserved by any document, but inside Azure it is the host's own service.
    v4([168, 63, 129, 16], 32, AddressClass::Metadata, "Azure platform service"),
    v6(0xfd00_0ec2_0000_0000, 0x0254, 128, AddressClass::Metadata, "AWS instance metadata"),
    v6(0xfd20_00ce_0000_0000, 0x0254, 128, AddressClass::Metadata, "Google Cloud metadata"),

    v4([0, 0, 0, 0], 8, AddressClass::Unspecified, "RFC 1122"),
    v4([10, 0, 0, 0], 8, AddressClass::Private, "RFC 1918"),
    v4([100, 64, 0, 0], 10, AddressClass::CarrierShared, "RFC 6598"),
    v4([127, 0, 0, 0], 8, AddressClass::Loopback, "RFC 1122"),
    v4([169, 254, 0, 0], 16, AddressClass::LinkLocal, "RFC 3927"),
    v4([172, 16, 0, 0], 12, AddressClass::Private, "RFC 1918"),
    v4([192, 0, 0, 0], 24, AddressClass::Reserved, "RFC 6890"),
    v4([192, 0, 2, 0], 24, AddressClass::Documentation, "RFC 5737"),
    v4([192, 88, 99, 0], 24, AddressClass::Transition, "RFC 7526"),
    v4([192, 168, 0, 0], 16, AddressClass::Private, "RFC 1918"),
    v4([198, 18, 0, 0], 15, AddressClass::Benchmarking, "RFC 2544"),
    v4([198, 51, 100, 0], 24, AddressClass::Documentation, "RFC 5737"),
    v4([203, 0, 113, 0], 24, AddressClass::Documentation, "RFC 5737"),
    v4([224, 0, 0, 0], 4, AddressClass::Multicast, "RFC 5771"),
    v4([255, 255, 255, 255], 32, AddressClass::Broadcast, "RFC 919"),
    v4([240, 0, 0, 0], 4, AddressClass::Reserved, "RFC 1112"),

    v6(0, 0, 128, AddressClass::Unspecified, "RFC 4291"),
    v6(0, 1, 128, AddressClass::Loopback, "RFC 4291"),
    v6(0, 0, 96, AddressClass::Transition, "RFC 4291, IPv4-compatible"),
    v6(0, 0xffff_0000_0000_0000, 96, AddressClass::Transition, "RFC 2765, IPv4-translated"),
    v6(0x0064_ff9b_0001_0000, 0, 48, AddressClass::Transition, "RFC 8215, local NAT64"),
    v6(0x0100_0000_0000_0000, 0, 64, AddressClass::Reserved, "RFC 6666"),
    // Contains Teredo, benchmarking and three generations of key-based identifiers.
    v6(0x2001_0000_0000_0000, 0, 23, AddressClass::Reserved, "RFC 2928"),
    v6(0x2001_0db8_0000_0000, 0, 32, AddressClass::Documentation, "RFC 3849"),
    v6(0x2002_0000_0000_0000, 0, 16, AddressClass::Transition, "RFC 3056, 6to4"),
    v6(0x3fff_0000_0000_0000, 0, 20, AddressClass::Documentation, "RFC 9637"),
    v6(0xfc00_0000_0000_0000, 0, 7, AddressClass::UniqueLocal, "RFC 4193"),
    v6(0xfe80_0000_0000_0000, 0, 10, AddressClass::LinkLocal, "RFC 4291"),
    v6(0xfec0_0000_0000_0000, 0, 10, AddressClass::Private, "RFC 3879, site-local"),
    v6(0xff00_0000_0000_0000, 0, 8, AddressClass::Multicast, "RFC 4291"),
];

/// The only part of IPv6 that is allocated to the public.
const GLOBAL_UNICAST: Cidr = Cidr::v6(0x2000_0000_0000_0000, 0, 3);

const BEYOND_GLOBAL_UNICAST: Special = v6(0, 0, 0, AddressClass::Reserved, "RFC 4291");

/// The NAT64 prefix: networks without IPv4 reach it through this prefix, and their resolvers map every IPv4
/// address into it.
const NAT64: Cidr = Cidr::v6(0x0064_ff9b_0000_0000, 0, 96);

/// Returns `true` if the address is publicly routable.
pub fn is_public(address: IpAddr) -> bool {
    special(address).is_none()
}

/// Returns the range that makes an address non-public. An address that embeds an IPv4 address has the class
/// of the latter.
pub(super) fn special(address: IpAddr) -> Option<&'static Special> {
    let address = match address.to_canonical() {
        IpAddr::V6(v6) if NAT64.contains(IpAddr::V6(v6)) => IpAddr::V4(embedded(v6)),
        other => other,
    };
    let row = TABLE.iter().find(|special| special.range.contains(address));
    row.or_else(|| (address.is_ipv6() && !GLOBAL_UNICAST.contains(address)).then_some(&BEYOND_GLOBAL_UNICAST))
}

fn embedded(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(address: &str, expected: Option<AddressClass>) {
        let found = special(address.parse().unwrap()).map(|special| special.class);
        assert_eq!(found, expected, "{address}");
    }

    #[test]
    fn knows_both_ends_of_every_range() {
        use AddressClass as C;
        for (first, last, class) in [
            ("0.0.0.0", "0.255.255.255", C::Unspecified),
            ("10.0.0.0", "10.255.255.255", C::Private),
            ("100.64.0.0", "100.127.255.255", C::CarrierShared),
            ("127.0.0.0", "127.255.255.255", C::Loopback),
            ("169.254.0.0", "169.254.255.255", C::LinkLocal),
            ("172.16.0.0", "172.31.255.255", C::Private),
            ("192.0.0.0", "192.0.0.255", C::Reserved),
            ("192.0.2.0", "192.0.2.255", C::Documentation),
            ("192.88.99.0", "192.88.99.255", C::Transition),
            ("192.168.0.0", "192.168.255.255", C::Private),
            ("198.18.0.0", "198.19.255.255", C::Benchmarking),
            ("198.51.100.0", "198.51.100.255", C::Documentation),
            ("203.0.113.0", "203.0.113.255", C::Documentation),
            ("224.0.0.0", "239.255.255.255", C::Multicast),
            ("240.0.0.0", "255.255.255.254", C::Reserved),
            ("::2", "::ffff:ffff", C::Transition),
            ("2001::", "2001:1ff:ffff::", C::Reserved),
            ("2001:db8::", "2001:db8:ffff::", C::Documentation),
            ("2002::", "2002:ffff::", C::Transition),
            ("3fff::", "3fff:fff::", C::Documentation),
            ("fc00::", "fdff::", C::UniqueLocal),
            ("fe80::", "febf::", C::LinkLocal),
            ("fec0::", "feff::", C::Private),
            ("ff00::", "ffff::", C::Multicast),
        ] {
            check(first, Some(class));
            check(last, Some(class));
        }
    }

    #[test]
    fn knows_the_addresses_that_stand_alone() {
        use AddressClass as C;
        check("255.255.255.255", Some(C::Broadcast));
        check("::", Some(C::Unspecified));
        check("::1", Some(C::Loopback));
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            check(address, Some(C::Metadata));
        }
    }

    #[test]
    fn an_address_inside_another_is_found() {
        use AddressClass as C;
        check("::ffff:127.0.0.1", Some(C::Loopback));
        check("64:ff9b::10.0.0.1", Some(C::Private));
        check("64:ff9b:1::8.8.8.8", Some(C::Transition));
        check("::ffff:0:127.0.0.1", Some(C::Transition));
        check("::127.0.0.1", Some(C::Transition));
        check("2002:7f00:1::", Some(C::Transition));
        check("2001:0:7f00:1::", Some(C::Reserved));
    }

    #[test]
    fn the_neighbours_of_the_ranges_are_public() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "3ffe::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            check(address, None);
        }
    }

    proptest! {
        #[test]
        fn nothing_beyond_global_unicast_is_public(bits: u128) {
            let address = IpAddr::V6(Ipv6Addr::from_bits(bits));
            let carries = NAT64.contains(address) || address.to_canonical().is_ipv4();
            prop_assert!(!is_public(address) || carries || bits >> 125 == 1);
        }

        #[test]
        fn agrees_with_the_standard_library(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let known = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_documentation()
                || address.is_unspecified();
            prop_assert!(!(known && is_public(IpAddr::V4(address))), "{address}");
        }

        #[test]
        fn a_mapped_or_translated_address_is_what_it_carries(bits: u32) {
            let plain = Ipv4Addr::from_bits(bits);
            let mapped = plain.to_ipv6_mapped();
            let translated = Ipv6Addr::from_bits((0x0064_ff9b_u128 << 96) | u128::from(bits));
            prop_assert_eq!(is_public(IpAddr::V4(plain)), is_public(IpAddr::V6(mapped)));
            prop_assert_eq!(is_public(IpAddr::V4(plain)), is_public(IpAddr::V6(translated)));
        }
    }
}

//! Address ranges in CIDR notation.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

/// An address range, written `10.0.0.0/8` or `fd00::/8`; an address alone is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    prefix: u8,
}

/// An error returned when parsing a range from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseCidrError {
    /// Not an address with a prefix.
    #[error("`{0}` is not a range of addresses; write it like `10.0.0.0/8` or `fd00::/8`")]
    Malformed(String),
    /// The address has bits after the prefix, so that the meaning is unclear.
    #[error("`{0}` has bits set after its prefix; the range that contains it is `{1}`")]
    HostBits(String, Cidr),
    /// A range of IPv4-mapped IPv6 addresses: addresses are compared in their canonical form.
    #[error("`{0}` is a range of IPv4 addresses in IPv6 form; write it in IPv4 form, like `10.0.0.0/8`")]
    Mapped(String),
}

impl Cidr {
    /// Returns a range of IPv4 addresses.
    pub(super) const fn v4(octets: [u8; 4], prefix: u8) -> Self {
        let [a, b, c, d] = octets;
        Self {
            base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    /// Returns a range of IPv6 addresses, given by the first 64 and the last 64 bits.
    pub(super) const fn v6(high: u64, low: u64, prefix: u8) -> Self {
        let bits = ((high as u128) << 64) | low as u128;
        Self {
            base: IpAddr::V6(Ipv6Addr::from_bits(bits)),
            prefix,
        }
    }

    /// Returns the range of one address.
    pub fn single(address: IpAddr) -> Self {
        let base = address.to_canonical();
        let (_, prefix) = bits(base);
        Self { base, prefix }
    }

    /// Returns `true` if the address lies within the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (given, width) = bits(address);
        let (base, own_width) = bits(self.base);
        width == own_width && mask(given, self.prefix, width) == mask(base, self.prefix, width)
    }

    /// Returns `true` if the range has one address only.
    pub fn is_single(&self) -> bool {
        self.prefix == bits(self.base).1
    }
}

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// Returns the bits of the prefix; zero for a prefix of zero.
fn mask(bits: u128, prefix: u8, width: u8) -> u128 {
    bits.checked_shr(u32::from(width - prefix)).unwrap_or(0)
}

impl FromStr for Cidr {
    type Err = ParseCidrError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseCidrError::Malformed(text.escape_debug().to_string());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().map_err(|_| malformed())?;
        let (all, width) = bits(base);
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| malformed())?
            }
            Some(_) => return Err(malformed()),
            None => width,
        };
        if prefix > width {
            return Err(malformed());
        }
        if base.to_canonical() != base {
            return Err(ParseCidrError::Mapped(text.to_owned()));
        }
        let spare = u32::from(width - prefix);
        let kept = mask(all, prefix, width).checked_shl(spare).unwrap_or(0);
        let range = Self {
            base: address_of(kept, base),
            prefix,
        };
        if kept == all {
            Ok(range)
        } else {
            Err(ParseCidrError::HostBits(text.to_owned(), range))
        }
    }
}

/// Converts the bits to an address of the same family as `like`.
fn address_of(bits: u128, like: IpAddr) -> IpAddr {
    match (like, u32::try_from(bits)) {
        (IpAddr::V4(_), Ok(bits)) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
        (IpAddr::V4(_), Err(_)) => like,
        (IpAddr::V6(_), _) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(range: &str, address: &str, expected: bool) {
        let range: Cidr = range.parse().unwrap();
        assert_eq!(
            range.contains(address.parse().unwrap()),
            expected,
            "{address} in {range}"
        );
    }

    #[test]
    fn holds_what_shares_its_prefix() {
        check("127.0.0.0/8", "127.255.255.255", true);
        check("127.0.0.0/8", "128.0.0.0", false);
        check("127.0.0.0/8", "::1", false);
        check("10.0.0.1", "10.0.0.1", true);
        check("10.0.0.1", "10.0.0.2", false);
        check("0.0.0.0/0", "255.255.255.255", true);
        check("0.0.0.0/0", "::", false);
        check("::/0", "ffff::", true);
        check("fd00::/8", "fdff::1", true);
        check("fd00::/8", "fe00::1", false);
    }

    #[test]
    fn refuses_what_is_no_range() {
        for text in [
            "",
            "/",
            "10",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "::/129",
            "010.0.0.0/8",
            "a/8",
        ] {
            let refusal = text.parse::<Cidr>().unwrap_err();
            assert!(matches!(refusal, ParseCidrError::Malformed(_)), "{text}");
        }
        let refusal = "10.0.0.1/8".parse::<Cidr>().unwrap_err().to_string();
        assert!(refusal.ends_with("`10.0.0.0/8`"), "{refusal}");
        let refusal = "::ffff:10.0.0.0/104".parse::<Cidr>();
        assert!(matches!(refusal, Err(ParseCidrError::Mapped(_))));
    }
}

//! Hosts as they may be written.

use core::net::{IpAddr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

/// Longest name in DNS, without its trailing dot.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host: a name to resolve, or an address.
///
/// Resolvers parse `2130706433`, `0x7f.1` and `0177.0.0.1` as addresses. Here they are rejected, so that a
/// name is a name both for us and for the resolver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    Name(HostName),
    /// An address; an IPv4-mapped IPv6 address is converted to IPv4.
    Address(IpAddr),
}

/// A name to resolve: lower case; letters, digits, `-` and `_` in labels; no trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// An error returned when parsing a host from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseHostError {
    /// Empty text.
    #[error("the host is missing; write it like `example.com`")]
    Missing,
    /// Longer than DNS allows.
    #[error("the host is too long; a name has 253 characters at most, and 63 between two dots")]
    TooLong,
    /// A character beyond ASCII. Many look alike, so a reader could not see which host is allowed.
    #[error("`{0}` has letters beyond ASCII; write it in its `xn--` form")]
    International(String),
    /// A character that no host has.
    #[error("a host cannot contain `{0}`; write only the name, like `example.com`")]
    Character(String),
    /// An empty label, or one that begins or ends with a hyphen.
    #[error("`{0}` has a part that is empty or has a hyphen at its edge; write it like `example.com`")]
    Label(String),
    /// A number that resolvers parse as an address.
    #[error("`{0}` is an IP address in an unusual form; write it like `192.0.2.1`")]
    Disguised(String),
    /// Neither name nor address.
    #[error("`{0}` is not an IPv6 address; write it like `[2001:db8::1]`, without a zone")]
    Address(String),
}

impl HostName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if this name is a strict subdomain of `suffix`.
    pub(super) fn is_below(&self, suffix: &Self) -> bool {
        self.0
            .strip_suffix(suffix.as_str())
            .is_some_and(|rest| rest.ends_with('.'))
    }

    fn parse(text: &str) -> Result<Self, ParseHostError> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.len() > MAX_NAME || name.split('.').any(|label| label.len() > MAX_LABEL) {
            return Err(ParseHostError::TooLong);
        }
        if name.split('.').any(broken) {
            return Err(ParseHostError::Label(text.to_owned()));
        }
        if name.rsplit('.').next().is_some_and(numeric) {
            return Err(ParseHostError::Disguised(text.to_owned()));
        }
        Ok(Self(name))
    }
}

fn broken(label: &str) -> bool {
    label.is_empty() || label.starts_with('-') || label.ends_with('-')
}

/// Returns `true` if a resolver could parse a name with this last label as an address: `1`, `017`, `0x7f`. No
/// top-level domain looks like that.
fn numeric(label: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits(label) || label.strip_prefix("0x").is_some_and(hexadecimal)
}

impl FromStr for Host {
    type Err = ParseHostError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ParseHostError::Missing);
        }
        // Two more than a name: a trailing dot, and one to detect excess length.
        if text.len() > MAX_NAME + 2 {
            return Err(ParseHostError::TooLong);
        }
        if !text.is_ascii() {
            return Err(ParseHostError::International(text.escape_debug().to_string()));
        }
        if let Some(address) = version_six(text) {
            return address;
        }
        if let Some(odd) = text.chars().find(|c| !allowed(*c)) {
            return Err(ParseHostError::Character(odd.escape_debug().to_string()));
        }
        match text.strip_suffix('.').unwrap_or(text).parse() {
            Ok(address) => Ok(Self::Address(IpAddr::V4(address))),
            Err(_) => HostName::parse(text).map(Self::Name),
        }
    }
}

fn allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_')
}

/// Parses an IPv6 address with or without brackets, if the text looks like one.
fn version_six(text: &str) -> Option<Result<Host, ParseHostError>> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').unwrap_or_default(),
        None => text,
    };
    if bare == text && !(text.contains(':') && text.bytes().all(is_version_six)) {
        return None;
    }
    let address = bare.parse::<Ipv6Addr>();
    Some(match address {
        Ok(address) => Ok(Host::Address(IpAddr::V6(address).to_canonical())),
        Err(_) => Err(ParseHostError::Address(text.escape_debug().to_string())),
    })
}

/// Accepts a zone (`%eth0`), so that the error names it.
fn is_version_six(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.' | b'%')
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Host {
    /// Formats as in a URL: IPv6 addresses have brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<Host>().unwrap().to_string(), expected, "{text:?}");
    }

    fn refused(text: &str, expected: fn(&ParseHostError) -> bool) {
        let refusal = text.parse::<Host>().unwrap_err();
        assert!(expected(&refusal), "{text:?}: {refusal:?}");
    }

    #[test]
    fn reads_names_and_addresses() {
        check("Example.COM", "example.com");
        check("example.com.", "example.com");
        check("localhost", "localhost");
        check("a_b.xn--mnchen-3ya.example", "a_b.xn--mnchen-3ya.example");
        check("1.2.3.4.example", "1.2.3.4.example");
        check("192.0.2.1", "192.0.2.1");
        check("192.0.2.1.", "192.0.2.1");
        check("[2001:DB8::1]", "[2001:db8::1]");
        check("::1", "[::1]");
        check("[::ffff:127.0.0.1]", "127.0.0.1");
        check("::ffff:7f00:1", "127.0.0.1");
    }

    #[test]
    fn refuses_addresses_in_disguise() {
        for text in [
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0X7F000001",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "0x7f.1",
            "127.1",
            "127.0.1",
            "127.0.0.01",
            "256.256.256.256",
            "1.2.3.4.5",
            "a.0x",
            "a.1.",
        ] {
            refused(text, |error| matches!(error, ParseHostError::Disguised(_)));
        }
    }

    #[test]
    fn refuses_what_no_host_holds() {
        for text in [
            "example.com\0.evil.test",
            "a.test\r\nHost: evil.test",
            "a.test\n",
            "a test",
            "user@a.test",
            "user:secret@a.test",
            "a.test/path",
            "a.test\\evil",
            "a%2etest",
            "a.test:80",
            "a.test?",
            "a.test#",
            "*.test",
        ] {
            refused(text, |error| {
                matches!(error, ParseHostError::Character(_) | ParseHostError::Address(_))
            });
        }
        for text in [
            "m\u{fc}nchen.example",
            "\u{ff11}27.0.0.1",
            "127\u{3002}0.0.1",
            "a\u{200b}b",
        ] {
            refused(text, |error| matches!(error, ParseHostError::International(_)));
        }
        for text in [".", "..", ".a", "a..b", "a.test..", "-a.test", "a-.test", "a.-"] {
            refused(text, |error| matches!(error, ParseHostError::Label(_)));
        }
        for text in [
            "[::1",
            "[]",
            "[127.0.0.1]",
            "[fe80::1%eth0]",
            "fe80::1%1",
            "[::1]x",
            "1:2",
            "::g",
        ] {
            refused(text, |error| matches!(error, ParseHostError::Address(_)));
        }
        refused("", |error| *error == ParseHostError::Missing);
    }

    #[test]
    fn keeps_to_the_lengths_of_dns() {
        let label = "a".repeat(63);
        let longest = [&label[..], &label, &label, &label[..61]].join(".");
        check(&longest, &longest);
        check(&format!("{longest}."), &longest);
        for text in [format!("{longest}a"), "a".repeat(64), "a.".repeat(200)] {
            refused(&text, |error| *error == ParseHostError::TooLong);
        }
    }

    #[test]
    fn the_text_of_an_error_has_no_line_of_its_own() {
        for text in ["a\nb", "a\u{2028}b", "[\r\n]", "\u{202e}a"] {
            let message = text.parse::<Host>().unwrap_err().to_string();
            assert!(!message.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}')));
        }
    }

    proptest! {
        #[test]
        fn what_is_read_reads_the_same_again(text in "[ -~]{0,40}|[a-z0-9.x:-]{1,20}|\\PC{0,20}") {
            if let Ok(host) = text.parse::<Host>() {
                prop_assert_eq!(host.to_string().parse::<Host>(), Ok(host));
            }
        }

        #[test]
        fn no_form_of_an_address_is_a_name(bits: u32, form in 0..7) {
            let [a, b, c, d] = bits.to_be_bytes();
            let text = match form {
                0 => format!("{bits}"),
                1 => format!("{bits:#x}"),
                2 => format!("0{bits:o}"),
                3 => format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
                4 => format!("{a:#x}.{b:#X}.{c}.{d}"),
                5 => format!("{a}.{b}.{}", bits & 0xffff),
                _ => format!("{a}.{b}.{c}.{d}"),
            };
            prop_assert!(!matches!(text.parse::<Host>(), Ok(Host::Name(_))), "{}", text);
        }
    }
}

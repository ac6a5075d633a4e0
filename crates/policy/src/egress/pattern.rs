//! Allowlist patterns for hosts.

use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;

use super::{Cidr, Host, HostName, ParseHostError};

/// Ports that a pattern without a port allows: HTTP and HTTPS.
const USUAL_PORTS: [u16; 2] = [80, HTTPS];
const HTTPS: u16 = 443;

/// `example.com`, `*.example.com` (its subdomains, not itself) or `*`, each with an optional `:port`.
///
/// Without a port, 80 and 443 are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Any,
    Below(HostName),
    Only(Host),
}

/// An error returned when parsing a pattern from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePatternError {
    /// Invalid host.
    #[error(transparent)]
    Host(#[from] ParseHostError),
    /// A `*` elsewhere than alone or at the start.
    #[error("`{0}` has a misplaced `*`; write `*`, or `*.example.com`")]
    Wildcard(String),
    /// Invalid port number.
    #[error("`{0}` is not a port; write it like `example.com:8443`")]
    Port(String),
    /// A range of addresses.
    #[error("`{0}` is a range of addresses; write one host, and open ranges with `egress.private_networks`")]
    Range(String),
    /// A full URL.
    #[error("`{0}` is a URL; write only its host, like `example.com`")]
    Url(String),
}

impl HostPattern {
    /// Returns `true` if the host may be reached at this port.
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        let at_port = match self.port {
            Some(own) => own == port,
            None => USUAL_PORTS.contains(&port),
        };
        at_port && self.names(host)
    }

    /// Returns `true` if the pattern matches the host, at any port.
    pub fn names(&self, host: &Host) -> bool {
        match (&self.hosts, host) {
            (Hosts::Any, _) => true,
            (Hosts::Below(suffix), Host::Name(name)) => name.is_below(suffix),
            (Hosts::Below(_), Host::Address(_)) => false,
            (Hosts::Only(own), host) => own == host,
        }
    }

    /// Returns `true` if the pattern allows everything that `other` allows.
    pub fn covers(&self, other: &Self) -> bool {
        let has_ports = match (self.port, other.port) {
            (None, None) => true,
            (None, Some(port)) => USUAL_PORTS.contains(&port),
            (Some(_), None) => false,
            (Some(own), Some(port)) => own == port,
        };
        let has_hosts = match (&self.hosts, &other.hosts) {
            (Hosts::Any, _) => true,
            (_, Hosts::Only(host)) => self.names(host),
            (Hosts::Below(suffix), Hosts::Below(name)) => name == suffix || name.is_below(suffix),
            (Hosts::Only(_), Hosts::Below(_)) | (Hosts::Below(_) | Hosts::Only(_), Hosts::Any) => false,
        };
        has_ports && has_hosts
    }

    /// Returns the pattern for the same hosts at the usual ports, if it allows that of HTTPS alone.
    pub fn at_usual_ports(self) -> Self {
        let port = self.port.filter(|port| *port != HTTPS);
        Self { port, ..self }
    }

    /// Returns the pattern for one host at one port.
    pub const fn only(host: Host, port: u16) -> Self {
        Self {
            hosts: Hosts::Only(host),
            port: Some(port),
        }
    }

    /// Returns the pattern's address, if it names one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.hosts {
            Hosts::Only(Host::Address(address)) => Some(address),
            Hosts::Only(Host::Name(_)) | Hosts::Below(_) | Hosts::Any => None,
        }
    }
}

impl FromStr for HostPattern {
    type Err = ParsePatternError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') && text.parse::<Cidr>().is_ok() {
            return Err(ParsePatternError::Range(text.to_owned()));
        }
        if text.contains('/') {
            return Err(ParsePatternError::Url(text.escape_debug().to_string()));
        }
        let (hosts, port) = split_port(text)?;
        Ok(Self {
            hosts: hosts.parse()?,
            port,
        })
    }
}

/// Splits off the port. An IPv6 address without brackets has several colons, and no port.
fn split_port(text: &str) -> Result<(&str, Option<u16>), ParsePatternError> {
    let (hosts, port) = match text.rsplit_once(':') {
        Some((hosts, port)) if !hosts.contains(':') || hosts.ends_with(']') => (hosts, port),
        _ => return Ok((text, None)),
    };
    let wrong = || ParsePatternError::Port(port.escape_debug().to_string());
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    match port.parse() {
        Ok(0) | Err(_) => Err(wrong()),
        Ok(number) => Ok((hosts, Some(number))),
    }
}

impl FromStr for Hosts {
    type Err = ParsePatternError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let wildcard = || ParsePatternError::Wildcard(text.escape_debug().to_string());
        let suffix = text.strip_prefix("*.");
        let host = suffix.unwrap_or(text);
        if host.contains('*') {
            return Err(wildcard());
        }
        match (suffix, host.parse()?) {
            (None, host) => Ok(Self::Only(host)),
            (Some(_), Host::Name(name)) => Ok(Self::Below(name)),
            (Some(_), Host::Address(_)) => Err(wildcard()),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Any => f.write_str("*")?,
            Hosts::Below(suffix) => write!(f, "*.{suffix}")?,
            Hosts::Only(host) => host.fmt(f)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, host: &str, port: u16, expected: bool) {
        let pattern: HostPattern = pattern.parse().unwrap();
        assert_eq!(
            pattern.allows(&host.parse().unwrap(), port),
            expected,
            "{pattern} {host} {port}"
        );
    }

    #[test]
    fn a_range_is_told_from_a_page() {
        let told = |text: &str| text.parse::<HostPattern>().unwrap_err().to_string();
        assert!(told("127.0.0.0/8").contains("is a range of addresses"));
        assert!(told("a.test/8").contains("is a URL"));
    }

    #[test]
    fn a_name_means_itself() {
        check("example.com", "example.com", 443, true);
        check("Example.com.", "EXAMPLE.com", 80, true);
        check("example.com", "www.example.com", 443, false);
        check("example.com", "example.com.evil.test", 443, false);
        check("example.com", "notexample.com", 443, false);
        check("192.0.2.1", "192.0.2.1", 80, true);
        check("192.0.2.1", "192.0.2.2", 80, false);
        check("::1", "[::1]", 80, true);
    }

    #[test]
    fn a_suffix_means_what_lies_below() {
        check("*.example.com", "www.example.com", 443, true);
        check("*.example.com", "a.b.example.com", 443, true);
        check("*.example.com", "example.com", 443, false);
        check("*.example.com", "evilexample.com", 443, false);
        check("*.example.com", "www.example.com.evil.test", 443, false);
        check("*.0.1.example", "192.0.0.1", 443, false);
    }

    #[test]
    fn a_star_means_everything_and_ports_stay() {
        check("*", "example.com", 443, true);
        check("*", "192.0.2.1", 80, true);
        check("*", "example.com", 22, false);
        check("*:22", "example.com", 22, true);
        check("*:22", "example.com", 443, false);
        check("example.com:8443", "example.com", 8443, true);
        check("example.com:8443", "example.com", 443, false);
        check("[::1]:8080", "::1", 8080, true);
    }

    #[test]
    fn a_pattern_covers_what_allows_no_more() {
        let check = |pattern: &str, other: &str, expected: bool| {
            let [pattern, other]: [HostPattern; 2] = [pattern, other].map(|text| text.parse().unwrap());
            assert_eq!(pattern.covers(&other), expected, "{pattern} {other}");
        };
        for text in ["a.test", "*.a.test", "*", "a.test:8443", "192.0.2.1", "[::1]:80"] {
            check(text, text, true);
            check("*", text, text != "a.test:8443");
        }
        check("*.a.test", "b.a.test", true);
        check("*.a.test", "*.b.a.test", true);
        check("*.a.test", "a.test", false);
        check("*.b.a.test", "*.a.test", false);
        check("*.a.test", "*", false);
        check("a.test", "*.a.test", false);
        check("a.test", "b.test", false);
        check("a.test", "a.test:443", true);
        check("a.test", "a.test:22", false);
        check("a.test:443", "a.test", false);
        check("*:22", "a.test:22", true);
        check("*.a.test", "192.0.2.1", false);
        let usual = |text: &str| text.parse::<HostPattern>().unwrap().at_usual_ports().to_string();
        assert_eq!([usual("a.test:443"), usual("a.test:80")], ["a.test", "a.test:80"]);
    }

    #[test]
    fn refuses_what_is_no_pattern() {
        use ParsePatternError as E;
        let refused = |text: &str| text.parse::<HostPattern>().unwrap_err();
        for text in [
            "**",
            "a.*.test",
            "*a.test",
            "*.*.test",
            "a.test*",
            "*.127.0.0.1",
            "*.[::1]",
        ] {
            assert!(matches!(refused(text), E::Wildcard(_)), "{text}");
        }
        for text in ["a:", "a:0", "a:65536", "a:+80", "a:http", "[::1]:", "*:x"] {
            assert!(matches!(refused(text), E::Port(_)), "{text}");
        }
        for text in ["", "*.", "a@b.test", "0x7f.1", "a b", ":80", "a..b"] {
            assert!(matches!(refused(text), E::Host(_)), "{text}");
        }
        assert!(matches!(refused("https://example.com/"), E::Url(_)));
    }

    proptest! {
        #[test]
        fn what_is_read_reads_the_same_again(text in "[*.a-z0-9:\\[\\]-]{1,16}|\\*\\.[a-z.]{1,9}(:[0-9]{1,5})?") {
            if let Ok(pattern) = text.parse::<HostPattern>() {
                prop_assert_eq!(pattern.to_string().parse::<HostPattern>(), Ok(pattern));
            }
        }
    }
}

//! Egress policy: the hosts and addresses that may be reached over a network.

mod address;
mod cidr;
mod host;
mod pattern;

pub use address::{AddressClass, is_public};
pub use cidr::{Cidr, ParseCidrError};
pub use host::{Host, HostName, ParseHostError};
pub use pattern::{HostPattern, ParsePatternError};

// Addresses are values; `std::net` also has sockets, which this crate must not use.
use core::net::IpAddr;

/// The egress policy: hosts by name, at public addresses only unless a range is opened.
///
/// The empty policy allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// The allowlist of hosts.
    pub allowed: Vec<HostPattern>,
    /// Non-public address ranges opened by a person, never by a project's file.
    pub private_networks: Vec<Cidr>,
}

/// A reason to refuse egress.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The allowlist is empty.
    #[error("no host is allowed, so {host} is not")]
    NoHosts {
        /// The requested host.
        host: Host,
    },
    /// No pattern matches the host.
    #[error("no pattern of the allowed hosts names {host}")]
    Host {
        /// The requested host.
        host: Host,
    },
    /// A pattern matches the host, but not this port.
    #[error("`{pattern}` allows {host}, but not at port {port}")]
    Port {
        /// The requested host.
        host: Host,
        /// The requested port.
        port: u16,
        /// The first pattern that matches the host.
        pattern: HostPattern,
    },
    /// The host has a forbidden address. The address itself is not reported: it would map an internal
    /// network.
    #[error("{host} has {class}, which is not allowed ({grounds})")]
    Address {
        /// The requested host.
        host: Host,
        class: AddressClass,
        /// The document that reserves the address, or another source.
        grounds: &'static str,
    },
}

impl Refusal {
    /// Returns a suggestion for fixing it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoHosts { .. } | Self::Host { .. } => {
                "the host must be in `egress.allowed_hosts` of the user's configuration, as `example.com`, `*.example.com` or `example.com:8443`"
            }
            Self::Port { .. } => "name the port in the pattern, as `example.com:8443`",
            Self::Address {
                class: AddressClass::Metadata,
                ..
            } => {
                "this address hands out a machine's credentials; only a private network of this one address opens it"
            }
            Self::Address { .. } => {
                "only public addresses are reached; open others by range with `egress.private_networks` in your own configuration"
            }
        }
    }
}

impl EgressPolicy {
    /// Returns the policy for hosts that a person named one by one: naming an address opens it, except for
    /// those that hand out a machine's credentials.
    pub fn of_named(allowed: Vec<HostPattern>, mut private_networks: Vec<Cidr>) -> Self {
        let addresses = allowed.iter().filter_map(HostPattern::address);
        let harmless = addresses.filter(|address| {
            address::special(*address).is_none_or(|special| special.class != AddressClass::Metadata)
        });
        private_networks.extend(harmless.map(Cidr::single));
        Self {
            allowed,
            private_networks,
        }
    }

    /// Returns the pattern that allows the host at this port.
    ///
    /// # Errors
    /// If no pattern does.
    pub fn check_host(&self, host: &Host, port: u16) -> Result<&HostPattern, Refusal> {
        if let Some(pattern) = self.allowed.iter().find(|pattern| pattern.allows(host, port)) {
            return Ok(pattern);
        }
        let host = host.clone();
        let named = self.allowed.iter().find(|pattern| pattern.names(&host));
        Err(match named {
            Some(pattern) => Refusal::Port {
                host,
                port,
                pattern: pattern.clone(),
            },
            None if self.allowed.is_empty() => Refusal::NoHosts { host },
            None => Refusal::Host { host },
        })
    }

    /// Checks one address of an allowed host.
    ///
    /// # Errors
    /// If the address is neither public nor in an opened range.
    pub fn check_address(&self, host: &Host, address: IpAddr) -> Result<(), Refusal> {
        match address::special(address) {
            Some(special) if !self.opens(address.to_canonical(), special.class) => Err(Refusal::Address {
                host: host.clone(),
                class: special.class,
                grounds: special.source,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks an address that the caller found on an interface of this machine. Even a public one bypasses
    /// every firewall in front of local services.
    ///
    /// # Errors
    /// If it is in no opened range.
    pub fn check_own_address(&self, host: &Host, address: IpAddr) -> Result<(), Refusal> {
        if self.opens(address.to_canonical(), AddressClass::Own) {
            return Ok(());
        }
        Err(Refusal::Address {
            host: host.clone(),
            class: AddressClass::Own,
            grounds: "found on an interface",
        })
    }

    /// Returns `true` if a range opens the address. A range opened for private servers must not open the
    /// metadata service along with them: that takes a range of its one address.
    fn opens(&self, address: IpAddr, class: AddressClass) -> bool {
        self.private_networks
            .iter()
            .any(|range| range.contains(address) && (class != AddressClass::Metadata || range.is_single()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allowed: &[&str], private: &[&str]) -> EgressPolicy {
        EgressPolicy {
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
            private_networks: private.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn the_empty_policy_allows_nothing() {
        let refusal = EgressPolicy::default()
            .check_host(&host("example.com"), 443)
            .unwrap_err();
        assert_eq!(
            refusal,
            Refusal::NoHosts {
                host: host("example.com")
            }
        );
        assert_eq!(refusal.to_string(), "no host is allowed, so example.com is not");
    }

    #[test]
    fn the_reason_names_the_pattern_or_its_lack() {
        let policy = policy(&["*.example.com", "api.test:8080"], &[]);
        let allowed = |name: &str, port| {
            policy
                .check_host(&host(name), port)
                .map(ToString::to_string)
                .map_err(|d| d.to_string())
        };
        assert_eq!(allowed("a.example.com", 443), Ok("*.example.com".to_owned()));
        assert_eq!(allowed("api.test", 8080), Ok("api.test:8080".to_owned()));
        assert_eq!(
            allowed("api.test", 443),
            Err("`api.test:8080` allows api.test, but not at port 443".to_owned())
        );
        assert_eq!(
            allowed("evil.test", 443),
            Err("no pattern of the allowed hosts names evil.test".to_owned())
        );
    }

    fn check_address(private: &[&str], address: &str, allowed: bool) {
        let verdict = policy(&["*"], private).check_address(&host("a.test"), address.parse().unwrap());
        assert_eq!(
            verdict.is_ok(),
            allowed,
            "{address} with {private:?}: {verdict:?}"
        );
    }

    #[test]
    fn a_range_opens_its_own_addresses_and_no_other() {
        check_address(&[], "127.0.0.1", false);
        check_address(&["127.0.0.0/8"], "127.0.0.1", true);
        check_address(&["127.0.0.0/8"], "::ffff:127.0.0.1", true);
        check_address(&["127.0.0.0/8"], "64:ff9b::7f00:1", false);
        check_address(&["127.0.0.0/8"], "::1", false);
        check_address(&["127.0.0.0/8"], "10.0.0.1", false);
        check_address(&[], "93.184.216.34", true);
    }

    #[test]
    fn metadata_takes_a_range_of_its_own() {
        for address in ["169.254.169.254", "fd00:ec2::254", "100.100.100.200"] {
            check_address(
                &["169.254.0.0/16", "fd00::/8", "0.0.0.0/0", "::/0"],
                address,
                false,
            );
            check_address(&[address], address, true);
        }
    }

    #[test]
    fn an_address_is_opened_by_its_name_alone() {
        let named = |texts: &[&str]| {
            EgressPolicy::of_named(
                texts.iter().map(|text| text.parse().unwrap()).collect(),
                Vec::new(),
            )
        };
        let check = |texts: &[&str], address: &str, expected: bool| {
            let verdict = named(texts).check_address(&host(address), address.parse().unwrap());
            assert_eq!(verdict.is_ok(), expected, "{texts:?} {address}");
        };
        check(&["127.0.0.1:8080"], "127.0.0.1", true);
        check(&["127.0.0.1:8080"], "127.0.0.2", false);
        check(&["[::1]:8080"], "::1", true);
        check(&["*", "localhost", "a.test"], "127.0.0.1", false);
        check(&["169.254.169.254"], "169.254.169.254", false);
    }

    #[test]
    fn an_address_of_this_machine_takes_a_range() {
        let address = "93.184.216.34".parse().unwrap();
        let check = |private: &[&str]| policy(&["*"], private).check_own_address(&host("a.test"), address);
        assert_eq!(
            check(&["127.0.0.0/8"]).unwrap_err().to_string(),
            "a.test has an address of this machine, which is not allowed (found on an interface)"
        );
        assert_eq!(check(&["93.184.216.34"]), Ok(()));
    }

    #[test]
    fn a_refused_address_is_not_told() {
        let refusal = policy(&["*"], &[])
            .check_address(&host("db.test"), "10.1.2.3".parse().unwrap())
            .unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "db.test has a private address, which is not allowed (RFC 1918)"
        );
    }
}

//! Which hosts and addresses may be reached over a network.

mod address;
mod cidr;
mod host;
mod pattern;

pub use address::{AddressClass, is_public};
pub use cidr::{Cidr, ParseCidrError};
pub use host::{Host, HostName, ParseHostError};
pub use pattern::{HostPattern, ParsePatternError};

// Addresses are values; `std::net` has the sockets, which this crate has no business with.
use core::net::IpAddr;

/// What may be reached: hosts by name, and then only at public addresses unless a range was opened.
///
/// The empty policy allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// The hosts that may be reached.
    pub allowed: Vec<HostPattern>,
    /// Ranges of addresses that are not public and were opened by a person, never by a project's file.
    pub private_networks: Vec<Cidr>,
}

/// Why a way out is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The list of hosts is empty.
    #[error("no host is allowed, so {host} is not")]
    NoHosts {
        /// The host that was asked for.
        host: Host,
    },
    /// No pattern names the host.
    #[error("no pattern of the allowed hosts names {host}")]
    Host {
        /// The host that was asked for.
        host: Host,
    },
    /// A pattern names the host, but not this port.
    #[error("`{pattern}` allows {host}, but not at port {port}")]
    Port {
        /// The host that was asked for.
        host: Host,
        /// The port that was asked for.
        port: u16,
        /// The first pattern that names the host.
        pattern: HostPattern,
    },
    /// The host has an address that must not be reached. Which one is not said: it would map an internal network.
    #[error("{host} has {class} ({grounds})")]
    Address {
        /// The host that was asked for.
        host: Host,
        /// What the address is for.
        class: AddressClass,
        /// The document that reserves the address, or how else it is known.
        grounds: &'static str,
    },
}

impl Refusal {
    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoHosts { .. } | Self::Host { .. } => {
                "add the host to `egress.allowed_hosts`, as `example.com`, `*.example.com` or `example.com:8443`"
            }
            Self::Port { .. } => "name the port in the pattern, as `example.com:8443`",
            Self::Address {
                class: AddressClass::Metadata,
                ..
            } => {
                "this address hands out a machine's credentials; only a private network of this one address opens it"
            }
            Self::Address { .. } => {
                "only public addresses are reached; open others by range in your own configuration"
            }
        }
    }
}

impl EgressPolicy {
    /// The policy for hosts that a person has named one by one: an address among them is opened by being named, but for
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

    /// The pattern that allows this host at this port.
    ///
    /// # Errors
    /// If there is none.
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

    /// Whether one address of an allowed host may be reached.
    ///
    /// # Errors
    /// If the address is not public, and in no range that was opened.
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

    /// Whether an address may be reached that the caller found on an interface of this machine. Even a public one leads
    /// past every firewall to what listens here.
    ///
    /// # Errors
    /// If it is in no range that was opened.
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

    /// A range opened for servers of one's own must not open the machine's credentials along with them: these take
    /// a range that holds nothing else.
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
            "a.test has an address of this machine (found on an interface)"
        );
        assert_eq!(check(&["93.184.216.34"]), Ok(()));
    }

    #[test]
    fn a_refused_address_is_not_told() {
        let refusal = policy(&["*"], &[])
            .check_address(&host("db.test"), "10.1.2.3".parse().unwrap())
            .unwrap_err();
        assert_eq!(refusal.to_string(), "db.test has a private address (RFC 1918)");
    }
}

//! The domain below which the API and each sandbox have a name of their own, as E2B's clients build them.

use std::fmt;
use std::str::FromStr;

/// Maximum length, which leaves room for the longest name of a sandbox (RFC 1035).
const MAX: usize = 190;
/// Name of the control plane below the domain.
const API: &str = "api";

/// A domain: at least two labels of lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(String);

/// An error returned when parsing a [`Domain`] from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a domain such as sandboxes.example.com: labels of letters, digits and hyphens, without a scheme, a port or `*`, at most \
     {MAX} characters; got `{0}`"
)]
pub struct ParseDomainError(String);

impl FromStr for Domain {
    type Err = ParseDomainError;

    fn from_str(text: &str) -> Result<Self, ParseDomainError> {
        let domain = text.to_ascii_lowercase();
        let labels: Vec<&str> = domain.split('.').collect();
        // An address is none: its last label is a number.
        let is_name = labels
            .last()
            .is_some_and(|last| last.contains(|c: char| c.is_ascii_lowercase()));
        match labels.len() > 1 && domain.len() <= MAX && is_name && labels.into_iter().all(is_label) {
            true => Ok(Self(domain)),
            false => Err(ParseDomainError(text.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name below the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// `api.DOMAIN`: the control plane, and the API of this server.
    Api,
    /// `PORT-ID.DOMAIN`: a port of a sandbox.
    Sandbox { port: u16, id: &'a str },
}

impl Domain {
    /// Returns names that a certificate must have: the API's, and one of a sandbox.
    pub fn names(&self) -> [String; 2] {
        [format!("{API}.{self}"), format!("49983-sandbox.{self}")]
    }

    /// Returns `true` if a value of `Host` is one of the names.
    pub fn has(&self, host: &str) -> bool {
        self.name(host).is_some()
    }

    /// Returns the domain as `api.DOMAIN` in `Host` names it, with its port.
    pub fn of_api(&self, host: &str) -> Option<String> {
        let (label, rest) = host.split_once('.')?;
        (self.name(host) == Some(Name::Api) && label.eq_ignore_ascii_case(API))
            .then(|| rest.to_ascii_lowercase())
    }

    /// Returns the name in a value of `Host`, which may have a port.
    pub(crate) fn name<'a>(&self, host: &'a str) -> Option<Name<'a>> {
        let (name, port) = host.split_once(':').unwrap_or((host, "443"));
        port.parse::<u16>().ok()?;
        let (label, rest) = name.split_once('.')?;
        if !rest.eq_ignore_ascii_case(&self.0) {
            return None;
        }
        match label.split_once('-') {
            None => label.eq_ignore_ascii_case(API).then_some(Name::Api),
            Some((port, id)) => {
                let (port, id) = sandbox(port, id)?;
                Some(Name::Sandbox { port, id })
            }
        }
    }
}

/// Reads the two parts of a sandbox's label.
pub(crate) fn sandbox<'a>(port: &str, id: &'a str) -> Option<(u16, &'a str)> {
    let is_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_right = !id.is_empty() && id.bytes().all(is_id) && port.bytes().all(|byte| byte.is_ascii_digit());
    is_right
        .then(|| port.parse().ok())
        .flatten()
        .map(|port| (port, id))
}

fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(is_inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_and_nothing_else() {
        let parsed = |text: &str| text.parse::<Domain>().map(|domain| domain.to_string());
        assert_eq!(parsed("Sandboxes.Example.com").unwrap(), "sandboxes.example.com");
        let long = format!("{}.com", "a".repeat(64));
        let longer = vec!["a".repeat(60); 4].join(".");
        for wrong in [
            "",
            "localhost",
            "127.0.0.1",
            "a.test:443",
            "https://a.test",
            "*.a.test",
            "a..test",
            ".a.test",
            "a.test.",
            "-a.test",
            "a-.test",
            "a_b.test",
            "ü.test",
            "a.test/",
            &long,
            &longer,
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_those_of_the_api_and_of_sandboxes() {
        let domain: Domain = "a.test".parse().unwrap();
        let sandbox = |port, id| Some(Name::Sandbox { port, id });
        for (host, expected) in [
            ("api.a.test", Some(Name::Api)),
            ("API.A.test:8443", Some(Name::Api)),
            ("49983-abc1.a.test", sandbox(49_983, "abc1")),
            ("8000-abc1.a.test:8443", sandbox(8000, "abc1")),
            ("a.test", None),
            ("x.a.test", None),
            ("api.b.test", None),
            ("api.a.test.b.test", None),
            ("1-b.api.a.test", None),
            ("api-a.a.test", None),
            ("1-B.a.test", None),
            ("1-.a.test", None),
            ("-b.a.test", None),
            ("99999-b.a.test", None),
            ("api.a.test:", None),
            ("api.a.test:x", None),
            ("api.a.test:1:2", None),
            ("", None),
        ] {
            assert_eq!(domain.name(host), expected, "{host}");
        }
        assert_eq!(domain.of_api("api.a.test:8443").unwrap(), "a.test:8443");
        assert_eq!(domain.of_api("1-b.a.test"), None);
    }
}

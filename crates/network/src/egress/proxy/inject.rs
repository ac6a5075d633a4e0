//! Injects credentials into requests, so that guests never have them.

use std::fmt;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use ringfence_policy::Host;
use serde::{Serialize, Serializer};

use super::echo::Echoes;
use crate::fetch::{Scheme, Url};
use crate::secret::Secret;

/// Default ports, omitted in URLs.
const PLAIN_PORT: u16 = 80;
const SECURE_PORT: u16 = 443;

/// Headers for framing and routing, which never carry a credential.
const NO_CREDENTIALS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A header with a credential for one host. The guest requests `http://` and the host's name; the proxy sends
/// the request to the host over TLS, with the header.
#[derive(Clone, PartialEq, Eq)]
pub struct Injection {
    host: Host,
    port: u16,
    header: HeaderName,
    /// `None` if the credential is not set; requests that need it then fail.
    value: Option<HeaderValue>,
}

/// An error of injecting a credential. Omits the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InjectionError {
    /// The header name is invalid, or is one for framing.
    #[error("a credential must not be sent in this header")]
    Header,
    /// The value is invalid in a header.
    #[error("the value cannot be sent in a header")]
    Value,
}

impl InjectionError {
    /// Returns a hint for the user.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Header => "name a header such as `Authorization` or `X-Api-Key`",
            Self::Value => "give the whole value in one line of ASCII, such as `Bearer …`",
        }
    }
}

impl Injection {
    /// Creates an injection for the host at this port; by default, that of `https`.
    ///
    /// # Errors
    /// If the header or the value is invalid.
    pub fn new(
        host: Host,
        port: Option<u16>,
        header: &str,
        prefix: &str,
        secret: Option<Secret>,
    ) -> Result<Self, InjectionError> {
        let header = HeaderName::try_from(header).map_err(|_| InjectionError::Header)?;
        if NO_CREDENTIALS.contains(&header.as_str()) {
            return Err(InjectionError::Header);
        }
        let value = secret.map(|secret| {
            let mut value = HeaderValue::try_from(format!("{prefix}{}", secret.into_text()))?;
            value.set_sensitive(true);
            Ok::<_, InvalidHeaderValue>(value)
        });
        let value = value.transpose().map_err(|_| InjectionError::Value)?;
        Ok(Self {
            host,
            port: port.unwrap_or(SECURE_PORT),
            header,
            value,
        })
    }

    /// Returns `true` if the injection applies to the request. An injection for the `https` port applies to
    /// requests for the `http` port.
    fn is_for(&self, url: &Url) -> bool {
        let port = if self.port == SECURE_PORT {
            PLAIN_PORT
        } else {
            self.port
        };
        url.scheme == Scheme::Http && url.port == port && url.host == self.host
    }
}

/// Omits the credential.
impl Serialize for Injection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.host.to_string(), self.port, self.header.as_str()).serialize(serializer)
    }
}

impl fmt::Debug for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Injection({}, {})", self.host, self.header)
    }
}

/// Returns the credentials for a request, and its target with them.
pub(super) fn for_request<'a>(all: &'a [Injection], url: &Url) -> (Url, Vec<&'a Injection>) {
    let found: Vec<&Injection> = all.iter().filter(|one| one.is_for(url)).collect();
    let mut target = url.clone();
    if let Some(first) = found.first() {
        target.scheme = Scheme::Https;
        target.port = first.port;
    }
    (target, found)
}

/// Adds the credentials, replacing the guest's headers of the same names; `None` if one is not set.
pub(super) fn add(injections: &[&Injection], headers: &mut HeaderMap) -> Option<()> {
    for injection in injections {
        headers.insert(injection.header.clone(), injection.value.clone()?);
    }
    if !injections.is_empty() {
        // Compressed responses could not be searched for credentials.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    Some(())
}

/// Returns the filter for the host's response.
pub(super) fn echoes(injections: &[&Injection]) -> Option<Echoes> {
    Echoes::new(injections.iter().filter_map(|injection| injection.value.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_at(port: Option<u16>) -> Injection {
        let host = "api.test".parse().unwrap();
        let secret = Secret::new("s3cr3t-value").ok();
        Injection::new(host, port, "Authorization", "Bearer ", secret).unwrap()
    }

    fn key() -> Injection {
        key_at(None)
    }

    #[test]
    fn is_for_one_host_at_the_port_of_http() {
        let all = [key()];
        let check = |url: &str, expected: Option<&str>| {
            let (target, found) = for_request(&all, &url.parse().unwrap());
            let target = (!found.is_empty()).then(|| target.to_string());
            assert_eq!(target.as_deref(), expected, "{url}");
        };
        check("http://api.test/a?b", Some("https://api.test/a?b"));
        check("http://API.test:80/", Some("https://api.test/"));
        for other in [
            "http://api.test:8080/",
            "http://api.test:443/",
            "https://api.test/",
            "https://api.test:80/",
            "http://x.api.test/",
            "http://api.test.evil.test/",
            "http://evil.test/?api.test",
        ] {
            check(other, None);
        }
        let elsewhere = [key_at(Some(8443))];
        let (target, found) = for_request(&elsewhere, &"http://api.test:8443/".parse().unwrap());
        assert_eq!(
            (target.to_string().as_str(), found.len()),
            ("https://api.test:8443/", 1)
        );
        assert!(
            for_request(&elsewhere, &"http://api.test/".parse().unwrap())
                .1
                .is_empty()
        );
    }

    #[test]
    fn replaces_what_is_there() {
        let key = key();
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("mine"));
        headers.append("authorization", HeaderValue::from_static("and mine"));
        add(&[&key], &mut headers).unwrap();
        let values: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(values, ["Bearer s3cr3t-value"]);
        assert_eq!(headers["accept-encoding"], "identity");
        assert!(!format!("{key:?}").contains("s3cr3t"));
    }

    #[test]
    fn refuses_what_is_no_credential() {
        let new = |header, prefix| {
            let host = "a.test".parse().unwrap();
            Injection::new(host, None, header, prefix, Secret::new("x").ok())
        };
        for header in ["Host", "transfer-encoding", "Content-Length", "a b", ""] {
            assert_eq!(new(header, ""), Err(InjectionError::Header), "{header}");
        }
        for value in ["a\r\nHost: b", "a\0"] {
            assert_eq!(new("X-Key", value), Err(InjectionError::Value), "{value:?}");
        }
    }
}

//! Parses the base URL of a model's server.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ringfence_network::fetch::{ParseUrlError, Scheme, Url};
use ringfence_policy::{Cidr, Host, HostPattern};

/// The base URL of a server's API, such as `https://models.example.com/v1/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// The reason why a base URL is rejected. Omits the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseBaseUrlError {
    /// It is not a URL, or contains a user.
    #[error(transparent)]
    Url(#[from] ParseUrlError),
    /// It has a query or fragment.
    #[error("the URL has a query or a fragment")]
    Query,
    /// It is plain `http` to another machine: an eavesdropper would get the key, and could forge responses.
    #[error("plain http is for servers on this machine alone")]
    Plain,
}

impl ParseBaseUrlError {
    /// Returns a hint for the user.
    pub const fn hint(&self) -> &'static str {
        "write it like `https://models.example.com/v1`, or `http://127.0.0.1:11434/v1` for a server on this machine"
    }
}

const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

impl BaseUrl {
    /// Returns host and port of the server. `localhost` is mapped to an address, without name resolution.
    pub(super) fn server(&self) -> (Host, u16) {
        let host = match &self.0.host {
            Host::Name(name) if name.as_str() == "localhost" => Host::Address(Ipv4Addr::LOCALHOST.into()),
            host => host.clone(),
        };
        (host, self.0.port)
    }

    /// Returns the pattern that matches this server only; `None`, so that nothing is reachable, if it cannot
    /// be expressed.
    pub(super) fn pattern(&self) -> Option<HostPattern> {
        let (host, port) = self.server();
        format!("{host}:{port}").parse().ok()
    }

    /// Returns the permitted private networks: loopback for plain `http`, none for a provider's own server.
    pub(super) fn networks(&self, is_configured: bool) -> Vec<Cidr> {
        let ranges = match (self.0.scheme, is_configured) {
            (Scheme::Http, _) => &LOOPBACK[..],
            (Scheme::Https, true) => &EVERYWHERE,
            (Scheme::Https, false) => &[],
        };
        ranges.iter().flat_map(|range| range.parse()).collect()
    }

    fn is_on_this_machine(&self) -> bool {
        match self.server().0 {
            Host::Address(address) => address.is_loopback(),
            Host::Name(_) => false,
        }
    }
}

impl FromStr for BaseUrl {
    type Err = ParseBaseUrlError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut url: Url = text.parse()?;
        if text.contains(['?', '#']) {
            return Err(ParseBaseUrlError::Query);
        }
        if !url.target.ends_with('/') {
            url.target.push('/');
        }
        let base = Self(url);
        if base.0.scheme == Scheme::Http && !base.is_on_this_machine() {
            return Err(ParseBaseUrlError::Plain);
        }
        Ok(base)
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Provider;

    #[test]
    fn paths_are_below_it_and_encryption_ends_at_this_machine() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<BaseUrl>().unwrap().to_string(), expected);
        };
        check("https://models.example.com/v1", "https://models.example.com/v1/");
        check("https://models.example.com", "https://models.example.com/");
        check("https://10.0.0.7:8443/v1/", "https://10.0.0.7:8443/v1/");
        check("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/");
        check("http://localhost:1234/v1", "http://localhost:1234/v1/");
        check("http://[::1]:1234/v1", "http://[::1]:1234/v1/");
        let refused = |text: &str, expected| {
            assert_eq!(text.parse::<BaseUrl>().unwrap_err(), expected, "{text}");
        };
        for far in [
            "http://models.example.com/v1",
            "http://10.0.0.7/v1",
            "http://localhost.example.com/",
            "http://0.0.0.0/",
        ] {
            refused(far, ParseBaseUrlError::Plain);
        }
        refused("https://a.test/v1?key=secret", ParseBaseUrlError::Query);
        refused("https://a.test/v1#x", ParseBaseUrlError::Query);
        refused("https://me:secret@a.test/", ParseUrlError::User.into());
        refused("ftp://a.test/", ParseUrlError::Scheme.into());
        refused("a.test/v1", ParseUrlError::Malformed.into());
    }

    #[test]
    fn only_what_is_configured_may_be_private() {
        let base = Provider::Anthropic.base();
        assert_eq!(base.networks(false), []);
        assert!(base.pattern().is_some());
        assert_eq!(base.networks(true).len(), EVERYWHERE.len());
        let local: BaseUrl = "http://localhost:1/".parse().unwrap();
        assert_eq!(local.networks(true).len(), LOOPBACK.len());
        assert_eq!(local.server().0, "127.0.0.1".parse().unwrap());
    }
}

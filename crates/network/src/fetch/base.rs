//! Parses the base URL of a server's API.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ringfence_policy::{Cidr, EgressPolicy, Host};

use super::url::{ParseUrlError, Scheme, Url};

/// The base URL of a server's API, such as `https://models.example.com/v1/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// The one who chose a base URL. A server that the user names may be in a private network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    ByUser,
    BuiltIn,
}

/// An error returned when parsing a base URL. Omits the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseBaseUrlError {
    /// The text is not a URL, or contains a user.
    #[error(transparent)]
    Url(#[from] ParseUrlError),
    /// The URL has a query or fragment.
    #[error("the URL has a query or a fragment")]
    Query,
    /// The URL is plain `http` to another machine: an eavesdropper would get the key, and could forge
    /// responses.
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
    pub fn server(&self) -> (Host, u16) {
        let host = match &self.0.host {
            Host::Name(name) if name.as_str() == "localhost" => Host::Address(Ipv4Addr::LOCALHOST.into()),
            host => host.clone(),
        };
        (host, self.0.port)
    }

    /// Returns the policy that allows this server only, by a pattern; if there is none for it, nothing.
    pub fn policy(&self, chosen: Chosen) -> EgressPolicy {
        let (host, port) = self.server();
        EgressPolicy {
            allowed: format!("{host}:{port}").parse().into_iter().collect(),
            private_networks: self.networks(chosen),
        }
    }

    /// Returns the permitted private networks: loopback for plain `http`, none for a provider's own server.
    fn networks(&self, chosen: Chosen) -> Vec<Cidr> {
        let ranges = match (self.0.scheme, chosen) {
            (Scheme::Http, _) => &LOOPBACK[..],
            (Scheme::Https, Chosen::ByUser) => &EVERYWHERE,
            (Scheme::Https, Chosen::BuiltIn) => &[],
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
        let base: BaseUrl = "https://models.example.com/v1".parse().unwrap();
        assert_eq!(base.networks(Chosen::BuiltIn), []);
        assert_eq!(base.policy(Chosen::BuiltIn).allowed.len(), 1);
        assert_eq!(base.networks(Chosen::ByUser).len(), EVERYWHERE.len());
        let local: BaseUrl = "http://localhost:1/".parse().unwrap();
        assert_eq!(local.networks(Chosen::ByUser).len(), LOOPBACK.len());
        assert_eq!(local.server().0, "127.0.0.1".parse().unwrap());
    }
}

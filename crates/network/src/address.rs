//! Validates URLs that a token may be sent to.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Default URL of Telegram's Bot API.
pub const TELEGRAM: &str = "https://api.telegram.org";

/// Default URL of Discord's REST API.
pub const DISCORD_REST: &str = "https://discord.com/api";

/// Default URL of Discord's gateway.
pub const DISCORD_EVENTS: &str = "wss://gateway.discord.gg";

/// URL of a service, with TLS unless it is on loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

/// An error returned when parsing the URL of a service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// The scheme is wrong or missing.
    #[error("`{0}` does not begin with `{1}://`")]
    Scheme(String, &'static str),
    /// The token would be sent in plain text.
    #[error("`{0}` is neither encrypted nor on this machine")]
    Readable(String),
    /// The text is not of the form `scheme://host[:port][/path]`.
    #[error("`{0}` is not of the form `scheme://host[:port][/path]`")]
    Form(String),
}

impl Address {
    /// Parses the URL of an HTTP API.
    ///
    /// # Errors
    /// If the scheme is wrong, or it is neither encrypted nor on loopback.
    pub fn http(text: &str) -> Result<Self, BadAddress> {
        Self::parse(text, ["https", "http"])
    }

    /// Parses the URL of a WebSocket.
    ///
    /// # Errors
    /// If the scheme is wrong, or it is neither encrypted nor on loopback.
    pub fn websocket(text: &str) -> Result<Self, BadAddress> {
        Self::parse(text, ["wss", "ws"])
    }

    /// Returns the URL without a trailing slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str, [safe, plain]: [&'static str; 2]) -> Result<Self, BadAddress> {
        let form = || BadAddress::Form(text.to_owned());
        let (scheme, rest) = text
            .split_once("://")
            .filter(|(scheme, _)| [safe, plain].contains(scheme))
            .ok_or_else(|| BadAddress::Scheme(text.to_owned(), safe))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = host(authority).ok_or_else(form)?;
        let plain_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~');
        if !path.chars().all(plain_path) || text.len() > 256 {
            return Err(form());
        }
        if scheme == plain && !is_here(host) {
            return Err(BadAddress::Readable(text.to_owned()));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the host of `host[:port]`; rejects user information.
fn host(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
    let named = !host.is_empty()
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    (port_fits && (bracketed || named)).then_some(host)
}

fn is_here(host: &str) -> bool {
    // Not `localhost`: a name could resolve to anything.
    host == "[::1]"
        || host
            .parse::<Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_this_machine_or_through_tls() {
        let check = |text: &str, expected: Result<&str, BadAddress>| {
            assert_eq!(
                Address::http(text).as_ref().map(Address::as_str),
                expected.as_ref().copied()
            );
        };
        let form = |text: &str| Err(BadAddress::Form(text.to_owned()));
        let readable = |text: &str| Err(BadAddress::Readable(text.to_owned()));
        check("https://example.org/api/", Ok("https://example.org/api"));
        check("https://example.org:8443", Ok("https://example.org:8443"));
        check("http://127.0.0.1:80/api", Ok("http://127.0.0.1:80/api"));
        check("http://[::1]:80", Ok("http://[::1]:80"));
        for text in [
            "http://example.org",
            "http://127.0.0.1.example.org",
            "http://localhost",
            "http://[2001:db8::1]",
            "http://127.1",
        ] {
            check(text, readable(text));
        }
        for text in [
            "https://",
            "https://a b",
            "https://me:secret@example.org",
            "http://localhost:80@example.org",
            "http://localhost\\@example.org",
            "https://example.org:port",
            "https://example.org:99999",
            "https://example.org/?a",
            "https://example.org/#a",
            "https://[::1",
            "https://[x]",
        ] {
            check(text, form(text));
        }
        let scheme = |text: &str| Err(BadAddress::Scheme(text.to_owned(), "https"));
        check("example.org", scheme("example.org"));
        check("wss://example.org", scheme("wss://example.org"));
        assert!(Address::websocket("ws://127.0.0.1:1").is_ok());
        assert!(Address::websocket("ws://example.org").is_err());
    }
}

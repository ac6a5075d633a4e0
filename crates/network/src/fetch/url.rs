//! Parses URLs.

use std::fmt;
use std::str::FromStr;

use fluent_uri::{Uri, UriRef};
use ringfence_policy::{Host, ParseHostError};

/// Length limit of a URL in bytes; browsers and servers differ beyond it.
const MAX_URL: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// An `http` or `https` URL, strictly by RFC 3986, without user or fragment.
///
/// Lenient parsers disagree about a URL's meaning: a check with one parser would be bypassed by a connection
/// with another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub scheme: Scheme,
    pub host: Host,
    pub port: u16,
    /// Path and query of the request line.
    pub target: String,
}

/// An error returned when parsing a URL. Omits the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseUrlError {
    #[error("the URL is longer than 8 KiB")]
    TooLong,
    /// The text violates RFC 3986.
    #[error("the URL is malformed")]
    Malformed,
    /// The scheme is neither `http` nor `https`.
    #[error("the URL's scheme is neither http nor https")]
    Scheme,
    /// The URL contains a user or password.
    #[error("the URL contains a user name or password")]
    User,
    /// The host is invalid.
    #[error("the URL's host cannot be used: {0}")]
    Host(#[from] ParseHostError),
    /// The port is out of range.
    #[error("the URL's port is not between 1 and 65535")]
    Port,
}

impl ParseUrlError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLong => "send long data in the body of a POST",
            Self::Malformed => {
                "write it like `https://example.com/path?query`, with spaces, brackets and letters beyond ASCII percent-encoded"
            }
            Self::Scheme => "only http:// and https:// can be fetched",
            Self::User => "send credentials in an Authorization header",
            Self::Host(_) | Self::Port => "write it like `https://example.com:8443/path`",
        }
    }
}

impl Url {
    /// Resolves a reference relative to this URL.
    ///
    /// # Errors
    /// If the result is not a valid URL.
    pub(super) fn join(&self, reference: &str) -> Result<Self, ParseUrlError> {
        if reference.len() > MAX_URL {
            return Err(ParseUrlError::TooLong);
        }
        let base = self.to_string();
        let base = Uri::parse(base.as_str()).map_err(|_| ParseUrlError::Malformed)?;
        let reference = UriRef::parse(reference).map_err(|_| ParseUrlError::Malformed)?;
        let whole = reference
            .resolve_against(&base)
            .map_err(|_| ParseUrlError::Malformed)?;
        whole.as_str().parse()
    }

    /// Compares scheme, host and port: the scope of a credential.
    pub fn same_origin(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.host == other.host && self.port == other.port
    }

    /// Returns host and port, in the form of the `Host` header.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Url {
    type Err = ParseUrlError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_URL {
            return Err(ParseUrlError::TooLong);
        }
        let uri = Uri::parse(text).map_err(|_| ParseUrlError::Malformed)?;
        let scheme = match uri.scheme().as_str().to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(ParseUrlError::Scheme),
        };
        let authority = uri.authority().ok_or(ParseUrlError::Malformed)?;
        if authority.has_userinfo() {
            return Err(ParseUrlError::User);
        }
        let port = match authority.port_to_u16() {
            Ok(None) => scheme.port(),
            Ok(Some(port)) if port != 0 => port,
            Ok(Some(_)) | Err(_) => return Err(ParseUrlError::Port),
        };
        let path = match uri.path().as_str() {
            "" => "/",
            path => path,
        };
        let query = uri
            .query()
            .map(|query| format!("?{}", query.as_str()))
            .unwrap_or_default();
        Ok(Self {
            scheme,
            host: authority.host().parse()?,
            port,
            target: format!("{path}{query}"),
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}{}",
            self.scheme.as_str(),
            self.authority(),
            self.target
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<Url>().unwrap().to_string(), expected, "{text:?}");
    }

    fn refused(text: &str, expected: fn(&ParseUrlError) -> bool) {
        let refusal = text.parse::<Url>().unwrap_err();
        assert!(expected(&refusal), "{text:?}: {refusal:?}");
    }

    fn join(base: &str, reference: &str, expected: &str) {
        let joined = base.parse::<Url>().unwrap().join(reference).unwrap();
        assert_eq!(joined.to_string(), expected, "{reference:?} on {base:?}");
    }

    #[test]
    fn reads_urls() {
        check("http://example.com", "http://example.com/");
        check("HTTPS://Example.COM:443/a?b=c#d", "https://example.com/a?b=c");
        check("http://example.com:443/", "http://example.com:443/");
        check("http://example.com:/", "http://example.com/");
        check("http://example.com?q", "http://example.com/?q");
        check("http://[2001:db8::1]:8080/", "http://[2001:db8::1]:8080/");
        check("http://example.com//a/../b", "http://example.com//a/../b");
    }

    #[test]
    fn refuses_what_parsers_disagree_about() {
        use ParseUrlError as E;
        for text in [
            "",
            "example.com",
            "//example.com/",
            "http:example.com",
            "http:/example.com",
            "http://a.test\\@b.test/",
            "http://a.test/\r\nHost: b.test",
            "http://a.test/\0",
            " http://a.test/",
            "http://a.test/a b",
            "http://a.test/\u{e9}",
            "http://m\u{fc}nchen.example/",
            "http://a.test/%zz",
            "ht\ntp://a.test/",
            "http://[fe80::1%eth0]/",
        ] {
            refused(text, |error| *error == E::Malformed);
        }
        for text in [
            "file:///etc/passwd",
            "gopher://a.test/",
            "ftp://a.test/",
            "javascript:1",
            "unix:/x",
        ] {
            refused(text, |error| *error == E::Scheme);
        }
        for text in [
            "http://u@a.test/",
            "http://u:p@a.test/",
            "http://@a.test/",
            "http://a.test:80@b.test/",
        ] {
            refused(text, |error| *error == E::User);
        }
        for text in [
            "http:///a",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://0x7f.1/",
            "http://127.1/",
            "http://a%2etest/",
            "http://%31%32%37.0.0.1/",
            "http://a..test/",
            "http://[v1.a]/",
            "http://a.test%00.b.test/",
        ] {
            refused(text, |error| matches!(error, E::Host(_)));
        }
        for text in [
            "http://a.test:0/",
            "http://a.test:65536/",
            "http://a.test:99999999999/",
        ] {
            refused(text, |error| *error == E::Port);
        }
        refused(&format!("http://a.test/{}", "a".repeat(9000)), |error| {
            *error == E::TooLong
        });
    }

    #[test]
    fn a_reference_means_what_it_means_on_its_page() {
        join("http://a.test/x/y?z", "w", "http://a.test/x/w");
        join("http://a.test/x/y", "/w?v#u", "http://a.test/w?v");
        join("http://a.test/x/y", "../../../w", "http://a.test/w");
        join("https://a.test/x", "//b.test/y", "https://b.test/y");
        join("https://a.test:8443/x", "http://b.test", "http://b.test/");
        let page: Url = "https://a.test/".parse().unwrap();
        assert_eq!(page.join("https://u:p@b.test/"), Err(ParseUrlError::User));
        assert_eq!(page.join("file:///etc/passwd"), Err(ParseUrlError::Scheme));
        assert_eq!(page.join("/a\r\nb"), Err(ParseUrlError::Malformed));
    }

    proptest! {
        #[test]
        fn what_is_read_reads_the_same_again(rest in "[ -~]{0,40}|[a-z.]{1,9}(:[0-9]{1,5})?/[!-~]{0,20}") {
            if let Ok(url) = format!("http://{rest}").parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
            }
        }
    }
}

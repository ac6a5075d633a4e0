//! The index of packages, and the hosts that an installation reaches.

use std::fmt;
use std::str::FromStr;

use ringfence_network::fetch::{ParseUrlError, Scheme, Url};
use ringfence_policy::HostPattern;

use crate::ecosystem::Ecosystem;

/// An index of packages: its URL (PEP 503, or that of a registry of npm), and further hosts that its pages link to.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    ecosystem: Ecosystem,
    url: Url,
    hosts: Vec<HostPattern>,
}

/// The index of each ecosystem.
#[derive(Debug, Clone, PartialEq)]
pub struct Indexes {
    pub python: Index,
    pub npm: Index,
}

impl Indexes {
    pub const fn of(&self, ecosystem: Ecosystem) -> &Index {
        match ecosystem {
            Ecosystem::Python => &self.python,
            Ecosystem::Npm => &self.npm,
        }
    }
}

/// Access to the packages of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody has access: environments are shared by all scopes.
    Public,
    /// Access may depend on the caller: each scope has its own environments.
    Private,
}

impl Index {
    /// Creates an index. The host that the public index keeps its files on is added.
    ///
    /// # Errors
    /// If the URL cannot be used.
    pub fn new(ecosystem: Ecosystem, url: &str, mut hosts: Vec<HostPattern>) -> Result<Self, ParseUrlError> {
        let url = Url::from_str(url.trim_end_matches('/'))?;
        if is_public(ecosystem, &url) {
            let files = ecosystem.facts().public_files.map(str::parse::<HostPattern>);
            hosts.extend(files.and_then(Result::ok));
        }
        Ok(Self {
            ecosystem,
            url,
            hosts,
        })
    }

    pub const fn ecosystem(&self) -> Ecosystem {
        self.ecosystem
    }

    pub fn access(&self) -> Access {
        match is_public(self.ecosystem, &self.url) {
            true => Access::Public,
            false => Access::Private,
        }
    }

    /// Returns the hosts that an installation may reach.
    pub fn allowed(&self) -> Vec<HostPattern> {
        let own = format!("{}:{}", self.url.host, self.url.port).parse();
        own.into_iter().chain(self.hosts.iter().cloned()).collect()
    }

    /// Returns the host and port if the index is reached without TLS up to the proxy: for pip's `--trusted-host`,
    /// and npm's `--replace-registry-host`.
    pub(crate) fn without_tls(&self) -> Option<String> {
        (self.url.scheme == Scheme::Http).then(|| self.url.authority())
    }
}

/// The URL.
impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

fn is_public(ecosystem: Ecosystem, url: &Url) -> bool {
    let public = ecosystem.public_url().parse::<Url>();
    public.is_ok_and(|public| public.to_string() == url.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_of_an_index_are_reached() {
        let checked = |ecosystem, url: &str, hosts: &[&str], expected: &[&str], access: Access| {
            let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
            let index = Index::new(ecosystem, url, hosts).unwrap();
            let allowed: Vec<String> = index.allowed().iter().map(ToString::to_string).collect();
            assert_eq!(
                (allowed.as_slice(), index.access()),
                (
                    &expected.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>()[..],
                    access
                ),
                "{url}"
            );
        };
        let check = |url: &str, hosts: &[&str], expected: &[&str], access: Access| {
            checked(Ecosystem::Python, url, hosts, expected, access);
        };
        let npm = "registry.npmjs.org:443";
        checked(
            Ecosystem::Npm,
            "https://registry.npmjs.org/",
            &[],
            &[npm],
            Access::Public,
        );
        checked(
            Ecosystem::Npm,
            "https://pypi.org/simple",
            &[],
            &["pypi.org:443"],
            Access::Private,
        );
        check(
            "https://pypi.org/simple",
            &[],
            &["pypi.org:443", "files.pythonhosted.org:443"],
            Access::Public,
        );
        check(
            "https://pypi.org/simple/",
            &[],
            &["pypi.org:443", "files.pythonhosted.org:443"],
            Access::Public,
        );
        check("https://pypi.org/other", &[], &["pypi.org:443"], Access::Private);
        check(
            "http://127.0.0.1:8080/simple",
            &["files.test"],
            &["127.0.0.1:8080", "files.test"],
            Access::Private,
        );
        check("http://[::1]:8080/simple", &[], &["[::1]:8080"], Access::Private);
    }

    #[test]
    fn an_index_has_no_credentials_and_is_no_file() {
        for (url, expected) in [
            ("https://user:pass@index.test/simple", ParseUrlError::User),
            ("file:///srv/wheels", ParseUrlError::Scheme),
            ("index.test", ParseUrlError::Malformed),
        ] {
            assert_eq!(Index::new(Ecosystem::Npm, url, Vec::new()).unwrap_err(), expected);
        }
    }
}

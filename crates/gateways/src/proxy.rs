//! The HTTP proxy of the environment, through which TLS is tunnelled.

use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_network::fetch::{Scheme, Url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum length of a proxy's response.
const MAX_HEAD: usize = 8 * 1024;

/// A proxy for TLS, with the hosts that are reached without it.
#[derive(Clone)]
pub(crate) struct Proxy {
    url: Url,
    /// Value of the header `Proxy-Authorization`.
    credentials: Option<String>,
    exceptions: Vec<String>,
}

/// The status line of a proxy that refuses.
#[derive(Debug, thiserror::Error)]
#[error("expected status 200 from the proxy, got {0:?}")]
pub(crate) struct Refused(String);

/// A variable does not name a usable proxy. Omits its value, which can contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `http://host:port` in the variable `HTTPS_PROXY`")]
pub(crate) struct BadProxy;

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Returns the proxy that the environment names.
    ///
    /// # Errors
    /// If the variable is malformed, or names a proxy of another kind.
    pub(crate) fn of_environment() -> Result<Option<Self>, BadProxy> {
        let variable = |names: [&str; 2]| {
            let found = names.into_iter().find_map(std::env::var_os)?;
            (!found.is_empty()).then_some(found)
        };
        let Some(proxy) = variable(["HTTPS_PROXY", "https_proxy"]) else {
            return Ok(None);
        };
        let mut proxy: Self = proxy.to_str().ok_or(BadProxy)?.parse()?;
        if let Some(hosts) = variable(["NO_PROXY", "no_proxy"]) {
            proxy.exceptions = hosts
                .to_string_lossy()
                .split(',')
                .map(|host| host.trim().trim_start_matches('.').to_ascii_lowercase())
                .filter(|host| !host.is_empty())
                .collect();
        }
        Ok(Some(proxy))
    }

    /// Returns `true` if requests to the URL use the proxy. Plain HTTP is for this machine only.
    pub(crate) fn serves(&self, url: &Url) -> bool {
        let host = url.host.to_string();
        let is_excepted = |suffix: &String| {
            suffix == "*"
                || host == *suffix
                || host
                    .strip_suffix(suffix.as_str())
                    .is_some_and(|rest| rest.ends_with('.'))
        };
        url.scheme == Scheme::Https && !self.exceptions.iter().any(is_excepted)
    }

    /// Asks the proxy to connect to the host of the URL.
    pub(crate) async fn connect(&self, url: &Url) -> io::Result<Result<TcpStream, Refused>> {
        let proxy = format!("{}:{}", self.url.host, self.url.port);
        let mut stream = TcpStream::connect(proxy).await?;
        let target = format!("{}:{}", url.host, url.port);
        let credentials = match &self.credentials {
            Some(credentials) => format!("Proxy-Authorization: {credentials}\r\n"),
            None => String::new(),
        };
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credentials}\r\n");
        stream.write_all(request.as_bytes()).await?;
        // Bytewise: what follows belongs to the tunnel.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= MAX_HEAD {
                return Err(io::ErrorKind::InvalidData.into());
            }
            head.push(stream.read_u8().await?);
        }
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let status = line.split(' ').nth(1).unwrap_or_default();
        let is_open = status.len() == 3 && status.starts_with('2') && line.starts_with("HTTP/1.");
        Ok(if is_open { Ok(stream) } else { Err(Refused(line)) })
    }
}

impl FromStr for Proxy {
    type Err = BadProxy;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(BadProxy),
            None => text,
        };
        let (user, authority) = match rest.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, rest),
        };
        let url = format!("http://{authority}").parse().map_err(|_| BadProxy)?;
        Ok(Self {
            url,
            credentials: user.map(|user| format!("Basic {}", STANDARD.encode(user))),
            exceptions: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_proxy_is_plain_http_and_its_password_is_not_shown() {
        for (text, proxy) in [
            ("http://proxy.test:3128", "http://proxy.test:3128/"),
            ("http://proxy.test:3128/", "http://proxy.test:3128/"),
            ("proxy.test:3128", "http://proxy.test:3128/"),
            ("http://me:secret@10.0.0.1", "http://10.0.0.1/"),
        ] {
            let parsed: Proxy = text.parse().unwrap();
            assert_eq!(parsed.url.to_string(), proxy);
            assert!(!format!("{parsed:?}").contains("secret"));
        }
        for text in ["https://proxy.test", "socks5://proxy.test:1080", "http://", "a b"] {
            assert_eq!(text.parse::<Proxy>().unwrap_err(), BadProxy, "{text}");
        }
    }

    #[test]
    fn plain_http_and_exceptions_are_reached_without_it() {
        let mut proxy: Proxy = "http://proxy.test".parse().unwrap();
        proxy.exceptions = vec!["inside.test".to_owned()];
        for (target, expected) in [
            ("https://api.test", true),
            ("http://127.0.0.1:1", false),
            ("https://inside.test", false),
            ("https://a.inside.test", false),
            ("https://notinside.test", true),
        ] {
            assert_eq!(proxy.serves(&url(target)), expected, "{target}");
        }
        proxy.exceptions = vec!["*".to_owned()];
        assert!(!proxy.serves(&url("https://api.test")));
    }

    #[tokio::test]
    async fn a_tunnel_is_asked_for_and_nothing_of_it_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy: Proxy = format!("http://me:pass@{address}").parse().unwrap();
        let target = url("https://api.test/bot1:x/getMe");
        for (answer, opens) in [
            (
                "HTTP/1.1 200 Connection established\r\nVia: a\r\n\r\ntunnelled",
                true,
            ),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", false),
            ("SSH-2.0-OpenSSH_9.9\r\n\r\n", false),
        ] {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = vec![0; 1024];
                let count = stream.read(&mut asked).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                String::from_utf8(asked[..count].to_vec()).unwrap()
            };
            let (asked, connected) = tokio::join!(serve, proxy.connect(&target));
            assert_eq!(
                asked,
                "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\
                 Proxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n"
            );
            match connected.unwrap() {
                Ok(mut stream) => {
                    assert!(opens, "{answer}");
                    let mut through = String::new();
                    stream.read_to_string(&mut through).await.unwrap();
                    assert_eq!(through, "tunnelled");
                }
                Err(refused) => assert!(!opens, "{answer}: {refused}"),
            }
        }
    }
}

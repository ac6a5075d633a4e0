//! Tests the proxy over real sockets of this machine.

use std::net::{IpAddr, Ipv4Addr};

use ringfence_policy::EgressPolicy;
use ringfence_testing::authority::{Authority, leaf};
use ringfence_testing::server::{Reply, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::egress::Resolver;
use crate::secret::Secret;
use hello::tests::{encrypted, hello, nameless};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Creates a proxy for `*.ok.test` and 127.0.0.1 at this port; every name resolves to 127.0.0.1.
fn proxy_with(port: u16, trust: Trust, injections: Vec<Injection>) -> Proxy {
    let allowed = [format!("*.ok.test:{port}"), format!("127.0.0.1:{port}")];
    let policy = EgressPolicy {
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        private_networks: vec!["127.0.0.1".parse().unwrap()],
    };
    let names = Resolver::fixed(|name| match name.as_str() {
        "inner.ok.test" => vec!["10.0.0.1".parse().unwrap()],
        "metadata.ok.test" => vec!["169.254.169.254".parse().unwrap()],
        _ => vec![LOCAL],
    });
    Proxy::new(Guard::new(policy, names), Arc::new(trust), injections)
}

fn proxy(port: u16) -> Proxy {
    proxy_with(port, Trust::default(), Vec::new())
}

/// Sends a guest's text; returns the response and the log.
async fn ask(proxy: &Proxy, text: &str) -> (String, Vec<String>) {
    talk(proxy, async |mut guest: DuplexStream| {
        // The proxy may close the connection before the end.
        let _ = guest.write_all(text.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = guest.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    })
    .await
}

async fn talk<T>(proxy: &Proxy, guest: impl AsyncFnOnce(DuplexStream) -> T) -> (T, Vec<String>) {
    let (near, far) = tokio::io::duplex(4096);
    let log = AttemptLog::default();
    let (answer, ()) = tokio::join!(guest(near), proxy.serve(far, &log));
    (answer, log.attempts().iter().map(ToString::to_string).collect())
}

/// Opens a tunnel, sends `bytes` in two chunks, and reads to the end.
async fn tunnel(proxy: &Proxy, target: &str, bytes: &[u8]) -> (String, Vec<String>) {
    talk(proxy, async |mut guest: DuplexStream| {
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        guest.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if guest.read_buf(&mut answer).await.unwrap() == 0 {
                break;
            }
        }
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let _ = guest.write_all(first).await;
        let _ = guest.write_all(second).await;
        let _ = guest.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    })
    .await
}

#[tokio::test]
async fn passes_a_request_on_without_what_is_for_the_hop() {
    let server = Server::start(|_| {
        Reply::text(
            "200 OK\r\nConnection: x-hop\r\nX-Hop: a\r\nX-Kept: b\r\nKeep-Alive: timeout=5",
            "hello",
        )
    })
    .await;
    let port = server.port;
    let request = format!(
        "POST http://a.ok.test:{port}/x?y HTTP/1.1\r\nHost: a.ok.test:{port}\r\nContent-Length: 4\r\n\
         Connection: close, x-mine\r\nX-Mine: 1\r\nUpgrade: h2c\r\nProxy-Authorization: Basic eA==\r\n\
         Proxy-Connection: keep-alive\r\nTE: trailers\r\nX-Kept: 2\r\n\r\nbody"
    );
    let (answer, log) = ask(&proxy(port), &request).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"),
        "{answer}"
    );
    assert!(
        answer.contains("x-kept: b") && !answer.contains("x-hop") && !answer.contains("keep-alive"),
        "{answer}"
    );
    let request = server.requests().remove(0);
    let mut lines: Vec<&str> = request.lines().collect();
    lines.sort_unstable();
    let host = format!("host: a.ok.test:{port}");
    let expected = [
        "",
        "POST /x?y HTTP/1.1",
        "body",
        "connection: close",
        "content-length: 4",
        &host,
        "x-kept: 2",
    ];
    assert_eq!(lines, expected);
    assert_eq!(log, [format!("a.ok.test:{port} connected")]);
}

#[tokio::test]
async fn says_what_it_refuses_and_why() {
    let server = Server::start(|_| Reply::text("200 OK", "hello")).await;
    let port = server.port;
    let proxy = proxy(port);
    for (target, status, says) in [
        (
            format!("http://evil.test:{port}/"),
            403,
            "no pattern of the allowed hosts names evil.test",
        ),
        (format!("http://ok.test:{port}/"), 403, "no pattern"),
        ("http://a.ok.test:1/".to_owned(), 403, "but not at port 1"),
        (format!("http://inner.ok.test:{port}/"), 403, "a private address"),
        (
            format!("http://metadata.ok.test:{port}/"),
            403,
            "metadata service",
        ),
        (format!("http://2130706433:{port}/"), 400, "host cannot be used"),
        (format!("http://0177.0.0.1:{port}/"), 400, "host cannot be used"),
        (format!("http://127.1:{port}/"), 400, "host cannot be used"),
        (format!("http://[::ffff:127.0.0.2]:{port}/"), 403, "no pattern"),
        (
            format!("http://x@a.ok.test:{port}/"),
            400,
            "a user name or password",
        ),
        (format!("https://a.ok.test:{port}/"), 400, "no https:// addresses"),
        (format!("ftp://a.ok.test:{port}/"), 400, "neither http nor https"),
        ("/".to_owned(), 400, "no target host"),
        ("*".to_owned(), 400, "no target host"),
    ] {
        let host = target.split('/').nth(2).unwrap_or("x");
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let (answer, log) = ask(&proxy, &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{target}: {answer}"
        );
        assert!(
            answer.contains(says) && answer.contains("\nhint: "),
            "{target}: {answer}"
        );
        // Also in the reason phrase.
        assert!(
            answer.lines().next().unwrap().contains(says),
            "{target}: {answer}"
        );
        assert_eq!(log.len(), 1, "{target}: {log:?}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn two_readings_of_one_message_are_refused() {
    let server = Server::start(|_| Reply::text("200 OK", "hello")).await;
    let port = server.port;
    let proxy = proxy(port);
    let head = format!("GET http://a.ok.test:{port}/ HTTP/1.1\r\n");
    let host = format!("Host: a.ok.test:{port}\r\n");
    for rest in [
        String::new(),
        format!("Host: b.ok.test:{port}\r\n"),
        "Host: a.ok.test\r\n".to_owned(),
        format!("{host}{host}"),
        format!("{host}Content-Length: 1\r\nContent-Length: 2\r\n"),
        format!("{host}Transfer-Encoding: chunked, x\r\n"),
        format!("{host}X-A: b\r\n folded\r\n"),
        format!("{host}X-A : b\r\n"),
        format!("{host}X-A: a\0b\r\n"),
        format!("{host}X-A: a\rb\r\n"),
    ] {
        let (answer, _) = ask(&proxy, &format!("{head}{rest}\r\n0\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{rest:?}: {answer:?}");
    }
    assert_eq!(server.requests().len(), 0);
    // Bare line feeds are accepted in requests, and written as CRLF.
    let (answer, _) = ask(&proxy, &format!("{head}{host}Connection: close\nX-A: b\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(server.requests()[0].contains("\r\nx-a: b\r\n"));
    // Of two conflicting lengths, only the effective one is forwarded.
    for lengths in [
        "Content-Length: 9\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 9",
    ] {
        let request = format!("{head}{host}Connection: close\r\n{lengths}\r\n\r\n0\r\n\r\n");
        let (answer, _) = ask(&proxy, &request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let heard = server.requests().pop().unwrap();
        assert!(
            !heard.contains("content-length") && heard.contains("transfer-encoding: chunked"),
            "{heard}"
        );
    }
}

#[tokio::test]
async fn a_tunnel_opens_for_its_host_alone() {
    let server = Server::start(|_| Reply::text("200 OK", "through")).await;
    let port = server.port;
    let proxy = proxy(port);
    let target = format!("a.ok.test:{port}");
    for (target, bytes) in [
        (target.clone(), hello("a.ok.test")),
        (target.to_uppercase(), hello("A.ok.test")),
        (format!("127.0.0.1:{port}"), nameless()),
    ] {
        let (answer, log) = tunnel(&proxy, &target, &bytes).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("through"),
            "{target}: {answer}"
        );
        assert_eq!(log.len(), 1, "{log:?}");
    }
    let passed = server.requests().len();
    for (bytes, says) in [
        (hello("b.ok.test"), "TLS was asked for another host"),
        (hello("127.0.0.1"), "TLS was asked for another host"),
        (
            encrypted("a.ok.test"),
            "the name of the server is encrypted (ECH)",
        ),
        (nameless(), "TLS was asked for no host (no SNI)"),
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "the client does not speak TLS",
        ),
        (b"SSH-2.0-guest\r\n".to_vec(), "the client does not speak TLS"),
    ] {
        let (answer, log) = tunnel(&proxy, &target, &bytes).await;
        assert!(answer.ends_with("\r\n\r\n"), "{says}: {answer}");
        assert_eq!(
            log,
            [format!("{target} connected"), format!("{target} closed: {says}")]
        );
    }
    // Each was connected to, and received nothing.
    let heard: Vec<String> = server.requests().drain(passed..).collect();
    assert!(heard.iter().all(String::is_empty), "{heard:?}");
}

#[tokio::test]
async fn a_tunnel_elsewhere_is_refused() {
    let server = Server::start(|_| Reply::text("200 OK", "through")).await;
    let port = server.port;
    let proxy = proxy(port);
    for (target, status, says) in [
        (format!("evil.test:{port}"), 403, "no pattern"),
        ("a.ok.test:22".to_owned(), 403, "but not at port 22"),
        (format!("inner.ok.test:{port}"), 403, "a private address"),
        (format!("2130706433:{port}"), 400, "host cannot be used"),
        (format!("x@a.ok.test:{port}"), 400, ""),
        (format!("a.ok.test.:{port}x"), 400, ""),
        ("a.ok.test".to_owned(), 400, "names no port"),
    ] {
        let (answer, _) = tunnel(&proxy, &target, b"").await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{target}: {answer}"
        );
        assert!(answer.contains(says), "{target}: {answer}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_redirect_goes_back_as_it_is() {
    let server = Server::start(|_| Reply::redirect("http://evil.test/")).await;
    let port = server.port;
    let request = format!(
        "GET http://a.ok.test:{port}/ HTTP/1.1\r\nHost: a.ok.test:{port}\r\nConnection: close\r\n\r\n"
    );
    let (answer, log) = ask(&proxy(port), &request).await;
    assert!(answer.starts_with("HTTP/1.1 302 Found\r\n"), "{answer}");
    assert!(answer.contains("location: http://evil.test/"), "{answer}");
    assert_eq!(log, [format!("a.ok.test:{port} connected")]);
}

#[tokio::test]
async fn silence_ends_a_connection() {
    let server = Server::start(|_| Reply::Silence).await;
    let port = server.port;
    let soon = Duration::from_millis(50);
    let patience = Timeouts {
        hello: soon,
        idle: soon,
        ..Timeouts::USUAL
    };
    let proxy = proxy(port).with_patience(patience);
    let (answer, _) = ask(&proxy, "GET http://a.ok").await;
    assert_eq!(answer, "");
    let (answer, _) = ask(
        &proxy,
        &format!("GET http://a.ok.test:{port}/ HTTP/1.1\r\nHost: a.ok.test:{port}\r\n\r\n"),
    )
    .await;
    assert_eq!(answer, "");
    let (answer, log) = tunnel(&proxy, &format!("a.ok.test:{port}"), b"").await;
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(log.iter().all(|line| !line.contains("refused")), "{log:?}");
}

#[tokio::test]
async fn a_head_without_an_end_is_refused() {
    let long = format!(
        "GET http://a.ok.test/ HTTP/1.1\r\nX: {}",
        "x".repeat(2 * MAX_HEAD)
    );
    let many = format!(
        "GET http://a.ok.test/ HTTP/1.1\r\n{}\r\n",
        "X: y\r\n".repeat(2 * MAX_HEADERS)
    );
    for request in [long, many] {
        let (answer, _) = ask(&proxy(80), &request).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

/// Starts a host that echoes its credential in every possible place.
async fn echoing(authority: &Authority) -> Server {
    let acceptor = authority.acceptor(&leaf(&["api.ok.test"]));
    Server::secure(acceptor, |request| {
        let seen = request
            .lines()
            .find(|line| line.starts_with("authorization"))
            .unwrap_or_default();
        let bare = seen.rsplit(' ').next().unwrap_or_default();
        Reply::text(
            &format!("302 Found {bare}\r\nLocation: http://evil.test/\r\nX-Echo: {seen}\r\nX-{bare}: 1"),
            &format!("you sent {seen}: body"),
        )
    })
    .await
}

fn key(port: u16) -> Injection {
    let host = "api.ok.test".parse().unwrap();
    let secret = Secret::new("s3cr3t-value").ok();
    Injection::new(host, Some(port), "Authorization", "Bearer ", secret).unwrap()
}

fn get(host: &str, port: u16) -> String {
    format!(
        "GET http://{host}:{port}/x HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: mine\r\nConnection: close\r\n\r\n"
    )
}

#[tokio::test]
async fn nobody_is_asked_to_send_a_request_back() {
    let authority = Authority::new("known");
    let secure = echoing(&authority).await;
    let port = secure.port;
    let trust = Trust::new(Some(authority.file()));
    let proxy = proxy_with(port, trust, vec![key(port)]);
    let plain = get("api.ok.test", port);
    for echo in [
        plain.replace("GET", "TRACE"),
        plain.replace("GET", "TRACK"),
        plain.replace("GET", "trace"),
        plain.replace("Host:", "X-HTTP-Method-Override: TRACE\r\nHost:"),
    ] {
        let (answer, _) = ask(&proxy, &echo).await;
        assert!(answer.starts_with("HTTP/1.1 405 the request asks"), "{answer}");
    }
    assert_eq!(secure.requests().len(), 0);
}

/// The guest sends plain HTTP; the host receives TLS, with the credential.
#[tokio::test]
async fn a_credential_reaches_its_host_and_never_the_guest() {
    const SECRET: &str = "Bearer s3cr3t-value";
    let authority = Authority::new("known");
    let secure = echoing(&authority).await;
    let port = secure.port;
    let trust = Trust::new(Some(authority.file()));
    let proxy = proxy_with(port, trust, vec![key(port)]);
    let (answer, log) = ask(&proxy, &get("api.ok.test", port)).await;
    assert!(
        answer.starts_with("HTTP/1.1 302 Found\r\n") && answer.ends_with("body"),
        "{answer}"
    );
    assert!(
        answer.contains("x-echo: [REDACTED]") && !answer.contains("s3cr3t"),
        "{answer}"
    );
    assert!(answer.contains("location: http://evil.test/"), "{answer}");
    assert_eq!(log, [format!("api.ok.test:{port} connected")]);
    let heard = secure.requests().remove(0);
    assert!(
        heard.contains(&format!("\r\nauthorization: {SECRET}\r\n")),
        "{heard}"
    );
    assert!(
        heard.starts_with("GET /x HTTP/1.1\r\n") && !heard.contains("mine"),
        "{heard}"
    );

    // Another name of the same server gets no credential, nor does a server with an untrusted certificate.
    let plain = Server::start(|_| Reply::text("200 OK", "hello")).await;
    let trust = Trust::new(Some(authority.file()));
    let proxy = proxy_with(plain.port, trust, vec![key(plain.port)]);
    let request = get("api.ok.test", plain.port);
    let (answer, _) = ask(&proxy, &request).await;
    assert!(
        answer.starts_with("HTTP/1.1 502 no secure connection"),
        "{answer}"
    );
    let (answer, _) = ask(&proxy, &request.replace("api.ok", "b.ok")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(plain.requests().iter().all(|heard| !heard.contains("s3cr3t")));
}

/// Whoever had half of an answer must not take it for the whole.
#[tokio::test]
async fn new_rules_end_tunnels_and_answers_that_are_under_way() {
    let endless = Server::start(|_| Reply::Endless("HTTP/1.1 200 OK\r\n\r\n", "more")).await;
    let silent = Server::start(|_| Reply::Silence).await;
    for (port, connect) in [(endless.port, false), (silent.port, true)] {
        let proxy = proxy(port);
        let (ended, log) = talk(&proxy, async |mut guest: DuplexStream| {
            let (head, first) = match connect {
                false => (get("a.ok.test", port), Vec::new()),
                true => (
                    format!("CONNECT a.ok.test:{port} HTTP/1.1\r\nHost: a.ok.test:{port}\r\n\r\n"),
                    hello("a.ok.test"),
                ),
            };
            guest.write_all(head.as_bytes()).await.unwrap();
            let mut answer = vec![0; 12];
            guest.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, b"HTTP/1.1 200");
            guest.write_all(&first).await.unwrap();
            proxy.replace(EgressPolicy::default());
            let mut rest = Vec::new();
            let _ = guest.read_to_end(&mut rest).await;
            // The end of an answer in chunks.
            !rest.ends_with(b"0\r\n\r\n")
        })
        .await;
        assert!(ended);
        assert_eq!(log, [format!("a.ok.test:{port} connected")]);
        let (answer, _) = ask(&proxy, &get("a.ok.test", port)).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}

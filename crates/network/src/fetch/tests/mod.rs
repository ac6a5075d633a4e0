//! Tests fetches over real sockets of this machine.

mod bad;
mod egress;
mod secure;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_policy::EgressPolicy;
use ringfence_testing::server::{Reply, Server};

use super::*;
use crate::egress::Resolver;

/// Host names of these tests, with their addresses.
const NAMES: &[(&str, &str)] = &[
    ("a.test", "127.0.0.1"),
    ("b.test", "127.0.0.1"),
    ("inner.test", "127.0.0.2"),
    ("metadata.test", "169.254.169.254"),
];

fn resolver() -> Resolver {
    Resolver::fixed(|name| {
        let rows = NAMES.iter().filter(|(known, _)| *known == name.as_str());
        rows.map(|(_, address)| address.parse().unwrap()).collect()
    })
}

/// Creates a fetcher for all hosts at these ports, and for these private ranges only.
fn fetcher_with(resolver: Resolver, ports: &[u16], private: &[&str], trust: Trust) -> Fetcher {
    let policy = EgressPolicy {
        allowed: ports
            .iter()
            .map(|port| format!("*:{port}").parse().unwrap())
            .collect(),
        private_networks: private.iter().map(|range| range.parse().unwrap()).collect(),
    };
    Fetcher::new(Arc::new(Guard::new(policy, resolver)), trust)
}

fn fetcher(ports: &[u16]) -> Fetcher {
    fetcher_with(resolver(), ports, &["127.0.0.1"], Trust::default())
}

fn limits() -> FetchLimits {
    FetchLimits::until(Instant::now() + Duration::from_secs(20))
}

fn get(url: &str) -> FetchRequest {
    FetchRequest::new(url, "GET", &[], Vec::new()).unwrap()
}

async fn fails(fetcher: &Fetcher, url: &str) -> FetchError {
    fetcher.fetch(get(url), &limits()).await.unwrap_err()
}

#[tokio::test]
async fn fetches_a_page() {
    let server = Server::start(|_| Reply::text("200 OK\r\nX-Two: b", "hello")).await;
    let url = format!("http://a.test:{}/x?y=z#w", server.port);
    let response = fetcher(&[server.port]).fetch(get(&url), &limits()).await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.body, Body::Text("hello".to_owned()));
    assert!(!response.truncated);
    assert_eq!(response.headers[0], ("x-two".to_owned(), "b".to_owned()));
    assert_eq!(response.final_url.to_string(), url.trim_end_matches("#w"));
    assert_eq!(response.attempts.len(), 1);
    let request = server.requests().remove(0);
    let mut lines: Vec<&str> = request.lines().collect();
    lines.sort_unstable();
    let host = format!("host: a.test:{}", server.port);
    let agent = concat!("user-agent: ringfence/", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        lines,
        [
            "",
            "GET /x?y=z HTTP/1.1",
            "accept-encoding: identity",
            "connection: close",
            &host,
            agent
        ]
    );
}

#[tokio::test]
async fn sends_what_was_given() {
    let server = Server::start(|_| Reply::text("201 Created", "")).await;
    let headers = [
        ("Authorization".to_owned(), "Bearer x".to_owned()),
        ("User-Agent".to_owned(), "me".to_owned()),
    ];
    let url = format!("http://127.0.0.1:{}", server.port);
    let request = FetchRequest::new(&url, "post", &headers, b"{\"a\":1}".to_vec()).unwrap();
    let response = fetcher(&[server.port]).fetch(request, &limits()).await.unwrap();
    assert_eq!(response.status, 201);
    let request = server.requests().remove(0);
    assert!(request.starts_with("POST / HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
    for line in ["content-length: 7", "authorization: Bearer x", "user-agent: me"] {
        assert!(request.contains(&format!("\r\n{line}\r\n")), "{line}: {request}");
    }
    assert_eq!(request.matches("user-agent").count(), 1);
}

#[tokio::test]
async fn follows_redirects_and_leaves_credentials_behind() {
    let second = Server::start(|_| Reply::text("200 OK", "there")).await;
    let target = format!("http://b.test:{}/end", second.port);
    let first = Server::start(move |request| match request.split(' ').nth(1) {
        Some("/start") => Reply::redirect("middle"),
        _ => Reply::redirect(&target),
    })
    .await;
    let headers = [("Cookie".to_owned(), "a=b".to_owned())];
    let url = format!("http://a.test:{}/start", first.port);
    let request = FetchRequest::new(&url, "GET", &headers, Vec::new()).unwrap();
    let fetcher = fetcher(&[first.port, second.port]);
    let response = fetcher.fetch(request, &limits()).await.unwrap();
    assert_eq!(response.body, Body::Text("there".to_owned()));
    let passed: Vec<String> = response.redirects.iter().map(ToString::to_string).collect();
    assert_eq!(passed, [url.clone(), url.replace("start", "middle")]);
    assert_eq!(response.attempts.len(), 3);
    assert!(
        first
            .requests()
            .iter()
            .all(|request| request.contains("cookie: a=b"))
    );
    assert!(!second.requests()[0].contains("cookie"));
}

#[tokio::test]
async fn reports_what_is_no_text() {
    let server = Server::start(|_| {
        let mut reply = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\n".to_vec();
        reply.extend([0x89, b'P', 0, 0xff]);
        Reply::Whole(reply)
    })
    .await;
    let url = format!("http://a.test:{}/", server.port);
    let response = fetcher(&[server.port]).fetch(get(&url), &limits()).await.unwrap();
    let expected = Body::Binary {
        content_type: Some("image/png".to_owned()),
        bytes: 4,
    };
    assert_eq!(response.body, expected);
}

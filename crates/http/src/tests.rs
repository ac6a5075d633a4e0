//! Tests of each refusal, next to the same request when it is served.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Keys, Listener, Routes, site};

/// A test server with a public, a read and a write route.
struct Site {
    address: SocketAddr,
    keys: Keys,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Site {
    async fn open() -> Self {
        let keys = Keys::new().unwrap();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let inner = Router::new()
            .route("/", get(async || "page"))
            .route("/read", get(async || "read"))
            .route("/change", post(async |body: String| body));
        let routes = site(inner, &["/"], address, keys.clone()).unwrap();
        let mut tasks = JoinSet::new();
        let routes = Routes {
            own: routes,
            others: Router::new(),
        };
        tasks.spawn(async move { listener.serve(routes, std::future::pending()).await });
        Self {
            address,
            keys,
            _tasks: tasks,
        }
    }

    /// Sends bytes, and reads the response to its end.
    async fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        Answer {
            status: head.split(' ').nth(1).unwrap_or("0").parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// Sends a request. Replaces `PORT` in headers by the server's port, and adds a `Host` header unless
    /// given.
    async fn ask(&self, line: &str, headers: &[&str], body: &str) -> Answer {
        let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
        let host = ["Host: 127.0.0.1:PORT"];
        let add = if headers.iter().any(|header| header.starts_with("Host:")) {
            &[][..]
        } else {
            &host
        };
        for header in add.iter().chain(headers) {
            text.push_str(&format!("{header}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        let port = self.address.port().to_string();
        let token = self.keys.token();
        let text = text.replace("PORT", &port).replace("TOKEN", token);
        self.raw(format!("{text}\r\n{body}").as_bytes()).await
    }

    async fn check(&self, line: &str, headers: &[&str], status: u16) {
        let answer = self.ask(line, headers, "").await;
        assert_eq!(answer.status, status, "{line} {headers:?}: {answer:?}");
        for name in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(name), "{line} {headers:?}: {answer:?}");
        }
        assert!(!answer.head.contains("access-control"), "{answer:?}");
        if status >= 400 {
            let error: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            for part in ["type", "message", "hint"] {
                assert!(!error["error"][part].as_str().unwrap().is_empty(), "{answer:?}");
            }
        }
    }

    /// Opens a session, and returns its headers.
    async fn session(&self) -> [String; 2] {
        let ticket = self.keys.ticket().unwrap();
        let body = format!("{{\"token\":\"{ticket}\"}}");
        let answer = self.ask("POST /session", &[OWN, JSON], &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let cookie = answer.head.split("set-cookie: ").nth(1).unwrap();
        let (cookie, rest) = cookie.split_once(';').unwrap();
        let attributes = rest.lines().next().unwrap();
        assert_eq!(attributes, " httponly; samesite=strict; path=/");
        assert!(cookie.starts_with(&format!("ringfence_{}=", self.address.port())));
        let key: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let key = key["key"].as_str().unwrap();
        assert!(!answer.head.contains(key) && !answer.head.contains(&ticket));
        [
            format!("Cookie: other=1; {cookie}; more=2"),
            format!("Ringfence-Key: {key}"),
        ]
    }
}

const BEARER: &str = "Authorization: Bearer TOKEN";
const OWN: &str = "Origin: http://127.0.0.1:PORT";
const JSON: &str = "Content-Type: application/json";

#[tokio::test]
async fn without_the_token_there_is_only_the_page() {
    let site = Site::open().await;
    site.check("GET /", &[], 200).await;
    site.check("HEAD /", &[], 200).await;
    site.check("GET /read", &[BEARER], 200).await;
    for headers in [
        &[][..],
        &["Authorization: Bearer "],
        &["Authorization: Bearer 0000000000000000000000000000000000000000000000000000000000000000"],
        &["Authorization: Bearer TOKEN0"],
        &["Authorization: Basic TOKEN"],
        &["Authorization: TOKEN"],
        &[BEARER, BEARER],
        &["Cookie: token=TOKEN"],
        &["Ringfence-Key: TOKEN"],
    ] {
        site.check("GET /read", headers, 401).await;
    }
    for path in [
        "/read?token=TOKEN",
        "/READ",
        "/read/",
        "//",
        "/nowhere",
        "/../read",
        "/%2e%2e/read",
    ] {
        site.check(&format!("GET {path}"), &[], 401).await;
    }
    site.check("GET /nowhere", &[BEARER], 404).await;
    site.check("POST /change", &[], 401).await;
    site.check("POST /change", &[BEARER], 200).await;
    site.check("POST /", &[BEARER], 405).await;
    site.check("POST /", &[], 401).await;
}

#[tokio::test]
async fn only_the_names_of_this_machine_are_answered() {
    let site = Site::open().await;
    for host in ["127.0.0.1:PORT", "localhost:PORT", "LocalHost:PORT", "[::1]:PORT"] {
        site.check("GET /read", &[BEARER, &format!("Host: {host}")], 200)
            .await;
    }
    for host in [
        "evil.example",
        "evil.example:PORT",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:PORT0",
        "localhost.evil.example:PORT",
        "127.0.0.1:PORT, evil.example",
        "127.0.0.1:PORT@evil.example",
        "",
    ] {
        for path in ["/", "/read"] {
            site.check(&format!("GET {path}"), &[BEARER, &format!("Host: {host}")], 421)
                .await;
        }
    }
    site.check(
        "GET /read",
        &[BEARER, "Host: 127.0.0.1:PORT", "Host: 127.0.0.1:PORT"],
        421,
    )
    .await;
    let port = site.address.port();
    site.check(&format!("GET http://127.0.0.1:{port}/read"), &[BEARER], 200)
        .await;
    site.check("GET http://evil.example/read", &[BEARER], 421).await;
    let bearer = format!("Authorization: Bearer {}", site.keys.token());
    let old = site
        .raw(format!("GET /read HTTP/1.0\r\n{bearer}\r\n\r\n").as_bytes())
        .await;
    assert_eq!(old.status, 421);
}

#[tokio::test]
async fn another_site_in_the_browser_is_refused() {
    let site = Site::open().await;
    let [cookie, key] = site.session().await;
    let (cookie, key) = (cookie.as_str(), key.as_str());
    site.check("GET /read", &[cookie, key], 200).await;
    site.check("GET /read", &[cookie, key, "Sec-Fetch-Site: same-origin"], 200)
        .await;
    site.check("POST /change", &[cookie, key, OWN], 200).await;
    site.check(
        "POST /change",
        &[
            cookie,
            key,
            "Origin: http://localhost:PORT",
            "Host: localhost:PORT",
        ],
        200,
    )
    .await;
    // A cookie is sent to every port of this machine, so half of a session is not accepted.
    site.check("GET /read", &[cookie], 401).await;
    site.check("GET /read", &[key], 401).await;
    site.check("POST /change", &[cookie, OWN], 401).await;
    // A browser sends `Origin` with a change.
    site.check("POST /change", &[cookie, key], 403).await;
    for foreign in [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: ",
        "Origin: https://127.0.0.1:PORT",
        "Origin: http://127.0.0.1",
        "Origin: http://127.0.0.1:1",
        "Origin: http://localhost:PORT",
        "Origin: http://127.0.0.1:PORT.evil.example",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        site.check("GET /read", &[cookie, key, foreign], 403).await;
        site.check("POST /change", &[BEARER, foreign], 403).await;
    }
    site.check(
        "POST /change",
        &[cookie, key, OWN, "Sec-Fetch-Site: cross-site"],
        403,
    )
    .await;
    for method in ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"] {
        let line = if method == "CONNECT" {
            "CONNECT 127.0.0.1:PORT".replace("PORT", &site.address.port().to_string())
        } else {
            format!("{method} /read")
        };
        site.check(&line, &[BEARER, OWN], 405).await;
    }
}

#[tokio::test]
async fn the_token_is_exchanged_by_our_own_page_alone() {
    let site = Site::open().await;
    site.session().await;
    let ticket = site.keys.ticket().unwrap();
    let body = format!("{{\"token\":\"{ticket}\"}}");
    for (headers, status) in [
        (&["Origin: http://evil.example", JSON][..], 403),
        (&[OWN, "Sec-Fetch-Site: cross-site", JSON], 403),
        (&[OWN, JSON, "Host: evil.example"], 421),
        (&[JSON], 401),
        (&[OWN], 401),
        (&[OWN, "Content-Type: text/plain"], 401),
    ] {
        let answer = site.ask("POST /session", headers, &body).await;
        assert_eq!(answer.status, status, "{headers:?}");
        assert!(!answer.head.contains("set-cookie"), "{answer:?}");
    }
    // A refused request does not use up the ticket; a served one does.
    for status in [200, 401] {
        let answer = site.ask("POST /session", &[OWN, JSON], &body).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let token = format!("{{\"token\":\"{}\"}}", site.keys.token());
    for wrong in ["{\"token\":\"\"}", "{}", "x", "{\"token\":\"0000\"}", &token] {
        let answer = site.ask("POST /session", &[OWN, JSON], wrong).await;
        assert_eq!(answer.status, 401, "{wrong}");
        assert!(!answer.head.contains("set-cookie"), "{answer:?}");
    }
    assert_eq!(site.ask("GET /session", &[BEARER], "").await.status, 405);
    // Sessions of one interface are invalid for another.
    let [cookie, key] = site.session().await;
    let other = Site::open().await;
    other.check("GET /read", &[&cookie, &key], 401).await;
}

#[tokio::test]
async fn guessing_is_told_to_wait_and_keeps_nobody_else_waiting() {
    let site = Site::open().await;
    let mut told = 0;
    for _ in 0..60 {
        told = site
            .ask("GET /read", &["Authorization: Bearer 0"], "")
            .await
            .status;
        if told == 429 {
            break;
        }
        assert_eq!(told, 401);
    }
    assert_eq!(told, 429);
    let answer = site.ask("POST /session", &[OWN, JSON], "{\"token\":\"0\"}").await;
    assert!(
        answer.status == 429 && answer.head.contains("retry-after: "),
        "{answer:?}"
    );
    site.check("GET /read", &[BEARER], 200).await;
    site.session().await;
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let site = Site::open().await;
    let body = "x".repeat(super::MAX_BODY);
    assert_eq!(site.ask("POST /change", &[BEARER], &body).await.status, 200);
    assert_eq!(
        site.ask("POST /change", &[BEARER], &(body + "x")).await.status,
        413
    );
    let long = |length: usize| format!("X-Long: {}", "x".repeat(length));
    assert_eq!(
        site.ask("GET /read", &[BEARER, &long(8_000)], "").await.status,
        200
    );
    assert_eq!(
        site.ask("GET /read", &[BEARER, &long(20_000)], "").await.status,
        431
    );
    let many = |count: usize| {
        (0..count)
            .map(|number| format!("X-{number}: 1"))
            .collect::<Vec<_>>()
    };
    let asked = |many: Vec<String>| {
        let headers: Vec<String> = many.into_iter().chain([BEARER.to_owned()]).collect();
        let site = &site;
        async move {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            site.ask("GET /read", &headers, "").await.status
        }
    };
    assert_eq!(asked(many(40)).await, 200);
    assert_eq!(asked(many(100)).await, 431);
}

#[tokio::test]
async fn no_address_of_the_network_is_listened_at() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:127.0.0.1]:0"] {
        let error = Listener::bind(address.parse().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{address}");
    }
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let again = Listener::bind(listener.address()).await.unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
}

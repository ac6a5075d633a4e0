//! Tests attempts to bypass the guard.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use super::*;

/// Lists the notations of the address of a server on this machine.
fn disguises(port: u16) -> Vec<String> {
    let hosts = [
        "127.0.0.1",
        "127.0.0.1.",
        "a.test",
        "A.TEST.",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
        "[::1]",
        "0.0.0.0",
        "[::]",
    ];
    hosts
        .iter()
        .map(|host| format!("http://{host}:{port}/"))
        .collect()
}

#[tokio::test]
async fn this_machine_is_reached_only_where_its_range_is_open() {
    let server = Server::start(|_| Reply::text("200 OK", "secret")).await;
    let closed = fetcher_with(resolver(), &[server.port], &[], Trust::default());
    for url in disguises(server.port) {
        let error = fails(&closed, &url).await;
        assert_eq!(error.kind(), FetchErrorKind::Denied, "{url}: {error}");
        assert_eq!(error.attempts.len(), 1);
    }
    assert_eq!(server.requests(), [""; 0]);
    // The server is reachable if its range is allowed.
    let url = format!("http://a.test:{}/", server.port);
    assert!(fetcher(&[server.port]).fetch(get(&url), &limits()).await.is_ok());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_usual_ports_are_no_way_to_others() {
    let server = Server::start(|_| Reply::text("200 OK", "")).await;
    let policy = EgressPolicy {
        allowed: vec!["a.test".parse().unwrap()],
        private_networks: vec!["127.0.0.0/8".parse().unwrap()],
    };
    let fetcher = Fetcher::new(Arc::new(Guard::new(policy, resolver())), Trust::default());
    let error = fails(&fetcher, &format!("http://a.test:{}/", server.port)).await;
    assert_eq!(error.kind(), FetchErrorKind::Denied);
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_redirect_leads_to_no_closed_address() {
    let inner = Server::start_at(Ipv4Addr::new(127, 0, 0, 2), |_| Reply::text("200 OK", "secret")).await;
    let port = inner.port;
    let outer = Server::start(move |request| {
        let host = request.split(['/', ' ']).nth(2).unwrap_or_default();
        Reply::redirect(&format!("http://{host}:{port}/"))
    })
    .await;
    let fetcher = fetcher(&[outer.port, inner.port]);
    for (host, kind) in [
        ("127.0.0.2", FetchErrorKind::Denied),
        ("inner.test", FetchErrorKind::Denied),
        ("169.254.169.254", FetchErrorKind::Denied),
        ("metadata.test", FetchErrorKind::Denied),
        ("10.0.0.1", FetchErrorKind::Denied),
        ("2130706434", FetchErrorKind::InvalidUrl),
        ("0177.0.0.2", FetchErrorKind::InvalidUrl),
        ("0x7f.2", FetchErrorKind::InvalidUrl),
        ("user@inner.test", FetchErrorKind::InvalidUrl),
        ("missing.test", FetchErrorKind::NotFound),
    ] {
        let error = fails(
            &fetcher,
            &format!("http://a.test:{}/{}", outer.port, host.replace('@', "%40")),
        )
        .await;
        assert_eq!(error.kind(), kind, "{host}: {error}");
        assert!(!error.to_string().contains("127.0.0.2:"), "{error}");
    }
    assert_eq!(inner.requests().len(), 0);
    // Reachable with the right policy.
    let open = fetcher_with(
        resolver(),
        &[outer.port, inner.port],
        &["127.0.0.0/8"],
        Trust::default(),
    );
    let url = format!("http://a.test:{}/inner.test", outer.port);
    let response = open.fetch(get(&url), &limits()).await.unwrap();
    assert_eq!(response.body, Body::Text("secret".to_owned()));
}

#[tokio::test]
async fn a_redirect_leads_to_no_other_scheme() {
    let server = Server::start(|request| {
        let scheme = request.split(['/', ' ']).nth(2).unwrap_or_default();
        Reply::redirect(&format!("{scheme}://a.test/etc/passwd"))
    })
    .await;
    let fetcher = fetcher(&[server.port]);
    for scheme in ["file", "gopher", "ftp", "ws", "unix"] {
        let error = fails(&fetcher, &format!("http://a.test:{}/{scheme}", server.port)).await;
        assert_eq!(error.kind(), FetchErrorKind::InvalidUrl, "{scheme}: {error}");
    }
}

/// DNS rebinding between request and redirect.
#[tokio::test]
async fn a_redirect_to_the_same_name_is_checked_anew() {
    let inner = Server::start_at(Ipv4Addr::new(127, 0, 0, 2), |_| Reply::text("200 OK", "secret")).await;
    let target = format!("http://a.test:{}/", inner.port);
    let outer = Server::start(move |_| Reply::redirect(&target)).await;
    let answers = Mutex::new(vec!["127.0.0.2", "127.0.0.1"]);
    let rebinding = Resolver::fixed(move |_| {
        let next = answers.lock().unwrap().pop();
        next.map(|text| text.parse().unwrap()).into_iter().collect()
    });
    let ports = [outer.port, inner.port];
    let fetcher = fetcher_with(rebinding, &ports, &["127.0.0.1"], Trust::default());
    let error = fails(&fetcher, &format!("http://a.test:{}/", outer.port)).await;
    assert_eq!(error.kind(), FetchErrorKind::Denied, "{error}");
    assert_eq!((outer.requests().len(), inner.requests().len()), (1, 0));
}

#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let server = Server::start(|_| Reply::redirect("/again")).await;
    let error = fails(
        &fetcher(&[server.port]),
        &format!("http://a.test:{}/", server.port),
    )
    .await;
    assert_eq!(error.kind(), FetchErrorKind::TooManyRedirects);
    assert_eq!(server.requests().len(), 6);
    assert_eq!(error.attempts.len(), 6);
}

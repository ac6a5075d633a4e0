//! Tests misbehaving servers.

use super::*;

async fn served(
    reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    limits: &FetchLimits,
) -> Result<FetchResponse, FetchError> {
    let server = Server::start(reply).await;
    let url = format!("http://a.test:{}/", server.port);
    fetcher(&[server.port]).fetch(get(&url), limits).await
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left_at_the_deadline() {
    let limits = FetchLimits::until(Instant::now() + Duration::from_millis(200));
    let error = served(|_| Reply::Silence, &limits).await.unwrap_err();
    assert_eq!(error.kind(), FetchErrorKind::Timeout);
    assert_eq!(error.attempts.len(), 1, "the connection was made");
}

#[tokio::test]
async fn a_server_that_never_ends_its_answer_is_left_at_the_deadline() {
    let limits = FetchLimits {
        max_body: usize::MAX,
        ..FetchLimits::until(Instant::now() + Duration::from_millis(200))
    };
    // Interim responses have no body, so the body limit does not apply.
    let reply = |_: &str| Reply::Endless("", "HTTP/1.1 102 Processing\r\n\r\n");
    let error = served(reply, &limits).await.unwrap_err();
    assert_eq!(error.kind(), FetchErrorKind::Timeout, "{error}");
}

#[tokio::test]
async fn an_endless_body_is_cut() {
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
    ] {
        let limits = FetchLimits {
            max_body: 5000,
            ..limits()
        };
        let response = served(move |_| Reply::Endless(head, "abcdefg"), &limits)
            .await
            .unwrap();
        assert!(response.truncated);
        assert_eq!(
            response.body,
            Body::Text("abcdefg".repeat(800)[..5000].to_owned())
        );
    }
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let limits = FetchLimits {
        max_body: 10,
        ..limits()
    };
    let response = served(move |_| Reply::Endless(chunked, "3\r\nabc\r\n"), &limits)
        .await
        .unwrap();
    assert_eq!(
        (response.truncated, response.body),
        (true, Body::Text("abcabcabca".to_owned()))
    );
}

#[tokio::test]
async fn a_body_at_the_limit_is_whole() {
    let limits = FetchLimits {
        max_body: 5,
        ..limits()
    };
    let response = served(|_| Reply::text("200 OK", "hello"), &limits).await.unwrap();
    assert_eq!(
        (response.truncated, response.body),
        (false, Body::Text("hello".to_owned()))
    );
}

async fn no_answer(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) {
    let error = served(reply, &limits()).await.unwrap_err();
    assert_eq!(error.kind(), FetchErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn endless_headers_are_refused() {
    no_answer(|_| Reply::Endless("HTTP/1.1 200 OK\r\n", "a: b\r\n")).await;
    no_answer(|_| Reply::Endless("HTTP/1.1 200 OK\r\na: ", "bbbbbbbbbbbbbbbb")).await;
    no_answer(|_| Reply::Endless("HTTP/1.1 200 ", "OKOKOKOKOKOKOKOK")).await;
    no_answer(|_| Reply::Endless("HTTP/1.1 200 OK\r\n", "\r")).await;
    let long = format!("200 OK\r\na: {}", "b".repeat(40 * 1024));
    no_answer(move |_| Reply::text(&long, "")).await;
    let many = format!("200 OK{}", "\r\na: b".repeat(101));
    no_answer(move |_| Reply::text(&many, "")).await;
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    for bytes in [
        "SSH-2.0-OpenSSH_9.9\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncut",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "HTTP/1.1 200 OK",
        "",
    ] {
        let error = served(|_| Reply::Whole(bytes.as_bytes().to_vec()), &limits()).await;
        let error = error.expect_err(bytes);
        assert_eq!(error.kind(), FetchErrorKind::Protocol, "{bytes:?}");
        assert!(!error.to_string().contains("SSH"), "{error}");
    }
}

#[tokio::test]
async fn a_name_without_an_address_is_told() {
    let error = fails(&fetcher(&[80]), "http://missing.test/").await;
    assert_eq!(error.kind(), FetchErrorKind::NotFound);
    assert_eq!(error.to_string(), "missing.test does not resolve to an address");
}

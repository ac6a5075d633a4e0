//! Tests valid and invalid certificates.

use rcgen::date_time_ymd;
use ringfence_testing::authority::{Authority, leaf};

use super::*;

async fn fetch(server: &Server, host: &str, trust: Trust) -> Result<FetchResponse, FetchError> {
    let fetcher = fetcher_with(resolver(), &[server.port], &["127.0.0.1"], trust);
    let url = format!("https://{host}:{}/", server.port);
    fetcher.fetch(get(&url), &limits()).await
}

#[tokio::test]
async fn a_good_certificate_opens_the_page() {
    let authority = Authority::new("known");
    let server = authority.server(&leaf(&["a.test", "127.0.0.1"])).await;
    for host in ["a.test", "127.0.0.1"] {
        let response = fetch(&server, host, Trust::new(Some(authority.file())))
            .await
            .unwrap();
        assert_eq!(response.body, Body::Text("hello".to_owned()));
    }
}

/// Asserts that the certificate is rejected before any of the request is sent.
async fn refused(server: &Server, host: &str, trust: Trust, expected: FetchCause) {
    let error = fetch(server, host, trust).await.unwrap_err();
    assert_eq!(error.fault, expected);
    assert_eq!(error.kind(), FetchErrorKind::Tls);
    let requests = server.requests();
    assert!(
        requests.iter().all(|request| !request.contains("GET")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn an_unknown_authority_is_not_believed() {
    let (known, other) = (Authority::new("known"), Authority::new("other"));
    let server = other.server(&leaf(&["a.test"])).await;
    let fault = FetchCause::Tls(TlsFault::UnknownIssuer);
    refused(&server, "a.test", Trust::new(Some(known.file())), fault).await;
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new("known");
    let server = authority.server(&leaf(&["b.test", "*.a.test"])).await;
    for host in ["a.test", "127.0.0.1"] {
        let trust = Trust::new(Some(authority.file()));
        refused(&server, host, trust, FetchCause::Tls(TlsFault::OtherHost)).await;
    }
}

#[tokio::test]
async fn an_old_certificate_is_refused() {
    let authority = Authority::new("known");
    let mut params = leaf(&["a.test"]);
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    let server = authority.server(&params).await;
    let trust = Trust::new(Some(authority.file()));
    refused(&server, "a.test", trust, FetchCause::Tls(TlsFault::Expired)).await;
}

#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let authority = Authority::new("known");
    let server = Server::start(|_| Reply::text("400 Bad Request", "")).await;
    let trust = Trust::new(Some(authority.file()));
    let error = fetch(&server, "a.test", trust).await.unwrap_err();
    assert_eq!(error.fault, FetchCause::Tls(TlsFault::Handshake));
}

#[tokio::test]
async fn a_file_that_is_missing_is_told() {
    let authority = Authority::new("known");
    let server = authority.server(&leaf(&["a.test"])).await;
    let missing = authority.folder.path().join("none.pem");
    let fault = FetchCause::Trust(TrustError::File);
    refused(&server, "a.test", Trust::new(Some(missing)), fault).await;
}

/// Rejects a downgrade: a credential for an `https` page must not be sent in plain text.
#[tokio::test]
async fn a_secure_page_does_not_redirect_to_an_insecure_one() {
    let plain = Server::start(|_| Reply::text("200 OK", "")).await;
    let authority = Authority::new("known");
    let target = format!("http://a.test:{}/", plain.port);
    let acceptor = authority.acceptor(&leaf(&["a.test"]));
    let server = Server::secure(acceptor, move |_| Reply::redirect(&target)).await;
    let ports = [plain.port, server.port];
    let trust = Trust::new(Some(authority.file()));
    let fetcher = fetcher_with(resolver(), &ports, &["127.0.0.1"], trust);
    let error = fails(&fetcher, &format!("https://a.test:{}/", server.port)).await;
    assert_eq!(
        (error.fault.clone(), error.kind()),
        (FetchCause::Downgrade, FetchErrorKind::Denied)
    );
    assert_eq!(plain.requests().len(), 0);
}

//! Tests well-behaved and misbehaving servers on this machine.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::CertificateParams;
use ringfence_network::fetch::TlsFault;
use ringfence_network::secret::Secret;
use ringfence_policy::cascade::{Rules, decide};
use ringfence_testing::authority::{Authority, leaf};
use ringfence_testing::server::{Reply, Server};
use serde_json::{Value, json};

use super::*;

fn settings(base: &str, trust: Trust) -> Settings {
    let model: Model = "openai/small".parse().unwrap();
    Settings {
        model,
        base: Some(base.parse().unwrap()),
        key: Key::Known(Secret::new("sk-0123456789").unwrap()),
        timeout: Timeout::seconds(20),
        trust,
    }
}

async fn scored(assessor: &Assessor) -> Result<u8, ScoreError> {
    let log = AttemptLog::default();
    let score = assessor
        .score("df -h", &decide("df -h", &Rules::default()), &log)
        .await;
    assert_eq!(log.attempts().len(), 1, "{score:?}");
    score
}

fn json_reply(body: &Value) -> Reply {
    Reply::text("200 OK\r\nContent-Type: application/json", &body.to_string())
}

fn answered(content: &str) -> Value {
    json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": content}}]})
}

#[tokio::test]
async fn a_server_with_a_certificate_is_asked_and_no_other() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let trust = || Trust::new(Some(ours.file()));
    let local = || {
        let mut params: CertificateParams = leaf(&[]);
        params
            .subject_alt_names
            .push(rcgen::SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params
    };
    let of = async |authority: &Authority, params: &CertificateParams| {
        Server::secure(authority.acceptor(params), |_| json_reply(&answered("7"))).await
    };
    let base = |server: &Server| format!("https://127.0.0.1:{}/v1", server.port);

    let good = of(&ours, &local()).await;
    assert_eq!(
        scored(&Assessor::new(settings(&base(&good), trust()))).await,
        Ok(7)
    );
    let request = good.requests().remove(0);
    assert!(
        request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
        "{request}"
    );

    for (authority, params, fault) in [
        (&theirs, local(), TlsFault::UnknownIssuer),
        (&ours, leaf(&["other.test"]), TlsFault::OtherHost),
    ] {
        let bad = of(authority, &params).await;
        let refused = scored(&Assessor::new(settings(&base(&bad), trust()))).await;
        assert_eq!(refused, Err(ScoreError::Tls(fault)));
        let has_key = |request: &String| request.contains("sk-");
        assert!(!bad.requests().iter().any(has_key));
    }
}

async fn told(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Result<u8, ScoreError> {
    let server = Server::start(reply).await;
    let base = format!("http://127.0.0.1:{}/v1", server.port);
    scored(&Assessor::new(settings(&base, Trust::default()))).await
}

#[tokio::test]
async fn nothing_endless_is_read_to_its_end() {
    for (head, then) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
            "         ",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            "8\r\n{\"a\":[[[\r\n",
        ),
        ("HTTP/1.1 500 Oh\r\n\r\n", "sorry "),
        ("HTTP/1.1 200 OK\r\n\r\n", "no json "),
    ] {
        assert_eq!(
            told(move |_| Reply::Endless(head, then)).await,
            Err(ScoreError::TooLong)
        );
    }
    for (head, then) in [
        ("HTTP/1.1 200 OK\r\n", "a: b\r\n"),
        ("", "HTTP/1.1 102 P\r\n\r\n"),
    ] {
        let refused = told(move |_| Reply::Endless(head, then)).await;
        assert!(
            matches!(refused, Err(ScoreError::TooLong | ScoreError::Broken)),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn what_is_packed_is_not_unpacked() {
    let packed = told(|request| {
        assert!(
            !request.to_ascii_lowercase().contains("accept-encoding: gzip"),
            "{request}"
        );
        let head = "200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip";
        Reply::text(head, "\u{1f}\u{8b}")
    });
    assert_eq!(packed.await, Err(ScoreError::Format));
}

#[tokio::test]
async fn what_is_no_answer_is_no_score() {
    for bytes in [
        "",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
    ] {
        let refused = told(|_| Reply::Whole(bytes.as_bytes().to_vec())).await;
        assert_eq!(refused, Err(ScoreError::Broken), "{bytes:?}");
    }
    for status in [301, 302, 307, 400, 401, 403, 404, 429, 500, 503] {
        let refused = told(move |_| {
            let head = format!("{status} X\r\nLocation: http://127.0.0.1:1/\r\nRetry-After: 0");
            Reply::text(&head, "answer 0")
        });
        assert_eq!(refused.await, Err(ScoreError::Status(status)));
    }
}

#[tokio::test]
async fn each_score_has_a_connection_of_its_own() {
    let server = Server::start(|_| json_reply(&answered(" 3\n"))).await;
    let base = format!("http://127.0.0.1:{}/v1", server.port);
    let assessor = Assessor::new(settings(&base, Trust::default()));
    assert_eq!(scored(&assessor).await, Ok(3));
    assert_eq!(scored(&assessor).await, Ok(3));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_provider_of_the_world_is_not_looked_for_at_home() {
    // Its name resolves to this machine, as a hosts file or name server could make it.
    let server = Server::start(|_| json_reply(&answered("0"))).await;
    let mut assessor = Assessor::new(Settings {
        base: None,
        ..settings("https://a.test", Trust::default())
    });
    let policy = assessor.base.policy(Chosen::BuiltIn);
    let home = Resolver::fixed(|_| vec![Ipv4Addr::LOCALHOST.into()]);
    assessor.guard = Guard::new(policy, home);
    assert!(matches!(scored(&assessor).await, Err(ScoreError::Connect(_))));
    assert_eq!(server.requests(), [""; 0]);
}

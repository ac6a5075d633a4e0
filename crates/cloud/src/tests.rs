//! Services that behave, and services that do not.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, SanType};
use ringfence_exec::backend::{self, Reason};
use ringfence_exec::key::Key;
use ringfence_exec::local::{Connection, Fence};
use ringfence_network::fetch::{BaseUrl, Chosen, Trust};
use ringfence_network::secret::Secret;
use ringfence_policy::{ExecutionResult, Language, Limits, Outcome, Request, Timeout};
use ringfence_testing::authority::{Authority, leaf};
use ringfence_testing::server::{Reply, Server};

use crate::frames::framed;
use crate::{Cloud, Sandboxes, Settings};

const KEY: &str = "e2b_0123456789abcdef";

/// Answers of a service; those that are not named are what a good one says.
#[derive(Clone, Default)]
struct Service {
    create: Option<(&'static str, &'static str)>,
    /// Head and body of the stream of the program.
    program: Option<(&'static str, Vec<u8>)>,
    endless: bool,
    kill: Option<&'static str>,
}

const CREATED: &str = r#"{"sandboxID":"abc1","templateID":"t","clientID":"c","envdVersion":"0.6.13","envdAccessToken":"tok","domain":null}"#;
const STREAM: &str = "200 OK\r\nContent-Type: application/connect+json";
const START: &str = r#"{"event":{"start":{"pid":7}}}"#;
const END: &str = r#"{"event":{"end":{"exited":true,"status":"exit status 0"}}}"#;

/// Returns the bytes of a stream, with its last message.
fn stream(messages: &[&str]) -> Vec<u8> {
    let mut bytes: Vec<u8> = messages
        .iter()
        .flat_map(|message| framed(message.as_bytes()))
        .collect();
    bytes.extend([2, 0, 0, 0, 2]);
    bytes.extend(b"{}");
    bytes
}

fn whole(head: &str, body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
    Reply::Whole([head.as_bytes(), body].concat())
}

impl Service {
    fn answer(&self, request: &str) -> Reply {
        let is = |line: &str| request.starts_with(line);
        if is("POST /sandboxes ") {
            let (head, body) = self.create.unwrap_or(("201 Created", CREATED));
            return Reply::text(head, body);
        }
        if is("DELETE /sandboxes/abc1 ") {
            return Reply::text(self.kill.unwrap_or("204 No Content"), "");
        }
        if is("POST /files?path=/tmp/.ringfence/main.py ") {
            return Reply::text("200 OK", "[]");
        }
        if is("POST /process.Process/Start ") && request.contains("/bin/sh") {
            return whole(STREAM, &stream(&[START, END]));
        }
        if is("POST /process.Process/Start ") && self.endless {
            let first = "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n\0\0\0\0\x1d{\"event\":{\"start\":{\"pid\":7}}}";
            return Reply::Endless(
                first,
                "\0\0\0\0\x28{\"event\":{\"data\":{\"stdout\":\"eHh4Cg==\"}}}",
            );
        }
        if is("POST /process.Process/Start ") {
            let good = || {
                let said = r#"{"event":{"data":{"stdout":"aGkK"}}}"#;
                (STREAM, stream(&[START, said, END]))
            };
            let (head, body) = self.program.clone().unwrap_or_else(good);
            return whole(head, &body);
        }
        Reply::text("404 Not Found", r#"{"code":404,"message":"what is that"}"#)
    }

    /// Runs a request, and returns its end with the requests that were sent.
    async fn run(self, request: Request) -> (Result<ExecutionResult, backend::Error>, Vec<String>) {
        let server = Server::start(move |request| self.answer(request)).await;
        let cloud = Cloud::new(Ok(settings(server.port)), Vec::new());
        let result = cloud
            .run(&request, Fence::Default, None, Connection::none())
            .await;
        cloud.close().await;
        (result, server.requests())
    }

    /// Checks that a request does not run, and that no sandbox is left if there was one.
    async fn fails(self, reason: Reason, part: &str) {
        let made = self.create.is_none();
        let (result, requests) = self.run(python()).await;
        let error = result.unwrap_err();
        assert_eq!(error.reason, reason, "{error}");
        assert!(error.message.contains(part), "{error}");
        assert!(!error.message.contains(KEY), "{error}");
        assert_eq!(
            requests.last().unwrap().starts_with("DELETE"),
            made,
            "{requests:?}"
        );
    }

    /// Checks that the end of a program is unknown, with a warning, and its sandbox gone.
    async fn breaks(self, part: &str) {
        let (result, requests) = self.run(python()).await;
        let result = result.unwrap();
        assert_eq!((result.meta.outcome, result.exit_code), (Outcome::Unknown, 125));
        let warned = result.meta.warnings.iter().any(|warning| warning.contains(part));
        assert!(warned, "{:?}", result.meta.warnings);
        assert!(requests.last().unwrap().starts_with("DELETE"), "{requests:?}");
    }
}

fn settings(port: u16) -> Settings {
    let base = format!("http://127.0.0.1:{port}").parse::<BaseUrl>().unwrap();
    Settings {
        key: Key::Known(Secret::new(KEY).unwrap()),
        api: base.clone(),
        sandboxes: Sandboxes::At(base),
        template: "t".to_owned(),
        chosen: Chosen::ByUser,
        trust: Arc::new(Trust::default()),
    }
}

fn python() -> Request {
    Request::new(Language::Python, "print('hi')")
}

#[tokio::test]
async fn a_run_creates_one_sandbox_and_kills_it() {
    let (result, requests) = Service::default().run(python()).await;
    let result = result.unwrap();
    assert_eq!((result.stdout.as_str(), result.exit_code), ("hi\n", 0));
    assert_eq!(result.meta.outcome, Outcome::Exited);
    assert!(result.meta.remote && result.meta.isolation.is_none());
    assert_eq!(result.meta.resource_limits.memory_bytes, None);
    assert_eq!(result.meta.warnings, [""; 0]);
    let lines: Vec<&str> = requests
        .iter()
        .filter_map(|request| request.lines().next())
        .collect();
    let expected = [
        "POST /sandboxes HTTP/1.1",
        "POST /process.Process/Start HTTP/1.1",
        "POST /files?path=/tmp/.ringfence/main.py HTTP/1.1",
        "POST /process.Process/Start HTTP/1.1",
        "POST /process.Process/Start HTTP/1.1",
        "DELETE /sandboxes/abc1 HTTP/1.1",
    ];
    assert_eq!(lines, expected);
    assert!(requests[0].contains(&format!("x-api-key: {KEY}")), "{requests:?}");
    assert!(
        requests[0].contains("\"allow_internet_access\":false"),
        "{requests:?}"
    );
    for inside in &requests[1..5] {
        assert!(inside.contains("x-access-token: tok"), "{inside}");
        assert!(inside.contains("e2b-sandbox-id: abc1"), "{inside}");
        // The sandbox learns nothing of the account.
        assert!(!inside.contains(KEY), "{inside}");
    }
}

#[tokio::test]
async fn nothing_is_sent_without_a_key_or_of_what_cannot_be_promised() {
    let server = Server::start(|_| Reply::text("500 Broken", "")).await;
    let keyless = Settings {
        key: Key::Missing("E2B_API_KEY".to_owned()),
        ..settings(server.port)
    };
    let check = async |settings: Settings, fence, reason, part: &str| {
        let cloud = Cloud::new(Ok(settings), Vec::new());
        let error = cloud
            .run(&python(), fence, None, Connection::none())
            .await
            .unwrap_err();
        assert!(error.reason == reason && error.message.contains(part), "{error}");
    };
    check(keyless, Fence::Default, Reason::Unavailable, "E2B_API_KEY").await;
    let known = || settings(server.port);
    check(known(), Fence::Required, Reason::Unavailable, "all are required").await;
    check(known(), Fence::Unfenced, Reason::Invalid, "without a fence").await;
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let create = |head, body| Service {
        create: Some((head, body)),
        ..Service::default()
    };
    let refused = r#"{"code":401,"message":"Invalid key e2b_0123456789abcdef"}"#;
    create("401 Unauthorized", refused)
        .fails(Reason::Unavailable, "refused the key: Invalid key [key]")
        .await;
    create("403 Forbidden", "no JSON")
        .fails(Reason::Unavailable, "refused the key")
        .await;
    create("429 Too Many Requests", r#"{"message":"20 sandboxes"}"#)
        .fails(Reason::Busy, "no room for another sandbox: 20 sandboxes")
        .await;
    create("404 Not Found", "{}")
        .fails(Reason::NotFound, "template `t`")
        .await;
    create("500 Broken", r#"{"message":"oh"}"#)
        .fails(Reason::Failed, "the status 500: oh")
        .await;
    // Nothing is followed.
    create("302 Found\r\nLocation: http://127.0.0.1:1/", "")
        .fails(Reason::Failed, "the status 302")
        .await;
    create("201 Created", "<html>")
        .fails(Reason::Failed, "described in another way")
        .await;
    let elsewhere = r#"{"sandboxID":"../../x","envdAccessToken":"t"}"#;
    create("201 Created", elsewhere)
        .fails(Reason::Failed, "other characters")
        .await;
}

#[tokio::test]
async fn what_cannot_start_is_no_failure_of_the_program() {
    let program = |head, body: &str| Service {
        program: Some((head, body.as_bytes().to_vec())),
        ..Service::default()
    };
    let gone = r#"{"sandboxId":"abc1","message":"The sandbox was not found","code":502}"#;
    program("502 Bad Gateway", gone)
        .fails(Reason::Failed, "the sandbox is gone")
        .await;
    program("200 OK\r\nContent-Type: text/html", "<html>")
        .fails(Reason::Failed, "another type")
        .await;
    let missing = r#"{"code":"invalid_argument","message":"exec: python3: not found"}"#;
    program("400 Bad Request", missing)
        .fails(Reason::NotFound, "exec: python3: not found")
        .await;
    Service {
        program: Some((STREAM, stream(&[END]))),
        ..Service::default()
    }
    .fails(Reason::Failed, "does not begin with its start")
    .await;
    // One that asks for a token, and gets none, is killed at once.
    let open = Service {
        create: Some(("201 Created", r#"{"sandboxID":"abc1"}"#)),
        ..Service::default()
    };
    let (result, requests) = open.run(python()).await;
    assert!(result.unwrap_err().message.contains("no token"));
    assert!(requests[1].starts_with("DELETE /sandboxes/abc1 "), "{requests:?}");
}

#[tokio::test]
async fn a_service_that_fails_while_a_program_runs_makes_its_end_unknown() {
    let program = |body: Vec<u8>| Service {
        program: Some((STREAM, body)),
        ..Service::default()
    };
    let started = || framed(START.as_bytes());
    program(started()).breaks("the sandbox is gone").await;
    let half = [started(), END.as_bytes()[..9].to_vec()].concat();
    program(half).breaks("longer than 1 MiB").await;
    program([started(), vec![0, 0xff, 0, 0, 0]].concat())
        .breaks("longer than 1 MiB")
        .await;
    program([started(), vec![1, 0, 0, 0, 0]].concat())
        .breaks("compressed")
        .await;
    program([started(), framed(b"[]")].concat())
        .breaks("not JSON of its kind")
        .await;
    program(stream(&[START])).breaks("ended before its process").await;
    let error = br#"{"error":{"code":"unavailable","message":"host lost"}}"#;
    let mut last = framed(error);
    last[0] = 2;
    program([started(), last].concat()).breaks("host lost").await;
    let unclear = r#"{"event":{"end":{"status":"who knows"}}}"#;
    program(stream(&[START, unclear]))
        .breaks("does not say how the program ended")
        .await;
}

#[tokio::test]
async fn output_without_end_is_kept_within_bounds_and_ends_in_time() {
    let service = Service {
        endless: true,
        ..Service::default()
    };
    let limits = Limits {
        timeout: Timeout::try_from(0.3).unwrap(),
        ..Limits::DEFAULT
    };
    let request = Request { limits, ..python() };
    let (result, requests) = service.run(request).await;
    let result = result.unwrap();
    assert_eq!((result.meta.outcome, result.exit_code), (Outcome::TimedOut, -1));
    assert!(result.meta.truncated && result.stdout.len() < 11 * 1024);
    assert!(requests.last().unwrap().starts_with("DELETE"), "{requests:?}");
}

#[tokio::test]
async fn a_sandbox_that_may_live_on_is_told() {
    let left = |program| Service {
        kill: Some("500 Broken"),
        program,
        ..Service::default()
    };
    let (result, _) = left(None).run(python()).await;
    let warnings = result.unwrap().meta.warnings;
    assert!(warnings[0].contains("may live on for 210 s"), "{warnings:?}");
    let (result, _) = left(Some(("500 Broken", Vec::new()))).run(python()).await;
    let error = result.unwrap_err();
    assert!(
        error.message.contains("the status 500; the sandbox may live on"),
        "{error}"
    );
}

/// A caller that is gone before the answer leaves nothing behind.
#[tokio::test]
async fn a_run_that_nobody_waits_for_is_killed() {
    let begun = Arc::new(tokio::sync::Notify::new());
    let (heard, seen) = (Arc::clone(&begun), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let service = Service {
        endless: true,
        ..Service::default()
    };
    let server = Server::start(move |request| {
        let line = request.lines().next().unwrap_or_default().to_owned();
        noted.lock().unwrap().push(line);
        if request.contains("main.py") && request.contains("Start") {
            heard.notify_one();
        }
        service.answer(request)
    })
    .await;
    let cloud = Cloud::new(Ok(settings(server.port)), Vec::new());
    tokio::select! {
        result = async { cloud.run(&python(), Fence::Default, None, Connection::none()).await } => {
            panic!("{result:?}");
        }
        () = begun.notified() => {}
    }
    cloud.close().await;
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen.last().unwrap(),
        "DELETE /sandboxes/abc1 HTTP/1.1",
        "{seen:?}"
    );
}

/// Neither the key nor any code goes to a server that cannot prove its name.
#[tokio::test]
async fn a_service_of_another_name_gets_nothing() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let local = || {
        let mut params: CertificateParams = leaf(&[]);
        let address = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
        params.subject_alt_names.push(address);
        params
    };
    let of = async |authority: &Authority, params: &CertificateParams| {
        let service = Service::default();
        Server::secure(authority.acceptor(params), move |request| service.answer(request)).await
    };
    let run = async |server: &Server| {
        let base: BaseUrl = format!("https://127.0.0.1:{}", server.port).parse().unwrap();
        let settings = Settings {
            api: base.clone(),
            sandboxes: Sandboxes::At(base),
            trust: Arc::new(Trust::new(Some(ours.file()))),
            ..settings(server.port)
        };
        let cloud = Cloud::new(Ok(settings), Vec::new());
        cloud
            .run(&python(), Fence::Default, None, Connection::none())
            .await
    };
    let good = of(&ours, &local()).await;
    assert_eq!(run(&good).await.unwrap().stdout, "hi\n");
    for (authority, params, part) in [
        (&theirs, local(), "unknown authority"),
        (&ours, leaf(&["other.test"]), "another host"),
    ] {
        let bad = of(authority, &params).await;
        let error = run(&bad).await.unwrap_err();
        assert!(
            error.reason == Reason::Unavailable && error.message.contains(part),
            "{error}"
        );
        let requests = bad.requests();
        assert!(requests.iter().all(|request| request == "no tls"), "{requests:?}");
    }
}

/// The clock runs ahead as soon as everybody waits.
#[tokio::test(start_paused = true)]
async fn a_service_that_says_nothing_is_unreachable() {
    let server = Server::start(|_| Reply::Silence).await;
    let cloud = Cloud::new(Ok(settings(server.port)), Vec::new());
    let request = python();
    let run = cloud.run(&request, Fence::Default, None, Connection::none());
    let error = run.await.unwrap_err();
    assert_eq!(error.reason, Reason::Unavailable, "{error}");
    assert!(error.message.contains("in time"), "{error}");
}

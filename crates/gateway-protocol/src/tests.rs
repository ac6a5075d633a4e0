//! Tests of gateways on a socket, with requests of a library.

use std::path::PathBuf;
use std::time::Duration;

use ringfence_policy::{Scope, Timeout};
use ringfence_records::approval::{Chat, CommandContext, Decision, Error, Kind, Lasting, Question, Service};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::{Client, FromGateway, FromServer, Link, LinkEvent, Listener, ReadTimeout};

/// A listener that serves until dropped.
struct Served {
    dir: TempDir,
    service: Service,
    tasks: JoinSet<()>,
}

impl Served {
    fn new(patience: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let service = Service::at(dir.path());
        let listener = Listener::bind(&dir.path().join("gateway.sock"), ReadTimeout(patience)).unwrap();
        let (mut tasks, own) = (JoinSet::new(), service.clone());
        tasks.spawn(async move { listener.serve(&own, std::future::pending()).await });
        Self { dir, service, tasks }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("gateway.sock")
    }

    async fn client(&self) -> Client {
        Client::connect(&self.socket()).await.unwrap()
    }

    fn ask(&self, text: String, scope: usize) -> JoinSet<Result<Decision, Error>> {
        // Another process's view of the store.
        let (service, mut asking) = (Service::at(self.dir.path()), JoinSet::new());
        let question = Question {
            kind: Kind::Command {
                reasons: vec!["unknown".to_owned()],
                risk: Some(8),
                lasting: Lasting::Never,
                place: CommandContext::default(),
            },
            text,
            scope: format!("u{scope}").parse().unwrap(),
            session: None,
            chat: Chat::local(),
            patience: Timeout::seconds(300),
        };
        asking.spawn(async move { service.ask(question).await });
        asking
    }
}

async fn request(client: &mut Client) -> super::RequestWords {
    match client.next().await.unwrap() {
        Some(FromServer::ApprovalRequest(words)) => words,
        other => panic!("no request: {other:?}"),
    }
}

#[tokio::test]
async fn a_question_goes_out_and_its_answer_comes_back() {
    let served = Served::new(Duration::from_secs(10));
    let mut asking = served.ask("apt upgrade -y".to_owned(), 0);
    let mut client = served.client().await;
    let words = request(&mut client).await;
    assert_eq!(
        (words.command.as_str(), words.risk_score),
        ("apt upgrade -y", Some(8))
    );
    assert!(words.timeout <= 300 && words.timeout > 200, "{}", words.timeout);
    assert_eq!(words.remember, ["once", "session"]);
    let answer = FromGateway::ApprovalResponse {
        id: words.id.clone(),
        approved: true,
        chat_id: None,
        digest: None,
        remember: Default::default(),
        by: Some("ann".to_owned()),
    };
    client.say(&answer).await.unwrap();
    let expected = FromServer::ApprovalClosed {
        id: words.id,
        outcome: "approved".to_owned(),
        by: Some("ann".to_owned()),
    };
    assert_eq!(client.next().await.unwrap(), Some(expected));
    let decision = asking.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(decision, Decision::Approved { by: "ann".to_owned() });
}

#[tokio::test]
async fn a_gateway_that_never_reads_is_left_and_holds_up_nobody() {
    let served = Served::new(Duration::from_millis(100));
    let mut deaf = UnixStream::connect(served.socket()).await.unwrap();
    let mut asking = Vec::new();
    // Far more than a socket buffer holds.
    for number in 0..100 {
        asking.push(served.ask("\u{1}".repeat(10_000), number));
    }
    let mut client = served.client().await;
    for _ in 0..asking.len() {
        request(&mut client).await;
    }
    // Until it is disconnected, the gateway that does not read counts as one that can ask.
    let mut heard = Vec::new();
    let mut changes = served.service.changes();
    drop(client);
    while served
        .service
        .is_heard(&Chat::local(), &Scope::local())
        .await
        .unwrap()
    {
        changes.next().await.unwrap();
    }
    deaf.read_to_end(&mut heard).await.unwrap();
    let lines = heard.iter().filter(|byte| **byte == b'\n').count();
    assert!(lines < asking.len(), "{lines}");
}

#[tokio::test]
async fn a_notice_is_told_to_one_who_comes_later_and_not_twice() {
    let served = Served::new(Duration::from_secs(10));
    served
        .service
        .notify(&Chat::local(), "ran `uptime`")
        .await
        .unwrap();
    let mut client = served.client().await;
    let told = client.next().await.unwrap();
    assert!(
        matches!(&told, Some(FromServer::Message { chat_id, text, time: Some(time) })
            if chat_id == "local" && text == "ran `uptime`" && time.ends_with('Z')),
        "{told:?}"
    );
    // A notice is recorded as delivered before the next message is sent.
    let asking = served.ask("x".to_owned(), 0);
    request(&mut client).await;
    let mut later = served.client().await;
    assert_eq!(request(&mut later).await.command, "x");
    drop(asking);
    assert_eq!(served.tasks.len(), 1);
}

#[tokio::test]
async fn a_link_finds_the_next_server_and_is_told_what_waits() {
    let mut served = Served::new(Duration::from_secs(10));
    let mut link = Link::new(served.socket(), &["local".to_owned()].into(), "phone");
    assert!(matches!(link.next().await, LinkEvent::Connected));
    let _asking = served.ask("x".to_owned(), 0);
    assert!(matches!(link.next().await, LinkEvent::Said(_)));
    served.tasks.shutdown().await;
    assert!(matches!(link.next().await, LinkEvent::Gone));
    let hello = FromGateway::Hello {
        version: 1,
        chats: None,
        name: None,
    };
    assert!(!link.say(&hello).await);
    assert!(matches!(link.next().await, LinkEvent::Unreachable(_)));
    let listener = Listener::bind(&served.socket(), ReadTimeout::default()).unwrap();
    let service = served.service.clone();
    served
        .tasks
        .spawn(async move { listener.serve(&service, std::future::pending()).await });
    assert!(matches!(link.next().await, LinkEvent::Connected));
    let LinkEvent::Said(said) = link.next().await else {
        panic!("nothing is said");
    };
    assert!(matches!(*said, FromServer::ApprovalRequest(words) if words.command == "x"));
}

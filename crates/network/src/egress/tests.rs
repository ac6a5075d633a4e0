//! Tests the guard: allowed connections, and silence towards denied hosts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::*;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn policy(allowed: &str, private: &[&str]) -> EgressPolicy {
    EgressPolicy {
        allowed: vec![allowed.parse().unwrap()],
        private_networks: private.iter().map(|range| range.parse().unwrap()).collect(),
    }
}

fn table(rows: &[(&str, &[&str])]) -> Resolver {
    let rows: BTreeMap<String, Vec<IpAddr>> = rows
        .iter()
        .map(|(name, addresses)| {
            (
                (*name).to_owned(),
                addresses.iter().map(|a| a.parse().unwrap()).collect(),
            )
        })
        .collect();
    Resolver::fixed(move |name| rows.get(name.as_str()).cloned().unwrap_or_default())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Returns `true` if a connection is pending at the listener. On loopback, it is pending before `connect`
/// returns.
fn visited(listener: TcpListener) -> bool {
    let listener = listener.into_std().unwrap();
    listener.accept().is_ok()
}

#[tokio::test]
async fn reaches_a_private_address_only_if_its_range_is_open() {
    for text in ["a.test", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let (listener, port) = listener().await;
        let names = table(&[("a.test", &["127.0.0.1"])]);
        let allowed = format!("{text}:{port}");

        let closed = Guard::new(policy(&allowed, &[]), names.clone());
        let log = AttemptLog::default();
        let refusal = closed.connect(&host(text), port, soon(), &log).await.unwrap_err();
        assert!(
            matches!(refusal, ConnectError::Refused(Refusal::Address { .. })),
            "{refusal}"
        );
        assert_eq!(log.attempts()[0].address, Some(LOCAL));

        let open = Guard::new(policy(&allowed, &["127.0.0.0/8"]), names);
        let stream = open.connect(&host(text), port, soon(), &log).await.unwrap();
        assert_eq!(stream.stream().peer_addr().unwrap().ip(), LOCAL);
        assert_eq!(log.attempts()[1].verdict, Verdict::Connected);

        // The only connection is ours; there was none before it.
        let (_, from) = listener.accept().await.unwrap();
        assert_eq!(from, stream.stream().local_addr().unwrap());
        assert!(!visited(listener), "{text}");
    }
}

#[tokio::test]
async fn a_name_that_is_not_allowed_is_not_even_looked_up() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let names = Resolver::fixed(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        vec![LOCAL]
    });
    let (listener, port) = listener().await;
    let guard = Guard::new(policy(&format!("a.test:{port}"), &["127.0.0.0/8"]), names);
    let log = AttemptLog::default();
    for (name, at) in [("secret.evil.test", port), ("a.test", 22)] {
        let refusal = guard.connect(&host(name), at, soon(), &log).await.unwrap_err();
        assert!(matches!(refusal, ConnectError::Refused(_)), "{refusal}");
    }
    assert_eq!(lookups.load(Ordering::SeqCst), 0);
    assert!(!visited(listener));
    let lines: Vec<String> = log.attempts().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            format!(
                "secret.evil.test:{port} refused: no pattern of the allowed hosts names secret.evil.test"
            ),
            format!("a.test:22 refused: `a.test:{port}` allows a.test, but not at port 22"),
        ]
    );
}

#[tokio::test]
async fn one_bad_address_among_good_ones_refuses_the_host() {
    let (listener, port) = listener().await;
    let guard = |private: &[&str]| {
        Guard::new(
            policy(&format!("a.test:{port}"), private),
            table(&[("a.test", &["127.0.0.1", "127.0.0.1", "10.0.0.1"])]),
        )
    };
    let log = AttemptLog::default();
    let refusal = guard(&["127.0.0.0/8"])
        .connect(&host("a.test"), port, soon(), &log)
        .await;
    assert!(matches!(
        refusal,
        Err(ConnectError::Refused(Refusal::Address { .. }))
    ));
    assert!(!visited(listener));
}

/// DNS rebinding: a public address for the check, a private one for the connection.
#[tokio::test]
async fn a_name_that_changes_its_address_is_connected_to_where_it_was_checked() {
    let (listener, port) = listener().await;
    let answers = Mutex::new(vec!["10.0.0.1", "127.0.0.1"]);
    let names = Resolver::fixed(move |_| {
        let next = answers.lock().unwrap().pop();
        next.map(|text| text.parse().unwrap()).into_iter().collect()
    });
    let guard = Guard::new(policy(&format!("a.test:{port}"), &["127.0.0.0/8"]), names);
    let log = AttemptLog::default();
    let stream = guard.connect(&host("a.test"), port, soon(), &log).await.unwrap();
    assert_eq!(stream.stream().peer_addr().unwrap().ip(), LOCAL);
    let refusal = guard.connect(&host("a.test"), port, soon(), &log).await;
    assert!(matches!(refusal, Err(ConnectError::Refused(_))));
    drop(listener);
}

#[tokio::test]
async fn metadata_is_refused_by_every_name() {
    let addresses = [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "64:ff9b::a9fe:a9fe",
    ];
    for address in addresses {
        let guard = Guard::new(
            policy("*", &["169.254.0.0/16", "fd00::/8"]),
            table(&[("metadata.test", &[address])]),
        );
        let log = AttemptLog::default();
        for name in ["metadata.test", address] {
            let refusal = guard.connect(&host(name), 80, soon(), &log).await.unwrap_err();
            let text = refusal.to_string();
            assert!(text.contains("metadata service"), "{name}: {text}");
        }
    }
}

#[tokio::test]
async fn tells_what_kept_it_from_connecting() {
    // Bound, so that no other process listens there, but not listening.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(SocketAddr::new(LOCAL, 0)).unwrap();
    let port = closed.local_addr().unwrap().port();
    let allowed = policy(&format!("*:{port}"), &["127.0.0.0/8"]);
    let names = table(&[("closed.test", &["127.0.0.1", "127.0.0.1"])]);
    let guard = Guard::new(allowed, names);
    let log = AttemptLog::default();
    let connect = async |name: &str, deadline| {
        guard
            .connect(&host(name), port, deadline, &log)
            .await
            .unwrap_err()
    };
    let missing = connect("missing.test", soon()).await;
    assert_eq!(missing, ConnectError::NotFound(host("missing.test")));
    let closed = connect("closed.test", soon()).await;
    assert_eq!(closed, ConnectError::Unreachable(host("closed.test"), port));
    let verdicts: Vec<Verdict> = log.attempts().into_iter().map(|a| a.verdict).collect();
    assert_eq!(
        verdicts,
        [Verdict::NotFound, Verdict::Unreachable, Verdict::Unreachable]
    );
}

#[tokio::test]
async fn goes_on_to_the_next_address() {
    let (listener, port) = listener().await;
    // Bound, but not listening.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(SocketAddr::from(([127, 0, 0, 2], port))).unwrap();
    let names = table(&[("a.test", &["127.0.0.2", "127.0.0.1"])]);
    let guard = Guard::new(policy(&format!("a.test:{port}"), &["127.0.0.0/8"]), names);
    let log = AttemptLog::default();
    let stream = guard.connect(&host("a.test"), port, soon(), &log).await.unwrap();
    assert_eq!(stream.stream().peer_addr().unwrap().ip(), LOCAL);
    assert!(visited(listener));
}

#[tokio::test]
async fn looks_names_up_as_the_system_does() {
    let (listener, port) = listener().await;
    let guard = Guard::new(
        policy(&format!("localhost:{port}"), &["127.0.0.0/8", "::1"]),
        Resolver::system(),
    );
    let log = AttemptLog::default();
    guard
        .connect(&host("localhost"), port, soon(), &log)
        .await
        .unwrap();
    assert!(visited(listener));
}

#[tokio::test]
async fn new_rules_close_what_they_deny_and_judge_what_is_being_made() {
    let (listener, port) = listener().await;
    let replaced = Arc::new(OnceLock::<Arc<Guard>>::new());
    let late = Arc::clone(&replaced);
    let allow = move |names: &[&str]| EgressPolicy {
        allowed: names
            .iter()
            .map(|name| format!("{name}:{port}").parse().unwrap())
            .collect(),
        private_networks: vec!["127.0.0.0/8".parse().unwrap()],
    };
    // Whoever resolves this name has the rules replaced before the answer.
    let names = Resolver::fixed(move |name| {
        if let ("late.test", Some(guard)) = (name.as_str(), late.get()) {
            guard.replace(allow(&["kept.test"]));
        }
        vec![LOCAL]
    });
    let guard = Arc::new(Guard::new(allow(&["kept.test", "cut.test", "late.test"]), names));
    replaced.set(Arc::clone(&guard)).unwrap();
    let log = AttemptLog::default();
    let connect = async |name: &str| guard.connect(&host(name), port, soon(), &log).await;
    let (mut kept, mut cut) = (
        connect("kept.test").await.unwrap(),
        connect("cut.test").await.unwrap(),
    );
    let (mut of_kept, _) = listener.accept().await.unwrap();
    let (mut of_cut, _) = listener.accept().await.unwrap();
    // Its first half has been received, and its reader waits for the second.
    of_cut.write_all(b"half").await.unwrap();
    cut.read_exact(&mut [0; 4]).await.unwrap();
    let mut byte = [0];
    let (ended, refused) = tokio::join!(cut.read(&mut byte), connect("late.test"));
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
    assert_eq!(
        cut.write(b"x").await.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionAborted
    );
    assert_eq!(of_cut.read(&mut byte).await.unwrap(), 0);
    // It was made, and nothing was sent on it.
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, ConnectError::Refused(Refusal::Host { .. })),
        "{refused}"
    );
    let (mut of_late, _) = listener.accept().await.unwrap();
    assert_eq!(of_late.read(&mut byte).await.unwrap(), 0);
    connect("cut.test").await.unwrap_err();
    // What is still allowed goes on.
    kept.write_all(b"k").await.unwrap();
    of_kept.read_exact(&mut byte).await.unwrap();
    of_kept.write_all(b"k").await.unwrap();
    kept.read_exact(&mut byte).await.unwrap();
    guard.replace(allow(&["cut.test"]));
    connect("cut.test").await.unwrap();
    assert_eq!(of_kept.read(&mut byte).await.unwrap(), 0);
}

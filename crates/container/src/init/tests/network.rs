//! Tests guests with a network: reachable hosts, and recorded attempts.

use ringfence_network::egress::{NetworkSettings, Outlet, Resolver};
use ringfence_network::fetch::Trust;
use ringfence_policy::{EgressFacts, EgressPolicy};
use ringfence_testing::server::{Reply, Server};

use super::*;

/// Builds an outlet that leads only to this port of this machine.
fn outlet(port: u16) -> Outlet {
    let policy = EgressPolicy {
        allowed: vec![format!("127.0.0.1:{port}").parse().unwrap()],
        private_networks: vec!["127.0.0.1".parse().unwrap()],
    };
    let settings = NetworkSettings {
        resolver: Resolver::fixed(|_| Vec::new()),
        trust: Arc::new(Trust::default()),
        injections: Vec::new(),
    };
    Outlet::new(&policy, &settings)
}

impl Container {
    async fn run_out(&self, request: &Request, outlet: &Outlet) -> Finished {
        let start = start(request, "/tmp", false).unwrap();
        let keep = request.limits.max_output;
        let running = self
            .init
            .run_through(start, keep, Connection::none(), Some(outlet));
        running.await.unwrap()
    }
}

fn told(facts: &EgressFacts) -> Vec<String> {
    facts.attempts.iter().map(ToString::to_string).collect()
}

const FETCH: &str = "import sys, urllib.request as r\nprint(r.urlopen(sys.argv[1]).read().decode())";

#[tokio::test]
async fn each_call_reaches_what_is_allowed_and_its_own_attempts_are_told() {
    let server = Server::start(|_| Reply::text("200 OK", "hello")).await;
    let container = Container::new().await;
    container.warm().await;
    let (url, port) = (format!("http://127.0.0.1:{}/", server.port), server.port);
    let with = |request: Request, url: &str| Request {
        args: vec![url.to_owned()],
        ..request
    };
    let (first, second) = (outlet(port), outlet(port));
    let curl = bash("curl --silent --show-error --write-out ' %{http_code}\\n' \"$1\"");
    let (good, bad) = (with(python(FETCH), &url), with(curl, "http://evil.test/"));
    let (python, curl) = tokio::join!(container.run_out(&good, &first), container.run_out(&bad, &second));
    ended(&python, 0, "hello\n");
    assert!(python.warm);
    assert!(curl.stdout.text.ends_with(" 403\n"), "{curl:?}");
    assert_eq!(told(&first.facts()), [format!("127.0.0.1:{port} connected")]);
    assert_eq!(second.facts().attempts[0].verdict, "refused");
    // Without a network nothing listens, with or without a proxy variable.
    let look = "import socket, os\nprint([n for n in os.environ if 'PROXY' in n.upper()])\n\
                try: socket.create_connection(('127.0.0.1', 3128))\nexcept OSError as e: print(type(e).__name__)";
    ended(
        &container.run(&super::python(look)).await,
        0,
        "[]\nConnectionRefusedError\n",
    );
}

#[tokio::test]
async fn much_goes_both_ways_at_once_and_slow_readers_hold_up_only_themselves() {
    let length = 3 << 20;
    let server = Server::start(move |request| {
        assert!(request.len() > length);
        Reply::text("200 OK", &"y".repeat(length))
    })
    .await;
    let container = Container::new().await;
    let code = format!(
        "import concurrent.futures as c, urllib.request as r\n\
         def ask(n): return len(r.urlopen('http://127.0.0.1:{}/', data=b'x' * {length}).read())\n\
         print(set(c.ThreadPoolExecutor(8).map(ask, range(16))))",
        server.port
    );
    let outlet = outlet(server.port);
    let finished = container.run_out(&python(&code), &outlet).await;
    ended(&finished, 0, &format!("{{{length}}}\n"));
    assert_eq!(outlet.facts().attempts.len(), 16);
}

#[tokio::test]
async fn a_call_that_ends_takes_its_connections_along_and_others_go_on() {
    let server = Server::start(|_| Reply::text("200 OK", "hello")).await;
    let container = Container::new().await;
    let outlet = outlet(server.port);
    // More idle connections than may be open, and then all are closed at once.
    let many = "import os, socket\nfrom urllib.parse import urlsplit\np = urlsplit(os.environ['RINGFENCE_PROXY'])\n\
                all = []\nfor _ in range(100):\n s = socket.socket(); s.setblocking(False)\n \
                s.connect_ex((p.hostname, p.port)); all.append(s)\nprint(len(all))";
    ended(&container.run_out(&python(many), &outlet).await, 0, "100\n");
    assert_eq!(outlet.facts().attempts.len(), 0);
    let fetch = Request {
        args: vec![format!("http://127.0.0.1:{}/", server.port)],
        ..python(FETCH)
    };
    ended(&container.run_out(&fetch, &outlet).await, 0, "hello\n");
}

#[tokio::test]
async fn what_a_caller_has_set_holds() {
    let container = Container::new().await;
    let code = "import os\nprint(sorted((n, v) for n, v in os.environ.items() if 'PROXY' in n.upper()))";
    let request = Request {
        env: ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NODE_USE_ENV_PROXY"]
            .into_iter()
            .flat_map(|name| [name.to_owned(), name.to_lowercase()])
            .map(|name| (name.parse().unwrap(), "mine".to_owned()))
            .collect(),
        ..python(code)
    };
    let finished = container.run_out(&request, &outlet(1)).await;
    let text = &finished.stdout.text;
    assert_eq!(text.matches("'mine'").count(), 8, "{text}");
    assert!(
        text.contains("('RINGFENCE_PROXY', 'http://127.0.0.1:3128')"),
        "{text}"
    );
}

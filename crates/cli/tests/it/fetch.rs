//! `http_fetch` through `ringfence tool`, against servers on this machine.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::tools::Tools;

/// A server that gives one response to all requests, and counts them.
struct Server {
    port: u16,
    visits: Arc<AtomicUsize>,
}

impl Server {
    fn new(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let visits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&visits);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                if answer.is_empty() {
                    // Never answers, and keeps the connection open.
                    std::mem::forget(stream);
                    continue;
                }
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { port, visits }
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }

    /// Returns a configuration that allows this server.
    fn allowed(&self) -> String {
        format!(
            "[egress]\nallowed_hosts = ['127.0.0.1:{}']\nprivate_networks = ['127.0.0.0/8']",
            self.port
        )
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/page", self.port)
    }
}

const PAGE: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Seen: yes\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn a_page_of_an_allowed_host_comes_back() {
    let server = Server::new(PAGE);
    let tools = Tools::new(&server.allowed());
    let page = tools.ask("http_fetch", json!({"url": server.url()}));
    assert_eq!(
        (&page["status"], &page["body"]),
        (&json!(200), &json!("hello")),
        "{page}"
    );
    assert_eq!(page["headers"]["x-seen"], "yes");
    assert_eq!(server.visits(), 1);
    // Every attempt is in the audit log, allowed or denied.
    tools.refused("http_fetch", json!({"url": "http://elsewhere.example/"}));
    let log = tools.dir.run(["audit", "tail", "--json"]);
    let [first, second] = log.ok().lines().collect::<Vec<_>>()[..] else {
        panic!("{log:?}")
    };
    let connected = format!(
        "\"attempts\":[\"127.0.0.1:{} connected (127.0.0.1)\"]",
        server.port
    );
    assert!(first.contains(&connected), "{first}");
    assert!(
        second.contains("\"attempts\":[\"elsewhere.example:80 refused: "),
        "{second}"
    );
}

#[test]
fn whatever_was_not_allowed_is_never_connected_to() {
    let server = Server::new(PAGE);
    let port = server.port;
    let url = server.url();
    let arguments = json!({"url": url});
    // No allowlist; this host in it, but with a private address; an allowed address, but another host.
    for config in [
        String::new(),
        format!("[egress]\nallowed_hosts = ['*', '127.0.0.1:{port}', 'localhost:{port}']"),
        "[egress]\nallowed_hosts = ['example.com']\nprivate_networks = ['127.0.0.0/8']".to_owned(),
        // The right host at another port.
        "[egress]\nallowed_hosts = ['127.0.0.1:1']\nprivate_networks = ['127.0.0.0/8']".to_owned(),
    ] {
        let refused = Tools::new(&config).refused("http_fetch", arguments.clone());
        assert_eq!(
            (refused.kind.as_str(), refused.status),
            ("permission_denied", 125),
            "{config}"
        );
    }
    // A project's own file allows nothing.
    let tools = Tools::new("");
    tools.dir.write("work/ringfence.toml", server.allowed());
    assert_eq!(tools.refused("http_fetch", arguments).kind, "permission_denied");
    let tools = Tools::new("[egress]\nallowed_hosts = ['*']");
    for host in [
        "localhost",
        "2130706433",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "127.1",
    ] {
        let refused = tools.refused("http_fetch", json!({"url": format!("http://{host}:{port}/")}));
        let kind = refused.kind.as_str();
        assert!(
            ["permission_denied", "invalid_arguments"].contains(&kind),
            "{host}: {kind}"
        );
    }
    assert_eq!(server.visits(), 0);
}

#[test]
fn a_redirect_is_checked_like_the_first_request() {
    let hidden = Server::new(PAGE);
    let to: &'static str = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{}/\r\nContent-Length: 0\r\n\r\n",
        hidden.port
    )
    .leak();
    let server = Server::new(to);
    let refused = Tools::new(&server.allowed()).refused("http_fetch", json!({"url": server.url()}));
    assert_eq!(refused.kind, "permission_denied");
    assert_eq!((server.visits(), hidden.visits()), (1, 0));
}

#[test]
fn a_server_that_never_answers_meets_the_kernels_deadline() {
    let server = Server::new("");
    let config = format!(
        "{}\n[permissions.tool_limits]\nhttp_timeout_secs = 0.5",
        server.allowed()
    );
    for timeout in [json!(null), json!("200ms"), json!(100)] {
        let arguments = json!({"url": server.url(), "timeout": timeout});
        let refused = Tools::new(&config).refused("http_fetch", arguments);
        assert_eq!(
            (refused.kind.as_str(), refused.status),
            ("timeout", 124),
            "{}",
            refused.message
        );
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let tools = Tools::new("[egress]\nallowed_hosts = ['*']");
    for arguments in [
        json!({"url": "file:///etc/passwd"}),
        json!({"url": "ftp://example.com/"}),
        json!({"url": "http://user:password@example.com/"}),
        json!({"url": "http://exa\u{0}mple.com/"}),
        json!({"url": "http://example.com/\r\nX: y"}),
        json!({"url": "nonsense"}),
        json!({"url": "http://example.com/", "method": "CONNECT"}),
        json!({"url": "http://example.com/", "headers": {"Host": "other"}}),
        json!({"url": "http://example.com/", "headers": {"X": "a\r\nY: b"}}),
        json!({"url": "http://example.com/", "body": "x"}),
    ] {
        assert_eq!(
            tools.refused("http_fetch", arguments.clone()).kind,
            "invalid_arguments",
            "{arguments}"
        );
    }
    let wrong = Tools::new("[egress]\nallowed_hosts = ['http://example.com/']");
    wrong
        .dir
        .run(["tool", "--list"])
        .refused(2, "`egress.allowed_hosts`");
}
